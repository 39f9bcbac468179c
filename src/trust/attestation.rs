//! A statement about an image: an in-toto statement, and the bundle around its signature, as `cosign attest` makes them.
//! [`super::bundle`] reads both.

use std::{fmt, str::FromStr};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Map, Value, json};
use slipway_core::digest::Sha256;

use super::{
    bundle::{MEDIA_TYPE, PAYLOAD_TYPE, SIGNATURE, STATEMENT, joined},
    key::{PublicKey, text_of},
    signing::{SigningError, SigningKey},
};

/// The type of a statement: the URI that names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PredicateType(String);

/// By cosign's short names.
const SHORT: [(&str, &str); 4] = [
    ("cyclonedx", "https://cyclonedx.org/bom"),
    ("spdxjson", "https://spdx.dev/Document"),
    ("slsaprovenance1", "https://slsa.dev/provenance/v1"),
    ("vuln", "https://cosign.sigstore.dev/attestation/vuln/v1"),
];

impl FromStr for PredicateType {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some((_, uri)) = SHORT.iter().find(|(short, _)| *short == text) {
            return Ok(PredicateType((*uri).to_owned()));
        }
        match text {
            SIGNATURE => Err(format!("{SIGNATURE} is the type of signatures: use `installer sign`")),
            _ if text.contains("://") && !text.contains(|c: char| c.is_whitespace() || c.is_control()) => {
                Ok(PredicateType(text.to_owned()))
            }
            _ => {
                let short = SHORT.map(|(short, _)| short).join(", ");
                Err(format!("neither one of {short}, nor the URI of a type"))
            }
        }
    }
}

impl fmt::Display for PredicateType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The statement that this is said about an image. `predicate` is a JSON object; its bytes go into the statement as they
/// are. `None`: it is no JSON object.
pub fn statement(image: Sha256, kind: &PredicateType, predicate: &str) -> Option<Vec<u8>> {
    serde_json::from_str::<Map<String, Value>>(predicate).ok()?;
    // By hand: a comparison of the predicate with its file should find the same bytes.
    let (kind, predicate) = (json!(kind.0), predicate.trim());
    let head = format!(r#"{{"_type":"{STATEMENT}","subject":[{{"digest":{{"sha256":"{image}"}}}}]"#);
    Some(format!(r#"{head},"predicateType":{kind},"predicate":{predicate}}}"#).into_bytes())
}

/// The bundle of a statement, with the one signature that a bundle may have.
pub fn bundle(statement: &[u8], key: &SigningKey) -> Result<Vec<u8>, SigningError> {
    let signature = text_of(&key.sign(&joined(PAYLOAD_TYPE, statement))?);
    let bundle = json!({
        "mediaType": MEDIA_TYPE,
        "verificationMaterial": {"publicKey": {"hint": hint(key.public_key())}},
        "dsseEnvelope": {
            "payload": STANDARD.encode(statement),
            "payloadType": PAYLOAD_TYPE,
            "signatures": [{"sig": signature}],
        },
    });
    Ok(bundle.to_string().into_bytes())
}

/// By which a verifier may choose among its keys: cosign's own, SHA-256 of the key's DER form in base64.
fn hint(key: &PublicKey) -> String {
    STANDARD.encode(key.id.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_have_short_names() {
        let of = |text: &str| text.parse::<PredicateType>().map(|kind| kind.to_string());
        assert_eq!(of("cyclonedx").unwrap(), "https://cyclonedx.org/bom");
        assert_eq!(of("https://example.com/built/v1").unwrap(), "https://example.com/built/v1");
        assert!(of(SIGNATURE).unwrap_err().contains("use `installer sign`"));
        for wrong in ["", "sbom", "https://a b", "cyclonedx "] {
            assert!(of(wrong).unwrap_err().contains("cyclonedx, spdxjson, slsaprovenance1, vuln"), "{wrong}");
        }
    }

    #[test]
    fn a_statement_has_the_bytes_of_the_file() {
        let (image, kind) = (Sha256::of(b"x"), "cyclonedx".parse().unwrap());
        let said = statement(image, &kind, "\n{ \"b\": 1.0, \"a\": 2 }\n").unwrap();
        let text = String::from_utf8(said).unwrap();
        assert!(
            text.contains(r#""predicateType":"https://cyclonedx.org/bom","predicate":{ "b": 1.0, "a": 2 }}"#),
            "{text}"
        );
        let read: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(read["subject"][0]["digest"]["sha256"], image.to_string());
        for wrong in ["", "[]", "{}}", "{\"a\":1},\"predicate\":{}"] {
            assert_eq!(statement(image, &kind, wrong), None, "{wrong}");
        }
    }
}
