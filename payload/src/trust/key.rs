//! Public keys, and the one place where a signature is verified.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use ring::signature::{
    ECDSA_P256_SHA256_ASN1, ED25519, RSA_PKCS1_2048_8192_SHA256, RSA_PSS_2048_8192_SHA256, UnparsedPublicKey,
    VerificationAlgorithm,
};
use rustls::pki_types::{CertificateDer, SubjectPublicKeyInfoDer, pem::PemObject as _};

use super::certificate::{self, Validity};
use slipway_core::{
    digest::Sha256,
    efi::der::{self, BIT_STRING, INTEGER, SEQUENCE},
    pem,
};

// Object identifiers with their parameters, as they stand in an AlgorithmIdentifier (RFC 5480, 8410, 3279).
pub const P256: &[u8] = b"\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x08\x2a\x86\x48\xce\x3d\x03\x01\x07";
pub const ED25519_ID: &[u8] = b"\x06\x03\x2b\x65\x70";
pub const RSA: &[u8] = b"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x01\x05\x00";
// `ring` verifies nothing by shorter or longer ones.
const RSA_BYTES: std::ops::RangeInclusive<usize> = 256..=1024;

/// Why a key cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    #[error("it holds no public key and no certificate in PEM form (-----BEGIN PUBLIC KEY-----)")]
    None,
    #[error("not a list of public keys in PEM form: {0}")]
    Pem(String),
    #[error("a public key in it is of no supported kind: ECDSA on P-256, RSA of 2048 to 8192 bits, or Ed25519")]
    Kind,
    #[error("it holds {0} certificates, and the owner of each would be trusted: leave the one that signs")]
    Certificates(usize),
    #[error("the certificate in it cannot be read")]
    Certificate,
    #[error(
        "a public key or a certificate in it begins with another line than -----BEGIN PUBLIC KEY----- and -----BEGIN \
         CERTIFICATE-----: `openssl pkey -pubin -in FILE` and `openssl x509 -in FILE` write these"
    )]
    Form,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    EcdsaP256,
    Rsa,
    Ed25519,
}

/// A public key (SubjectPublicKeyInfo of RFC 5280).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicKey {
    /// Names the key: SHA-256 of its DER form, as `openssl pkey -pubin -outform DER | sha256sum` prints it.
    pub id: Sha256,
    /// Its origin, for people.
    pub name: String,
    pub kind: Kind,
    /// When it counts, if certificates say so: in the time of any of them.
    pub validity: Vec<Validity>,
    // As `ring` takes it: a point, or a sequence of modulus and exponent.
    key: Vec<u8>,
}

impl PublicKey {
    /// All keys of a PEM file, and that of a certificate, with its validity. Other things in it are passed over.
    pub fn parse(pem: &[u8], name: &str) -> Result<Vec<Self>, KeyError> {
        let pem = &pem::lines(pem);
        let certificates = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
        let certificates = certificates.map_err(|error| KeyError::Pem(error.to_string()))?;
        if certificates.len() > 1 {
            return Err(KeyError::Certificates(certificates.len()));
        }
        let certified = certificates.iter().map(|der| {
            let (key, validity) = certificate::read(der).ok_or(KeyError::Certificate)?;
            let key = Self::from_der(key, name).ok_or(KeyError::Kind)?;
            Ok(PublicKey { validity: vec![validity], ..key })
        });
        let keys = SubjectPublicKeyInfoDer::pem_slice_iter(pem).map(|item| {
            let der = item.map_err(|error| KeyError::Pem(error.to_string()))?;
            Self::from_der(&der, name).ok_or(KeyError::Kind)
        });
        let keys = certified.chain(keys).collect::<Result<Vec<_>, _>>()?;
        // One that is passed over would be missed only when it signs.
        let is_one = |line: &&[u8]| {
            line.starts_with(b"-----BEGIN ")
                && (line.ends_with(b" PUBLIC KEY-----") || line.ends_with(b" CERTIFICATE-----"))
        };
        match pem.split(|byte| *byte == b'\n').filter(is_one).count() {
            0 => Err(KeyError::None),
            count if count == keys.len() => Ok(keys),
            _ => Err(KeyError::Form),
        }
    }

    /// The key in its DER form (SubjectPublicKeyInfo). `None` if it is of no supported kind.
    pub fn from_der(der: &[u8], name: &str) -> Option<Self> {
        let info = der::only(der, SEQUENCE)?;
        let (algorithm, rest) = der::split(info, SEQUENCE)?;
        // The number of unused bits comes first.
        let key = der::only(rest, BIT_STRING)?.strip_prefix(&[0])?;
        let kind = match algorithm {
            P256 if key.len() == 65 && key[0] == 4 => Kind::EcdsaP256,
            ED25519_ID if key.len() == 32 => Kind::Ed25519,
            RSA => {
                let (modulus, _) = der::split(der::only(key, SEQUENCE)?, INTEGER)?;
                let bytes = modulus.strip_prefix(&[0]).unwrap_or(modulus).len();
                RSA_BYTES.contains(&bytes).then_some(Kind::Rsa)?
            }
            _ => return None,
        };
        Some(PublicKey { id: Sha256::of(der), name: name.to_owned(), kind, validity: Vec::new(), key: key.to_vec() })
    }

    /// Joins the two halves of a key: `key` is a point, or for RSA a sequence of modulus and exponent.
    pub fn new(kind: Kind, key: &[u8], name: &str) -> Option<Self> {
        let algorithm = match kind {
            Kind::EcdsaP256 => P256,
            Kind::Rsa => RSA,
            Kind::Ed25519 => ED25519_ID,
        };
        // The number of unused bits comes first.
        let info = [der::element(SEQUENCE, &[algorithm]), der::element(BIT_STRING, &[&[0][..], key])];
        Self::from_der(&der::element(SEQUENCE, &info), name)
    }

    /// Why it does not count at this time, seconds since 1970 UTC.
    pub fn problem(&self, now: u64) -> Option<String> {
        let problems: Option<Vec<_>> = self.validity.iter().map(|validity| validity.problem(now)).collect();
        problems.and_then(|problems| problems.into_iter().next())
    }

    /// Its public half: a point, or for RSA a sequence of modulus and exponent.
    pub fn bytes(&self) -> &[u8] {
        &self.key
    }

    /// Whether this key made the signature over these bytes, in the form that Slipway makes itself: raw, and for RSA PKCS#1
    /// v1.5.
    pub fn verifies_as_made(&self, message: &[u8], signature: &[u8]) -> bool {
        let algorithm: &dyn VerificationAlgorithm = match self.kind {
            Kind::EcdsaP256 => &ECDSA_P256_SHA256_ASN1,
            Kind::Rsa => &RSA_PKCS1_2048_8192_SHA256,
            Kind::Ed25519 => &ED25519,
        };
        UnparsedPublicKey::new(algorithm, &self.key).verify(message, signature).is_ok()
    }

    /// Whether this key made the signature over these bytes. ECDSA with SHA-256, in DER; RSA with SHA-256, PKCS#1 v1.5,
    /// or PSS with a salt of 32 bytes; Ed25519. The signature is raw or in base64.
    pub fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        let pss = || UnparsedPublicKey::new(&RSA_PSS_2048_8192_SHA256, &self.key);
        let verifies = |signature: &[u8]| {
            self.verifies_as_made(message, signature)
                || self.kind == Kind::Rsa && pss().verify(message, signature).is_ok()
        };
        verifies(signature) || decoded(signature).is_some_and(|raw| verifies(&raw))
    }
}

/// A signature, raw or in base64, as one line of base64.
pub fn text_of(signature: &[u8]) -> String {
    STANDARD.encode(decoded(signature).as_deref().unwrap_or(signature))
}

/// A signature in base64, with line breaks or without.
pub fn decoded(text: &[u8]) -> Option<Vec<u8>> {
    let text: Vec<u8> = text.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect();
    STANDARD.decode(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    // Made by `openssl genpkey` and `openssl pkey -pubout`.
    const ED25519_PEM: &str = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEA11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=\n-----END PUBLIC KEY-----\n";

    /// RFC 8032, section 7.1, test 1: the empty message.
    #[test]
    fn the_standards_own_example_verifies() {
        let keys = PublicKey::parse(ED25519_PEM.as_bytes(), "k.pem").unwrap();
        let [key] = &keys[..] else { panic!("{keys:?}") };
        let hex = "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd\
                   25bf5f0595bbe24655141438e7a100b";
        let mut raw: Vec<u8> = (0..64).map(|n| u8::from_str_radix(&hex[2 * n..2 * n + 2], 16).unwrap()).collect();
        assert!(key.verifies(b"", &raw));
        assert!(key.verifies(b"", format!("{}\n", STANDARD.encode(&raw)).as_bytes()));
        assert!(!key.verifies(b"x", &raw) && !key.verifies(b"", b"") && !key.verifies(b"", &raw[..63]));
        raw[5] ^= 1;
        assert!(!key.verifies(b"", &raw));
    }

    #[test]
    fn what_is_no_key_is_refused() {
        let parse = |text: &str| PublicKey::parse(text.as_bytes(), "k.pem").unwrap_err();
        assert_eq!(parse(""), KeyError::None);
        assert_eq!(parse("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"), KeyError::None);
        assert_eq!(parse("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"), KeyError::Kind);
        assert!(matches!(parse("-----BEGIN PUBLIC KEY-----\n!!!\n-----END PUBLIC KEY-----\n"), KeyError::Pem(_)));
        let two = format!("# one\n{ED25519_PEM}{ED25519_PEM}");
        // With or without the mark that some editors begin a file with; of two files, the first of which has no last line break.
        let joined = format!("{}{ED25519_PEM}", ED25519_PEM.trim_end());
        for text in [two, format!("\u{feff}{ED25519_PEM}{ED25519_PEM}"), joined] {
            assert_eq!(PublicKey::parse(text.as_bytes(), "k.pem").unwrap().len(), 2);
        }
        for other in ["RSA PUBLIC KEY", "TRUSTED CERTIFICATE", "X509 CERTIFICATE"] {
            let other = format!("-----BEGIN {other}-----\nAAAA\n-----END {other}-----\n");
            assert_eq!(parse(&other), KeyError::Form);
            assert_eq!(parse(&format!("{ED25519_PEM}{other}")), KeyError::Form);
        }
        let cut = ED25519_PEM.replace("MCow", "MCkw");
        assert_eq!(parse(&cut), KeyError::Kind);
    }
}
