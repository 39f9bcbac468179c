//! What ring does not verify, and private authorities use all the same: ECDSA on P-521, and with SHA-512 on P-256 and P-384.

use std::sync::LazyLock;

use p256::ecdsa::signature::hazmat::PrehashVerifier as _;
use rustls::{
    SignatureScheme,
    crypto::{WebPkiSupportedAlgorithms, ring},
    pki_types::{AlgorithmIdentifier, InvalidSignature, SignatureVerificationAlgorithm, alg_id},
};
use sha2::{Digest as _, Sha256, Sha384, Sha512};

macro_rules! verify {
    ($curve:ident, $digest:ident) => {
        |key, message, signature| {
            let key = $curve::ecdsa::VerifyingKey::from_sec1_bytes(key).ok()?;
            let signature = $curve::ecdsa::Signature::from_der(signature).ok()?;
            key.verify_prehash(&$digest::digest(message), &signature).ok()
        }
    };
}

type Algorithms = &'static [&'static dyn SignatureVerificationAlgorithm];

/// What ring verifies, and this.
pub fn algorithms() -> WebPkiSupportedAlgorithms {
    static ALL: LazyLock<Vec<&dyn SignatureVerificationAlgorithm>> = LazyLock::new(|| [ring().all, &OWN].concat());
    static MAPPING: LazyLock<Vec<(SignatureScheme, Algorithms)>> =
        LazyLock::new(|| [ring().mapping, &[(SignatureScheme::ECDSA_NISTP521_SHA512, &OWN)]].concat());
    WebPkiSupportedAlgorithms { all: &ALL, mapping: &MAPPING }
}

fn ring() -> WebPkiSupportedAlgorithms {
    ring::default_provider().signature_verification_algorithms
}

// With TLS 1.3 the first is the one of its scheme. With TLS 1.2 the scheme says nothing of the curve.
static OWN: [&dyn SignatureVerificationAlgorithm; 5] = [
    &Ecdsa { curve: alg_id::ECDSA_P521, digest: alg_id::ECDSA_SHA512, verify: verify!(p521, Sha512) },
    &Ecdsa { curve: alg_id::ECDSA_P521, digest: alg_id::ECDSA_SHA384, verify: verify!(p521, Sha384) },
    &Ecdsa { curve: alg_id::ECDSA_P521, digest: alg_id::ECDSA_SHA256, verify: verify!(p521, Sha256) },
    &Ecdsa { curve: alg_id::ECDSA_P384, digest: alg_id::ECDSA_SHA512, verify: verify!(p384, Sha512) },
    &Ecdsa { curve: alg_id::ECDSA_P256, digest: alg_id::ECDSA_SHA512, verify: verify!(p256, Sha512) },
];

/// ECDSA on a curve with a digest.
#[derive(Debug)]
struct Ecdsa {
    curve: AlgorithmIdentifier,
    digest: AlgorithmIdentifier,
    verify: fn(key: &[u8], message: &[u8], signature: &[u8]) -> Option<()>,
}

impl SignatureVerificationAlgorithm for Ecdsa {
    fn public_key_alg_id(&self) -> AlgorithmIdentifier {
        self.curve
    }

    fn signature_alg_id(&self) -> AlgorithmIdentifier {
        self.digest
    }

    fn verify_signature(&self, key: &[u8], message: &[u8], signature: &[u8]) -> Result<(), InvalidSignature> {
        (self.verify)(key, message, signature).ok_or(InvalidSignature)
    }
}
