//! A mirror of a registry, as `--mirror` names it.

use std::str::FromStr;

use super::url::Url;
use slipway_core::redact::redact_value;

/// `--mirror HOST=URL`: asked for the images of a registry before the registry itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mirror {
    /// The registry as references name it, in lower case: `docker.io`, `r.io:5000`.
    pub(super) host: String,
    /// Prefix of all repositories. Its path ends with `/` and contains `v2`.
    pub(super) base: Url,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum MirrorError {
    #[error("{0:?} is not a mirror: write HOST=URL, as in docker.io=https://mirror.example")]
    Form(String),
    #[error(
        "{0:?} is not the address of a mirror: write http:// or https://, a host, and no query; a user and a password are \
         in the auth file (--authfile)"
    )]
    Url(String),
}

impl FromStr for Mirror {
    type Err = MirrorError;

    /// A path with a `v2` in it is used as it is (Harbor: `https://r.io/v2/proxy`); otherwise `/v2` is appended.
    fn from_str(text: &str) -> Result<Self, MirrorError> {
        let form = || MirrorError::Form(redact_value(text));
        let (host, address) = text.split_once('=').ok_or_else(form)?;
        if host.is_empty() || host.contains('/') {
            return Err(form());
        }
        let bad = || MirrorError::Url(redact_value(address));
        let mut base = Url::parse(address).filter(|url| !url.path.contains('?')).ok_or_else(bad)?;
        let path = base.path.trim_end_matches('/');
        let version = if path.split('/').any(|part| part == "v2") { "" } else { "/v2" };
        base.path = format!("{path}{version}/");
        Ok(Mirror { host: host.to_ascii_lowercase(), base })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mirrors_are_read() {
        let base = |text: &str| text.parse::<Mirror>().map(|mirror| (mirror.host, mirror.base.to_string()));
        let same = |host: &str, url: &str| Ok((host.to_owned(), url.to_owned()));
        assert_eq!(base("docker.io=https://m.example"), same("docker.io", "https://m.example/v2/"));
        assert_eq!(base("R.io:5000=http://m:80/x/"), same("r.io:5000", "http://m/x/v2/"));
        assert_eq!(base("r.io=https://m/v2/proxy"), same("r.io", "https://m/v2/proxy/"));
        for text in ["r.io", "=https://m", "", "r.io/x=https://m"] {
            assert_eq!(base(text), Err(MirrorError::Form(text.to_owned())));
        }
        assert_eq!(base("r.io=https://user:password@m"), Err(MirrorError::Url("https://[removed]@m".to_owned())));
        // Without HOST.
        for text in ["https://user:secret@m", "https://user:secret@m?x=y", "user:s=ecret@m"] {
            let said = base(text).unwrap_err().to_string();
            assert!(said.contains("[removed]@m") && !said.contains("ecret"), "{said}");
        }
        for address in ["m.example", "ftp://m", ""] {
            assert_eq!(base(&format!("r.io={address}")), Err(MirrorError::Url(address.to_owned())));
        }
        assert_eq!(base("r.io=https://m?x=y"), Err(MirrorError::Url("https://m?[removed]".to_owned())));
    }
}
