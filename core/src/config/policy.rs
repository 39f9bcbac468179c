//! `/etc/slipway/policy.toml`: whose signatures a payload needs, by where it comes from. Read strictly: an overlooked key
//! may be the one that demands a signature.

use crate::prelude::*;

use core::str::FromStr;

use super::{
    ConfigError,
    value::{Field, Placed, unknown_key},
};
use crate::{
    toml,
    yaml::{Entry, Pos, text},
};

/// Where it is.
pub const PATH: &str = "/etc/slipway/policy.toml";
const RULE: &str = "rule";

/// A mistake in the file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PolicyError(pub ConfigError);

/// The rules, in the order of the file. The first one that fits a source counts.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "it is what its name says")]
pub struct Policy {
    pub rules: Vec<Rule>,
}

/// What a payload of some sources needs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the other fields are named after their keys, which docs/signatures.md explains")]
pub struct Rule {
    /// Where it stands in the file.
    pub at: Pos,
    pub source: Scope,
    /// Files with public keys.
    pub keys: Vec<Placed<String>>,
    pub required: bool,
    pub threshold: usize,
    pub identity: Option<String>,
}

/// The sources that a rule is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// `*`
    Any,
    /// This one and those below it: `docker://HOST/PATH`, or a scheme and an absolute path. No slash at the end.
    Below(String),
}

impl Scope {
    const FORMS: &str =
        "write \"*\", \"docker://HOST/REPOSITORY\", or dir:, oci: or oci-archive: with a path that begins with /";

    /// Whether a source is one of them. `source` is `docker://HOST/REPOSITORY` without tag and digest, or a scheme with
    /// an absolute path in which nothing is a link or `..`.
    pub fn holds(&self, source: &str) -> bool {
        match self {
            Scope::Any => true,
            Scope::Below(whole) => source.strip_prefix(whole.as_str()).is_some_and(|rest| {
                // `docker://r.io/os` is not for `docker://r.io/os-evil`.
                rest.is_empty() || rest.starts_with('/')
            }),
        }
    }
}

impl FromStr for Scope {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "*" {
            return Ok(Scope::Any);
        }
        let wrong = |why: &str| Err(format!("{text:?} {why}: {}", Self::FORMS));
        let whole = text.trim_end_matches('/');
        match text.split_once(':') {
            Some(("docker", rest)) => match rest.strip_prefix("//") {
                Some(name) if name.contains(['@', '*']) || name.rsplit('/').next().is_some_and(is_tagged(name)) => {
                    wrong("has a tag, a digest or a star in it, and a rule is for a whole repository")
                }
                Some(name) if !name.trim_matches('/').is_empty() => Ok(Scope::Below(whole.to_owned())),
                _ => wrong("names no registry"),
            },
            Some(("dir" | "oci" | "oci-archive", path)) => match path.starts_with('/') {
                true if path.split('/').any(|part| matches!(part, "." | "..")) => wrong("has . or .. in it"),
                true => Ok(Scope::Below(whole.to_owned())),
                false => wrong("has no absolute path"),
            },
            _ => wrong("is no source"),
        }
    }
}

/// Whether the last part of a name has a tag. In the first one a colon begins a port.
fn is_tagged(name: &str) -> impl Fn(&str) -> bool + '_ {
    move |last| name.contains('/') && last.contains(':')
}

impl Policy {
    /// Read the file.
    pub fn parse(bytes: &[u8]) -> Result<Self, PolicyError> {
        Self::read(bytes).map_err(PolicyError)
    }

    fn read(bytes: &[u8]) -> Result<Self, ConfigError> {
        let tables = toml::tables(text(bytes)?, RULE)?;
        if tables.is_empty() {
            // With no rule every payload would be refused; that is not what an empty file says.
            return Err(ConfigError::new(Pos::behind(""), "there is no [[rule]] in it"));
        }
        let rules = tables.into_iter().map(|table| Rule::read(table.at, &table.entries)).collect::<Result<_, _>>()?;
        Ok(Policy { rules })
    }

    /// The rule for a source, as [`Scope::holds`] takes it.
    pub fn rule(&self, source: &str) -> Option<&Rule> {
        self.rules.iter().find(|rule| rule.source.holds(source))
    }
}

impl Rule {
    /// The keys.
    pub const KEYS: [&str; 5] = ["source", "keys", "required", "threshold", "identity"];

    fn read(at: Pos, entries: &[Entry]) -> Result<Self, ConfigError> {
        let (mut source, mut keys, mut required, mut threshold, mut identity) = (None, vec![], None, 1, None);
        for Entry { at, key, node } in entries {
            let value = Field { key, node };
            match key.as_str() {
                "source" => source = Some(value.parsed(str::parse)?),
                "keys" => keys = value.texts()?,
                "required" => required = Some(value.truth()?),
                "threshold" => {
                    threshold = value.number()?;
                    if threshold == 0 {
                        return Err(value.wrong("at least one signature, or required = false"));
                    }
                }
                "identity" => identity = Some(value.text()?.to_owned()),
                _ => return Err(unknown_key(*at, key, &Self::KEYS)),
            }
        }
        let required = required.unwrap_or(true);
        let source = source.ok_or_else(|| ConfigError::new(at, "this rule has no source"))?;
        if required && keys.is_empty() {
            return Err(ConfigError::new(at, "this rule has no keys: name files, or write required = false"));
        }
        Ok(Rule { at, source, keys, required, threshold, identity })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        Policy::parse(text.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn every_key_is_read() {
        let text = r#"
[[rule]]
source = "docker://r.example/os"
keys = ["/a.pem", "/b.pem"]
required = false
threshold = 2
identity = "r.example/os"

[[rule]]
source = "*"
keys = ["/c.pem"]
"#;
        let policy = Policy::parse(text.as_bytes()).unwrap();
        let [one, other] = &policy.rules[..] else { panic!("{policy:?}") };
        assert_eq!((one.at.line, &one.source), (2, &Scope::Below("docker://r.example/os".to_owned())));
        assert_eq!(one.keys.iter().map(|key| key.value.as_str()).collect::<Vec<_>>(), ["/a.pem", "/b.pem"]);
        assert_eq!((one.required, one.threshold, one.identity.as_deref()), (false, 2, Some("r.example/os")));
        assert_eq!((other.required, other.threshold, &other.identity), (true, 1, &None));
        let used = |key: &str| text.contains(&format!("\n{key} = "));
        assert!(Rule::KEYS.iter().all(|key| used(key)));
    }

    #[test]
    fn mistakes_are_named_with_their_place() {
        let rule = |rest: &str| format!("[[rule]]\nsource = \"*\"\n{rest}");
        for (text, says) in [
            (String::new(), "line 1, column 1: there is no [[rule]] in it"),
            ("source = \"*\"".to_owned(), "line 1, column 1: the key \"source\" is in no [[rule]]"),
            ("\n[[rule]]\nkeys = [\"/a\"]".to_owned(), "line 2, column 1: this rule has no source"),
            (rule(""), "line 1, column 1: this rule has no keys: name files, or write required = false"),
            (rule("require = true"), "line 3, column 1: \"require\" is not a known key: use source, keys, required,"),
            (rule("required = \"no\""), "line 3, column 12: required: write true or false"),
            (rule("keys = \"/a\""), "keys: this must be a list of texts"),
            (rule("threshold = 0"), "line 3, column 13: threshold: at least one signature"),
            (rule("threshold = \"1\""), "threshold: write a number, without quotes"),
            (rule("threshold = -1"), "threshold: write a number, without quotes"),
            (rule("threshold = 99999999999999999999"), "threshold: 99999999999999999999 is too large"),
            (rule("identity = \"\""), "identity: this must be a text in quotes, not an empty one"),
        ] {
            assert!(error(&text).contains(says), "{text}: {}", error(&text));
        }
        for source in ["", "x", "http://r.io/x", "docker:r.io", "docker://", "dir:x", "dir:", "oci:a/b", "dir:/a/../b"]
        {
            let text = format!("[[rule]]\nsource = \"{source}\"\nkeys = [\"/a\"]\n");
            assert!(error(&text).starts_with("line 2, column 10: source: "), "{source}: {}", error(&text));
        }
        for source in ["docker://r.io/x:1", "docker://r.io/x@sha256:00", "docker://r.io/*"] {
            assert!(source.parse::<Scope>().unwrap_err().contains("a rule is for a whole repository"), "{source}");
        }
        assert!(Policy::parse(b"\xff").is_err());
    }

    #[test]
    fn the_first_rule_that_fits_counts() {
        let rule = |source: &str| format!("[[rule]]\nsource = \"{source}\"\nkeys = [\"/{source}\"]\n");
        let sources = ["docker://r.io:5000/os/", "docker://r.io/a/b", "docker://r.io", "dir:/srv", "oci:/", "oci:/x"];
        let policy = Policy::parse(sources.map(rule).concat().as_bytes()).unwrap();
        let found =
            |source: &str| policy.rule(source).map(|rule| rule.keys[0].value.trim_start_matches('/').to_owned());
        for (source, fits) in [
            ("docker://r.io:5000/os", Some("docker://r.io:5000/os/")),
            ("docker://r.io:5000/os/x", Some("docker://r.io:5000/os/")),
            ("docker://r.io:5000/os-evil", None),
            ("docker://r.io:5000", None),
            ("docker://r.io/a/b", Some("docker://r.io/a/b")),
            ("docker://r.io/a/c", Some("docker://r.io")),
            ("docker://r.io.evil/a", None),
            ("dir:/srv/x", Some("dir:/srv")),
            ("dir:/srvx", None),
            ("oci-archive:/srv/x", None),
            ("oci:/x", Some("oci:/")),
        ] {
            assert_eq!(found(source).as_deref(), fits, "{source}");
        }
        let any = Policy::parse(rule("*").as_bytes()).unwrap();
        assert!(any.rule("docker://x/y").is_some() && any.rule("dir:/").is_some());
    }
}
