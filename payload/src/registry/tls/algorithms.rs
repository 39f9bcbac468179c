//! Names the unsupported algorithm of a certificate.

use std::fmt::Write as _;

use rustls::{crypto::WebPkiSupportedAlgorithms, pki_types::CertificateDer};
use slipway_core::efi::{
    certificate::Outline,
    der::{self, INTEGER, SEQUENCE},
};

use super::named::key_of;

/// The unsupported part of a certificate, and the remedy.
///
/// ring, which does our cryptography, has neither P-521 nor SHA-512 with ECDSA. A library with these (aws-lc-rs, or
/// RustCrypto's curves for these alone) would make the program larger than it may be.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}, and that is not supported; {remedy}")]
pub struct Unsupported {
    /// `its certificate is signed with SHA-1 and RSA`.
    what: String,
    remedy: &'static str,
}

/// A certificate that is itself named may have any issuer.
const NAME_IT: &str = "give the registry's own certificate to --registry-ca, or have it issued anew, with ECDSA on P-256 or P-384 or \
                       with RSA of 2048 bits or more, and with SHA-256 or SHA-384";
const ANOTHER_KEY: &str = "have the certificate issued anew for a key of ECDSA on P-256 or P-384, of RSA of 2048 bits or more, or of \
                           Ed25519";

// `ring` verifies nothing by shorter or longer ones.
const RSA_BITS: std::ops::RangeInclusive<usize> = 2048..=8192;
// Object identifiers, without tag and length.
const RSA: &[u8] = b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x01";
const EC: &[u8] = b"\x2a\x86\x48\xce\x3d\x02\x01";

/// Known algorithms and curves, by object identifier (RFC 3279, 5480, 5758, 8017, 8410, 5639; SEC 2).
const NAMES: [(&[u8], &str); 25] = [
    (b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x04", "MD5 and RSA"),
    (b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x05", "SHA-1 and RSA"),
    (b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0a", "RSA-PSS with these parameters"),
    (b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0b", "SHA-256 and RSA"),
    (b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0c", "SHA-384 and RSA"),
    (b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0d", "SHA-512 and RSA"),
    (b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0e", "SHA-224 and RSA"),
    (b"\x2a\x86\x48\xce\x3d\x04\x01", "SHA-1 and ECDSA"),
    (b"\x2a\x86\x48\xce\x3d\x04\x03\x01", "SHA-224 and ECDSA"),
    (b"\x2a\x86\x48\xce\x3d\x04\x03\x02", "SHA-256 and ECDSA"),
    (b"\x2a\x86\x48\xce\x3d\x04\x03\x03", "SHA-384 and ECDSA"),
    (b"\x2a\x86\x48\xce\x3d\x04\x03\x04", "SHA-512 and ECDSA"),
    (b"\x2a\x86\x48\xce\x38\x04\x01", "DSA"),
    (b"\x2a\x86\x48\xce\x38\x04\x03", "SHA-1 and DSA"),
    (b"\x60\x86\x48\x01\x65\x03\x04\x03\x02", "SHA-256 and DSA"),
    (b"\x2b\x65\x70", "Ed25519"),
    (b"\x2b\x65\x71", "Ed448"),
    (b"\x2a\x86\x48\xce\x3d\x03\x01\x07", "P-256"),
    (b"\x2b\x81\x04\x00\x22", "P-384"),
    (b"\x2b\x81\x04\x00\x23", "P-521"),
    (b"\x2b\x81\x04\x00\x21", "P-224"),
    (b"\x2b\x81\x04\x00\x0a", "secp256k1"),
    (b"\x2b\x24\x03\x03\x02\x08\x01\x01\x07", "brainpoolP256r1"),
    (b"\x2b\x24\x03\x03\x02\x08\x01\x01\x0b", "brainpoolP384r1"),
    (b"\x2b\x24\x03\x03\x02\x08\x01\x01\x0d", "brainpoolP512r1"),
];

/// The first thing that is not supported: in a certificate that a server presents, or in the key of an authority that was
/// given.
pub fn unsupported(
    presented: &[&CertificateDer<'_>],
    given: &[CertificateDer<'_>],
    algorithms: &WebPkiSupportedAlgorithms,
) -> Option<Unsupported> {
    let presented: Vec<_> = presented.iter().filter_map(|certificate| Outline::parse(certificate)).collect();
    let given = given.iter().filter_map(|certificate| Outline::parse(certificate));
    let issuers = given.filter(|given| presented.iter().any(|certificate| certificate.issuer == given.subject));
    let key = |one: &Outline<'_>| unsupported_key(one.info, algorithms);
    let own = presented
        .first()
        .and_then(key)
        .map(|key| Unsupported { what: format!("its certificate has {key}"), remedy: ANOTHER_KEY });
    let of_presented = presented.iter().enumerate().find_map(|(at, certificate)| {
        let whose = if at == 0 { "its certificate" } else { "an authority's certificate" };
        let signature = unsupported_signature(certificate.algorithm, algorithms);
        let signature = signature.map(|by| format!("{whose} is signed with {by}"));
        signature.or_else(|| key(certificate).map(|key| format!("{whose} has {key}")))
    });
    let of_issuer = || issuers.filter_map(|one| key(&one)).map(|key| format!("its authority has {key}")).next();
    own.or_else(|| of_presented.or_else(of_issuer).map(|what| Unsupported { what, remedy: NAME_IT }))
}

fn unsupported_signature(algorithm: &[u8], algorithms: &WebPkiSupportedAlgorithms) -> Option<String> {
    let is_known = algorithms.all.iter().any(|one| one.signature_alg_id().as_ref() == algorithm);
    (!is_known).then(|| name(algorithm))
}

fn unsupported_key(info: &[u8], algorithms: &WebPkiSupportedAlgorithms) -> Option<String> {
    let (algorithm, key) = key_of(info)?;
    let (id, parameters) = der::split(algorithm, OID)?;
    if id == RSA {
        let (modulus, _) = der::split(der::only(key, SEQUENCE)?, INTEGER)?;
        let modulus = modulus.strip_prefix(&[0]).unwrap_or(modulus);
        let bits = modulus.len() * 8 - modulus.first()?.leading_zeros() as usize;
        return (!RSA_BITS.contains(&bits)).then(|| format!("an RSA key of {bits} bits"));
    }
    let is_known = algorithms.all.iter().any(|one| one.public_key_alg_id().as_ref() == algorithm);
    let name = if id == EC { name(parameters) } else { name(algorithm) };
    (!is_known).then(|| format!("a key for {name}"))
}

/// Tag of OBJECT IDENTIFIER.
const OID: u8 = 0x06;

/// Name of the algorithm or curve that begins with this object identifier.
fn name(algorithm: &[u8]) -> String {
    let Some((id, _)) = der::split(algorithm, OID) else { return "an algorithm that it does not name".to_owned() };
    match NAMES.iter().find(|(own, _)| *own == id) {
        Some((_, name)) => (*name).to_owned(),
        None => format!("the algorithm {}", dotted(id)),
    }
}

/// `1.2.840.10045.4.3.4`
fn dotted(id: &[u8]) -> String {
    let mut numbers = id
        .split_inclusive(|byte| byte & 0x80 == 0)
        .map(|digits| digits.iter().fold(0_u64, |number, digit| number.wrapping_shl(7) | u64::from(digit & 0x7f)));
    let first = numbers.next().unwrap_or_default();
    let root = (first / 40).min(2);
    let mut text = format!("{root}.{}", first - root * 40);
    for number in numbers {
        let _ = write!(text, ".{number}");
    }
    text
}
