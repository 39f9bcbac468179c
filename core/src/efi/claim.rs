//! Claims that a key would have to verify. The core does no cryptography itself: the caller brings the verifier.

// PKCS #1 v1.5 (RFC 8017): all but the last byte of sha256WithRSAEncryption and those beside it.
const RSA_WITH: &[u8] = b"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01";

/// Hash of the signed bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "they are what their names say")]
pub enum Hash {
    Sha256,
    Sha384,
    Sha512,
}

impl Hash {
    /// Hash of an RSA signature, from the content of its AlgorithmIdentifier.
    pub(super) fn of_rsa(algorithm: &[u8]) -> Option<Self> {
        match algorithm.strip_prefix(RSA_WITH)?.first()? {
            11 => Some(Hash::Sha256),
            12 => Some(Hash::Sha384),
            13 => Some(Hash::Sha512),
            _ => None,
        }
    }
}

/// The claim that a key has signed a message: by PKCS #1 v1.5.
#[derive(Clone, Copy, Debug)]
pub struct Claim<'c> {
    /// RSAPublicKey, DER.
    pub key: &'c [u8],
    /// Hash of the message.
    pub hash: Hash,
    /// The signed bytes.
    pub message: &'c [u8],
    /// The signature.
    pub signature: &'c [u8],
}

/// Decides whether a claim is true.
pub type Verifier<'v> = &'v dyn Fn(&Claim<'_>) -> bool;
