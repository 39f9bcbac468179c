//! X.509 certificates (RFC 5280), as far as a signature names them.

use crate::prelude::*;

use super::der::{self, BIT_STRING, INTEGER, NULL, SEQUENCE};

// AlgorithmIdentifier of a key: rsaEncryption, no parameters (RFC 3279).
const RSA_OID: &[u8] = b"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x01";
// What firmware verifies by.
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
    serial: Vec<u8>,
    key: Vec<u8>,
}

impl Certificate {
    /// Read one in DER form, as far as needed. Whether it is valid is for those who trust it.
    pub fn parse(bytes: &[u8]) -> Result<Self, CertificateError> {
        let Parts { issuer, serial, info, .. } = parts(bytes).ok_or(CertificateError::Malformed)?;
        let key = rsa_key(info).ok_or(CertificateError::NotRsa)?;
        Ok(Certificate { der: bytes.to_vec(), issuer: issuer.to_vec(), serial: serial.to_vec(), key: key.to_vec() })
    }

    /// All of it, DER.
    pub fn der(&self) -> &[u8] {
        &self.der
    }

    /// Its public key: RSAPublicKey of RFC 8017, DER.
    pub fn rsa_public_key(&self) -> &[u8] {
        &self.key
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

/// Of any certificate in DER form: its key (SubjectPublicKeyInfo, DER), and the two times between which it is valid, one
/// behind the other. `None`: it is no certificate.
pub fn key_and_validity(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    parts(bytes).map(|parts| (parts.info, parts.validity))
}

// Each of them whole, but for the times.
struct Parts<'a> {
    issuer: &'a [u8],
    serial: &'a [u8],
    validity: &'a [u8],
    info: &'a [u8],
}

fn parts(bytes: &[u8]) -> Option<Parts<'_>> {
    let certificate = der::only(bytes, SEQUENCE)?;
    let (signed, _) = der::split(certificate, SEQUENCE)?;
    // The version: there in everything but version 1.
    let rest = der::split(signed, der::tagged(0)).map_or(signed, |(_, rest)| rest);
    let (serial, rest) = der::split_whole(rest)?;
    der::only(serial, INTEGER)?;
    let (_algorithm, rest) = der::split(rest, SEQUENCE)?;
    let (issuer, rest) = der::split_whole(rest)?;
    let (validity, rest) = der::split(rest, SEQUENCE)?;
    let (_subject, rest) = der::split(rest, SEQUENCE)?;
    let (info, _extensions) = der::split_whole(rest)?;
    Some(Parts { issuer, serial, validity, info })
}

fn rsa_key(info: &[u8]) -> Option<&[u8]> {
    let (algorithm, rest) = der::split(der::only(info, SEQUENCE)?, SEQUENCE)?;
    // The number of unused bits comes first.
    let key = der::only(rest, BIT_STRING)?.strip_prefix(&[0])?;
    let modulus = der::split(der::only(key, SEQUENCE)?, INTEGER)?.0;
    let modulus = modulus.strip_prefix(&[0]).unwrap_or(modulus);
    (algorithm.starts_with(RSA_OID) && RSA_BYTES.contains(&modulus.len())).then_some(key)
}
