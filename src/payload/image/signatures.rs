//! Signatures of an image that lie beside it in its store, as cosign puts them there. In the old form that is a manifest
//! under the tag `sha256-HEX.sig`, each of whose layers is a signed document, with the signature in an annotation. In the
//! new one it is a manifest that has the image as its subject, with a bundle as its layer.

use oci_spec::image::{Descriptor, ImageIndex, ImageManifest};

use super::{
    ImageError, ImageStore,
    resolve::checked_document,
    store::{MAX_DOCUMENT_BYTES, read_document, sha256_of},
    verifying_reader::{Length, VerifyingReader},
};
use crate::trust::{Attached, Evidence, Form, SIMPLE_SIGNING, bundle};
use slipway_core::digest::Sha256;

pub const SIGNATURE: &str = "dev.cosignproject.cosign/signature";
// Limit on work that no real image reaches.
const MAX_SIGNATURES: usize = 64;

/// The tag under which the signatures of an image are.
pub fn tag_of(image: Sha256) -> String {
    format!("sha256-{image}.sig")
}

/// The tag under which everything that has an image as its subject is listed, where there is no API for it.
pub fn referrers_tag(image: Sha256) -> String {
    format!("sha256-{image}")
}

/// Whether what is under this tag is about an image, and is none itself.
pub fn is_about_an_image(tag: &str) -> bool {
    signed_by_tag(&format!("{}.sig", tag.trim_end_matches(".sig"))).is_some()
}

/// The image whose signatures are under this tag.
pub fn signed_by_tag(tag: &str) -> Option<Sha256> {
    let hex = tag.strip_prefix("sha256-")?.strip_suffix(".sig")?;
    hex.bytes().all(|byte| !byte.is_ascii_uppercase()).then(|| hex.parse().ok())?
}

/// All that is signed of an image which has these digests: that of the index and that of the manifest.
pub fn evidence(store: &dyn ImageStore, images: &[Sha256]) -> Result<Evidence, ImageError> {
    let images = names(store, images)?;
    let mut found = Vec::new();
    for image in &images {
        for holder in holders(store, *image)? {
            signatures(store, &holder, &mut found)?;
        }
    }
    let tags: Vec<_> = images.iter().map(|image| tag_of(*image)).collect();
    let looked_for = format!("the tag {}, and bundles beside it", tags.join(" and "));
    Ok(Evidence { place: store.name(), images, looked_for, signatures: found })
}

/// All digests by which a signature may name the image.
fn names(store: &dyn ImageStore, images: &[Sha256]) -> Result<Vec<Sha256>, ImageError> {
    let mut names = images.to_vec();
    names.dedup();
    names.extend(indexes_of(store, images)?);
    Ok(names)
}

/// Indexes that `pull` has left in a layout together with their signatures, and that name one of these manifests. Who has
/// signed such an index has signed the digest of the manifest.
fn indexes_of(store: &dyn ImageStore, images: &[Sha256]) -> Result<Vec<Sha256>, ImageError> {
    let mut indexes = Vec::new();
    for digest in store.signed()?.into_iter().filter(|digest| !images.contains(digest)) {
        let Some(bytes) = store.by_digest(digest)? else { continue };
        let names = |index: ImageIndex| {
            index.manifests().iter().any(|found| sha256_of(found).is_ok_and(|digest| images.contains(&digest)))
        };
        if Sha256::of(&bytes) == digest && serde_json::from_slice(&bytes).is_ok_and(names) {
            indexes.push(digest);
        }
    }
    Ok(indexes)
}

/// A manifest that holds signatures of an image.
struct Holder {
    /// For messages.
    name: String,
    /// The tag under which it is.
    tag: Option<String>,
    bytes: Vec<u8>,
    manifest: ImageManifest,
}

fn holders(store: &dyn ImageStore, image: Sha256) -> Result<Vec<Holder>, ImageError> {
    let mut all = Vec::new();
    let tag = tag_of(image);
    for document in store.tagged(&tag)? {
        let manifest = serde_json::from_slice(&document.bytes)
            .map_err(|e| ImageError::invalid(&tag, format!("does not follow the OCI image specification: {e}")))?;
        all.push(Holder { name: tag.clone(), tag: Some(tag.clone()), bytes: document.bytes, manifest });
    }
    for descriptor in store.referrers(image)?.iter().take(MAX_SIGNATURES) {
        let name = format!("referrer {}", descriptor.digest());
        let bytes = checked_document(store, descriptor, &name)?;
        // What else refers to an image may have any form.
        let Ok(manifest) = serde_json::from_slice::<ImageManifest>(&bytes) else { continue };
        if manifest.layers().iter().any(is_bundle) {
            all.push(Holder { name, tag: None, bytes, manifest });
        }
    }
    Ok(all)
}

/// A bundle that has an image as its subject, not verified.
pub struct Bundle {
    /// The manifest that it is the layer of.
    pub manifest: Sha256,
    /// The bytes that are signed.
    pub signed: Vec<u8>,
    /// In base64.
    pub signatures: Vec<String>,
}

/// All of them. One that cannot be read is passed over.
pub fn bundles(store: &dyn ImageStore, image: Sha256) -> Result<Vec<Bundle>, ImageError> {
    let mut all = Vec::new();
    for holder in holders(store, image)?.iter().filter(|holder| holder.tag.is_none()) {
        for layer in holder.manifest.layers().iter().filter(|layer| is_bundle(layer)) {
            let Ok((signed, signatures)) = bundle::open(&signed_document(store, layer, &holder.name)?) else {
                continue;
            };
            all.push(Bundle { manifest: Sha256::of(&holder.bytes), signed, signatures });
        }
    }
    Ok(all)
}

fn is_bundle(layer: &Descriptor) -> bool {
    layer.media_type().to_string() == bundle::MEDIA_TYPE
}

/// Others than those that cosign writes are passed over: what is not understood is no signature.
pub fn signature_in(layer: &Descriptor) -> Option<&String> {
    let signature = layer.annotations().as_ref().and_then(|all| all.get(SIGNATURE));
    signature.filter(|_| layer.media_type().to_string() == SIMPLE_SIGNING)
}

fn signatures(store: &dyn ImageStore, holder: &Holder, found: &mut Vec<Attached>) -> Result<(), ImageError> {
    for (n, layer) in holder.manifest.layers().iter().enumerate() {
        let place = format!("{}, layer {}", holder.name, n + 1);
        if let Some(signature) = signature_in(layer) {
            let (signed, signature) = (signed_document(store, layer, &place)?, signature.clone().into_bytes());
            found.push(Attached { place, form: Form::SimpleSigning, signed, signature, validity: None });
        } else if is_bundle(layer) {
            let bytes = signed_document(store, layer, &place)?;
            let wrong = |why| ImageError::invalid(&place, why);
            let (signed, signatures) = bundle::open(&bytes).map_err(wrong)?;
            let validity = bundle::validity(&bytes).map_err(wrong)?;
            found.extend(signatures.into_iter().map(|signature| {
                let (place, signed) = (place.clone(), signed.clone());
                Attached { place, form: Form::Statement, signed, signature: signature.into_bytes(), validity }
            }));
        }
        if found.len() > MAX_SIGNATURES {
            return Err(ImageError::invalid(&holder.name, format!("more than {MAX_SIGNATURES} signatures")));
        }
    }
    Ok(())
}

pub fn signed_document(store: &dyn ImageStore, layer: &Descriptor, place: &str) -> Result<Vec<u8>, ImageError> {
    if layer.size() > MAX_DOCUMENT_BYTES {
        return Err(ImageError::invalid(place, format!("larger than {} MiB", MAX_DOCUMENT_BYTES >> 20)));
    }
    let (digest, length) = (sha256_of(layer)?, Length::Exactly(layer.size()));
    read_document(VerifyingReader::new(store.blob(layer)?, place.to_owned(), digest, length), place)
}

/// What lies beside an image and is copied with it.
pub struct Beside {
    /// What is signed: the manifest of the image, or an index that names it.
    pub image: Sha256,
    /// The tag under which it is listed; none if it says itself what it is about.
    pub tag: Option<String>,
    pub manifest: Vec<u8>,
    /// What the manifest refers to.
    pub blobs: Vec<Descriptor>,
    pub signatures: usize,
}

/// The signatures of an image as they are stored, not verified.
pub fn beside(store: &dyn ImageStore, images: &[Sha256]) -> Result<Vec<Beside>, ImageError> {
    let mut all = Vec::new();
    for image in names(store, images)? {
        for Holder { tag, bytes, manifest, .. } in holders(store, image)? {
            let blobs: Vec<_> = [manifest.config()].into_iter().chain(manifest.layers()).cloned().collect();
            let is_one = |layer: &&Descriptor| signature_in(layer).is_some() || is_bundle(layer);
            let signatures = manifest.layers().iter().filter(is_one).count();
            all.push(Beside { image, tag, manifest: bytes, blobs, signatures });
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_of_signatures() {
        let image = Sha256::of(b"x");
        assert_eq!(signed_by_tag(&tag_of(image)), Some(image));
        let others = ["1.0", "sha256-00.sig", &format!("sha256-{image}"), &format!("sha256-{image}.att")];
        assert!(others.iter().all(|tag| signed_by_tag(tag).is_none()));
        assert_eq!(signed_by_tag(&tag_of(image).to_uppercase()), None);
    }
}
