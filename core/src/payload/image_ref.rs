//! Names of container images: `[HOST[:PORT]/]PATH[:TAG][@DIGEST]` (the reference grammar of CNCF distribution).

use crate::prelude::*;

use core::{fmt, str::FromStr};

use crate::digest::Sha256;

// Docker Hub, as docker and podman have it, and its other names.
const DEFAULT_HOST: &str = "docker.io";
const HUB_HOSTS: [&str; 2] = ["index.docker.io", "registry-1.docker.io"];
const DEFAULT_TAG: &str = "latest";

/// An image in a registry, fully spelled out.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the other fields are what their names say")]
pub struct ImageRef {
    /// Host, with `:PORT` if one was given.
    pub host: String,
    pub repository: String,
    /// Tag; `latest` if neither tag nor digest was given.
    pub tag: Option<String>,
    /// Digest. If given, the tag is only for people.
    pub digest: Option<Sha256>,
}

impl ImageRef {
    /// The reference for a registry: the digest if there is one, otherwise the tag.
    pub fn wanted(&self) -> String {
        match (&self.digest, &self.tag) {
            (Some(digest), _) => format!("sha256:{digest}"),
            (None, Some(tag)) => tag.clone(),
            (None, None) => DEFAULT_TAG.to_owned(),
        }
    }

    /// Its repository, in the form of [`below_registry`] for rules.
    pub fn place(&self) -> String {
        format!("{}/{}", registry_name(&self.host), self.repository)
    }
}

/// The invalid part of a name.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum ImageRefError {
    #[error("no repository: write HOST[:PORT]/REPOSITORY[:TAG][@sha256:DIGEST]")]
    NoRepository,
    #[error(
        "{0:?} cannot be part of a repository: use lower-case letters and digits, separated by `.`, `_`, `__` or dashes"
    )]
    Path(String),
    #[error("{0:?} is not a host with an optional port")]
    Host(String),
    #[error("{0:?} is not a tag: up to 128 letters, digits, `_`, `.` and `-`, not starting with `.` or `-`")]
    Tag(String),
    #[error("{0:?} is not a digest: write sha256: and 64 hex digits")]
    Digest(String),
    #[error("a user and a password are no part of it: they are in the auth file (--authfile)")]
    Login,
}

/// Parse `sha256:HEX`; `None` for anything else.
pub fn parse_digest(text: &str) -> Option<Sha256> {
    let hex = text.strip_prefix("sha256:")?;
    hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')).then(|| hex.parse().ok())?
}

/// Whether a text can be a tag (OCI distribution specification 1.1, "Pulling manifests").
pub fn is_tag(text: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.len() <= 128 && text.starts_with(word) && text.chars().all(|c| word(c) || matches!(c, '.' | '-'))
}

/// Whether a text can be the name of an image in an OCI layout, such as `localhost/os:1.2` (OCI image specification 1.1,
/// annotations.md, "org.opencontainers.image.ref.name"). Every tag is one.
pub fn is_layout_name(text: &str) -> bool {
    let alphanumeric = |c: char| c.is_ascii_alphanumeric();
    let separator = |s: &str| s == "--" || (s.len() == 1 && "-._:@+".contains(s));
    let component = |part: &str| {
        let mut separators = part.split(alphanumeric).filter(|s| !s.is_empty());
        part.starts_with(alphanumeric) && part.ends_with(alphanumeric) && separators.all(separator)
    };
    is_tag(text) || text.split('/').all(component)
}

fn is_path_component(text: &str) -> bool {
    let alphanumeric = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let separator = |s: &str| matches!(s, "." | "_" | "__") || (!s.is_empty() && s.bytes().all(|b| b == b'-'));
    let separators = text.split(alphanumeric).filter(|s| !s.is_empty());
    text.starts_with(alphanumeric) && text.ends_with(alphanumeric) && separators.into_iter().all(separator)
}

/// A registry, or one with the beginning of a repository's path: `HOST[:PORT][/PATH]`. As [`ImageRef::place`] has it: the
/// host in lower case, and without the port of TLS.
pub fn below_registry(text: &str) -> Result<String, ImageRefError> {
    let (host, path) = text.split_once('/').map_or((text, None), |(host, path)| (host, Some(path)));
    let host = host.to_ascii_lowercase();
    // Anything else in its place would be a path on docker.io.
    if !looks_like_a_host(&host) || !is_host(&host) {
        return Err(ImageRefError::Host(host));
    }
    let host = registry_name(&host);
    match path {
        None => Ok(host),
        Some(path) => match path.split('/').find(|part| !is_path_component(part)) {
            Some(bad) => Err(ImageRefError::Path(bad.to_owned())),
            None => Ok(format!("{host}/{path}")),
        },
    }
}

/// The one name of a registry. 443 is the port of TLS; with plain HTTP the name means the same host.
pub fn registry_name(host: &str) -> String {
    let host = host.to_ascii_lowercase();
    match host.strip_suffix(":443").unwrap_or(&host) {
        hub if HUB_HOSTS.contains(&hub) => DEFAULT_HOST.to_owned(),
        other => other.to_owned(),
    }
}

/// As in docker, the first part of a name is a host only if it looks like one.
fn looks_like_a_host(text: &str) -> bool {
    text.contains(['.', ':']) || text == "localhost"
}

fn is_v6(text: &str) -> bool {
    text.parse::<core::net::Ipv6Addr>().is_ok()
}

fn is_host(text: &str) -> bool {
    let (name, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, "")) if is_v6(address) => ("v6", None),
        Some((address, rest)) if is_v6(address) && rest.starts_with(':') => ("v6", Some(&rest[1..])),
        _ => text.split_once(':').map_or((text, None), |(name, port)| (name, Some(port))),
    };
    let label = |l: &str| {
        !l.is_empty()
            && l.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
            && !l.starts_with('-')
            && !l.ends_with('-')
    };
    // `parse` would accept a sign, and zeros that make another name of the same registry.
    let is_port = |p: &str| p.bytes().all(|b| b.is_ascii_digit()) && !p.starts_with('0') && p.parse::<u16>().is_ok();
    name.split('.').all(label) && port.is_none_or(is_port)
}

impl FromStr for ImageRef {
    type Err = ImageRefError;

    fn from_str(text: &str) -> Result<Self, ImageRefError> {
        // The one `@` of a name is that of its digest, behind the host.
        let is_in_host = || text.split_once('/').is_some_and(|(host, _)| host.contains('@'));
        if text.matches('@').count() > 1 || is_in_host() {
            return Err(ImageRefError::Login);
        }
        let (rest, digest) = match text.split_once('@') {
            Some((rest, d)) => (rest, Some(parse_digest(d).ok_or_else(|| ImageRefError::Digest(d.to_owned()))?)),
            None => (text, None),
        };
        // A colon after the last slash begins a tag, one before it a port.
        let tag_at = rest.rfind(':').filter(|at| !rest[*at..].contains('/'));
        let (name, tag) = match tag_at {
            Some(at) => (&rest[..at], Some(&rest[at + 1..])),
            None => (rest, None),
        };
        if let Some(bad) = tag.filter(|t| !is_tag(t)) {
            return Err(ImageRefError::Tag(bad.to_owned()));
        }
        let (host, path) = match name.split_once('/') {
            Some((first, path)) if looks_like_a_host(first) => (first, path),
            _ => (DEFAULT_HOST, name),
        };
        if !is_host(host) {
            return Err(ImageRefError::Host(host.to_owned()));
        }
        if path.is_empty() {
            return Err(ImageRefError::NoRepository);
        }
        if let Some(bad) = path.split('/').find(|c| !is_path_component(c)) {
            return Err(ImageRefError::Path(bad.to_owned()));
        }
        let (host, repository) = match registry_name(host) == DEFAULT_HOST {
            true if path.contains('/') => (DEFAULT_HOST, path.to_owned()),
            true => (DEFAULT_HOST, format!("library/{path}")),
            false => (host, path.to_owned()),
        };
        let latest = || digest.is_none().then(|| DEFAULT_TAG.to_owned());
        let tag = tag.map(str::to_owned).or_else(latest);
        Ok(ImageRef { host: host.to_owned(), repository, tag, digest })
    }
}

impl fmt::Display for ImageRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.host, self.repository)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        match &self.digest {
            Some(digest) => write!(f, "@sha256:{digest}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        text.parse::<ImageRef>().unwrap().to_string()
    }

    #[test]
    fn names_are_spelled_out() {
        assert_eq!(shown("debian"), "docker.io/library/debian:latest");
        assert_eq!(shown("a/b:1"), "docker.io/a/b:1");
        for hub in ["docker.io", "Docker.io", "docker.io:443", "index.docker.io", "registry-1.docker.io"] {
            assert_eq!(shown(&format!("{hub}/debian:12")), "docker.io/library/debian:12");
            assert_eq!(shown(&format!("{hub}/a/b")), "docker.io/a/b:latest");
        }
        assert_eq!(shown("mirror.docker.io/debian"), "mirror.docker.io/debian:latest");
        assert_eq!(shown("localhost/b"), "localhost/b:latest");
        assert_eq!(shown("reg.example:5000/a/b__c.d--e:V1.2_3"), "reg.example:5000/a/b__c.d--e:V1.2_3");
        assert_eq!(shown("127.0.0.1:5000/x"), "127.0.0.1:5000/x:latest");
        assert_eq!(shown("[::1]:5000/x"), "[::1]:5000/x:latest");
        let digest = format!("r.io/x@sha256:{}", "ab".repeat(32));
        assert_eq!(shown(&digest), digest);
        let both: ImageRef = format!("r.io/x:1@sha256:{}", "ab".repeat(32)).parse().unwrap();
        assert_eq!((both.tag.as_deref(), both.wanted()), (Some("1"), format!("sha256:{}", "ab".repeat(32))));
    }

    /// Otherwise another rule would apply.
    #[test]
    fn a_registry_has_one_name() {
        let place = |text: &str| text.parse::<ImageRef>().unwrap().place();
        for (text, named) in [
            ("R.io:443/a/b", "r.io/a/b"),
            ("r.io:4430/a", "r.io:4430/a"),
            ("r.io:80/a", "r.io:80/a"),
            ("[::443]/a", "[::443]/a"),
            ("[::1]:443/a", "[::1]/a"),
            ("index.docker.io/a/b", "docker.io/a/b"),
            ("registry-1.docker.io:443/a/b", "docker.io/a/b"),
        ] {
            assert_eq!(place(text), named);
            assert_eq!(below_registry(text).as_deref(), Ok(named));
        }
        assert_eq!(below_registry("R.io:443").as_deref(), Ok("r.io"));
        // Requests use the name as given.
        assert_eq!(shown("r.io:443/a"), "r.io:443/a:latest");
    }

    #[test]
    fn what_is_no_name() {
        let error = |text: &str| text.parse::<ImageRef>().unwrap_err();
        assert_eq!(error(""), ImageRefError::NoRepository);
        assert_eq!(error("r.io/"), ImageRefError::NoRepository);
        for path in ["r.io/A", "r.io/a//b", "r.io/../b", "r.io/a_-b", "r.io/a___b", "r.io/-a", "r.io/a.", "UPPER"] {
            assert!(matches!(error(path), ImageRefError::Path(_)), "{path}");
        }
        for host in [
            "r..io/a",
            "r.io:0/a",
            "r.io:080/a",
            "[::1]:05000/a",
            "r.io:65536/a",
            "r.io:x/a",
            "r.io:+1/a",
            "-r.io/a",
            "[::g]:1/a",
            "[::1]x/a",
            "[::1][1/a",
        ] {
            assert!(matches!(error(host), ImageRefError::Host(_)), "{host}");
        }
        for tag in ["r.io/a:", "r.io/a:.x", "r.io/a:x y"] {
            assert!(matches!(error(tag), ImageRefError::Tag(_)), "{tag}");
        }
        let with_digest = format!("me:12/secret@r.io/a@sha256:{}", "ab".repeat(32));
        for login in
            ["me:secret@r.io/a", "me@r.io:5000/a:1", "me:12/se@cret@r.io/a", "me/s@e/cret@r.io/a:1", &with_digest]
        {
            assert_eq!(error(login), ImageRefError::Login, "{login}");
        }
        for digest in ["r.io/a@", "r.io/a@sha512:00", "r.io/a@sha256:0"] {
            assert!(matches!(error(digest), ImageRefError::Digest(_)), "{digest}");
        }
    }
}
