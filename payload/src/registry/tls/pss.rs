//! RSA keys that are for PSS alone (RFC 4055). rustls takes signatures by PSS, but not under the names that these keys have.

use std::sync::LazyLock;

use rustls::{
    SignatureScheme,
    crypto::{WebPkiSupportedAlgorithms, ring},
    pki_types::{AlgorithmIdentifier, InvalidSignature, SignatureVerificationAlgorithm},
};

/// The algorithms of ring, and those of such keys.
pub static ALGORITHMS: LazyLock<WebPkiSupportedAlgorithms> = LazyLock::new(|| {
    let known = ring::default_provider().signature_verification_algorithms;
    let (mut all, mut mapping) = (known.all.to_vec(), known.mapping.to_vec());
    for (of_any_key, of_pss_key) in SCHEMES {
        let found = known.mapping.iter().find(|(scheme, _)| *scheme == of_any_key);
        let Some((_, [same, ..])) = found else { continue };
        let one: &'static dyn SignatureVerificationAlgorithm = Box::leak(Box::new(ByPssKey(*same)));
        all.push(one);
        mapping.push((of_pss_key, Box::leak(Box::new([one]))));
    }
    WebPkiSupportedAlgorithms { all: all.leak(), mapping: mapping.leak() }
});

/// Names in a handshake: by a key of any kind, and by one for PSS alone (RFC 8446, section 4.2.3).
const SCHEMES: [(SignatureScheme, SignatureScheme); 3] = [
    (SignatureScheme::RSA_PSS_SHA256, SignatureScheme::Unknown(0x0809)),
    (SignatureScheme::RSA_PSS_SHA384, SignatureScheme::Unknown(0x080a)),
    (SignatureScheme::RSA_PSS_SHA512, SignatureScheme::Unknown(0x080b)),
];

/// Whether rustls does not know this scheme, but [`ALGORITHMS`] do.
pub fn is_ours(scheme: SignatureScheme) -> bool {
    SCHEMES.iter().any(|(_, ours)| *ours == scheme)
}

/// The same signature, by a key with the other name.
#[derive(Debug)]
struct ByPssKey(&'static dyn SignatureVerificationAlgorithm);

impl SignatureVerificationAlgorithm for ByPssKey {
    fn verify_signature(&self, key: &[u8], message: &[u8], signature: &[u8]) -> Result<(), InvalidSignature> {
        self.0.verify_signature(key, message, signature)
    }

    fn public_key_alg_id(&self) -> AlgorithmIdentifier {
        AlgorithmIdentifier::from_slice(b"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0a")
    }

    fn signature_alg_id(&self) -> AlgorithmIdentifier {
        self.0.signature_alg_id()
    }
}
