//! Container images as sources: an index, a manifest, a configuration and layers, wherever they lie. What a store
//! hands out is never trusted: sizes and digests are checked here, in one place for all of them.

mod archive;
mod error;
mod layer;
mod local;
mod overlay;
mod pull;
mod read_ahead;
mod resolve;
mod source;
mod tar;
mod verifying_reader;

pub use archive::Archive;
pub use error::ImageError;
pub use local::{Local, LocalRef};
pub use pull::{Pull, Pulled};
pub use source::{ImageSource, Inspection};

use std::io::Read;

use oci_spec::image::{Descriptor, DigestAlgorithm};

use slipway_core::digest::Sha256;

/// Largest index, manifest or configuration that is read, bytes (the limit of registries and of containerd's, too).
pub const MAX_DOCUMENT_BYTES: u64 = 4 << 20;

/// An index or a manifest as a store handed it out.
#[derive(Clone, Debug)]
pub struct Document {
    /// Its media type, where the store knows it (a registry's Content-Type, a descriptor's mediaType).
    pub media_type: Option<String>,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// Where the parts of one image lie: a directory, an archive, a registry. Content is handed out as it is found.
pub trait ImageStore: Send + Sync {
    /// The index or manifest that the reference names. At most [`MAX_DOCUMENT_BYTES`] are read. A digest in the
    /// reference has been compared.
    fn root(&self) -> Result<Document, ImageError>;

    /// An index or manifest by its descriptor. At most [`MAX_DOCUMENT_BYTES`] are read; neither size nor digest is
    /// checked.
    fn document(&self, descriptor: &Descriptor) -> Result<Vec<u8>, ImageError>;

    /// A configuration or a layer, from its beginning to its end, in one pass. Neither size nor digest is checked.
    /// What goes wrong while it is read comes as an `io::Error` that wraps an [`ImageError`].
    fn blob(&self, descriptor: &Descriptor) -> Result<Box<dyn Read + Send>, ImageError>;

    /// The image's name for messages: `docker://r.io/x:1`.
    fn name(&self) -> String;
}

/// The digest of a descriptor.
fn sha256_of(descriptor: &Descriptor) -> Result<Sha256, ImageError> {
    let digest = descriptor.digest();
    let parsed = Some(digest.digest()).filter(|_| *digest.algorithm() == DigestAlgorithm::Sha256);
    let parsed = parsed.and_then(|hex| hex.parse().ok());
    parsed.ok_or_else(|| ImageError::invalid(digest.to_string(), "only SHA-256 digests are supported"))
}

/// All of a small document.
fn read_document(reader: impl Read, what: &str) -> Result<Vec<u8>, ImageError> {
    let mut bytes = Vec::new();
    reader.take(MAX_DOCUMENT_BYTES + 1).read_to_end(&mut bytes).map_err(|source| ImageError::of_io(what, source))?;
    if bytes.len() as u64 > MAX_DOCUMENT_BYTES {
        return Err(ImageError::invalid(what, format!("larger than {} MiB", MAX_DOCUMENT_BYTES >> 20)));
    }
    Ok(bytes)
}
