//! Makes signatures that firmware reads: SignedData of PKCS #7 (RFC 2315) with one signer, RSA and SHA-256.
//! [`super::signature`] parses them.
//!
//! No time is in them, so the same key signs the same bytes by the same signature.

use crate::prelude::*;

use super::{
    certificate::{Certificate, rsa_encryption},
    der::{self, INTEGER, NULL, OCTET_STRING, SEQUENCE, SET},
};
use crate::digest::Sha256;

// Object identifiers, whole.
pub(super) const SIGNED_DATA: &[u8] = b"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x07\x02";
const DATA: &[u8] = b"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x07\x01";
const CONTENT_TYPE: &[u8] = b"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x09\x03";
pub(super) const MESSAGE_DIGEST: &[u8] = b"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x09\x04";
pub(super) const SHA256: &[u8] = b"\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x01";
// Microsoft's: SPC_INDIRECT_DATA and SPC_PE_IMAGE_DATA.
pub(super) const INDIRECT_DATA: &[u8] = b"\x06\x0a\x2b\x06\x01\x04\x01\x82\x37\x02\x01\x04";
const PE_IMAGE_DATA: &[u8] = b"\x06\x0a\x2b\x06\x01\x04\x01\x82\x37\x02\x01\x0f";

/// The bytes to be signed, and the form that the signature gets.
#[derive(Clone, Debug)]
pub struct Unsigned {
    certificate: Certificate,
    /// ContentInfo: the type of the signed content, and in an Authenticode signature the content.
    content: Vec<u8>,
    /// Content of the attributes that are signed in its place; none if it is signed itself.
    attributes: Vec<Vec<u8>>,
    message: Vec<u8>,
}

impl Unsigned {
    /// A signature of a program (Authenticode), by its digest.
    pub fn of_program(digest: Sha256, certificate: &Certificate) -> Self {
        let indirect = der::element(SEQUENCE, &[image_data(), digest_info(digest)]);
        // The hash is over the content without tag and length.
        let hashed = der::only(&indirect, SEQUENCE).map(Sha256::of).unwrap_or_else(|| Sha256::of(&[]));
        let attribute = |name: &[u8], value: &[u8]| der::element(SEQUENCE, &[name, &der::element(SET, &[value])]);
        let attributes = vec![
            attribute(CONTENT_TYPE, INDIRECT_DATA),
            attribute(MESSAGE_DIGEST, &der::element(OCTET_STRING, &[&hashed.0])),
        ];
        Unsigned {
            certificate: certificate.clone(),
            content: der::element(SEQUENCE, &[INDIRECT_DATA, &der::element(der::tagged(0), &[indirect])]),
            // The attributes are signed as a SET and carried with another tag.
            message: der::set_of(SET, attributes.clone()),
            attributes,
        }
    }

    /// A signature of bytes that are elsewhere, without attributes: the form that a variable of UEFI takes.
    pub fn of_bytes(bytes: &[u8], certificate: &Certificate) -> Self {
        Unsigned {
            certificate: certificate.clone(),
            content: der::element(SEQUENCE, &[DATA]),
            attributes: vec![],
            message: bytes.to_vec(),
        }
    }

    /// Bytes that the key of the certificate signs: by PKCS #1 v1.5, with SHA-256.
    pub fn message(&self) -> &[u8] {
        &self.message
    }

    /// SignedData, DER, with this signature over [`Unsigned::message`].
    pub fn signed(&self, signature: &[u8]) -> Vec<u8> {
        let sha256 = der::element(SEQUENCE, &[SHA256, NULL]);
        let attributes = match &self.attributes[..] {
            [] => vec![],
            attributes => der::set_of(der::tagged(0), attributes.to_vec()),
        };
        let signer = [
            der::element(INTEGER, &[[1]]),
            self.certificate.issuer_and_serial(),
            sha256.clone(),
            attributes,
            rsa_encryption(),
            der::element(OCTET_STRING, &[signature]),
        ];
        let parts = [
            der::element(INTEGER, &[[1]]),
            der::element(SET, &[sha256]),
            self.content.clone(),
            der::element(der::tagged(0), &[self.certificate.der()]),
            der::element(SET, &[der::element(SEQUENCE, &signer)]),
        ];
        der::element(SEQUENCE, &parts)
    }

    /// The signature in a ContentInfo, as a program carries it.
    pub fn signed_and_wrapped(&self, signature: &[u8]) -> Vec<u8> {
        der::element(SEQUENCE, &[SIGNED_DATA, &der::element(der::tagged(0), &[self.signed(signature)])])
    }
}

/// SpcAttributeTypeAndOptionalValue: that it is a PE image. Once it named a file; the text says that it no longer does.
fn image_data() -> Vec<u8> {
    let text: Vec<u8> = "<<<Obsolete>>>".encode_utf16().flat_map(u16::to_be_bytes).collect();
    let file = der::element(der::tagged(2), &[der::element(0x80, &[text])]);
    let no_flags = der::element(der::BIT_STRING, &[[0]]);
    let data = der::element(SEQUENCE, &[no_flags, der::element(der::tagged(0), &[file])]);
    der::element(SEQUENCE, &[PE_IMAGE_DATA, &data])
}

fn digest_info(digest: Sha256) -> Vec<u8> {
    let algorithm = der::element(SEQUENCE, &[SHA256, NULL]);
    der::element(SEQUENCE, &[algorithm, der::element(OCTET_STRING, &[&digest.0])])
}
