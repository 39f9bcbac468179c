//! The signatures that a source needs: by the command line, the policy, or the keys beside the program, in this order.

use std::{
    collections::VecDeque,
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Component, Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use anyhow::Context as _;
use slipway_core::{
    config::policy::{Policy, Rule, Scope},
    payload::signer::{FoundSignature, Signer},
    report::{FailureKind, Observer},
    text::printable,
    yaml::Pos,
};

use super::source_failure;
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
    /// A directory with keys (`*.pem`), one of which must have signed.
    pub beside: Option<PathBuf>,
    /// Take a payload without a valid signature all the same.
    pub allow_unsigned: bool,
}

/// Why the trusted keys are not known.
#[derive(Debug, thiserror::Error)]
pub enum TrustSetupError {
    #[error("{path}: {source}", path = path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("{path}: {source}", path = path.display())]
    Key { path: PathBuf, source: KeyError },
    #[error("{path}: {why}", path = path.display())]
    Directory { path: PathBuf, why: &'static str },
    #[error(
        "{policy}: {at}: {} is, or is reached by, a link to {}, and the rule would be for nothing there: write where it \
         leads", printable(rule), printable(&target.display().to_string())
    )]
    Link { policy: String, at: Pos, rule: String, target: PathBuf },
    #[error("{by}: signatures by {need} keys are demanded, and there are only {have}")]
    Threshold { by: String, need: usize, have: usize },
}

/// A source that no rule is for.
#[derive(Debug, thiserror::Error)]
pub enum NoRule {
    #[error("{}: no rule of {policy} is for this source; {LAST_RULE}", printable(place))]
    Fits { place: String, policy: String },
    #[error(
        "{}: what this opens is not what has the name {} here, so no rule of {policy} can be known to be for it; \
         {NAME_IT}",
        printable(place), printable(&called.display().to_string())
    )]
    Nameless { place: String, called: PathBuf, policy: String },
}

const LAST_RULE: &str = "a last rule with source = \"*\" is for all others";
const NAME_IT: &str = "name it as it is called here, or copy it";

impl NoRule {
    /// The remedy, as the message ends with it.
    pub const fn remedy(&self) -> &'static str {
        match self {
            NoRule::Fits { .. } => LAST_RULE,
            NoRule::Nameless { .. } => NAME_IT,
        }
    }
}

/// What a source's signatures have to meet.
pub struct Demand {
    requirement: Requirement,
    /// Otherwise a valid signature is only noted.
    required: bool,
}

/// A source, as it is opened, and all names that it goes by: the one that was given, and where each link leads. A
/// person who may change a link on the way decides which source is opened, so the rules for all of them hold.
///
/// The links are followed once. From then on only the last name is used: if a link appears there afterwards, its target
/// must still satisfy the rules for this name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Located {
    pub source: SourceRef,
    names: Vec<String>,
    /// The last name, if something else has it. `source` is as it was given then, and no rule is for it.
    nameless: Option<PathBuf>,
}

impl Located {
    pub fn new(named: &SourceRef, request: &TrustRequest) -> Self {
        let (scheme, path) = match named {
            SourceRef::Docker(image) => {
                let name = format!("docker://{}", image.place());
                return Located { source: named.clone(), names: vec![name], nameless: None };
            }
            SourceRef::Dir(path) => ("dir", path),
            SourceRef::Oci(path, _) => ("oci", path),
            SourceRef::OciArchive(path, _) => ("oci-archive", path),
        };
        // Only a policy asks where something is.
        if request.policy.is_none() || !request.keys.is_empty() {
            return Located { source: named.clone(), names: vec![], nameless: None };
        }
        let ways = ways(path);
        let last = ways.last().cloned().unwrap_or_else(|| path.clone());
        if identity(path) != identity(&last) {
            return Located { source: named.clone(), names: vec![], nameless: Some(last) };
        }
        let path = last;
        let names = ways.iter().map(|way| format!("{scheme}:{}", way.display())).collect();
        let source = match named {
            SourceRef::Oci(_, image) => SourceRef::Oci(path, image.clone()),
            SourceRef::OciArchive(_, image) => SourceRef::OciArchive(path, image.clone()),
            _ => SourceRef::Dir(path),
        };
        Located { source, names, nameless: None }
    }
}

/// Identity of the file that the kernel opens by a name; `None` if it opens none. A link of `/proc`, such as
/// `/proc/PID/root` and `/proc/self/fd/N`, leads where its text does not.
pub(super) fn identity(path: &Path) -> Option<(u64, u64)> {
    fs::metadata(path).ok().map(|found| (found.dev(), found.ino()))
}

// The kernel's own limit.
const MAX_LINKS: usize = 40;

/// The names of a path, without `.` and `..`: as it is written, and after each link on the way. The last one has no
/// links. If the name does not exist, opening it fails later.
fn ways(path: &Path) -> Vec<PathBuf> {
    let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let (mut ways, mut at, mut links) = (vec![plain(&whole)], PathBuf::from("/"), 0);
    let parts = |path: &Path| path.components().map(|part| part.as_os_str().to_owned()).collect::<VecDeque<_>>();
    let mut rest = parts(&whole);
    while let Some(part) = rest.pop_front() {
        match Path::new(&part).components().next() {
            Some(Component::RootDir) => at = PathBuf::from("/"),
            Some(Component::ParentDir) => drop(at.pop()),
            Some(Component::Normal(name)) => match at.join(name).read_link() {
                Ok(target) if links < MAX_LINKS => {
                    links += 1;
                    let mut next = parts(&target);
                    next.append(&mut rest);
                    rest = next;
                    let all: PathBuf = rest.iter().collect();
                    ways.push(plain(&at.join(all)));
                }
                _ => at.push(name),
            },
            _ => {}
        }
    }
    ways.push(at);
    ways.dedup();
    ways
}

/// Without `.` and `..`, by its text alone.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(plain.pop()),
            Component::CurDir => {}
            part => plain.push(part),
        }
    }
    plain
}

/// The signers of a payload: none if nothing is demanded of this source. An error if the demands are not met, unless
/// the request lets it pass. `evidence` is called only if it is needed.
pub fn signers(
    request: &TrustRequest,
    source: &Located,
    demands: &[Demand],
    evidence: impl FnOnce() -> Result<Evidence, Failure>,
    observer: &mut dyn Observer,
) -> Result<Vec<Signer>, Failure> {
    if demands.is_empty() {
        return Ok(vec![]);
    }
    let source = &source.source;
    // If none is demanded, a signature may be missing; a registry that does not answer does not show that.
    let required = demands.iter().any(|demand| demand.required);
    let verdict = evidence().and_then(|evidence| verdict(demands, evidence, source, observer));
    match verdict {
        Ok(signers) => {
            signers.iter().for_each(|signer| observer.note(&format!("{source}: {signer}")));
            Ok(signers)
        }
        Err(failure) if request.allow_unsigned => {
            observer.note(&format!("taken by --allow-unsigned: {failure}"));
            Ok(vec![])
        }
        Err(failure) if !required && failure.error.is::<TrustError>() => {
            observer.note(&format!("not required: {failure}"));
            Ok(vec![])
        }
        Err(failure) => Err(failure),
    }
}

/// The signers, by all demands together. A demand that is not required may be missed.
fn verdict(
    demands: &[Demand],
    mut evidence: Evidence,
    source: &SourceRef,
    observer: &mut dyn Observer,
) -> Result<Vec<Signer>, Failure> {
    let mut signers = Vec::<Signer>::new();
    for Demand { requirement, required } in demands {
        match (check(requirement, &evidence), evidence.unanswered.take()) {
            (Ok(found), unanswered) => {
                for new in found {
                    if signers.iter().all(|known| known.key != new.key) {
                        signers.push(new);
                    }
                }
                evidence.unanswered = unanswered;
            }
            (Err(_), Some(error)) => return Err(source_failure(source, error)),
            (Err(error), None) if *required || demands.len() == 1 => return Err(error).or_fail(FailureKind::Input),
            (Err(error), None) => observer.note(&format!("not required: {error}")),
        }
    }
    Ok(signers)
}

/// The signatures that are there, and which of the keys that are named for this source made them.
pub fn found(demands: &[Demand], evidence: &Evidence) -> Vec<FoundSignature> {
    let keys: Vec<_> = demands.iter().flat_map(|demand| demand.requirement.keys.clone()).collect();
    trust::found(&one_of_each(keys), now(), evidence)
}

/// The demands on a source. This reads the keys and the policy. A pipe can be read once.
pub fn demands(request: &TrustRequest, source: &Located) -> Result<Vec<Demand>, Failure> {
    match stated(request, source) {
        Err(failure) if request.allow_unsigned && failure.error.is::<NoRule>() => Ok(vec![]),
        demands => demands,
    }
}

fn stated(request: &TrustRequest, source: &Located) -> Result<Vec<Demand>, Failure> {
    let any_of = |keys: Vec<PublicKey>, by: String| Demand {
        requirement: Requirement { keys, threshold: 1, identity: None, now: now(), by },
        required: true,
    };
    if !request.keys.is_empty() {
        return Ok(vec![any_of(keys(&request.keys)?, "--trust-key".to_owned())]);
    }
    if let Some(path) = &request.policy {
        return by_policy(path, source);
    }
    match &request.beside {
        Some(dir) => {
            let found = in_dir(dir).or_fail(FailureKind::Input)?;
            Ok(vec![any_of(keys(&found)?, dir.display().to_string())])
        }
        None => Ok(vec![]),
    }
}

/// Demands of the rules for a source's names, each rule once. A rule without keys demands nothing.
fn by_policy(path: &Path, source: &Located) -> Result<Vec<Demand>, Failure> {
    let name = path.display().to_string();
    let text = read(path).or_fail(FailureKind::Input)?;
    let policy = Policy::parse(&text).context(name.clone()).or_fail(FailureKind::Input)?;
    lead_nowhere(&policy, &name, source).or_fail(FailureKind::Input)?;
    if let Some(called) = source.nameless.clone() {
        let place = source.source.to_string();
        return Err(NoRule::Nameless { place, called, policy: name }).or_fail(FailureKind::Input);
    }
    let mut rules = Vec::<&Rule>::new();
    for place in &source.names {
        match policy.rule(place) {
            Some(rule) if rules.contains(&rule) => {}
            Some(rule) => rules.push(rule),
            None => return Err(NoRule::Fits { place: place.clone(), policy: name }).or_fail(FailureKind::Input),
        }
    }
    let demanding = rules.into_iter().filter(|rule| rule.required || !rule.keys.is_empty());
    demanding.map(|rule| by_rule(rule, &name)).collect()
}

fn by_rule(rule: &Rule, policy: &str) -> Result<Demand, Failure> {
    let Rule { at, keys: files, required, threshold, identity, .. } = rule;
    let files: Vec<_> = files.iter().map(|file| PathBuf::from(&file.value)).collect();
    let keys = keys(&files)?;
    if (*required || !keys.is_empty()) && keys.len() < *threshold {
        let error = TrustSetupError::Threshold { by: format!("{policy}: {at}"), need: *threshold, have: keys.len() };
        return Err(error).or_fail(FailureKind::Input);
    }
    let by = format!("{policy}, line {}", at.line);
    let requirement = Requirement { keys, threshold: *threshold, identity: identity.clone(), now: now(), by };
    Ok(Demand { requirement, required: *required })
}

/// An error if a rule names a link, and this source is there or where it leads. Named by its own name, it would be
/// under no such rule. A person who may put a link there must not decide about other sources.
fn lead_nowhere(policy: &Policy, name: &str, source: &Located) -> Result<(), TrustSetupError> {
    let scheme = match source.source {
        SourceRef::Docker(_) => return Ok(()),
        SourceRef::Dir(_) => "dir:",
        SourceRef::Oci(..) => "oci:",
        SourceRef::OciArchive(..) => "oci-archive:",
    };
    for rule in &policy.rules {
        let Scope::Below(whole) = &rule.source else { continue };
        let Some(path) = whole.strip_prefix(scheme) else { continue };
        let ways = ways(Path::new(if path.is_empty() { "/" } else { path }));
        let [_, .., target] = &ways[..] else { continue };
        let there = Scope::Below(format!("{scheme}{}", target.display()).trim_end_matches('/').to_owned());
        if source.names.iter().any(|name| rule.source.holds(name) || there.holds(name)) {
            let (policy, target) = (name.to_owned(), target.clone());
            return Err(TrustSetupError::Link { policy, at: rule.at, rule: whole.clone(), target });
        }
    }
    Ok(())
}

/// By this machine's clock, seconds since 1970 UTC.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// All keys of these files.
pub(super) fn keys(files: &[PathBuf]) -> Result<Vec<PublicKey>, Failure> {
    let mut keys = Vec::<PublicKey>::new();
    for path in files {
        let text = read(path).or_fail(FailureKind::Input)?;
        let found = PublicKey::parse(&text, &path.display().to_string());
        let found = found.map_err(|source| TrustSetupError::Key { path: path.clone(), source });
        keys.extend(found.or_fail(FailureKind::Input)?);
    }
    Ok(one_of_each(keys))
}

/// A key in two files is one key. Where certificates bound it in time, it counts in the time of any of them, and a file
/// with the key alone does not widen that.
fn one_of_each(all: Vec<PublicKey>) -> Vec<PublicKey> {
    let mut keys = Vec::<PublicKey>::new();
    for key in all {
        match keys.iter_mut().find(|known| known.id == key.id) {
            Some(known) => known.validity.extend(key.validity),
            None => keys.push(key),
        }
    }
    keys
}

/// The keys of a directory. Its existence demands signatures: if none of its files is a key, or one is not taken for
/// one, that is an error and not a machine that demands nothing. Names that begin with a dot (such as `..data` where
/// Kubernetes mounts a secret) and a README are no keys.
fn in_dir(dir: &Path) -> Result<Vec<PathBuf>, TrustSetupError> {
    let failed = |source| TrustSetupError::Unreadable { path: dir.to_owned(), source };
    let entries = fs::read_dir(dir).map_err(failed)?;
    let paths = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>().map_err(failed)?;
    let mut keys = Vec::new();
    for path in paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.starts_with('.') || name == "README" || name.starts_with("README.") {
            continue;
        }
        if !name.ends_with(".pem") {
            let why = "no key is read from here: the keys and certificates of this directory are files whose names end in \
                       .pem; rename it, or take it away";
            return Err(TrustSetupError::Directory { path, why });
        }
        keys.push(path);
    }
    if keys.is_empty() {
        let why = "there is no key (*.pem) in this directory, which is there to demand signatures: put one in, or remove \
                   the directory";
        return Err(TrustSetupError::Directory { path: dir.to_owned(), why });
    }
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_path_has_the_names_of_all_its_links() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("a/real/deep")).unwrap();
        symlink("a/second", root.join("first")).unwrap();
        symlink(root.join("a/real"), root.join("a/second")).unwrap();
        symlink("loop", root.join("loop")).unwrap();
        let names = |path: &str| ways(&root.join(path));
        let all = |paths: &[&str]| paths.iter().map(|path| root.join(path)).collect::<Vec<_>>();
        assert_eq!(names("a/real"), all(&["a/real"]));
        assert_eq!(names("first/deep"), all(&["first/deep", "a/second/deep", "a/real/deep"]));
        // `..` is the parent of a link's target, as for the kernel; the literal path is a name, too.
        assert_eq!(names("first/../x"), all(&["x", "a/x"]));
        assert_eq!(names("a/real/../../first/."), all(&["first", "a/second", "a/real"]));
        assert_eq!(names("nothing/at/all"), all(&["nothing/at/all"]));
        assert_eq!(names("loop").last(), Some(&root.join("loop")));
        assert_eq!(ways(Path::new("/../..")), [PathBuf::from("/")]);
    }

    #[test]
    fn an_image_has_the_name_that_rules_have() {
        let located = |source: &str| Located::new(&source.parse().unwrap(), &TrustRequest::default());
        assert_eq!(located("docker://R.io:443/os:1").names, ["docker://r.io/os"]);
        assert_eq!(located("docker://debian").names, ["docker://docker.io/library/debian"]);
    }
}
