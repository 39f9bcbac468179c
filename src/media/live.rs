//! Kernel and initramfs of a live medium. Each file of the payload is streamed once, straight to its place in them, in
//! the order of the source.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::{self, Read},
    os::unix::fs::FileExt as _,
};

use anyhow::anyhow;

use super::output_file::{OutputFile, OutputFileError};
use crate::{
    error::Failure,
    payload::{SignedList, TEXTS, image::Archive},
    tools::ToolError,
    transfer::{FileReader, PayloadFiles, sha256::Hasher},
};
use slipway_core::{
    digest::{Sha256, Sums},
    kernel::{
        cmdline::bare,
        cpio::{Entry, Newc},
    },
    media::live::{CONTAINER, MAX_INITRAMFS_BYTES, PAYLOAD_DIR},
    payload::{
        facts::PayloadFacts,
        format_checks::InitramfsWatch,
        manifest::{FileInfo, MANIFEST, SHA256SUMS, SHA256SUMS_SIG, version_id},
    },
    units::approx,
};

const CHUNK_BYTES: usize = 256 << 10;
// Zeros behind the payload's own initramfs, at least. Blocks of lz4 have no other end mark: Linux takes what follows fewer zeros
// for one more block, and unpacks nothing of it.
const GAP_BYTES: u64 = 4;

/// Why a live medium was not made. Its name does not exist, or is still the file that it was.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// The payload cannot be read, or has changed since it was examined.
    #[error(transparent)]
    Payload(anyhow::Error),
    /// The container image cannot be read, or has changed.
    #[error(transparent)]
    Container(anyhow::Error),
    #[error("the initramfs would have {}: GRUB cannot load more than {}", approx(*bytes), approx(MAX_INITRAMFS_BYTES))]
    TooLarge { bytes: u64 },
    /// The unified kernel image was not made of them, or not signed.
    #[error("{0}")]
    Unified(Failure),
    #[error(transparent)]
    Tool(#[from] ToolError),
    #[error(transparent)]
    OutputFile(#[from] OutputFileError),
    #[error(
        "{path}: {what}, read back from the disk, is not what was written: the disk is faulty, or another program wrote to it"
    )]
    Differs { path: String, what: String },
}

#[derive(Clone, Copy, Debug)]
pub enum Event<'t> {
    /// The phase that begins, and its number of bytes.
    Phase(&'t str, u64),
    /// More bytes of the phase that are done.
    Bytes(u64),
}

pub struct LiveContents<'a> {
    pub source: &'a dyn PayloadFiles,
    /// Findings of the examination of `source`.
    pub facts: &'a PayloadFacts,
    /// Files of the payload that a live medium starts.
    pub kernel: &'a FileInfo,
    pub initramfs: &'a FileInfo,
    /// The signed part of the payload. Without it the medium gets a list of its own.
    pub signed: Option<SignedList<'a>>,
    /// The installer's container image.
    pub container: Option<&'a Archive>,
    /// More files, with their paths.
    pub more: &'a [(String, Vec<u8>)],
    /// Time of all files, seconds since 1970 UTC.
    pub time: u32,
}

/// Makes a signed unified kernel image of a kernel and an initramfs.
pub type Unify<'a> = dyn Fn(&[u8], &[u8]) -> Result<Vec<u8>, Failure> + 'a;

/// Unifies the content of these regions, with these sizes.
pub fn unified(unify: &Unify, parts: [(Region, u64); 2], target: &OutputFile) -> Result<Vec<u8>, LiveError> {
    let load = |(region, size): (Region, u64)| {
        let mut bytes = Vec::new();
        read(region, 0, size, &mut |more| bytes.extend_from_slice(more)).map_err(|e| target.error(e))?;
        Ok::<_, LiveError>(bytes)
    };
    let [kernel, initramfs] = parts;
    unify(&load(kernel)?, &load(initramfs)?).map_err(LiveError::Unified)
}

/// A file that is being made, or a part of one. Unwritten bytes are zeros.
#[derive(Clone, Copy)]
pub struct Region<'f> {
    pub file: &'f File,
    /// Byte offset in the file where the region begins.
    pub at: u64,
}

impl Region<'_> {
    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, self.at + at)
    }
}

impl LiveContents<'_> {
    /// The number of bytes that [`Self::write`] will write. Kernel and initramfs of the payload count twice.
    pub fn bytes(&self) -> u64 {
        let files = self.facts.files.iter().chain([self.kernel, self.initramfs]);
        let more = self.more.iter().map(|(_, content)| content.len() as u64);
        let sizes = files.map(|file| file.size).chain(self.container.map(Archive::bytes)).chain(more);
        sizes.fold(0, u64::saturating_add)
    }

    /// Refuse a medium that GRUB could not load. Ignores the few KiB of headers and small files.
    pub fn fits(&self) -> Result<(), LiveError> {
        match self.bytes() {
            bytes if bytes > MAX_INITRAMFS_BYTES => Err(LiveError::TooLarge { bytes }),
            _ => Ok(()),
        }
    }

    /// Write kernel and initramfs, and compare the digests of the payload on the way. `advanced` is called with byte
    /// counts.
    pub fn write(
        &self,
        kernel: Region,
        initramfs: Region,
        target: &OutputFile,
        advanced: &mut dyn FnMut(u64),
    ) -> Result<Initramfs, LiveError> {
        self.fits()?;
        let error = |e| LiveError::from(target.error(e));
        let (first, time) = (self.initramfs, self.time);
        let mut to = Builder { region: initramfs, archive: Newc::new(first.size + GAP_BYTES, time), pieces: vec![] };
        to.expect(first, 0);
        to.dirs(PAYLOAD_DIR).map_err(error)?;
        let mut places = BTreeMap::new();
        for file in &self.facts.files {
            let at = to.header(&format!("{PAYLOAD_DIR}/{}", file.name), file.size).map_err(error)?;
            to.expect(file, at);
            places.insert(file.name.as_str(), at);
        }
        let names: Vec<_> = places.keys().copied().chain(TEXTS).collect();
        let mut texts = BTreeMap::new();
        let take = &mut |name: &str, reader: &mut dyn FileReader| {
            let Some(file) = self.facts.files.iter().find(|file| file.name == name) else {
                let mut text = Vec::new();
                reader.read_to_end(&mut text)?;
                texts.insert(name.to_owned(), text);
                return Ok(());
            };
            let mut regions = vec![Region { at: initramfs.at + places[name], ..initramfs }];
            regions.extend((file == self.kernel).then_some(kernel));
            // The kernel unpacks the payload's own initramfs first.
            regions.extend((file == first).then_some(initramfs));
            let mut watch = (file == first).then(InitramfsWatch::default);
            copy(reader, file, &regions, target, &mut |bytes| {
                watch.iter_mut().for_each(|watch| watch.see(bytes));
                advanced((bytes.len() * regions.len()) as u64);
            })?;
            goes_on(&file.name, watch)
        };
        self.source.each(&names, take).map_err(|error| of_source(error, LiveError::Payload))?;
        self.add_checksums(&mut texts)?;
        for (name, text) in texts {
            to.text(&format!("{PAYLOAD_DIR}/{name}"), &text).map_err(error)?;
        }
        let mut made = BTreeSet::new();
        for (path, content) in self.more {
            let dir = path.rsplit_once('/').map_or("", |(dir, _)| dir);
            if made.insert(dir) {
                to.dirs(dir).map_err(error)?;
            }
            to.text(path, content).map_err(error)?;
        }
        if let Some(container) = self.container {
            let begin = to.header(CONTAINER, container.bytes()).map_err(error)?;
            let take = &mut |at: u64, part: &FileInfo, reader: &mut dyn Read| {
                to.expect(part, begin + at);
                let region = Region { at: initramfs.at + begin + at, ..initramfs };
                copy(reader, part, &[region], target, &mut |bytes| advanced(bytes.len() as u64))
            };
            container.each(take).map_err(|error| of_source(error, LiveError::Container))?;
        }
        to.finish().map_err(error)
    }

    // Add the list of `installer checksum`. Check the files that no digest covers.
    fn add_checksums(&self, texts: &mut BTreeMap<String, Vec<u8>>) -> Result<(), LiveError> {
        let text = |name: &str| texts.get(name).map(|bytes| String::from_utf8_lossy(bytes));
        let same = text("cmdline").as_deref().map(bare) == self.facts.cmdline.as_deref()
            && text("os-release").as_deref().and_then(version_id) == self.facts.version;
        if !same {
            let why = "cmdline or os-release of the payload is not what manifest.json says, or changed while it was read; run \
                       `installer checksum` again";
            return Err(LiveError::Payload(anyhow!(why)));
        }
        if let Some(SignedList { sums, manifest, signatures }) = self.signed {
            texts.extend(manifest.map(|manifest| (MANIFEST.to_owned(), manifest.to_vec())));
            // The source was not written since it was compared with the list: each file was compared again.
            texts.insert(SHA256SUMS.to_owned(), sums.to_vec());
            texts.insert(SHA256SUMS_SIG.to_owned(), signatures.to_vec());
            return Ok(());
        }
        let mut sums = Sums(self.facts.files.iter().map(|file| (file.name.clone(), file.sha256)).collect());
        texts.insert(MANIFEST.to_owned(), self.facts.manifest().render().into_bytes());
        sums.0.extend(texts.iter().map(|(name, text)| (name.clone(), Sha256::of(text))));
        texts.insert(SHA256SUMS.to_owned(), sums.render().into_bytes());
        Ok(())
    }
}

// An error while a source was copied is one of the output file, or else of the source.
fn of_source(error: anyhow::Error, source: fn(anyhow::Error) -> LiveError) -> LiveError {
    match error.downcast::<OutputFileError>() {
        Ok(error) => error.into(),
        Err(error) => source(error),
    }
}

/// Checks that Linux unpacks what stands behind this initramfs. The source tells of one that is damaged.
fn goes_on(name: &str, watch: Option<InitramfsWatch>) -> anyhow::Result<()> {
    match watch.is_some_and(|watch| watch.is_stopped() && watch.finish().is_ok()) {
        false => Ok(()),
        true => Err(anyhow!(
            "{name}: behind its archives are bytes of no format, at which Linux stops: it would not unpack what a live medium \
             adds behind them; make it without them"
        )),
    }
}

// Copy a file to several regions at once. Its size and digest must be as expected. `written` gets the bytes.
fn copy(
    reader: &mut dyn Read,
    file: &FileInfo,
    regions: &[Region],
    target: &OutputFile,
    written: &mut dyn FnMut(&[u8]),
) -> anyhow::Result<()> {
    let mut chunk = vec![0; CHUNK_BYTES];
    let (mut at, mut hasher) = (0, Hasher::default());
    // One byte more, to notice a file that is too long.
    let mut reader = reader.take(file.size + 1);
    loop {
        let n = match reader.read(&mut chunk) {
            Ok(n) => n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(anyhow::Error::new(e).context(file.name.clone())),
        };
        if n == 0 {
            break;
        }
        hasher.update(&chunk[..n]);
        if at + n as u64 > file.size {
            break;
        }
        for region in regions {
            region.write(at, &chunk[..n]).map_err(|e| target.error(e))?;
        }
        written(&chunk[..n]);
        at += n as u64;
    }
    let actual = hasher.finish();
    match actual == file.sha256 {
        true => Ok(()),
        false => Err(anyhow!("{}: its SHA-256 is {actual}, not the expected {}", file.name, file.sha256)),
    }
}

#[derive(Clone, Debug)]
struct Piece {
    name: String,
    at: u64,
    size: u64,
    sha256: Sha256,
}

struct Builder<'f> {
    region: Region<'f>,
    archive: Newc,
    pieces: Vec<Piece>,
}

impl Builder<'_> {
    // Record the bytes of another writer at this offset.
    fn expect(&mut self, file: &FileInfo, at: u64) {
        self.pieces.push(Piece { name: file.name.clone(), at, size: file.size, sha256: file.sha256 });
    }

    fn write(&mut self, name: &str, at: u64, bytes: &[u8]) -> io::Result<()> {
        let sha256 = Sha256::of(bytes);
        self.pieces.push(Piece { name: name.to_owned(), at, size: bytes.len() as u64, sha256 });
        self.region.write(at, bytes)
    }

    fn entry(&mut self, name: &str, entry: &Entry) -> io::Result<u64> {
        self.write(name, entry.at, &entry.header)?;
        Ok(entry.content_at)
    }

    // Add a directory and its parents.
    fn dirs(&mut self, path: &str) -> io::Result<()> {
        for end in path.match_indices('/').map(|(at, _)| at).chain([path.len()]) {
            let entry = self.archive.dir(&path[..end]);
            self.entry(&path[..end], &entry)?;
        }
        Ok(())
    }

    // Begin a file, and return the offset of its content.
    fn header(&mut self, path: &str, size: u64) -> io::Result<u64> {
        let size = u32::try_from(size).map_err(|_| io::ErrorKind::FileTooLarge)?;
        let entry = self.archive.file(path, size);
        self.entry(path, &entry)
    }

    fn text(&mut self, path: &str, text: &[u8]) -> io::Result<()> {
        let at = self.header(path, text.len() as u64)?;
        self.write(path, at, text)
    }

    fn finish(mut self) -> io::Result<Initramfs> {
        let (trailer, size) = self.archive.clone().finish();
        self.entry("the end of the archive", &trailer)?;
        // Padding that was never written must still be part of the file.
        let end = self.region.at + size;
        if self.region.file.metadata()?.len() < end {
            self.region.file.set_len(end)?;
        }
        self.pieces.sort_by_key(|piece| piece.at);
        Ok(Initramfs { size, pieces: self.pieces })
    }
}

/// An initramfs that was written, with the digests of its pieces.
pub struct Initramfs {
    /// Bytes.
    pub size: u64,
    pieces: Vec<Piece>,
}

impl Initramfs {
    /// Read it back, compare every piece with its digest, and return the digest of the whole.
    pub fn digest(
        &self,
        region: Region,
        target: &OutputFile,
        advanced: &mut dyn FnMut(u64),
    ) -> Result<Sha256, LiveError> {
        let mut whole = Hasher::default();
        let mut at = 0;
        for piece in &self.pieces {
            // Padding between pieces.
            at += read(region, at, piece.at - at, &mut |bytes| whole.update(bytes)).map_err(|e| target.error(e))?;
            let mut own = Hasher::default();
            let taken = read(region, at, piece.size, &mut |bytes| {
                whole.update(bytes);
                own.update(bytes);
                advanced(bytes.len() as u64);
            });
            at += taken.map_err(|e| target.error(e))?;
            if own.finish() != piece.sha256 {
                let (path, what) = (target.path().display().to_string(), piece.name.clone());
                return Err(LiveError::Differs { path, what });
            }
        }
        read(region, at, self.size - at, &mut |bytes| whole.update(bytes)).map_err(|e| target.error(e))?;
        Ok(whole.finish())
    }
}

/// Digest of the first `size` bytes of a region.
pub fn digest_of(region: Region, size: u64, advanced: &mut dyn FnMut(u64)) -> io::Result<Sha256> {
    let mut hasher = Hasher::default();
    read(region, 0, size, &mut |bytes| {
        hasher.update(bytes);
        advanced(bytes.len() as u64);
    })?;
    Ok(hasher.finish())
}

/// Read `size` bytes at an offset of a region. Returns `size`.
pub fn read(region: Region, at: u64, size: u64, taken: &mut dyn FnMut(&[u8])) -> io::Result<u64> {
    let mut chunk = vec![0; CHUNK_BYTES.min(size as usize)];
    let mut done = 0;
    while done < size {
        let n = (size - done).min(chunk.len() as u64) as usize;
        region.file.read_exact_at(&mut chunk[..n], region.at + at + done)?;
        taken(&chunk[..n]);
        done += n as u64;
    }
    Ok(size)
}
