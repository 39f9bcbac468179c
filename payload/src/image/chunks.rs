//! The index of chunks beside an image: the blob, and a manifest that has the image as its subject, so that registries keep
//! the blob and tools copy it. That manifest follows from the image's own, so each program that copies an image can make it anew.

use std::io::Read as _;

use oci_spec::image::{Descriptor, ImageManifest, ImageManifestBuilder, MediaType};

use super::{
    ImageError, ImageStore, NamedManifest,
    layout::descriptor_of,
    mirrors::{past_mirrors, sent},
    store::parse_document,
    verifying_reader::VerifyingReader,
};
use crate::delta::descriptor_of_index;
use slipway_core::delta::index::MEDIA_TYPE;

/// The configuration of a manifest that is no image (OCI image specification 1.1, "Guidance for an Empty Descriptor").
pub const EMPTY_TYPE: &str = "application/vnd.oci.empty.v1+json";
pub const EMPTY: &[u8] = b"{}";

/// The content of the configuration of such a manifest.
pub fn empty() -> Result<(Descriptor, &'static [u8]), ImageError> {
    Ok((descriptor_of(&MediaType::from(EMPTY_TYPE), EMPTY)?, EMPTY))
}

/// The indexes that these layers name. Annotations that cannot be read are passed over: all of the layer is fetched then.
pub fn indexes<'l>(layers: impl IntoIterator<Item = &'l Descriptor>) -> Vec<Descriptor> {
    layers.into_iter().filter_map(|layer| descriptor_of_index(layer).ok().flatten()).collect()
}

/// The indexes that a manifest names. A document of another kind names none.
pub fn indexes_of(manifest: &[u8]) -> Vec<Descriptor> {
    let manifest = parse_document::<ImageManifest>(manifest).ok();
    manifest.map(|manifest| indexes(manifest.layers())).unwrap_or_default()
}

/// The manifest that holds these indexes of an image.
pub fn artifact(image: &Descriptor, indexes: &[Descriptor]) -> Result<NamedManifest, ImageError> {
    let subject = Descriptor::new(image.media_type().clone(), image.size(), image.digest().clone());
    let manifest = ImageManifestBuilder::default()
        .schema_version(2u32)
        .media_type(MediaType::ImageManifest)
        .artifact_type(MediaType::from(MEDIA_TYPE))
        .config(empty()?.0)
        .layers(indexes.to_vec())
        .subject(subject)
        .build()
        .and_then(|manifest| manifest.to_string())
        .map_err(|e| ImageError::invalid(MEDIA_TYPE, e.to_string()))?;
    Ok(NamedManifest { media_type: MediaType::ImageManifest, bytes: manifest.into_bytes(), tag: None })
}

/// An index as bytes, compared with its digest; none if it is not there.
pub fn read_index(store: &dyn ImageStore, index: &Descriptor) -> Result<Option<Vec<u8>>, ImageError> {
    let read = past_mirrors(store, ImageError::is_wrong, || {
        let blob = store.blob(index)?;
        let what = sent(format!("index of chunks {}", index.digest()), store);
        let (mut bytes, mut reader) = (Vec::new(), VerifyingReader::of_blob(blob, what.clone(), index)?);
        reader.read_to_end(&mut bytes).map_err(|e| ImageError::of_io(&what, e))?;
        Ok(bytes)
    });
    match read {
        Err(ImageError::NotFound { .. }) => Ok(None),
        read => read.map(Some),
    }
}
