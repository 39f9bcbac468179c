//! Puts bundles beside an image. Each is the layer of a manifest that has the image as its subject. Those manifests
//! have no tag: in a layout they are in index.json without a name, where its readers look for them. They are also
//! listed by an index under the tag `sha256-HEX` (OCI distribution specification, "referrers tag schema"): a copy of
//! that tag has all of them.

use std::collections::BTreeMap;

use oci_spec::image::{Descriptor, ImageIndexBuilder, ImageManifestBuilder, MediaType};

use super::{
    ImageError, NamedManifest, Signable,
    chunks::{EMPTY, EMPTY_TYPE},
    cosign::referrers_tag,
    layout::descriptor_of,
    signatures::{Bundle, bundles},
    sink::put_bytes,
    store::sha256_of,
};
use crate::trust::bundle;
use slipway_core::digest::Sha256;

// The key by which cosign finds a bundle without reading it.
const CONTENT: (&str, &str) = ("dev.sigstore.bundle.content", "dsse-envelope");
const PREDICATE_TYPE: &str = "dev.sigstore.bundle.predicateType";

impl Signable {
    /// The bundles that have this image as their subject.
    pub fn bundles(&self) -> Result<Vec<Bundle>, ImageError> {
        bundles(&*self.image.store, self.digest())
    }

    /// Put these bundles beside the image, in place of those in the manifests `replaced`; the tag that lists all of them. A
    /// registry keeps the manifests that are replaced, and only the tag does not list them.
    pub fn attach(&self, new: &[Vec<u8>], predicate_type: &str, replaced: &[Sha256]) -> Result<String, ImageError> {
        let tag = referrers_tag(self.digest());
        let invalid = |e: oci_spec::OciSpecError| ImageError::invalid(&tag, e.to_string());
        // Unreadable ones are not listed under the tag; in index.json they stay.
        let mut beside = self.image.store.referrers(self.digest())?.found;
        beside.retain(|manifest| sha256_of(manifest).is_ok_and(|digest| !replaced.contains(&digest)));
        let mut manifests = Vec::new();
        for bytes in new {
            let annotations = [CONTENT, (PREDICATE_TYPE, predicate_type)];
            let manifest = ImageManifestBuilder::default()
                .schema_version(2u32)
                .media_type(MediaType::ImageManifest)
                .artifact_type(MediaType::from(bundle::MEDIA_TYPE))
                .config(put_bytes(&*self.sink, &MediaType::from(EMPTY_TYPE), EMPTY)?)
                .layers(vec![put_bytes(&*self.sink, &MediaType::from(bundle::MEDIA_TYPE), bytes)?])
                .subject(self.image.descriptor()?)
                .annotations(annotations.map(|(name, value)| (name.to_owned(), value.to_owned())))
                .build()
                .and_then(|manifest| manifest.to_string())
                .map_err(invalid)?;
            let (media_type, bytes) = (MediaType::ImageManifest, manifest.into_bytes());
            beside.push(descriptor_of(&media_type, &bytes)?);
            manifests.push(NamedManifest { media_type, bytes, tag: None });
        }
        manifests.push(list_of(&tag, &beside)?);
        self.sink.put_manifests(replaced, &manifests)?;
        Ok(tag)
    }

    /// Have the tag list these manifests, too, if nothing lists them yet: a registry without an API for that needs the tag.
    pub fn list(&self, new: &[Descriptor]) -> Result<(), ImageError> {
        let mut beside = self.image.store.referrers(self.digest())?.found;
        let is_listed = |one: &Descriptor| beside.iter().any(|listed| listed.digest() == one.digest());
        if new.iter().all(is_listed) {
            return Ok(());
        }
        beside.extend(new.iter().cloned());
        self.sink.put_manifests(&[], &[list_of(&referrers_tag(self.digest()), &beside)?])
    }
}

/// The index under the tag that lists the documents beside an image.
pub fn list_of(tag: &str, beside: &[Descriptor]) -> Result<NamedManifest, ImageError> {
    // Digests and sizes alone: skopeo copies no index with byte for byte that has more of a manifest than it knows.
    let plain = |d: &Descriptor| Descriptor::new(d.media_type().clone(), d.size(), d.digest().clone());
    let all: BTreeMap<_, _> = beside.iter().map(|d| (d.digest().to_string(), plain(d))).collect();
    let every = ImageIndexBuilder::default()
        .schema_version(2u32)
        .media_type(MediaType::ImageIndex)
        .manifests(all.into_values().collect::<Vec<_>>())
        .build()
        .and_then(|index| index.to_string())
        .map_err(|e| ImageError::invalid(tag, e.to_string()))?;
    Ok(NamedManifest { media_type: MediaType::ImageIndex, bytes: every.into_bytes(), tag: Some(tag.to_owned()) })
}
