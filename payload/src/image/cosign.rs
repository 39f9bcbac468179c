//! Names by cosign and OCI for documents beside an image: tags, and the kinds of layers that are signatures.

use oci_spec::image::Descriptor;
use slipway_core::digest::Sha256;

use crate::trust::{SIMPLE_SIGNING, bundle};

/// The annotation with the signature of a layer, which is the signed document.
pub const SIGNATURE: &str = "dev.cosignproject.cosign/signature";

/// The tag under which the signatures of an image are.
pub fn tag_of(image: Sha256) -> String {
    format!("sha256-{image}.sig")
}

/// The tag under which everything that has an image as its subject is listed, where there is no API for it.
pub fn referrers_tag(image: Sha256) -> String {
    format!("sha256-{image}")
}

/// Whether this tag is of a document about an image, and not of an image.
pub fn is_about_an_image(tag: &str) -> bool {
    signed_by_tag(&format!("{}.sig", tag.trim_end_matches(".sig"))).is_some()
}

/// The image whose signatures are under this tag.
pub fn signed_by_tag(tag: &str) -> Option<Sha256> {
    let hex = tag.strip_prefix("sha256-")?.strip_suffix(".sig")?;
    hex.bytes().all(|byte| !byte.is_ascii_uppercase()).then(|| hex.parse().ok())?
}

/// Whether a layer is a bundle of Sigstore.
pub fn is_bundle(layer: &Descriptor) -> bool {
    layer.media_type().to_string() == bundle::MEDIA_TYPE
}

/// Only the forms that cosign writes count: an unknown form is no signature.
pub fn signature_in(layer: &Descriptor) -> Option<&String> {
    let signature = layer.annotations().as_ref().and_then(|all| all.get(SIGNATURE));
    signature.filter(|_| layer.media_type().to_string() == SIMPLE_SIGNING)
}

/// Whether a layer may be a signature.
pub fn is_signature(layer: &Descriptor) -> bool {
    signature_in(layer).is_some() || is_bundle(layer)
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
