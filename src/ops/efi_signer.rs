//! Signer of programs that firmware verifies: an RSA key, and the certificate that firmware knows it by.

use std::{
    fs,
    path::{Path, PathBuf},
};

use rustls::pki_types::{CertificateDer, pem::PemObject as _};
use slipway_core::{
    digest::Sha256,
    efi::{
        certificate::{Certificate, CertificateError, public_key_info},
        signed_data::Unsigned,
    },
    pem,
    report::{FailureKind, Observer},
};

use super::{
    own_input::InputFile,
    signing::{self, SigningRequest},
};
use crate::{
    error::{Failure, OrFail as _},
    trust::{Kind, PublicKey, SigningKey},
};

// Limit of a file with a certificate or a key.
const MAX_BYTES: u64 = 1 << 16;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EfiSignerRequest {
    pub certificate: PathBuf,
    pub by: SignedBy,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SignedBy {
    /// The file with the private key (PEM).
    Key(PathBuf),
    /// A command for `sh -c`, see [`SigningKey::command`].
    Command(String),
}

impl EfiSignerRequest {
    pub fn files(&self) -> impl Iterator<Item = InputFile<'_>> {
        let key = match &self.by {
            SignedBy::Key(file) => Some(("--key", file.as_path())),
            SignedBy::Command(_) => None,
        };
        [("--certificate", self.certificate.as_path())].into_iter().chain(key)
    }
}

/// Why this key and this certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum EfiSignerError {
    #[error("{path}: {source}", path = path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{path}: {source}", path = path.display())]
    Certificate { path: PathBuf, source: CertificateError },
    #[error("{path}: it holds {have} certificates, and one is needed", path = path.display())]
    NotOne { path: PathBuf, have: usize },
    #[error("{path}: the key is not RSA, and {what} asks for that", path = path.display())]
    NotRsa { path: PathBuf, what: &'static str },
    #[error("{}: not the certificate of the key in {}", certificate.display(), key.display())]
    OthersKey { certificate: PathBuf, key: PathBuf },
}

/// A key with its certificate.
pub struct EfiSigner {
    key: SigningKey,
    pub certificate: Certificate,
    /// The certificate's file, as it is.
    pub file: Vec<u8>,
}

impl EfiSigner {
    pub fn open(request: &EfiSignerRequest, observer: &mut dyn Observer) -> Result<Self, Failure> {
        let path = &request.certificate;
        let (file, certificate) = certificate(path)?;
        let info = public_key_info(certificate.rsa_public_key());
        let key = match &request.by {
            SignedBy::Key(file) => {
                let key = rsa_key(file, "Secure Boot", observer)?;
                if key.public_key().id != Sha256::of(&info) {
                    let error = EfiSignerError::OthersKey { certificate: path.clone(), key: file.clone() };
                    return Err(error).or_fail(FailureKind::Input);
                }
                key
            }
            SignedBy::Command(command) => {
                let public = PublicKey::from_der(&info, &path.display().to_string());
                let wrong = EfiSignerError::Certificate { path: path.clone(), source: CertificateError::NotRsa };
                SigningKey::command(command, public.ok_or(wrong).or_fail(FailureKind::Input)?)
            }
        };
        Ok(EfiSigner { key, certificate, file })
    }

    /// A signature that firmware takes, over these bytes.
    pub fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Failure> {
        self.key.sign(message).or_fail(FailureKind::Dependency)
    }

    /// A signature for a program with this digest.
    pub fn sign_program(&self, digest: Sha256) -> Result<Vec<u8>, Failure> {
        let unsigned = Unsigned::of_program(digest, &self.certificate);
        Ok(unsigned.signed_and_wrapped(&self.sign(unsigned.message())?))
    }
}

/// The one certificate of a file, in PEM or DER form, and the file as it is.
pub fn certificate(path: &Path) -> Result<(Vec<u8>, Certificate), Failure> {
    let file = read(path)?;
    let der = if file.starts_with(&[0x30]) {
        file.clone()
    } else {
        let mut found: Vec<_> = CertificateDer::pem_slice_iter(&pem::lines(&file)).filter_map(Result::ok).collect();
        match (found.pop(), found.len()) {
            (Some(one), 0) => one.to_vec(),
            (last, others) => {
                let have = others + usize::from(last.is_some());
                return Err(EfiSignerError::NotOne { path: path.to_owned(), have }).or_fail(FailureKind::Input);
            }
        }
    };
    let certificate = Certificate::parse(&der)
        .map_err(|source| EfiSignerError::Certificate { path: path.to_owned(), source })
        .or_fail(FailureKind::Input)?;
    Ok((file, certificate))
}

/// The RSA key of a file. `what` asks for RSA.
pub fn rsa_key(path: &Path, what: &'static str, observer: &mut dyn Observer) -> Result<SigningKey, Failure> {
    let request = SigningRequest { keys: vec![path.to_owned()], command: None };
    let key = signing::keys(&request, observer)?.pop();
    let rsa = key.filter(|key| key.public_key().kind == Kind::Rsa);
    rsa.ok_or_else(|| EfiSignerError::NotRsa { path: path.to_owned(), what }).or_fail(FailureKind::Input)
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    let failed = |source| EfiSignerError::Read { path: path.to_owned(), source };
    let small = fs::metadata(path).and_then(|meta| match meta.len() {
        0..=MAX_BYTES => fs::read(path),
        _ => Err(std::io::Error::other("too large for a certificate")),
    });
    small.map_err(failed).or_fail(FailureKind::Input)
}
