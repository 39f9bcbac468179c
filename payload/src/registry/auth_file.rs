//! Registry credentials from the files that docker and podman write (containers-auth.json(5)).

use std::{
    collections::BTreeMap,
    env,
    ffi::OsString,
    fmt, fs, io,
    path::{Path, PathBuf},
};

use base64::{
    Engine as _, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig, general_purpose::STANDARD},
};
use nix::unistd::getuid;
use serde::Deserialize;

use crate::{image::ImageError, without_mark};

/// Deliberately without `Debug`, so that a secret cannot get into a message.
pub struct Credentials {
    /// For HTTP Basic: base64 of `user:password`.
    pub basic: Option<String>,
    /// A refresh token, which a token service takes in place of a password.
    pub identity_token: Option<String>,
}

pub struct Lookup {
    pub credentials: Option<Credentials>,
    pub origin: CredentialsFrom,
}

impl Lookup {
    /// Without the credentials: any machine on the network path could read them.
    pub fn withheld(self) -> Self {
        let origin = match self.origin {
            CredentialsFrom::Entry(key, file) => CredentialsFrom::Withheld(key, file),
            other => other,
        };
        Lookup { credentials: None, origin }
    }
}

/// Displays as the reason why a registry refused us.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CredentialsFrom {
    /// The key of an entry, and the file it is in.
    Entry(String, PathBuf),
    /// The same entry, but not sent: the connection has no TLS, and no flag has asked for that.
    Withheld(String, PathBuf),
    /// No file has an entry for the registry.
    Nowhere {
        looked: Vec<PathBuf>,
        /// A credential helper and the file that names it.
        helper: Option<(String, PathBuf)>,
    },
}

impl fmt::Display for CredentialsFrom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (looked, helper) = match self {
            CredentialsFrom::Entry(key, file) => {
                return write!(f, "the credentials for {key} in {} were refused", file.display());
            }
            CredentialsFrom::Withheld(key, file) => {
                return write!(
                    f,
                    "the credentials for {key} in {} are not sent without TLS: write https://, or --plain-http allows it",
                    file.display()
                );
            }
            CredentialsFrom::Nowhere { looked, helper } => (looked, helper),
        };
        match helper {
            Some((name, file)) => write!(
                f,
                "{} leaves the credentials to the helper docker-credential-{name}, which is not run: log in with \
                 `podman login --authfile FILE` and give --authfile FILE",
                file.display()
            ),
            None if looked.is_empty() => {
                write!(f, "there are no credentials: no auth file was found; log in with podman, or give --authfile")
            }
            None => {
                let names: Vec<_> = looked.iter().map(|path| path.display().to_string()).collect();
                write!(f, "there are no credentials for it in {}", names.join(", "))
            }
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct AuthFile {
    auths: Option<BTreeMap<String, Option<Entry>>>,
    #[serde(rename = "credHelpers")]
    helpers: Option<BTreeMap<String, String>>,
    #[serde(rename = "credsStore")]
    store: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Entry {
    auth: Option<String>,
    // In place of it, as Kubernetes takes them.
    username: Option<String>,
    password: Option<String>,
    #[serde(rename = "identitytoken")]
    identity_token: Option<String>,
}

#[derive(Deserialize)]
struct BareEntry {
    auth: String,
}

impl Entry {
    /// docker leaves an empty one where a helper has the credentials.
    fn has_some(&self) -> bool {
        self.basic() != Ok(None) || self.identity_token.as_ref().is_some_and(|token| !token.is_empty())
    }

    /// For HTTP Basic. An error if it is not `user:password`.
    fn basic(&self) -> Result<Option<String>, ()> {
        if let Some(auth) = self.auth.as_deref().filter(|auth| !auth.is_empty()) {
            return normalized(auth).map(Some).ok_or(());
        }
        let user = self.username.as_deref().filter(|user| !user.is_empty());
        Ok(user.zip(self.password.as_deref()).map(|(user, password)| STANDARD.encode(format!("{user}:{password}"))))
    }
}

impl AuthFile {
    /// An empty file has no entries.
    fn parse(text: &[u8]) -> Result<Self, serde_json::Error> {
        let text = without_mark(text);
        if text.trim_ascii().is_empty() {
            return Ok(Self::default());
        }
        // `.dockercfg`, older than config.json, has the entries alone. Kubernetes still makes it (kubernetes.io/dockercfg).
        let entries = serde_json::from_slice::<BTreeMap<String, BareEntry>>(text).ok();
        match entries.filter(|entries| !entries.is_empty()) {
            Some(entries) => {
                let entry = |bare: BareEntry| Some(Entry { auth: Some(bare.auth), ..Entry::default() });
                let auths = entries.into_iter().map(|(host, bare)| (host, entry(bare))).collect();
                Ok(AuthFile { auths: Some(auths), ..Self::default() })
            }
            None => serde_json::from_slice(text),
        }
    }
}

/// The credentials for `repository` at `host`, from `given` (which must exist) or else from the usual files.
pub fn lookup(given: Option<&Path>, host: &str, repository: &str) -> Result<Lookup, ImageError> {
    let (named, files) = candidates(given, &|name| env::var_os(name).filter(|value| !value.is_empty()));
    lookup_in(&files, named, host, repository)
}

/// The files to read, in order, and whether the user named them, so that they must exist.
fn candidates(given: Option<&Path>, variable: &dyn Fn(&str) -> Option<OsString>) -> (bool, Vec<PathBuf>) {
    let path = |name: &str| variable(name).map(PathBuf::from);
    if let Some(file) = given.map(Path::to_owned).or_else(|| path("REGISTRY_AUTH_FILE")) {
        return (true, vec![file]);
    }
    // A service of systemd runs as root without it.
    let home = path("HOME").or_else(|| getuid().is_root().then(|| "/root".into()));
    let in_home = |name: &str| home.as_ref().map(|home| home.join(name));
    let dirs = [
        path("XDG_RUNTIME_DIR").map(|dir| dir.join("containers/auth.json")),
        path("XDG_CONFIG_HOME").or_else(|| in_home(".config")).map(|dir| dir.join("containers/auth.json")),
        Some(format!("/run/containers/{}/auth.json", getuid()).into()),
        path("DOCKER_CONFIG").map(|dir| dir.join("config.json")),
        in_home(".docker/config.json"),
        in_home(".dockercfg"),
    ];
    (false, dirs.into_iter().flatten().collect())
}

fn lookup_in(files: &[PathBuf], named: bool, host: &str, repository: &str) -> Result<Lookup, ImageError> {
    let (mut looked, mut helper) = (Vec::new(), None);
    for file in files {
        let wrong = |why: String| ImageError::setting(format!("auth file {}", file.display()), why);
        let text = match fs::read(file) {
            Ok(text) => text,
            Err(e) if absent(&e) && !named => continue,
            Err(e) => return Err(wrong(format!("it cannot be read: {e}"))),
        };
        // The parser's message may quote a secret from the file, so give only the position.
        let parsed: AuthFile = AuthFile::parse(&text).map_err(|e| {
            wrong(format!("not in the format of containers-auth.json(5): line {}, column {}", e.line(), e.column()))
        })?;
        if let Some((key, entry)) = most_specific(&parsed.auths.unwrap_or_default(), host, repository) {
            let basic = entry.basic().map_err(|()| wrong(bad_auth(key)))?;
            let identity_token = entry.identity_token.clone().filter(|token| !token.is_empty());
            if basic.is_some() || identity_token.is_some() {
                let origin = CredentialsFrom::Entry(key.to_owned(), file.clone());
                return Ok(Lookup { credentials: Some(Credentials { basic, identity_token }), origin });
            }
        }
        let of_host = parsed.helpers.iter().flatten().find(|(key, _)| same_host(key, host)).map(|(_, name)| name);
        if let Some(name) = of_host.or(parsed.store.as_ref()).filter(|_| helper.is_none()) {
            helper = Some((name.clone(), file.clone()));
        }
        looked.push(file.clone());
    }
    Ok(Lookup { credentials: None, origin: CredentialsFrom::Nowhere { looked, helper } })
}

fn absent(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn bad_auth(key: &str) -> String {
    format!("the auth of {key:?} is not the base64 of user:password; log in again")
}

/// The entry with the longest key that names the repository, a namespace of it, or the host. Of several for a host the one that
/// is no URL: podman and docker look for that first, and write that.
fn most_specific<'a>(
    auths: &'a BTreeMap<String, Option<Entry>>,
    host: &str,
    repository: &str,
) -> Option<(&'a str, &'a Entry)> {
    let full = format!("{}/{repository}", canonical(host));
    let mut prefix = full.as_str();
    let entries = auths.iter().filter_map(|(key, entry)| Some((key.as_str(), entry.as_ref()?)));
    let mut entries: Vec<_> = entries.filter(|(_, entry)| entry.has_some()).collect();
    entries.sort_by_key(|(key, _)| key.contains("://"));
    loop {
        if let Some(found) = entries.iter().find(|(key, _)| matches(key, prefix)) {
            return Some(*found);
        }
        prefix = &prefix[..prefix.rfind('/')?];
    }
}

/// Docker's legacy keys are URLs, of which only the host counts.
fn matches(key: &str, prefix: &str) -> bool {
    match key.split_once("://") {
        Some(_) => !prefix.contains('/') && same_host(key, prefix),
        None => {
            let (host, rest) = key.split_once('/').map_or((key, None), |(host, rest)| (host, Some(rest)));
            let (wanted, path) = prefix.split_once('/').map_or((prefix, None), |(host, rest)| (host, Some(rest)));
            // Old ones end with the version of the registry's interface.
            let rest = rest.filter(|rest| !["", "v1", "v1/", "v2", "v2/"].contains(rest));
            canonical(host) == wanted && rest == path
        }
    }
}

fn same_host(key: &str, host: &str) -> bool {
    let rest = key.split_once("://").map_or(key, |(_, rest)| rest);
    canonical(rest.split('/').next().unwrap_or(rest)) == canonical(host)
}

/// Docker Hub has three host names.
fn canonical(host: &str) -> String {
    match host.to_ascii_lowercase().as_str() {
        "index.docker.io" | "registry-1.docker.io" => "docker.io".to_owned(),
        other => other.to_owned(),
    }
}

/// Kubernetes takes it without padding, too.
const WITH_OR_WITHOUT_PADDING: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Re-encode as clean base64; none if the content is not `user:password`.
fn normalized(auth: &str) -> Option<String> {
    let mut bytes = WITH_OR_WITHOUT_PADDING.decode(auth.trim()).ok()?;
    // Docker pads with zeros.
    while bytes.last() == Some(&0) {
        bytes.pop();
    }
    bytes.contains(&b':').then(|| STANDARD.encode(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(json: &str, host: &str, repository: &str) -> Result<(Option<String>, CredentialsFrom), String> {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("auth.json");
        fs::write(&file, json).unwrap();
        let lookup = lookup_in(&[dir.path().join("nosuch"), file], false, host, repository);
        let lookup = lookup.map_err(|e| e.to_string())?;
        let basic = lookup.credentials.and_then(|c| c.basic).map(|b| STANDARD.decode(b).unwrap());
        Ok((basic.map(|b| String::from_utf8(b).unwrap()), lookup.origin))
    }

    fn basic(json: &str, host: &str, repository: &str) -> Option<String> {
        found(json, host, repository).unwrap().0
    }

    fn auths(pairs: &[(&str, &str)]) -> String {
        let entry = |(key, user): &(&str, &str)| format!(r#""{key}": {{"auth": "{}"}}"#, STANDARD.encode(user));
        format!(r#"{{"auths": {{{}}}}}"#, pairs.iter().map(entry).collect::<Vec<_>>().join(","))
    }

    #[test]
    fn the_most_specific_key_counts() {
        let json = auths(&[("r.io", "host:1"), ("r.io/ns", "ns:1"), ("r.io/ns/repo", "repo:1"), ("r.io:5000", "p:1")]);
        let of = |host: &str, repository: &str| basic(&json, host, repository);
        assert_eq!(of("r.io", "ns/repo").as_deref(), Some("repo:1"));
        assert_eq!(of("r.io", "ns/repo/deep").as_deref(), Some("repo:1"));
        assert_eq!(of("r.io", "ns/other").as_deref(), Some("ns:1"));
        assert_eq!(of("R.io", "nso/repo").as_deref(), Some("host:1"));
        assert_eq!(of("r.io:5000", "ns/repo").as_deref(), Some("p:1"));
        assert_eq!(of("r.io:5001", "ns/repo"), None);
        assert_eq!(of("s.r.io", "ns/repo"), None);
    }

    #[test]
    fn of_several_keys_of_a_host() {
        let new = r#""r.io": {"auth": "bmV3OnB3"}"#;
        for old in [
            r#""https://r.io": {"auth": "b2xkOnB3"}"#,
            r#""https://r.io/v1/": {"auth": "b2xkOnB3"}"#,
            r#""https://r.io": {}"#,
            r#""r.io/ns": {"auth": "", "username": ""}"#,
            r#""r.io/ns": {"username": "other"}"#,
            r#""r.io/ns": {"username": "", "password": "other"}"#,
            r#""r.io/ns/x": null"#,
        ] {
            let json = format!(r#"{{"auths": {{{old}, {new}}}}}"#);
            assert_eq!(basic(&json, "r.io", "ns/x").as_deref(), Some("new:pw"), "{old}");
        }
        let json = r#"{"auths": {"r.io": {}, "https://r.io/v2/": {"auth": "bmV3OnB3"}}}"#;
        assert_eq!(basic(json, "r.io", "ns/x").as_deref(), Some("new:pw"));
    }

    #[test]
    fn docker_hub_has_legacy_keys() {
        for key in ["https://index.docker.io/v1/", "docker.io", "index.docker.io", "https://registry-1.docker.io/v2/"] {
            assert_eq!(basic(&auths(&[(key, "u:p")]), "docker.io", "library/x").as_deref(), Some("u:p"), "{key}");
        }
        assert_eq!(basic(&auths(&[("https://r.io/v1/", "u:p\0\0")]), "r.io", "x").as_deref(), Some("u:p"));
        assert_eq!(basic(&auths(&[("https://index.docker.io/v1/", "u:p")]), "r.io", "x"), None);
    }

    #[test]
    fn helpers_are_named() {
        for json in [
            r#"{"auths": {"r.io": {}}, "credsStore": "desktop"}"#,
            r#"{"credHelpers": {"r.io": "desktop"}, "credsStore": "other"}"#,
        ] {
            let text = found(json, "r.io", "x").unwrap().1.to_string();
            assert!(text.contains("docker-credential-desktop") && text.contains("--authfile"), "{text}");
        }
        let text = found(r#"{"credHelpers": {"r.io": "desktop"}}"#, "s.io", "x").unwrap().1.to_string();
        assert!(text.contains("auth.json") && !text.contains("desktop"), "{text}");
    }

    #[test]
    fn files_as_other_programs_write_them() {
        let user = |json: &str| basic(json, "r.io", "x");
        for json in [
            r#"{"auths": {"r.io": {"username": "me", "password": "pw"}}}"#,
            r#"{"auths": {"r.io": {"username": "other", "password": "x", "auth": "bWU6cHc="}}}"#,
            r#"{"auths": {"s.io": null, "r.io": {"auth": "bWU6cHc="}}, "credHelpers": null, "credsStore": null}"#,
            "\u{feff}{\"auths\": {\"r.io\": {\"auth\": \"bWU6cHc=\"}}}",
            r#"{"auths": {"r.io": {"auth": "bWU6cHc"}}}"#,
            r#"{"auths": {"r.io/v1/": {"auth": "bWU6cHc="}}}"#,
            r#"{"https://s.io/v1/": {"auth": "x"}, "https://r.io/v1/": {"auth": "bWU6cHc=", "email": "me@r.io"}}"#,
        ] {
            assert_eq!(user(json).as_deref(), Some("me:pw"), "{json}");
        }
        for nobody in ["", "\n", "{}", r#"{"auths": null}"#, r#"{"auths": {"r.io": {"auth": null, "username": "me"}}}"#]
        {
            assert_eq!(user(nobody), None, "{nobody}");
        }
    }

    #[test]
    fn a_wrong_file_is_refused_and_not_quoted() {
        for json in [
            r#"{"auths": {"r.io": {"auth": "c2VjcmV0"}}}"#,
            r#"{"auths": {"r.io": {"auth": "secret!"}}}"#,
            r#"{"auths": "secret"}"#,
            r#"{"auths": secret"#,
        ] {
            let error = found(json, "r.io", "x").unwrap_err();
            assert!(error.contains("auth.json") && !error.contains("secret") && !error.contains("c2Vj"), "{error}");
        }
        let missing = lookup_in(&["/nosuch/auth.json".into()], true, "r.io", "x").err().unwrap().to_string();
        assert!(missing.contains("/nosuch/auth.json"), "{missing}");
    }

    #[test]
    fn an_identity_token_is_found() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(&file, r#"{"auths": {"r.io": {"auth": "dTo=", "identitytoken": "abc"}}}"#).unwrap();
        let lookup = lookup_in(&[file.path().to_owned()], true, "r.io", "x").unwrap();
        assert_eq!(lookup.credentials.unwrap().identity_token.as_deref(), Some("abc"));
    }

    #[test]
    fn files_in_their_order() {
        let variables = |names: &'static [(&str, &str)]| {
            move |name: &str| names.iter().find(|(n, _)| *n == name).map(|(_, value)| OsString::from(value))
        };
        let all = &[("XDG_RUNTIME_DIR", "/r"), ("HOME", "/h"), ("DOCKER_CONFIG", "/d")];
        let own = format!("/run/containers/{}/auth.json", getuid());
        let expected = [
            "/r/containers/auth.json",
            "/h/.config/containers/auth.json",
            &own,
            "/d/config.json",
            "/h/.docker/config.json",
            "/h/.dockercfg",
        ];
        assert_eq!(candidates(None, &variables(all)), (false, expected.map(PathBuf::from).to_vec()));
        let of_root = ["/root/.config/containers/auth.json", &own, "/root/.docker/config.json", "/root/.dockercfg"];
        let without_home = if getuid().is_root() { &of_root[..] } else { &of_root[1..2] };
        assert_eq!(candidates(None, &variables(&[])).1, without_home.iter().map(PathBuf::from).collect::<Vec<_>>());
        let one = |path: &str| (true, vec![PathBuf::from(path)]);
        let named = &[("HOME", "/h"), ("REGISTRY_AUTH_FILE", "/n")];
        assert_eq!(candidates(None, &variables(named)), one("/n"));
        assert_eq!(candidates(Some(Path::new("/g")), &variables(named)), one("/g"));
    }
}
