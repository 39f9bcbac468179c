//! Writes one image as an OCI archive: an OCI layout in a tar archive.
//!
//! All offsets are known before the first layer is read, so the archive can be streamed into the middle of a file. The
//! same image gives the same bytes whatever store it comes from.

use std::{collections::BTreeMap, io::Read};

use oci_spec::image::Descriptor;

use super::{
    ImageError, ImageStore,
    layout::empty_index,
    pull::manifest_descriptor,
    resolve::{Resolved, resolve},
    signatures,
    store::sha256_of,
};
use crate::trust::Evidence;
use slipway_core::{digest::Sha256, kernel::arch::Arch, payload::manifest::FileInfo};

const BLOCK_BYTES: u64 = 512;

pub struct Archive {
    store: Box<dyn ImageStore>,
    manifest: Sha256,
    names: [Sha256; 2],
    parts: Vec<Part>,
    bytes: u64,
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
        let mut archive = Archive { store, manifest, names, parts: Vec::new(), bytes: 0 };
        archive.lay_out(&image)?;
        Ok(archive)
    }

    pub fn manifest(&self) -> Sha256 {
        self.manifest
    }

    /// The signatures that lie beside the image.
    pub fn evidence(&self) -> Result<Evidence, ImageError> {
        signatures::evidence(&*self.store, &self.names)
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

    fn lay_out(&mut self, image: &Resolved) -> Result<(), ImageError> {
        let wrong = |why: String| ImageError::invalid("index.json", why);
        let mut index = empty_index()?;
        index.set_manifests(vec![manifest_descriptor(image)?]);
        let index = serde_json::to_vec(&index).map_err(|e| wrong(e.to_string()))?;
        self.document("oci-layout", b"{\"imageLayoutVersion\":\"1.0.0\"}".to_vec())?;
        self.document("index.json", index)?;
        self.document(&blob(self.manifest), image.manifest.bytes.clone())?;
        let layers = image.layers.iter().map(|layer| &layer.descriptor);
        // An image may use the same layer twice, but its blob must be in the archive once.
        let mut blobs = BTreeMap::new();
        for descriptor in [&image.config].into_iter().chain(layers) {
            let digest = sha256_of(descriptor)?;
            if blobs.insert(digest, ()).is_none() {
                let info = FileInfo { name: blob(digest), size: descriptor.size(), sha256: digest };
                self.file(info, Content::Blob(Box::new(descriptor.clone())))?;
            }
        }
        // Two blocks of zeros end a tar archive.
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
