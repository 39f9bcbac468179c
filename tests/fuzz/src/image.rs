//! Container images in memory: documents, and layers of one payload.

use std::{
    collections::BTreeMap,
    io::{Cursor, Read, Write as _},
    sync::atomic::{AtomicUsize, Ordering},
};

use flate2::{Compression, read::MultiGzDecoder, write::GzEncoder};
use oci_spec::image::Descriptor;
use slipway::{
    payload::{
        ChecksumPolicy, SourceRef,
        image::{Document, ImageError, ImageSource, ImageStore, Inspection},
    },
    transfer::PayloadFiles as _,
};
use slipway_core::{digest::Sha256, kernel::arch::Arch, payload::facts::PayloadFacts};

use super::judge;

/// A store that has everything in memory, and hands out another byte somewhere when it is told to.
#[derive(Clone)]
struct Store {
    root: Document,
    blobs: BTreeMap<String, Vec<u8>>,
    /// Which of the blobs that are handed out is spoiled, counted from 0, and at which byte.
    spoil: Option<(usize, usize)>,
    handed_out: std::sync::Arc<AtomicUsize>,
}

impl Store {
    fn get(&self, descriptor: &Descriptor) -> Result<Vec<u8>, ImageError> {
        let digest = descriptor.digest().to_string();
        let missing = || ImageError::NotFound { what: digest.clone(), hint: String::new() };
        let mut bytes = self.blobs.get(&digest).ok_or_else(missing)?.clone();
        let n = self.handed_out.fetch_add(1, Ordering::Relaxed);
        if let Some((which, at)) = self.spoil
            && which == n
        {
            match bytes.len() {
                0 => bytes.push(0),
                len => bytes[at % len] ^= 1,
            }
        }
        Ok(bytes)
    }

    fn new(root: Document, blobs: impl IntoIterator<Item = Vec<u8>>) -> Self {
        let blobs = blobs.into_iter().map(|bytes| (digest(&bytes), bytes)).collect();
        Store { root, blobs, spoil: None, handed_out: Default::default() }
    }

    /// The same, which lies at one time.
    fn spoiled(&self, which: usize, at: usize) -> Self {
        Store { spoil: Some((which, at)), handed_out: Default::default(), ..self.clone() }
    }

    fn open(self, arch: Arch) -> Result<ImageSource, ImageError> {
        ImageSource::open(Box::new(self), SourceRef::Dir("image".into()), arch)
    }
}

impl ImageStore for Store {
    fn root(&self) -> Result<Document, ImageError> {
        Ok(self.root.clone())
    }

    fn document(&self, descriptor: &Descriptor) -> Result<Vec<u8>, ImageError> {
        self.get(descriptor)
    }

    fn blob(&self, descriptor: &Descriptor) -> Result<Box<dyn Read + Send>, ImageError> {
        Ok(Box::new(Cursor::new(self.get(descriptor)?)))
    }

    fn name(&self) -> String {
        "image".to_owned()
    }
}

fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", Sha256::of(bytes))
}

const ROOT_TYPES: [Option<&str>; 5] = [
    None,
    Some("application/vnd.oci.image.index.v1+json"),
    Some("application/vnd.oci.image.manifest.v1+json"),
    Some("application/vnd.docker.distribution.manifest.list.v2+json"),
    Some("application/vnd.docker.distribution.manifest.v2+json"),
];

/// The input: a byte for the root's media type, then documents divided by zero bytes, the root last. In each, `$N` stands
/// for the digest and `#N` for the size of an earlier one: what a change would break is made good.
pub fn oci(mut bytes: &[u8]) -> bool {
    let media_type = ROOT_TYPES[usize::from(super::take(&mut bytes)) % ROOT_TYPES.len()].map(str::to_owned);
    let mut parts: Vec<Vec<u8>> = Vec::new();
    for part in bytes.split(|b| *b == 0).take(9) {
        parts.push(with_digests(part, &parts));
    }
    let root = Document { media_type, bytes: parts.pop().unwrap_or_default() };
    let store = Store::new(root, parts);
    let mut accepted = false;
    for arch in [Arch::Amd64, Arch::Arm64] {
        store.handed_out.store(0, Ordering::Relaxed);
        let Ok(mut source) = store.clone().open(arch) else { continue };
        accepted = true;
        let asked = store.handed_out.load(Ordering::Relaxed);
        assert!((1..=2).contains(&asked), "a configuration, and a manifest where the root is an index; {asked}");
        let _ = source.bytes();
        for look in [Inspection::Declared, Inspection::Everything] {
            let _ = source.facts(ChecksumPolicy::Compared, look, &mut |_| ());
        }
        for which in 0..asked {
            let opened = store.spoiled(which, bytes.len() / 2).open(arch);
            assert!(opened.is_err(), "document {which} is not what its digest says, and is believed");
        }
    }
    accepted
}

fn with_digests(text: &[u8], parts: &[Vec<u8>]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = text.iter().copied().peekable();
    while let Some(byte) = rest.next() {
        let part = |n: u8| parts.get(usize::from(n.wrapping_sub(b'0')));
        match (byte, rest.peek().copied().and_then(part)) {
            (b'$', Some(part)) => out.extend(digest(part).bytes()),
            (b'#', Some(part)) => out.extend(part.len().to_string().bytes()),
            _ => {
                out.push(byte);
                continue;
            }
        }
        rest.next();
    }
    out
}

/// How the layers of an image are packed, and what is done to them.
struct Flags(u8);

impl Flags {
    fn pack(&self) -> u8 {
        self.0 & 3
    }

    const fn has(&self, bit: u8) -> bool {
        self.0 & bit != 0
    }
}

/// The checksums of tar headers are made right.
const REPAIR: u8 = 4;
/// What checksums says will do for a look.
const DECLARED: u8 = 8;
/// The last layer is cut out of the input's compressed bytes as they are.
const PACKED: u8 = 3;
/// One of the blobs is another when it is read again.
const SPOIL: u8 = 16;
/// Compressed bytes are zstd, else gzip.
const ZSTD: u8 = 32;

/// The input: a byte of flags, where to spoil (two bytes), where the second layer begins (two bytes), and the layers.
pub fn layer(mut bytes: &[u8]) -> bool {
    let flags = Flags(super::take(&mut bytes));
    let (spoil, split) = (super::take_u16(&mut bytes), super::take_u16(&mut bytes));
    // Whole blocks: the second layer of a seed begins at one.
    let (lower, upper) = bytes.split_at((split * 512).min(bytes.len()));
    let layers: Vec<_> = [lower, upper].into_iter().filter(|l| !l.is_empty()).map(|l| Packed::new(l, &flags)).collect();
    let store = image_of(&layers);
    let Ok(source) = store.clone().open(Arch::Amd64) else { panic!("an image of the harness cannot be opened") };
    let accepted = look(source, &layers, &flags);
    if flags.has(SPOIL) {
        // Configuration and manifest come first, then the layers from the uppermost down, once for each pass.
        for which in 1..=2 * layers.len() {
            let Ok(source) = store.spoiled(which, spoil).open(Arch::Amd64) else { continue };
            look(source, &layers, &flags);
        }
    }
    accepted
}

/// A layer as it is stored, and its archive.
struct Packed {
    media_type: &'static str,
    blob: Vec<u8>,
    archive: Vec<u8>,
}

impl Packed {
    fn new(bytes: &[u8], flags: &Flags) -> Self {
        const TYPES: [&str; 3] = ["tar", "tar+gzip", "tar+zstd"];
        let mut archive = bytes.to_vec();
        if flags.has(REPAIR) {
            judge::repair(&mut archive);
        }
        let (kind, blob) = match flags.pack() {
            0 => (0, archive.clone()),
            1 => {
                let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
                encoder.write_all(&archive).unwrap();
                (1, encoder.finish().unwrap())
            }
            2 => (2, zstd::encode_all(&archive[..], 1).unwrap()),
            PACKED.. => {
                // What comes out, as far as it goes.
                archive.clear();
                let (kind, reader): (_, Box<dyn Read>) = if flags.has(ZSTD) {
                    (2, Box::new(zstd::Decoder::new(bytes).unwrap()))
                } else {
                    (1, Box::new(MultiGzDecoder::new(bytes)))
                };
                let _ = reader.take(1 << 20).read_to_end(&mut archive);
                (kind, bytes.to_vec())
            }
        };
        Packed { media_type: TYPES[kind], blob, archive }
    }
}

fn image_of(layers: &[Packed]) -> Store {
    let diff_ids: Vec<_> = layers.iter().map(|l| format!("\"{}\"", digest(&l.archive))).collect();
    let config = format!(
        r#"{{"architecture":"amd64","os":"linux","rootfs":{{"type":"layers","diff_ids":[{}]}}}}"#,
        diff_ids.join(",")
    );
    let descriptor = |media_type: &str, bytes: &[u8]| {
        format!(
            r#"{{"mediaType":"application/vnd.oci.image.{media_type}","digest":"{}","size":{}}}"#,
            digest(bytes),
            bytes.len()
        )
    };
    let described: Vec<_> = layers.iter().map(|l| descriptor(&format!("layer.v1.{}", l.media_type), &l.blob)).collect();
    let manifest = format!(
        r#"{{"schemaVersion":2,"config":{},"layers":[{}]}}"#,
        descriptor("config.v1+json", config.as_bytes()),
        described.join(",")
    );
    let root = Document { media_type: ROOT_TYPES[2].map(str::to_owned), bytes: manifest.into_bytes() };
    Store::new(root, layers.iter().map(|l| l.blob.clone()).chain([config.into_bytes()]))
}

/// Look at an image and read it, as an install does: what is handed out is what the facts say, and what a second reader
/// of archives finds.
fn look(mut source: ImageSource, layers: &[Packed], flags: &Flags) -> bool {
    let look = if flags.has(DECLARED) { Inspection::Declared } else { Inspection::Everything };
    let Ok(facts) = source.facts(ChecksumPolicy::Compared, look, &mut |_| ()) else { return false };
    let names: Vec<_> = facts.files.iter().map(|f| f.name.as_str()).collect();
    assert!(names.iter().all(|name| super::is_plain(name)), "{names:?}");
    assert!(facts.files.iter().all(|f| f.size > 0));
    // With no name wanted everything is compared as it passes; wanted, the one who writes it compares.
    let whole = source.each(&[], &mut |name, _| panic!("{name} was not asked for"));
    let mut taken = BTreeMap::new();
    let handed = source.each(&names, &mut |name, reader| {
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes)?;
        assert!(taken.insert(name.to_owned(), bytes).is_none(), "{name} is handed out twice");
        Ok(())
    });
    if handed.is_ok() {
        compare(&facts, &taken, look);
    }
    if whole.is_ok() && handed.is_ok() {
        judge::payload(&facts, layers.iter().map(|l| &l.archive[..]));
    }
    handed.is_ok()
}

fn compare(facts: &PayloadFacts, taken: &BTreeMap<String, Vec<u8>>, look: Inspection) {
    assert_eq!(taken.len(), facts.files.len());
    for file in &facts.files {
        let bytes = &taken[&file.name];
        assert_eq!(bytes.len() as u64, file.size, "{}", file.name);
        if look == Inspection::Everything {
            assert_eq!(Sha256::of(bytes), file.sha256, "{} is handed out, and is another", file.name);
        }
    }
}
