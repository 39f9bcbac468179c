//! One image as an OCI archive: a layout in a tar archive. It is laid out before a byte of a layer is read, so that it can
//! be streamed to its place in a file.
//!
//! The same image makes the same bytes, wherever it comes from.

use std::{collections::BTreeMap, io::Read};

use oci_spec::image::Descriptor;

use super::{
    ImageError, ImageStore,
    pull::{empty_index, manifest_descriptor},
    resolve::{Resolved, resolve},
    sha256_of,
};
use slipway_core::{
    digest::Sha256,
    payload::manifest::{Arch, FileInfo},
};

/// Bytes of a block of a tar archive.
const BLOCK_BYTES: u64 = 512;

/// One image, about to be archived.
pub struct Archive {
    store: Box<dyn ImageStore>,
    manifest: Sha256,
    parts: Vec<Part>,
    bytes: u64,
}

/// What lies at some offset.
struct Part {
    at: u64,
    info: FileInfo,
    content: Content,
}

enum Content {
    Bytes(Vec<u8>),
    Blob(Box<Descriptor>),
}

/// Gets a part of the archive: its byte offset, name, size and digest, and a reader of what the store has for it, which
/// has not been compared.
pub type TakePart<'t> = dyn FnMut(u64, &FileInfo, &mut dyn Read) -> anyhow::Result<()> + 't;

impl Archive {
    /// Find the image for one architecture and lay it out.
    pub fn new(store: Box<dyn ImageStore>, arch: Arch) -> Result<Self, ImageError> {
        let image = resolve(&*store, arch)?;
        let manifest = Sha256::of(&image.manifest.bytes);
        let mut archive = Archive { store, manifest, parts: Vec::new(), bytes: 0 };
        archive.lay_out(&image)?;
        Ok(archive)
    }

    /// Digest of the image's manifest.
    pub fn manifest(&self) -> Sha256 {
        self.manifest
    }

    /// Size of the archive, bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Hand every part to `take`, in order. Between them there are zeros.
    pub fn each(&self, take: &mut TakePart) -> anyhow::Result<()> {
        for Part { at, info, content } in &self.parts {
            match content {
                Content::Bytes(bytes) => take(*at, info, &mut &bytes[..])?,
                Content::Blob(descriptor) => take(*at, info, &mut *self.store.blob(descriptor)?)?,
            }
        }
        Ok(())
    }

    fn lay_out(&mut self, image: &Resolved) -> Result<(), ImageError> {
        let wrong = |why: String| ImageError::invalid("index.json", why);
        let mut index = empty_index()?;
        index.set_manifests(vec![manifest_descriptor(image)?]);
        let index = serde_json::to_vec(&index).map_err(|e| wrong(e.to_string()))?;
        self.document("oci-layout", b"{\"imageLayoutVersion\":\"1.0.0\"}".to_vec())?;
        self.document("index.json", index)?;
        self.document(&blob(self.manifest), image.manifest.bytes.clone())?;
        let layers = image.layers.iter().map(|layer| &layer.descriptor);
        // A layer may be there twice, its blob is one.
        let mut blobs = BTreeMap::new();
        for descriptor in [&image.config].into_iter().chain(layers) {
            let digest = sha256_of(descriptor)?;
            if blobs.insert(digest, ()).is_none() {
                let info = FileInfo { name: blob(digest), size: descriptor.size(), sha256: digest };
                self.file(info, Content::Blob(Box::new(descriptor.clone())))?;
            }
        }
        // Two empty blocks end it.
        self.bytes += 2 * BLOCK_BYTES;
        Ok(())
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
