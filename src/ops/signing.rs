//! Signers: private keys in files, and a command.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use slipway_core::{
    report::{FailureKind, Observer},
    text::quoted,
};

use super::trust::{self, TrustSetupError};
use crate::{
    error::{Failure, OrFail as _},
    trust::{PublicKey, SigningKey, SigningKeyError},
};

// Group and others.
const NOT_THE_OWNER: u32 = 0o077;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SigningRequest {
    /// Files with private keys, each of which signs.
    pub keys: Vec<PathBuf>,
    pub command: Option<CommandRequest>,
}

/// A command for `sh -c`, see [`SigningKey::command`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandRequest {
    pub command: String,
    /// The file with its one public key.
    pub public_key: PathBuf,
}

/// Why signing fails.
#[derive(Debug, thiserror::Error)]
pub enum SigningSetupError {
    #[error("{path}: {source}", path = path.display())]
    Key { path: PathBuf, source: SigningKeyError },
    #[error(transparent)]
    File(TrustSetupError),
    #[error("{path}: it holds {have} public keys, and one is needed", path = path.display())]
    NotOne { path: PathBuf, have: usize },
    #[error("{} and {}: the same key", first.display(), second.display())]
    Twice { first: PathBuf, second: PathBuf },
}

/// All signers. No key is there twice. A file that others than its owner may read is noted.
pub fn keys(request: &SigningRequest, observer: &mut dyn Observer) -> Result<Vec<SigningKey>, Failure> {
    let mut found = Vec::<(&Path, SigningKey)>::new();
    let of_files = request.keys.iter().map(|path| (path.as_path(), None));
    let of_command = request.command.iter().map(|by| (by.public_key.as_path(), Some(by.command.as_str())));
    for (path, command) in of_files.chain(of_command) {
        let key = match command {
            None => of_file(path, observer)?,
            Some(command) => SigningKey::command(command, public(path)?),
        };
        if let Some((first, _)) = found.iter().find(|(_, known)| known.public_key().id == key.public_key().id) {
            let error = SigningSetupError::Twice { first: first.to_path_buf(), second: path.to_owned() };
            return Err(error).or_fail(FailureKind::Input);
        }
        found.push((path, key));
    }
    Ok(found.into_iter().map(|(_, key)| key).collect())
}

fn of_file(path: &Path, observer: &mut dyn Observer) -> Result<SigningKey, Failure> {
    let pem = trust::read(path).map_err(SigningSetupError::File).or_fail(FailureKind::Input)?;
    let key = SigningKey::parse(&pem, &path.display().to_string());
    let key =
        key.map_err(|source| SigningSetupError::Key { path: path.to_owned(), source }).or_fail(FailureKind::Input)?;
    let mode = fs::metadata(path).map_or(0, |meta| meta.permissions().mode());
    if mode & NOT_THE_OWNER != 0 {
        let (name, word, mode) = (path.display(), quoted(&path.to_string_lossy()), mode & 0o777);
        observer.note(&format!("{name}: a private key that others may use (mode {mode:03o}): chmod 600 {word}"));
    }
    Ok(key)
}

fn public(path: &Path) -> Result<PublicKey, Failure> {
    let mut keys = trust::keys(&[path.to_owned()])?;
    match keys.pop() {
        Some(key) if keys.is_empty() => Ok(key),
        _ => Err(SigningSetupError::NotOne { path: path.to_owned(), have: keys.len() + 1 }).or_fail(FailureKind::Input),
    }
}
