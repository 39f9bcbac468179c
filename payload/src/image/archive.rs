//! Writes one image as an OCI archive: an OCI layout in a tar archive.
//!
//! All offsets are known before the first layer is read, so the archive can be streamed into the middle of a file. The
//! same image gives the same bytes from any store.

use std::{collections::BTreeSet, io::Read};

use oci_spec::image::{Descriptor, MediaType};

use super::{
    ImageError, ImageStore, chunks,
    layout::{descriptor_of, empty_index},
    names::REF_NAME,
    pull::manifest_descriptor,
    resolve::{Resolved, resolve},
    signatures::{self, AllBeside, Beside},
    store::sha256_of,
};
use crate::trust::Evidence;
use slipway_core::{digest::Sha256, kernel::arch::Arch, payload::manifest::FileInfo};

const BLOCK_BYTES: u64 = 512;
// The tag of the image in an archive that has signatures as well.
const IMAGE_NAME: &str = "image";

pub struct Archive {
    store: Box<dyn ImageStore>,
    manifest: Sha256,
    names: [Sha256; 2],
    parts: Vec<Part>,
    bytes: u64,
    // Digest of the documents beside the image.
    beside: Option<Sha256>,
    left: Vec<String>,
    unknown: Option<ImageError>,
    arch: Arch,
}

struct Part {
    at: u64,
    info: FileInfo,
    content: Content,
}

enum Content {
    Bytes(Vec<u8>),
    Blob(Box<Descriptor>),
}

/// Called with a part's byte offset in the archive, its name, size and digest, and a reader of its content. The reader
/// does not verify the digest: the callee must.
pub type TakePart<'t> = dyn FnMut(u64, &FileInfo, &mut dyn Read) -> anyhow::Result<()> + 't;

impl Archive {
    pub fn new(store: Box<dyn ImageStore>, arch: Arch) -> Result<Self, ImageError> {
        let image = resolve(&*store, arch)?;
        let manifest = Sha256::of(&image.manifest.bytes);
        let names = image.names();
        // A registry that cannot list the documents beside an image still has the image.
        let AllBeside { found, faults: left, unknown } = signatures::beside(&*store, &names, &[arch]);
        let (parts, bytes, beside) = (Vec::new(), 0, None);
        let mut archive = Archive { store, manifest, names, parts, bytes, beside, left, unknown, arch };
        let chunks = archive.chunks(&image);
        archive.lay_out(&image, &found, chunks)?;
        Ok(archive)
    }

    /// The indexes of chunks. They go along as blobs alone, which the layers name: a second manifest in index.json would keep
    /// other programs from finding the image. Without one of them the image is whole.
    fn chunks(&mut self, image: &Resolved) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        for index in chunks::indexes(image.layers.iter().map(|layer| &layer.descriptor)) {
            match chunks::read_index(&*self.store, &index) {
                Ok(Some(bytes)) => all.push(bytes),
                Ok(None) => self.left.push(format!("index of chunks {}: it is not in the source", index.digest())),
                Err(error) => self.left.push(format!("index of chunks: {error}")),
            }
        }
        all
    }

    pub fn manifest(&self) -> Sha256 {
        self.manifest
    }

    /// The signatures that lie beside the image.
    pub fn evidence(&self) -> Evidence {
        signatures::evidence(&*self.store, &self.names, self.arch)
    }

    /// Digest that changes with the signatures, attestations and indexes of chunks that come with the image; none if there are none.
    pub fn beside(&self) -> Option<Sha256> {
        self.beside
    }

    /// Documents beside the image that stay behind, and why.
    pub fn left(&self) -> &[String] {
        &self.left
    }

    /// Why it is unknown whether there are more.
    pub fn unknown(&self) -> Option<&ImageError> {
        self.unknown.as_ref()
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Pass every part to `take`, in order. The gaps between parts must be zeros.
    pub fn each(&self, take: &mut TakePart) -> anyhow::Result<()> {
        for Part { at, info, content } in &self.parts {
            match content {
                Content::Bytes(bytes) => take(*at, info, &mut &bytes[..])?,
                Content::Blob(descriptor) => take(*at, info, &mut *self.store.blob(descriptor)?)?,
            }
        }
        Ok(())
    }

    fn lay_out(&mut self, image: &Resolved, beside: &[Beside], chunks: Vec<Vec<u8>>) -> Result<(), ImageError> {
        let wrong = |why: String| ImageError::invalid("index.json", why);
        let mut index = empty_index()?;
        let mut own = manifest_descriptor(image)?;
        if !beside.is_empty() {
            // Among several manifests other programs find it by a name only.
            own.set_annotations(Some([(REF_NAME.to_owned(), IMAGE_NAME.to_owned())].into()));
        }
        let mut listed = vec![own];
        for Beside { tag, manifest, .. } in beside {
            let mut descriptor = descriptor_of(&MediaType::ImageManifest, manifest)?;
            descriptor.set_annotations(tag.clone().map(|tag| [(REF_NAME.to_owned(), tag)].into()));
            listed.push(descriptor);
        }
        index.set_manifests(listed);
        let index = serde_json::to_vec(&index).map_err(|e| wrong(e.to_string()))?;
        let named = chunks.iter().map(|bytes| Sha256::of(bytes).to_string());
        let all = [index.clone(), named.collect::<String>().into_bytes()].concat();
        self.beside = (!beside.is_empty() || !chunks.is_empty()).then(|| Sha256::of(&all));
        self.document("oci-layout", b"{\"imageLayoutVersion\":\"1.0.0\"}".to_vec())?;
        self.document("index.json", index)?;
        self.document(&blob(self.manifest), image.manifest.bytes.clone())?;
        // Two may be the same, but each must be in the archive once.
        let mut blobs = BTreeSet::from([self.manifest]);
        for bytes in self.documents_beside(image, beside)?.into_iter().chain(chunks) {
            let digest = Sha256::of(&bytes);
            if blobs.insert(digest) {
                self.document(&blob(digest), bytes)?;
            }
        }
        let layers = image.layers.iter().map(|layer| &layer.descriptor);
        for descriptor in [&image.config].into_iter().chain(layers) {
            let digest = sha256_of(descriptor)?;
            if blobs.insert(digest) {
                let info = FileInfo { name: blob(digest), size: descriptor.size(), sha256: digest };
                self.file(info, Content::Blob(Box::new(descriptor.clone())))?;
            }
        }
        // Two blocks of zeros end a tar archive.
        self.bytes += 2 * BLOCK_BYTES;
        Ok(())
    }

    /// The manifests that hold signatures, their blobs, and a signed index if there is one: it says that the image is
    /// one of it.
    fn documents_beside(&self, image: &Resolved, beside: &[Beside]) -> Result<Vec<Vec<u8>>, ImageError> {
        let mut all = Vec::new();
        let mut indexes = BTreeSet::new();
        for Beside { image: signed, manifest, blobs, .. } in beside {
            all.push(manifest.clone());
            all.extend(blobs.iter().cloned());
            if !indexes.insert(*signed) {
                continue;
            }
            let index = match &image.index {
                Some(bytes) if *signed == image.root => Some(bytes.clone()),
                _ => self.store.by_digest(*signed)?,
            };
            all.extend(index.filter(|bytes| Sha256::of(bytes) == *signed));
        }
        Ok(all)
    }

    fn document(&mut self, name: &str, bytes: Vec<u8>) -> Result<(), ImageError> {
        let info = FileInfo { name: name.to_owned(), size: bytes.len() as u64, sha256: Sha256::of(&bytes) };
        self.file(info, Content::Bytes(bytes))
    }

    fn file(&mut self, info: FileInfo, content: Content) -> Result<(), ImageError> {
        let mut header = tar::Header::new_ustar();
        header.set_path(&info.name).map_err(|source| ImageError::of_io(&info.name, source))?;
        header.set_size(info.size);
        header.set_mode(0o644);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_cksum();
        let header = header.as_bytes().to_vec();
        let name = format!("the header of {}", info.name);
        let header_info = FileInfo { name, size: BLOCK_BYTES, sha256: Sha256::of(&header) };
        let at = self.bytes;
        let too_large = || ImageError::invalid(&info.name, "too large for an archive");
        let end = info.size.checked_next_multiple_of(BLOCK_BYTES).and_then(|n| n.checked_add(at + BLOCK_BYTES));
        self.bytes = end.filter(|end| *end < u64::MAX / 2).ok_or_else(too_large)?;
        self.parts.push(Part { at, info: header_info, content: Content::Bytes(header) });
        self.parts.push(Part { at: at + BLOCK_BYTES, info, content });
        Ok(())
    }
}

fn blob(digest: Sha256) -> String {
    format!("blobs/sha256/{digest}")
}
