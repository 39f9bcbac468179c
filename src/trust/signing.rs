//! Private keys: in a file, or with a program that signs and never shows the key.
//!
//! Nothing of a private key is in an error, a message or a debug output.

use std::fmt;

use ring::{
    rand::SystemRandom,
    signature::{
        ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair,
    },
};
use rustls::pki_types::{PrivateKeyDer, pem::PemObject as _};

use crate::tools::{ToolError, shell};
use slipway_core::{
    efi::der::{self, BIT_STRING, INTEGER, OCTET_STRING, SEQUENCE},
    pem,
};
use slipway_payload::trust::key::{ED25519_ID, Kind, P256, PublicKey, RSA, decoded};

// In a SEC1 key the public half stands in this field (RFC 5915).
const PUBLIC_FIELD: u8 = 0xa1;
const CURVE_FIELD: u8 = 0xa0;
// The curve's name in a key's own field, which an AlgorithmIdentifier has behind the name of the algorithm.
const P256_CURVE: usize = 9;

/// Why a private key cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum SigningKeyError {
    #[error("it holds no private key in PEM form (-----BEGIN PRIVATE KEY-----)")]
    None,
    #[error("it holds {0} private keys, and one is needed")]
    Several(usize),
    #[error("its private key is encrypted: let a command sign that asks for the password (--sign-command)")]
    Encrypted,
    /// Without the parser's words: they quote the file.
    #[error("it is not in PEM form, or it is damaged")]
    Pem,
    #[error("its private key cannot be used ({0}): ECDSA on P-256, RSA of 2048 to 4096 bits, or Ed25519")]
    Unusable(String),
}

/// Why there is no signature.
#[derive(Debug, thiserror::Error)]
pub enum SigningError {
    #[error(transparent)]
    Command(#[from] ToolError),
    #[error("{key}: the signature that was made does not verify by the public key; it is not used")]
    Wrong { key: String },
    #[error("{key}: signing failed")]
    Failed { key: String },
}

/// A signer.
pub struct SigningKey {
    public: PublicKey,
    by: By,
}

enum By {
    Ecdsa(Box<EcdsaKeyPair>),
    Rsa(Box<RsaKeyPair>),
    Ed25519(Box<Ed25519KeyPair>),
    Command(String),
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey").field("public", &self.public).finish_non_exhaustive()
    }
}

impl SigningKey {
    /// The private key of a PEM file: PKCS#8 (`PRIVATE KEY`), SEC1 (`EC PRIVATE KEY`) or PKCS#1 (`RSA PRIVATE KEY`).
    /// `name` is its name for people.
    pub fn parse(pem: &[u8], name: &str) -> Result<Self, SigningKeyError> {
        if pem.windows(9).any(|word| word == b"ENCRYPTED") {
            return Err(SigningKeyError::Encrypted);
        }
        let keys: Result<Vec<_>, _> = PrivateKeyDer::pem_slice_iter(&pem::lines(pem)).collect();
        let keys = keys.map_err(|_| SigningKeyError::Pem)?;
        let [key] = &keys[..] else {
            return Err(if keys.is_empty() { SigningKeyError::None } else { SigningKeyError::Several(keys.len()) });
        };
        let by = match key {
            PrivateKeyDer::Pkcs1(key) => rsa(RsaKeyPair::from_der(key.secret_pkcs1_der())),
            PrivateKeyDer::Sec1(key) => sec1(key.secret_sec1_der()),
            PrivateKeyDer::Pkcs8(key) => pkcs8(key.secret_pkcs8_der()),
            _ => None,
        };
        let by = by.ok_or_else(unsupported)??;
        let public = match &by {
            By::Ecdsa(key) => PublicKey::new(Kind::EcdsaP256, key.public_key().as_ref(), name),
            By::Rsa(key) => PublicKey::new(Kind::Rsa, key.public_key().as_ref(), name),
            By::Ed25519(key) => PublicKey::new(Kind::Ed25519, key.public_key().as_ref(), name),
            By::Command(_) => None,
        };
        Ok(SigningKey { public: public.ok_or_else(unsupported)?, by })
    }

    /// A command for `sh -c` that signs: it gets the bytes that are to be signed on stdin and prints the signature, raw or
    /// in base64. That is ECDSA with SHA-256 in DER, RSA with SHA-256 by PKCS#1 v1.5, or Ed25519, as `public` is one.
    pub fn command(command: &str, public: PublicKey) -> Self {
        SigningKey { public, by: By::Command(command.to_owned()) }
    }

    pub fn public_key(&self) -> &PublicKey {
        &self.public
    }

    /// A signature over these bytes, raw. ECDSA with SHA-256, in DER; RSA with SHA-256, PKCS#1 v1.5; Ed25519. It was
    /// verified by the public key.
    pub fn sign(&self, message: &[u8]) -> Result<Vec<u8>, SigningError> {
        let key = || self.public.name.clone();
        let failed = |_| SigningError::Failed { key: key() };
        let random = SystemRandom::new();
        let signature = match &self.by {
            By::Ecdsa(pair) => pair.sign(&random, message).map_err(failed)?.as_ref().to_vec(),
            By::Ed25519(pair) => pair.sign(message).as_ref().to_vec(),
            By::Rsa(pair) => {
                let mut signature = vec![0; pair.public().modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &random, message, &mut signature).map_err(failed)?;
                signature
            }
            By::Command(command) => shell::filter(command, message)?,
        };
        let text = || decoded(&signature).filter(|raw| self.public.verifies_as_made(message, raw));
        match () {
            () if self.public.verifies_as_made(message, &signature) => Ok(signature),
            () => text().ok_or_else(|| SigningError::Wrong { key: key() }),
        }
    }
}

/// `None` if the key is of no kind that can be used.
type Pair = Option<Result<By, SigningKeyError>>;

fn unsupported() -> SigningKeyError {
    SigningKeyError::Unusable("of no supported kind".to_owned())
}

fn unusable(why: ring::error::KeyRejected) -> SigningKeyError {
    // A word such as "TooSmall".
    SigningKeyError::Unusable(why.to_string())
}

fn rsa(pair: Result<RsaKeyPair, ring::error::KeyRejected>) -> Pair {
    Some(pair.map(|pair| By::Rsa(Box::new(pair))).map_err(unusable))
}

fn pkcs8(der: &[u8]) -> Pair {
    let (_, rest) = der::split(der::only(der, SEQUENCE)?, INTEGER)?;
    let (algorithm, _) = der::split(rest, SEQUENCE)?;
    match algorithm {
        RSA => rsa(RsaKeyPair::from_pkcs8(der)),
        ED25519_ID => {
            // openssl leaves the public half out.
            let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(der);
            Some(pair.map(|pair| By::Ed25519(Box::new(pair))).map_err(unusable))
        }
        P256 => Some(
            EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, der, &SystemRandom::new())
                .map(|pair| By::Ecdsa(Box::new(pair)))
                .map_err(unusable),
        ),
        _ => None,
    }
}

/// ECPrivateKey of RFC 5915, with both of its optional fields.
fn sec1(der: &[u8]) -> Pair {
    let (_, rest) = der::split(der::only(der, SEQUENCE)?, INTEGER)?;
    let (private, rest) = der::split(rest, OCTET_STRING)?;
    let (curve, rest) = der::split(rest, CURVE_FIELD)?;
    let public = der::only(der::only(rest, PUBLIC_FIELD)?, BIT_STRING)?.strip_prefix(&[0])?;
    if curve != &P256[P256_CURVE..] {
        return None;
    }
    let (algorithm, random) = (&ECDSA_P256_SHA256_ASN1_SIGNING, SystemRandom::new());
    let pair = EcdsaKeyPair::from_private_key_and_public_key(algorithm, private, public, &random);
    Some(pair.map(|pair| By::Ecdsa(Box::new(pair))).map_err(unusable))
}

#[cfg(test)]
mod tests {
    use base64::{Engine as _, engine::general_purpose::STANDARD};

    use super::*;

    // RFC 8032, section 7.1, test 1, as `openssl genpkey` writes keys: without the public half.
    const ED25519_PEM: &str = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g\n-----END PRIVATE KEY-----\n";

    fn pem(label: &str, der: &[u8]) -> String {
        format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", STANDARD.encode(der))
    }

    fn parse(text: &str) -> Result<SigningKey, SigningKeyError> {
        SigningKey::parse(text.as_bytes(), "k")
    }

    /// A new pair as PKCS#8, with its private half and its public half.
    fn p256() -> (Vec<u8>, Vec<u8>, Vec<u8>) {
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &SystemRandom::new()).unwrap();
        let der = pkcs8.as_ref().to_vec();
        // The offsets of `ring`'s template.
        let (private, public) = (der[36..68].to_vec(), der[der.len() - 65..].to_vec());
        (der, private, public)
    }

    fn sec1_of(private: &[u8], public: &[u8], curve: &[u8]) -> Vec<u8> {
        let bits = der::element(BIT_STRING, &[&[0][..], public]);
        let fields = [
            der::element(INTEGER, &[[1]]),
            der::element(OCTET_STRING, &[private]),
            der::element(CURVE_FIELD, &[curve]),
            der::element(PUBLIC_FIELD, &[bits]),
        ];
        der::element(SEQUENCE, &fields)
    }

    #[test]
    fn the_standards_own_example_is_signed() {
        let key = parse(ED25519_PEM).unwrap();
        assert_eq!((key.public_key().kind, key.public_key().name.as_str()), (Kind::Ed25519, "k"));
        let hex = key.sign(b"").unwrap().iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        assert!(hex.starts_with("e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e06522490155"), "{hex}");
        assert!(!format!("{key:?}").contains("9d61"));
        // As some editors save it.
        assert_eq!(parse(&format!("\u{feff}{ED25519_PEM}")).unwrap().public_key(), key.public_key());
    }

    #[test]
    fn both_forms_of_a_p256_key_are_one_key() {
        let (der, private, public) = p256();
        let long = parse(&pem("PRIVATE KEY", &der)).unwrap();
        let text = pem("EC PRIVATE KEY", &sec1_of(&private, &public, &P256[P256_CURVE..]));
        let short =
            parse(&format!("-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n{text}"));
        let short = short.unwrap();
        assert_eq!(long.public_key(), short.public_key());
        let signature = short.sign(b"hello").unwrap();
        assert!(long.public_key().verifies(b"hello", &signature));
        assert!(!long.public_key().verifies(b"hullo", &signature));
        // Another curve, and halves that do not belong together.
        let other = der::element(6, &[b"\x2b\x81\x04\x00\x22"]);
        assert_eq!(parse(&pem("EC PRIVATE KEY", &sec1_of(&private, &public, &other))).unwrap_err(), unsupported());
        let (_, _, another) = p256();
        let mixed = parse(&pem("EC PRIVATE KEY", &sec1_of(&private, &another, &P256[P256_CURVE..])));
        assert_eq!(mixed.unwrap_err(), SigningKeyError::Unusable("InconsistentComponents".to_owned()));
    }

    #[test]
    fn what_is_no_private_key_is_refused_and_not_quoted() {
        let secret = "c2VjcmV0IHNlY3JldCBzZWNyZXQ=";
        for (text, why) in [
            (String::new(), SigningKeyError::None),
            (format!("-----BEGIN PUBLIC KEY-----\n{secret}\n-----END PUBLIC KEY-----\n"), SigningKeyError::None),
            (format!("-----BEGIN PRIVATE KEY-----\n{secret}\n-----END PRIVATE KEY-----\n"), unsupported()),
            (format!("-----BEGIN PRIVATE KEY-----\n{secret}!\n-----END PRIVATE KEY-----\n"), SigningKeyError::Pem),
            (format!("-----BEGIN PRIVATE KEY-----\n{secret}\n"), SigningKeyError::Pem),
            (
                format!("-----BEGIN ENCRYPTED PRIVATE KEY-----\n{secret}\n-----END ENCRYPTED PRIVATE KEY-----\n"),
                SigningKeyError::Encrypted,
            ),
            (ED25519_PEM.repeat(2), SigningKeyError::Several(2)),
        ] {
            let error = parse(&text).unwrap_err();
            assert!(!error.to_string().contains("c2Vj"), "{error}");
            assert_eq!(error, why, "{text}");
        }
    }

    /// Nothing that the command prints is believed.
    #[test]
    fn what_a_command_signs_is_verified() {
        let key = parse(ED25519_PEM).unwrap();
        let good = STANDARD.encode(key.sign(b"hello").unwrap());
        let by = |command: &str| SigningKey::command(command, key.public_key().clone());
        let raw = by(&format!("test \"$(cat)\" = hello && echo {good} | base64 -d"));
        assert_eq!(raw.sign(b"hello").unwrap(), key.sign(b"hello").unwrap());
        let text = by(&format!("echo {good}"));
        assert_eq!(text.sign(b"hello").unwrap(), key.sign(b"hello").unwrap());
        // The command does not read its input, which is more than a pipe holds.
        assert!(matches!(text.sign(&vec![0; 1 << 20]), Err(SigningError::Wrong { .. })));
        assert!(matches!(by("true").sign(b"hello"), Err(SigningError::Wrong { .. })));
        let error = by("exit 3").sign(b"hello").unwrap_err();
        assert_eq!(error.to_string(), "the signing command failed: exit status: 3");
    }
}
