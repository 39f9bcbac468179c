//! Sigstore bundles, version 0.3, as cosign makes them for an image: a DSSE envelope around an in-toto statement.
//!
//! The signature is over the envelope's type and payload, joined unambiguously (DSSE, "PAE"). All that is read of a
//! statement is read from these very bytes.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::Deserialize;
use slipway_core::digest::Sha256;

use super::{
    certificate::{self, Validity},
    simple_signing::Claim,
};

/// Media type of the layer that holds a bundle.
pub const MEDIA_TYPE: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";
pub const PAYLOAD_TYPE: &str = "application/vnd.in-toto+json";
pub const STATEMENT: &str = "https://in-toto.io/Statement/v1";
/// Any other one is an attestation: its signer says something *about* the image, perhaps that it is bad.
pub const SIGNATURE: &str = "https://sigstore.dev/cosign/sign/v1";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Bundle {
    dsse_envelope: Envelope,
    #[serde(default)]
    verification_material: Material,
}

/// Beside a hint at a key there may be the certificate of the key, alone or first in its chain.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Material {
    certificate: Option<Certificate>,
    x509_certificate_chain: Option<Chain>,
}

#[derive(Deserialize)]
struct Chain {
    certificates: Vec<Certificate>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Certificate {
    raw_bytes: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope {
    payload: String,
    payload_type: String,
    signatures: Vec<Signature>,
}

#[derive(Deserialize)]
struct Signature {
    sig: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Statement {
    #[serde(rename = "_type")]
    kind: String,
    predicate_type: String,
    subject: Vec<Subject>,
}

#[derive(Deserialize)]
struct Subject {
    digest: Digests,
}

#[derive(Deserialize)]
struct Digests {
    sha256: Option<Sha256>,
}

/// The signed bytes of a bundle, and the signatures over them, in base64.
pub fn open(bundle: &[u8]) -> Result<(Vec<u8>, Vec<String>), String> {
    let Envelope { payload, payload_type, signatures } = parse(bundle)?.dsse_envelope;
    let payload = STANDARD.decode(payload).map_err(|e| format!("its payload is not in base64: {e}"))?;
    let signatures = signatures.into_iter().map(|signature| signature.sig).collect();
    Ok((joined(&payload_type, &payload), signatures))
}

/// When the key of a bundle counts, by the certificate that came along. No signature covers that: a bundle without it counts
/// at any time.
pub fn validity(bundle: &[u8]) -> Result<Option<Validity>, String> {
    let Material { certificate, x509_certificate_chain: chain } = parse(bundle)?.verification_material;
    let first = certificate.or_else(|| chain.and_then(|chain| chain.certificates.into_iter().next()));
    let Some(Certificate { raw_bytes }) = first else { return Ok(None) };
    let read = |der: Vec<u8>| certificate::read(&der).map(|(_, validity)| validity);
    let validity = STANDARD.decode(raw_bytes).ok().and_then(read);
    validity.map(Some).ok_or_else(|| "its certificate cannot be read".to_owned())
}

fn parse(bundle: &[u8]) -> Result<Bundle, String> {
    serde_json::from_slice(bundle).map_err(|e| format!("not a bundle around an envelope: {e}"))
}

/// The signed bytes: type and payload, so that none can be taken for the other (DSSE, "PAE").
pub fn joined(kind: &str, payload: &[u8]) -> Vec<u8> {
    [format!("DSSEv1 {} {kind} {} ", kind.len(), payload.len()).as_bytes(), payload].concat()
}

/// Read the signed bytes, after their signature was verified.
pub fn claim(signed: &[u8]) -> Result<Claim, String> {
    let statement = statement(signed)?;
    if statement.predicate_type != SIGNATURE {
        return Err(format!("it is an attestation ({}), not a signature ({SIGNATURE})", statement.predicate_type));
    }
    Ok(Claim { images: images(statement), identity: None })
}

/// An attestation, and its images.
#[derive(Debug, PartialEq, Eq)]
pub struct Attested {
    pub predicate_type: String,
    pub images: Vec<Sha256>,
}

/// The attestation in the signed bytes, if they are one. For people and for a writer that replaces it: it never counts
/// as a signature.
pub fn attested(signed: &[u8]) -> Option<Attested> {
    let statement = statement(signed).ok().filter(|statement| statement.predicate_type != SIGNATURE)?;
    Some(Attested { predicate_type: statement.predicate_type.clone(), images: images(statement) })
}

fn images(statement: Statement) -> Vec<Sha256> {
    statement.subject.into_iter().filter_map(|subject| subject.digest.sha256).collect()
}

fn statement(signed: &[u8]) -> Result<Statement, String> {
    let head = format!("DSSEv1 {} {PAYLOAD_TYPE} ", PAYLOAD_TYPE.len());
    let rest = signed.strip_prefix(head.as_bytes()).ok_or("its payload is no in-toto statement")?;
    let at = rest.iter().position(|byte| *byte == b' ').ok_or("its payload has no length")?;
    let statement: Statement =
        serde_json::from_slice(&rest[at + 1..]).map_err(|e| format!("its payload is no in-toto statement: {e}"))?;
    if statement.kind != STATEMENT {
        return Err(format!("its payload is of the type {:?}, not {STATEMENT:?}", statement.kind));
    }
    Ok(statement)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statement(kind: &str, predicate: &str, image: Sha256) -> Vec<u8> {
        let text = format!(
            r#"{{"_type":"{kind}","subject":[{{"digest":{{"sha512":"00"}}}},{{"digest":{{"sha256":"{image}"}}}}],"predicateType":"{predicate}","predicate":{{}}}}"#
        );
        text.into_bytes()
    }

    /// The example of the DSSE specification.
    #[test]
    fn type_and_payload_are_joined() {
        assert_eq!(
            joined("http://example.com/HelloWorld", b"hello world"),
            b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
        );
    }

    #[test]
    fn a_statement_names_its_images() {
        let image = Sha256::of(b"x");
        let payload = statement(STATEMENT, SIGNATURE, image);
        let claimed = claim(&joined(PAYLOAD_TYPE, &payload)).unwrap();
        assert_eq!(claimed, Claim { images: vec![image], identity: None });
        for (signed, says) in [
            (joined("text/plain", &payload), "no in-toto statement"),
            (joined(PAYLOAD_TYPE, b"{}"), "missing field"),
            (joined(PAYLOAD_TYPE, &statement("https://in-toto.io/Statement/v0.1", SIGNATURE, image)), "of the type"),
            (
                joined(PAYLOAD_TYPE, &statement(STATEMENT, "https://slsa.dev/provenance/v1", image)),
                "it is an attestation (https://slsa.dev/provenance/v1), not a signature",
            ),
            (b"DSSEv1 28 application/vnd.in-toto+json 3".to_vec(), "no length"),
        ] {
            let error = claim(&signed).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn a_bundle_is_opened() {
        let payload = STANDARD.encode(b"hello");
        let text = format!(
            r#"{{"mediaType":"x","verificationMaterial":{{}},"dsseEnvelope":{{"payload":"{payload}","payloadType":"t","signatures":[{{"sig":"QQ==","keyid":""}},{{"sig":"Qg=="}}]}}}}"#
        );
        let (signed, signatures) = open(text.as_bytes()).unwrap();
        assert_eq!((&signed[..], signatures.len()), (&b"DSSEv1 1 t 5 hello"[..], 2));
        assert!(open(b"{\"messageSignature\":{}}").unwrap_err().contains("dsseEnvelope"));
        assert!(open(text.replace(&payload, "!").as_bytes()).unwrap_err().contains("base64"));
    }
}
