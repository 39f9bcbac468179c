//! X.509 certificates (RFC 5280), as far as a signature names them.

use crate::prelude::*;

use super::{
    claim::{Claim, Hash},
    der::{self, BIT_STRING, INTEGER, NULL, SEQUENCE},
};
use crate::digest::Sha256;

// AlgorithmIdentifier of a key: rsaEncryption, no parameters (RFC 3279).
const RSA_OID: &[u8] = b"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x01";
// Key sizes that firmware verifies with.
const RSA_BYTES: core::ops::RangeInclusive<usize> = 256..=512;

/// Why a certificate cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CertificateError {
    /// It is not X.509.
    #[error("not an X.509 certificate")]
    Malformed,
    /// It is for a key that firmware does not verify by.
    #[error("its key is not RSA of 2048 to 4096 bits, and Secure Boot asks for that")]
    NotRsa,
}

/// A certificate for an RSA key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    der: Vec<u8>,
    issuer: Vec<u8>,
    subject: Vec<u8>,
    serial: Vec<u8>,
    key: Vec<u8>,
    /// The bytes that its issuer has signed.
    signed: Vec<u8>,
    /// AlgorithmIdentifier, without tag and length.
    algorithm: Vec<u8>,
    signature: Vec<u8>,
}

impl Certificate {
    /// Read one in DER form, as far as needed. Its users decide whether it is valid.
    pub fn parse(bytes: &[u8]) -> Result<Self, CertificateError> {
        let fields = Fields::parse(bytes).ok_or(CertificateError::Malformed)?;
        let key = rsa_key(fields.info).ok_or(CertificateError::NotRsa)?;
        Ok(Certificate {
            der: bytes.to_vec(),
            issuer: fields.issuer.to_vec(),
            subject: fields.subject.to_vec(),
            serial: fields.serial.to_vec(),
            key: key.to_vec(),
            signed: fields.signed.to_vec(),
            algorithm: fields.algorithm.to_vec(),
            signature: fields.signature.to_vec(),
        })
    }

    /// The whole certificate, DER.
    pub fn der(&self) -> &[u8] {
        &self.der
    }

    /// Its public key: RSAPublicKey of RFC 8017, DER.
    pub fn rsa_public_key(&self) -> &[u8] {
        &self.key
    }

    /// The digest by which dbx names a certificate, by any signer: of the signed part.
    pub fn signed_digest(&self) -> Sha256 {
        Sha256::of(&self.signed)
    }

    /// Its signature, as one that this issuer's key would have made. None if the issuer has another name, or the
    /// algorithm is unknown here.
    pub(super) fn signed_by<'c>(&'c self, issuer: &'c Certificate) -> Option<Claim<'c>> {
        let hash = Hash::of_rsa(&self.algorithm).filter(|_| self.issuer == issuer.subject)?;
        Some(Claim { key: &issuer.key, hash, message: &self.signed, signature: &self.signature })
    }

    /// IssuerAndSerialNumber, by which a signature names the certificate of its key.
    pub(super) fn issuer_and_serial(&self) -> Vec<u8> {
        der::element(SEQUENCE, &[&self.issuer, &self.serial])
    }
}

/// SubjectPublicKeyInfo of an RSA key, DER; `key` is its RSAPublicKey. `openssl pkey -pubin` reads it.
pub fn public_key_info(key: &[u8]) -> Vec<u8> {
    let bits = der::element(BIT_STRING, &[&[0][..], key]);
    der::element(SEQUENCE, &[rsa_encryption(), bits])
}

/// The AlgorithmIdentifier of an RSA key.
pub(super) fn rsa_encryption() -> Vec<u8> {
    der::element(SEQUENCE, &[RSA_OID, NULL])
}

/// The part of any certificate that describes a key, each field in DER form.
#[derive(Clone, Copy, Debug)]
pub struct Outline<'b> {
    /// SubjectPublicKeyInfo.
    pub info: &'b [u8],
    /// The two times between which it is valid, one behind the other.
    pub validity: &'b [u8],
    /// Name: a sequence of sets.
    pub subject: &'b [u8],
    /// The Name of its signer.
    pub issuer: &'b [u8],
    /// AlgorithmIdentifier of its signature, without tag and length.
    pub algorithm: &'b [u8],
    /// The bytes behind the key; empty in version 1.
    pub extensions: &'b [u8],
}

impl<'b> Outline<'b> {
    /// `None`: it is no certificate.
    pub fn parse(certificate: &'b [u8]) -> Option<Self> {
        let Fields { info, validity, subject, issuer, algorithm, extensions, .. } = Fields::parse(certificate)?;
        Some(Outline { info, validity, subject, issuer, algorithm, extensions })
    }
}

// The needed fields of a certificate, each whole but for the times, and algorithm and signature.
struct Fields<'b> {
    signed: &'b [u8],
    serial: &'b [u8],
    issuer: &'b [u8],
    validity: &'b [u8],
    subject: &'b [u8],
    info: &'b [u8],
    extensions: &'b [u8],
    algorithm: &'b [u8],
    signature: &'b [u8],
}

impl<'b> Fields<'b> {
    fn parse(bytes: &'b [u8]) -> Option<Self> {
        let (signed, rest) = der::split_whole(der::only(bytes, SEQUENCE)?)?;
        let (algorithm, rest) = der::split(rest, SEQUENCE)?;
        // The number of unused bits comes first.
        let signature = der::only(rest, BIT_STRING)?.strip_prefix(&[0])?;
        let content = der::only(signed, SEQUENCE)?;
        // The version: there in everything but version 1.
        let rest = der::split(content, der::tagged(0)).map_or(content, |(_, rest)| rest);
        let (serial, rest) = der::split_whole(rest)?;
        der::only(serial, INTEGER)?;
        let (_algorithm, rest) = der::split(rest, SEQUENCE)?;
        let (issuer, rest) = der::split_whole(rest)?;
        let (validity, rest) = der::split(rest, SEQUENCE)?;
        let (subject, rest) = der::split_whole(rest)?;
        der::only(subject, SEQUENCE)?;
        let (info, extensions) = der::split_whole(rest)?;
        Some(Fields { signed, serial, issuer, validity, subject, info, extensions, algorithm, signature })
    }
}

fn rsa_key(info: &[u8]) -> Option<&[u8]> {
    let (algorithm, rest) = der::split(der::only(info, SEQUENCE)?, SEQUENCE)?;
    // The number of unused bits comes first.
    let key = der::only(rest, BIT_STRING)?.strip_prefix(&[0])?;
    let modulus = der::split(der::only(key, SEQUENCE)?, INTEGER)?.0;
    let modulus = modulus.strip_prefix(&[0]).unwrap_or(modulus);
    (algorithm.starts_with(RSA_OID) && RSA_BYTES.contains(&modulus.len())).then_some(key)
}
