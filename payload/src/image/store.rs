//! The store of an image: blobs and documents by digest, in a layout or a registry.

use std::{io::Read, ops::Range};

use oci_spec::image::{Descriptor, DigestAlgorithm, ImageIndex};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{ImageError, cosign::referrers_tag};
use slipway_core::digest::Sha256;

/// Largest index, manifest or configuration that is read. Registries and containerd have the same limit.
pub const MAX_DOCUMENT_BYTES: u64 = 4 << 20;

#[derive(Clone, Debug)]
pub struct Document {
    /// From a registry's Content-Type or a descriptor, if the store knows it.
    pub media_type: Option<String>,
    pub bytes: Vec<u8>,
}

/// Items that a store lists, and the faults of those that cannot be read.
#[derive(Debug)]
pub struct Listing<T> {
    pub found: Vec<T>,
    pub faults: Vec<ImageError>,
}

impl<T> Default for Listing<T> {
    fn default() -> Self {
        Listing { found: Vec::new(), faults: Vec::new() }
    }
}

impl<T> Listing<T> {
    /// With the items of another list, or the fault of it.
    #[must_use]
    pub fn and(mut self, other: Result<Self, ImageError>) -> Self {
        let Listing { found, faults } = other.unwrap_or_else(|fault| Listing { found: vec![], faults: vec![fault] });
        self.found.extend(found);
        self.faults.extend(faults);
        self
    }
}

impl<T> From<Vec<T>> for Listing<T> {
    fn from(found: Vec<T>) -> Self {
        Listing { found, faults: Vec::new() }
    }
}

/// A reader of a part of a blob.
pub struct FromRange {
    pub reader: Box<dyn Read + Send>,
    /// The reader goes on to the end of the blob: the store has answered with more than the part.
    pub goes_on: bool,
}

/// A request for a part of a blob. It is sent when this is called, which may be done by another thread.
pub type RangeRequest = Box<dyn FnOnce() -> Result<FromRange, ImageError> + Send>;

/// Store of the parts of one image. Unless a method says otherwise, the content is not verified.
pub trait ImageStore: Send + Sync {
    /// The index or manifest that the reference names, at most [`MAX_DOCUMENT_BYTES`]. If the reference has a digest,
    /// it has been compared.
    fn root(&self) -> Result<Document, ImageError>;

    /// An index or manifest, at most [`MAX_DOCUMENT_BYTES`].
    fn document(&self, descriptor: &Descriptor) -> Result<Vec<u8>, ImageError>;

    /// A configuration or a layer, read once from beginning to end. The reader reports errors as an `io::Error` that
    /// wraps an [`ImageError`].
    fn blob(&self, descriptor: &Descriptor) -> Result<Box<dyn Read + Send>, ImageError>;

    /// The request for these bytes of a blob, which can be done without: it is given up sooner than one for the blob. Only of
    /// a store that [has ranges](Self::has_ranges).
    fn blob_from(&self, descriptor: &Descriptor, _: Range<u64>) -> RangeRequest {
        let blob = descriptor.digest().to_string();
        Box::new(move || Err(ImageError::invalid(blob, "it can only be read from its beginning")))
    }

    /// Whether parts of blobs can be fetched: reading less of them saves something.
    fn has_ranges(&self) -> bool {
        false
    }

    /// Why parts of blobs are no longer asked for: one could not be had in this run, and the next would be waited for, too.
    fn parts_failed(&self) -> Option<&str> {
        None
    }

    /// Bytes that came over the network so far.
    fn fetched(&self) -> u64 {
        0
    }

    /// The mirror that answered the last request for a blob, for messages. None: the store itself did.
    fn mirror(&self) -> Option<&str> {
        None
    }

    /// Ask the mirror that answered the last request for a blob no more: its bytes are wrong. False: no mirror is left.
    fn give_up_mirror(&self) -> bool {
        false
    }

    /// The manifests under another tag of the same repository. A layout may list several.
    fn tagged(&self, _tag: &str) -> Result<Listing<Document>, ImageError> {
        Ok(Listing::default())
    }

    /// The manifests under this very name. All of them are wanted: one that cannot be read is an error.
    fn named(&self, tag: &str) -> Result<Vec<Document>, ImageError> {
        let Listing { found, faults } = self.tagged(tag)?;
        faults.into_iter().next().map_or(Ok(found), Err)
    }

    /// Manifests that say they are about this image (its "referrers").
    fn referrers(&self, _image: Sha256) -> Result<Listing<Descriptor>, ImageError> {
        Ok(Listing::default())
    }

    /// The same by the tag that lists them: a registry without an API for it has that.
    fn referrers_by_tag(&self, image: Sha256) -> Result<Listing<Descriptor>, ImageError> {
        let tag = referrers_tag(image);
        let Listing { found, faults } = self.tagged(&tag)?;
        let mut all = Vec::new();
        for Document { bytes, .. } in found {
            let index: ImageIndex =
                parse_document(&bytes).map_err(|e| ImageError::invalid(&tag, format!("not an image index: {e}")))?;
            all.extend(index.manifests().iter().cloned());
        }
        Ok(Listing { found: all, faults })
    }

    /// The images of a layout that there may be signatures of. A registry has too many: none.
    fn signed(&self) -> Result<Vec<Sha256>, ImageError> {
        Ok(vec![])
    }

    /// An index or manifest of a layout that has this digest, not verified, if it is there.
    fn by_digest(&self, _: Sha256) -> Result<Option<Vec<u8>>, ImageError> {
        Ok(None)
    }

    /// The image's name for messages: `docker://r.io/x:1`.
    fn name(&self) -> String;
}

pub fn sha256_of(descriptor: &Descriptor) -> Result<Sha256, ImageError> {
    let digest = descriptor.digest();
    let parsed = Some(digest.digest()).filter(|_| *digest.algorithm() == DigestAlgorithm::Sha256);
    let parsed = parsed.and_then(|hex| hex.parse().ok());
    parsed.ok_or_else(|| ImageError::invalid(digest.to_string(), "only SHA-256 digests are supported"))
}

/// Parse an index or a manifest. Programs in Go write a list without items as null.
pub fn parse_document<T: DeserializeOwned>(bytes: &[u8]) -> serde_json::Result<T> {
    serde_json::from_slice(bytes).or_else(|error| {
        let mut value: Value = serde_json::from_slice(bytes)?;
        let mut has_null = false;
        for list in ["manifests", "layers"] {
            if let Some(list) = value.get_mut(list).filter(|list| list.is_null()) {
                *list = json!([]);
                has_null = true;
            }
        }
        if has_null { serde_json::from_slice(value.to_string().as_bytes()) } else { Err(error) }
    })
}

/// Read a document to its end; an error if it is larger than [`MAX_DOCUMENT_BYTES`].
pub fn read_document(reader: impl Read, what: &str) -> Result<Vec<u8>, ImageError> {
    let mut bytes = Vec::new();
    reader.take(MAX_DOCUMENT_BYTES + 1).read_to_end(&mut bytes).map_err(|source| ImageError::of_io(what, source))?;
    if bytes.len() as u64 > MAX_DOCUMENT_BYTES {
        return Err(ImageError::invalid(what, format!("larger than {} MiB", MAX_DOCUMENT_BYTES >> 20)));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use oci_spec::image::ImageManifest;

    use super::*;

    #[test]
    fn null_is_a_list_without_items() {
        let digest = format!("sha256:{}", "0".repeat(64));
        let manifest =
            json!({"schemaVersion": 2, "config": {"mediaType": "x", "digest": digest, "size": 2}, "layers": null});
        let parsed: ImageManifest = parse_document(manifest.to_string().as_bytes()).unwrap();
        assert!(parsed.layers().is_empty() && parsed.config().size() == 2);
        let manifest = json!({"schemaVersion": 2, "config": null, "layers": null});
        assert!(parse_document::<ImageManifest>(manifest.to_string().as_bytes()).is_err());
    }
}
