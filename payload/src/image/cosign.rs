//! Names by cosign and OCI for documents beside an image: tags, and the kinds of layers that are signatures.

use oci_spec::image::Descriptor;
use slipway_core::digest::Sha256;

use crate::trust::{SIMPLE_SIGNING, bundle};

/// The annotation with the signature of a layer, which is the signed document.
pub const SIGNATURE: &str = "dev.cosignproject.cosign/signature";

/// How the tag of signatures ends.
pub const SIG: &str = ".sig";

/// The tag under which the signatures of an image are.
pub fn tag_of(image: Sha256) -> String {
    format!("sha256-{image}{SIG}")
}

/// The tag under which everything that has an image as its subject is listed, where there is no API for it.
pub fn referrers_tag(image: Sha256) -> String {
    format!("sha256-{image}")
}

/// The image that the documents under this tag are about: its signatures, or everything that has it as its subject.
pub fn subject_of_tag(tag: &str) -> Option<Sha256> {
    let rest = tag.strip_prefix("sha256-")?;
    let hex = rest.strip_suffix(SIG).unwrap_or(rest);
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
    fn tags_of_documents_about_an_image() {
        let image = Sha256::of(b"x");
        for tag in [tag_of(image), referrers_tag(image)] {
            assert_eq!(subject_of_tag(&tag), Some(image));
            assert_eq!(subject_of_tag(&tag.to_uppercase()), None);
        }
        let others = ["1.0", "sha256-00.sig", "sha256-00", &format!("sha256-{image}.att")];
        assert!(others.iter().all(|tag| subject_of_tag(tag).is_none()));
    }
}
