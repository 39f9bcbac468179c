//! Puts bundles beside an image of an OCI layout. Each is the layer of a manifest that has the image as its subject. Those
//! manifests are in index.json without a name, where a layout's readers look for them. They are also listed by an index
//! under the tag `sha256-HEX` (OCI distribution specification, "referrers tag schema"): a person who copies that tag to a
//! registry has copied all of them.

use std::collections::BTreeMap;

use oci_spec::image::{Descriptor, ImageIndexBuilder, ImageManifestBuilder, MediaType};

use super::{
    ImageError, ImageStore as _, Signable,
    cosign::referrers_tag,
    layout::{descriptor_of, index, write},
    signatures::{Bundle, bundles},
    store::sha256_of,
};
use crate::trust::bundle;
use slipway_core::digest::Sha256;

const EMPTY_TYPE: &str = "application/vnd.oci.empty.v1+json";
const EMPTY: &[u8] = b"{}";
// By which cosign finds what it looks for without reading the bundles.
const CONTENT: (&str, &str) = ("dev.sigstore.bundle.content", "dsse-envelope");
const PREDICATE_TYPE: &str = "dev.sigstore.bundle.predicateType";

impl Signable {
    /// The bundles that have this image as their subject.
    pub fn bundles(&self) -> Result<Vec<Bundle>, ImageError> {
        bundles(&self.store, self.image)
    }

    /// Put these bundles beside the image, in place of those in the manifests `replaced`; the tag that lists all of them.
    /// index.json is replaced last: after a power cut it names the old ones or the new ones.
    pub fn attach(&self, new: &[Vec<u8>], predicate_type: &str, replaced: &[Sha256]) -> Result<String, ImageError> {
        let tag = referrers_tag(self.image);
        let invalid = |e: oci_spec::OciSpecError| ImageError::invalid(&tag, e.to_string());
        let blobs = self.dir.join("blobs/sha256");
        let put = |media_type: MediaType, bytes: &[u8]| -> Result<Descriptor, ImageError> {
            write(&blobs.join(Sha256::of(bytes).to_string()), bytes)?;
            descriptor_of(&media_type, bytes)
        };
        // Those that cannot be read are not listed under the tag; in index.json they stay.
        let mut beside = self.store.referrers(self.image)?.found;
        beside.retain(|manifest| sha256_of(manifest).is_ok_and(|digest| !replaced.contains(&digest)));
        let mut listed = Vec::new();
        for bytes in new {
            let annotations = [CONTENT, (PREDICATE_TYPE, predicate_type)];
            let manifest = ImageManifestBuilder::default()
                .schema_version(2u32)
                .media_type(MediaType::ImageManifest)
                .artifact_type(MediaType::from(bundle::MEDIA_TYPE))
                .config(put(MediaType::from(EMPTY_TYPE), EMPTY)?)
                .layers(vec![put(MediaType::from(bundle::MEDIA_TYPE), bytes)?])
                .subject(self.root.clone())
                .annotations(annotations.map(|(name, value)| (name.to_owned(), value.to_owned())))
                .build()
                .and_then(|manifest| manifest.to_string())
                .map_err(invalid)?;
            listed.push((put(MediaType::ImageManifest, manifest.as_bytes())?, None));
        }
        // Digests and sizes alone: skopeo copies no index with byte for byte that has more of a manifest than it knows.
        let plain = |d: &Descriptor| Descriptor::new(d.media_type().clone(), d.size(), d.digest().clone());
        let all: BTreeMap<_, _> = beside
            .iter()
            .chain(listed.iter().map(|(new, _)| new))
            .map(|d| (d.digest().to_string(), plain(d)))
            .collect();
        let every = ImageIndexBuilder::default()
            .schema_version(2u32)
            .media_type(MediaType::ImageIndex)
            .manifests(all.into_values().collect::<Vec<_>>())
            .build()
            .and_then(|index| index.to_string())
            .map_err(invalid)?;
        listed.push((put(MediaType::ImageIndex, every.as_bytes())?, Some(tag.clone())));
        let index = index(&self.dir, replaced, listed)?;
        write(&self.dir.join("index.json"), index.as_bytes())?;
        Ok(tag)
    }
}
