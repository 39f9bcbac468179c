//! Fetches the index of a layer. It is found by annotations on the layer's descriptor, so that a signature of the image
//! covers which one it is.

use std::{io::Read as _, str::FromStr as _};

use oci_spec::image::{Descriptor, MediaType, Sha256Digest};

use crate::image::{ImageError, ImageStore, VerifyingReader, past_mirrors, sent, sha256_of};
use slipway_core::{
    delta::index::{DIGEST_ANNOTATION, Index, IndexError, MEDIA_TYPE, Parser, SIZE_ANNOTATION, most_bytes},
    payload::image_ref::parse_digest,
};

/// The descriptor of a layer's index, if annotations name one.
///
/// # Errors
/// They name none that can be read.
pub fn descriptor_of_index(layer: &Descriptor) -> Result<Option<Descriptor>, ImageError> {
    let annotation = |name: &str| layer.annotations().as_ref().and_then(|all| all.get(name));
    let (digest, size) = match (annotation(DIGEST_ANNOTATION), annotation(SIZE_ANNOTATION)) {
        (None, None) => return Ok(None),
        (digest, size) => {
            (digest.map(String::as_str).unwrap_or_default(), size.map(String::as_str).unwrap_or_default())
        }
    };
    let wrong = |why: String| ImageError::invalid(format!("layer {}", layer.digest()), why);
    let digest = parse_digest(digest)
        .and_then(|digest| Sha256Digest::from_str(&digest.to_string()).ok())
        .ok_or_else(|| wrong(format!("annotation {DIGEST_ANNOTATION}: {digest:?} is not sha256: and 64 hex digits")))?;
    let most = most_bytes(layer.size());
    let bytes = size.parse().ok().filter(|bytes| *bytes <= most);
    let bytes =
        bytes.ok_or_else(|| wrong(format!("annotation {SIZE_ANNOTATION}: {size:?} is no size up to {most} bytes")))?;
    Ok(Some(Descriptor::new(MediaType::from(MEDIA_TYPE), bytes, digest)))
}

/// Reads the index of this layer as a stream. Its digest and its size are compared, and it has to be about this layer.
pub fn fetch_index(store: &dyn ImageStore, layer: &Descriptor, descriptor: &Descriptor) -> Result<Index, ImageError> {
    let (name, digest) = (format!("index of chunks {}", descriptor.digest()), sha256_of(layer)?);
    let index = past_mirrors(store, ImageError::is_wrong, || {
        // It is of use, and not needed.
        let blob = match store.has_ranges() {
            true => store.blob_from(descriptor, 0..descriptor.size())()?.reader,
            false => store.blob(descriptor)?,
        };
        let what = sent(name.clone(), store);
        let mut reader = VerifyingReader::of_blob(blob, what.clone(), descriptor)?;
        let (mut parser, mut parsed, mut buf) = (Parser::new(digest, layer.size()), Ok(()), [0; 16 << 10]);
        loop {
            match reader.read(&mut buf).map_err(|e| ImageError::of_io(&what, e))? {
                0 => return Ok(parsed.and_then(|()| parser.finish())),
                // To its end in any case: what has the right digest is no fault of a mirror.
                n => parsed = parsed.and_then(|()| parser.push(&buf[..n])),
            }
        }
    })?;
    index.map_err(|why: IndexError| ImageError::invalid(name, why.to_string()))
}
