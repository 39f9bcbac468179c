//! Whose signatures a source needs: by the command line, the policy, or the keys beside the program, in this order.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use anyhow::Context as _;
use slipway_core::{
    config::policy::{Policy, Rule},
    payload::signer::{FoundSignature, Signer},
    report::{FailureKind, Observer},
    text::printable,
};

use crate::{
    error::{Failure, OrFail as _},
    payload::SourceRef,
    trust::{self, Evidence, KeyError, PublicKey, Requirement, TrustError, check},
};

// A key has a few hundred bytes.
const MAX_KEY_BYTES: u64 = 1 << 20;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustRequest {
    /// Files with public keys, one of which must have signed. They replace policy and `beside`.
    pub keys: Vec<PathBuf>,
    /// The policy. It replaces `beside`.
    pub policy: Option<PathBuf>,
    /// A directory with keys (`*.pem`), one of which must have signed. It may be missing.
    pub beside: Option<PathBuf>,
    /// Take a payload without a valid signature all the same.
    pub allow_unsigned: bool,
}

/// Why it is not known whom to trust.
#[derive(Debug, thiserror::Error)]
pub enum TrustSetupError {
    #[error("{path}: {source}", path = path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("{path}: {source}", path = path.display())]
    Key { path: PathBuf, source: KeyError },
    #[error("{by}: signatures by {need} keys are demanded, and there are only {have}")]
    Threshold { by: String, need: usize, have: usize },
}

/// A source that no rule is for.
#[derive(Debug, thiserror::Error)]
#[error(
    "{}: no rule of {policy} is for this source; a last rule with source = \"*\" is for all others",
    printable(place)
)]
pub struct NoRule {
    place: String,
    policy: String,
}

struct Demand {
    requirement: Requirement,
    /// Otherwise a valid signature is only noted.
    required: bool,
}

/// Who has signed a payload: nobody if nothing is demanded of this source. An error if what is demanded is not met, unless
/// the request lets it pass. `evidence` is called only if it is needed.
pub fn signers(
    request: &TrustRequest,
    source: &SourceRef,
    evidence: impl FnOnce() -> Result<Evidence, Failure>,
    observer: &mut dyn Observer,
) -> Result<Vec<Signer>, Failure> {
    let demand = match demand(request, source) {
        Err(failure) if request.allow_unsigned && failure.error.is::<NoRule>() => None,
        demand => demand?,
    };
    let Some(Demand { requirement, required }) = demand else { return Ok(vec![]) };
    let verdict = evidence().and_then(|evidence| check(&requirement, &evidence).or_fail(FailureKind::Input));
    match verdict {
        Ok(signers) => {
            signers.iter().for_each(|signer| observer.note(&format!("{source}: {signer}")));
            Ok(signers)
        }
        Err(failure) if request.allow_unsigned => {
            observer.note(&format!("taken by --allow-unsigned: {failure}"));
            Ok(vec![])
        }
        // What is missing may be missing; a registry that does not answer says nothing of that.
        Err(failure) if !required && failure.error.is::<TrustError>() => {
            observer.note(&format!("not required: {failure}"));
            Ok(vec![])
        }
        Err(failure) => Err(failure),
    }
}

/// The signatures that are there, and which of the keys that are named for this source made them. What is wrong with the
/// keys is said by [`signers`].
pub fn found(request: &TrustRequest, source: &SourceRef, evidence: &Evidence) -> Vec<FoundSignature> {
    let named = demand(request, source).ok().flatten();
    trust::found(&named.map(|demand| demand.requirement.keys).unwrap_or_default(), evidence)
}

fn demand(request: &TrustRequest, source: &SourceRef) -> Result<Option<Demand>, Failure> {
    let any_of = |keys: Vec<PublicKey>, by: String| Demand {
        requirement: Requirement { keys, threshold: 1, identity: None, now: now(), by },
        required: true,
    };
    if !request.keys.is_empty() {
        return Ok(Some(any_of(keys(&request.keys)?, "--trust-key".to_owned())));
    }
    if let Some(path) = &request.policy {
        return by_policy(path, source).map(Some);
    }
    match &request.beside {
        Some(dir) => {
            let found = in_dir(dir).or_fail(FailureKind::Input)?;
            Ok((!found.is_empty()).then_some(any_of(keys(&found)?, dir.display().to_string())))
        }
        None => Ok(None),
    }
}

fn by_policy(path: &Path, source: &SourceRef) -> Result<Demand, Failure> {
    let name = path.display().to_string();
    let text = read(path).or_fail(FailureKind::Input)?;
    let policy = Policy::parse(&text).context(name.clone()).or_fail(FailureKind::Input)?;
    let Some(Rule { at, keys: files, required, threshold, identity, .. }) = policy.rule(&named(source)) else {
        return Err(NoRule { place: source.to_string(), policy: name }).or_fail(FailureKind::Input);
    };
    let files: Vec<_> = files.iter().map(|file| PathBuf::from(&file.value)).collect();
    let (keys, by) = (keys(&files)?, format!("{name}, line {}", at.line));
    if (*required || !keys.is_empty()) && keys.len() < *threshold {
        let error = TrustSetupError::Threshold { by, need: *threshold, have: keys.len() };
        return Err(error).or_fail(FailureKind::Input);
    }
    let requirement = Requirement { keys, threshold: *threshold, identity: identity.clone(), now: now(), by };
    Ok(Demand { requirement, required: *required })
}

/// By this machine's clock, seconds since 1970 UTC.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// The source as rules name it.
fn named(source: &SourceRef) -> String {
    // Where there is nothing of this name, opening it fails later.
    let whole = |path: &Path| path.canonicalize().or_else(|_| std::path::absolute(path)).unwrap_or(path.to_owned());
    match source {
        SourceRef::Docker(image) => format!("docker://{}/{}", image.host.to_ascii_lowercase(), image.repository),
        SourceRef::Dir(path) => format!("dir:{}", whole(path).display()),
        SourceRef::Oci(path, _) => format!("oci:{}", whole(path).display()),
        SourceRef::OciArchive(path, _) => format!("oci-archive:{}", whole(path).display()),
    }
}

/// All keys of these files. One that two files hold is one key; if a certificate bounds it in time, that holds.
pub(super) fn keys(files: &[PathBuf]) -> Result<Vec<PublicKey>, Failure> {
    let mut keys = Vec::<PublicKey>::new();
    for path in files {
        let text = read(path).or_fail(FailureKind::Input)?;
        let found = PublicKey::parse(&text, &path.display().to_string());
        let found = found.map_err(|source| TrustSetupError::Key { path: path.clone(), source });
        for key in found.or_fail(FailureKind::Input)? {
            match keys.iter_mut().find(|known| known.id == key.id) {
                Some(known) => known.validity = known.validity.or(key.validity),
                None => keys.push(key),
            }
        }
    }
    Ok(keys)
}

fn in_dir(dir: &Path) -> Result<Vec<PathBuf>, TrustSetupError> {
    let failed = |source| TrustSetupError::Unreadable { path: dir.to_owned(), source };
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(vec![]),
        Err(e) => return Err(failed(e)),
    };
    let paths = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>().map_err(failed)?;
    let mut keys: Vec<_> = paths.into_iter().filter(|path| path.extension().is_some_and(|e| e == "pem")).collect();
    keys.sort();
    Ok(keys)
}

pub(super) fn read(path: &Path) -> Result<Vec<u8>, TrustSetupError> {
    let failed = |source| TrustSetupError::Unreadable { path: path.to_owned(), source };
    let size = fs::metadata(path).map_err(failed)?.len();
    if size > MAX_KEY_BYTES {
        return Err(failed(io::Error::new(io::ErrorKind::InvalidData, "larger than 1 MiB")));
    }
    fs::read(path).map_err(failed)
}
