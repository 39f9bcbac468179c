//! The document that cosign signs for an image. It names the image by its digest ("simple signing", the format
//! of atomic-signature.json in containers-image).

use serde::Deserialize;
use serde_json::json;
use slipway_core::{digest::Sha256, payload::image_ref::parse_digest};

/// Media type of the layer that holds such a document.
pub const MEDIA_TYPE: &str = "application/vnd.dev.cosign.simplesigning.v1+json";
const TYPE: &str = "cosign container image signature";

#[derive(Deserialize)]
struct Document {
    critical: Critical,
}

#[derive(Deserialize)]
struct Critical {
    #[serde(rename = "type")]
    kind: String,
    image: Image,
    identity: Identity,
}

#[derive(Deserialize)]
struct Image {
    #[serde(rename = "docker-manifest-digest")]
    digest: String,
}

#[derive(Deserialize)]
struct Identity {
    #[serde(rename = "docker-reference", default)]
    reference: String,
}

/// Such a document: the image by its digest, and the repository that it is for, which may be empty.
pub fn document(image: Sha256, repository: &str) -> Vec<u8> {
    let critical = json!({
        "identity": {"docker-reference": repository},
        "image": {"docker-manifest-digest": format!("sha256:{image}")},
        "type": TYPE,
    });
    json!({"critical": critical, "optional": null}).to_string().into_bytes()
}

/// Content of such a document.
#[derive(Debug, PartialEq, Eq)]
pub struct Claim {
    pub images: Vec<Sha256>,
    /// The repository that the image was signed in, if the signer has named one.
    pub identity: Option<String>,
}

impl Claim {
    /// Read a document whose signature was verified.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        let document: Document =
            serde_json::from_slice(bytes).map_err(|e| format!("the signed text names no image: {e}"))?;
        let Critical { kind, image, identity } = document.critical;
        if kind != TYPE {
            return Err(format!("it is of the type {kind:?}, not a {TYPE:?}"));
        }
        let digest = parse_digest(&image.digest);
        let image =
            digest.ok_or_else(|| format!("it is for {:?}, which is not sha256: and 64 digits", image.digest))?;
        Ok(Claim { images: vec![image], identity: Some(identity.reference).filter(|name| !name.is_empty()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(kind: &str, digest: &str) -> String {
        format!(
            r#"{{"critical":{{"identity":{{"docker-reference":"r.io/os"}},"image":{{"docker-manifest-digest":"{digest}"}},"type":"{kind}"}},"optional":null}}"#
        )
    }

    #[test]
    fn what_is_signed_is_read_back() {
        let image = Sha256::of(b"x");
        let text = super::document(image, "r.io/os");
        assert_eq!(Claim::parse(&text), Ok(Claim { images: vec![image], identity: Some("r.io/os".to_owned()) }));
        assert_eq!(Claim::parse(&super::document(image, "")), Ok(Claim { images: vec![image], identity: None }));
        // In cosign's own order.
        let text = String::from_utf8(text).unwrap();
        assert!(text.starts_with("{\"critical\":{\"identity\":{\"docker-reference\":\"r.io/os\"},\"image\""), "{text}");
    }

    #[test]
    fn an_image_is_named_by_its_digest() {
        let image = Sha256::of(b"x");
        let good = document(TYPE, &format!("sha256:{image}"));
        assert_eq!(
            Claim::parse(good.as_bytes()),
            Ok(Claim { images: vec![image], identity: Some("r.io/os".to_owned()) })
        );
        for (text, says) in [
            (document("attestation", &format!("sha256:{image}")), "it is of the type \"attestation\""),
            (document(TYPE, &image.to_string()), "not sha256: and 64 digits"),
            (document(TYPE, "sha256:00"), "it is for \"sha256:00\""),
            ("{}".to_owned(), "names no image: missing field `critical`"),
            (good.replace("critical", "optional"), "names no image"),
        ] {
            let error = Claim::parse(text.as_bytes()).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
