//! `/etc/slipway/policy.toml`: the signatures that a payload needs, by its source. Read strictly: an overlooked key may
//! be the one that demands a signature.

use crate::prelude::*;

use core::str::FromStr;

use super::{
    ConfigError,
    value::{Field, Placed, unknown_key},
};
use crate::{
    payload::image_ref::{ImageRefError, below_registry},
    toml,
    yaml::{Entry, Pos, text},
};

/// Path of the policy.
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

/// Requirements on the payloads of some sources.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the other fields are named after their keys, which docs/signatures.md explains")]
pub struct Rule {
    /// Its position in the file.
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

impl Scope {
    /// Whether it holds all sources of another one.
    fn covers(&self, other: &Scope) -> bool {
        match (self, other) {
            (Scope::Any, _) => true,
            (Scope::Below(_), Scope::Any) => false,
            (Scope::Below(_), Scope::Below(whole)) => self.holds(whole),
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
        // A slash at the end does not matter.
        let whole = text.strip_suffix('/').unwrap_or(text);
        match text.split_once(':') {
            Some(("docker", rest)) => match rest.strip_prefix("//") {
                Some(name) if name.contains(['@', '*']) || name.rsplit('/').next().is_some_and(is_tagged(name)) => {
                    wrong("has a tag, a digest or a star in it, and a rule is for a whole repository")
                }
                Some(name) if !name.trim_matches('/').is_empty() => {
                    // In a spelling that sources never have, it would match none.
                    match below_registry(name.strip_suffix('/').unwrap_or(name)) {
                        // No such image exists; the author means one of another name.
                        Ok(below) if is_one_word_of_docker_hub(&below) && !name.ends_with('/') => {
                            wrong("is no image (Debian's is docker.io/library/debian); for all below it, end it in /")
                        }
                        Ok(name) => Ok(Scope::Below(format!("docker://{name}"))),
                        Err(ImageRefError::Host(host)) => wrong(&format!(
                            "begins with {host:?}, which is no registry (Debian's image is docker.io/library/debian)"
                        )),
                        Err(error) => wrong(&format!("fits no source: {error}")),
                    }
                }
                _ => wrong("names no registry"),
            },
            Some(("dir" | "oci" | "oci-archive", path)) => match path.starts_with('/') {
                true if path.split('/').any(|part| matches!(part, "." | "..")) => wrong("has . or .. in it"),
                true if path.contains("//") => wrong("has two slashes in a row"),
                true => Ok(Scope::Below(whole.to_owned())),
                false => wrong("has no absolute path"),
            },
            _ => wrong("is no source"),
        }
    }
}

/// Whether it is `docker.io/debian`: an image there has a path of two words or more.
fn is_one_word_of_docker_hub(below: &str) -> bool {
    below.strip_prefix("docker.io/").is_some_and(|path| !path.contains('/'))
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
            // With no rule every payload would be refused; an empty file does not mean that.
            return Err(ConfigError::new(Pos::behind(""), "there is no [[rule]] in it"));
        }
        let mut rules = Vec::<Rule>::new();
        for table in tables {
            let rule = Rule::read(table.at, &table.entries)?;
            if let Some(before) = rules.iter().find(|before| before.source.covers(&rule.source)) {
                let line = before.at.line;
                let why =
                    format!("this rule never counts: the one in line {line} is for all its sources; put it above that");
                return Err(ConfigError::new(rule.at, why));
            }
            rules.push(rule);
        }
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
                "keys" => keys = absolute(value.texts()?, *at)?,
                "required" => required = Some(value.boolean()?),
                "threshold" => {
                    threshold = value.number()?;
                    if threshold == 0 {
                        return Err(value.wrong("at least one signature, or required = false"));
                    }
                }
                "identity" => {
                    let named = value.text()?;
                    // No signer names a source.
                    if named.contains("://") {
                        return Err(value.wrong("write the repository alone, such as registry.example/os"));
                    }
                    identity = Some(named.to_owned());
                }
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

/// A relative path would name another key in each working directory.
fn absolute(keys: Vec<Placed<String>>, at: Pos) -> Result<Vec<Placed<String>>, ConfigError> {
    match keys.iter().find(|key| !key.value.starts_with('/')) {
        Some(key) => {
            let why = format!("keys: {:?} has no absolute path: write one that begins with /", key.value);
            Err(ConfigError::new(key.at.unwrap_or(at), why))
        }
        None => Ok(keys),
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
            (rule("keys = [\"/a\", \"b.pem\"]"), "line 3, column 15: keys: \"b.pem\" has no absolute path"),
            (
                rule("required = false\n[[rule]]\nsource = \"dir:/srv\"\nkeys = [\"/a\"]"),
                "line 4, column 1: this rule never counts: the one in line 1 is for all its sources",
            ),
            (rule("identity = \"\""), "identity: this must be a text in quotes, not an empty one"),
            (rule("identity = \"docker://r.io/os\""), "identity: write the repository alone"),
        ] {
            assert!(error(&text).contains(says), "{text}: {}", error(&text));
        }
        for source in ["", "x", "http://r.io/x", "docker:r.io", "docker://", "dir:x", "dir:", "oci:a/b", "dir:/a/../b"]
        {
            let text = format!("[[rule]]\nsource = \"{source}\"\nkeys = [\"/a\"]\n");
            assert!(error(&text).starts_with("line 2, column 10: source: "), "{source}: {}", error(&text));
        }
        // These would match no source, and their sources would fall to a rule below.
        for source in [
            "docker://r.io//os",
            "docker://r.io/os//",
            "docker://r.io/OS",
            "docker://r.io:0x/os",
            "docker://r.io:0/os",
            "docker://debian",
            "docker://library/debian",
            "docker://docker.io/debian",
            "docker://Docker.io:443/debian",
            "docker://r.io:080/os",
            "dir:/x//y",
            "dir://x",
            "dir:/x//",
            "oci:/x/./y",
        ] {
            assert!(source.parse::<Scope>().is_err(), "{source}");
        }
        assert_eq!("docker://LOCALHOST:5/os".parse(), Ok(Scope::Below("docker://localhost:5/os".to_owned())));
        assert_eq!("docker://[::1]:5/os".parse(), Ok(Scope::Below("docker://[::1]:5/os".to_owned())));
        for source in ["docker://r.io/x:1", "docker://r.io/x@sha256:00", "docker://r.io/*"] {
            assert!(source.parse::<Scope>().unwrap_err().contains("a rule is for a whole repository"), "{source}");
        }
        assert!(Policy::parse(b"\xff").is_err());
    }

    #[test]
    fn a_registry_has_one_name() {
        assert_eq!("docker://LOCALHOST/os".parse(), Ok(Scope::Below("docker://localhost/os".to_owned())));
        assert_eq!("docker://r.io:443/os".parse(), Ok(Scope::Below("docker://r.io/os".to_owned())));
        for (source, below) in [
            ("docker://docker.io/", "docker://docker.io"),
            ("docker://docker.io/library/", "docker://docker.io/library"),
            ("docker://docker.io/library/debian", "docker://docker.io/library/debian"),
            ("docker://r.io/os", "docker://r.io/os"),
        ] {
            assert_eq!(source.parse(), Ok(Scope::Below(below.to_owned())));
        }
        let one_word = "docker://docker.io/debian".parse::<Scope>().unwrap_err();
        assert!(one_word.contains("Debian's is docker.io/library/debian"), "{one_word}");
    }

    /// Under any rules, each of them counts for the source that it names.
    #[test]
    fn every_rule_counts() {
        let sources = ["*", "dir:/", "dir:/a", "dir:/a/b", "dir:/ab", "oci:/a", "docker://r.io", "docker://r.io/a"];
        let text = |source: &str| format!("[[rule]]\nsource = \"{source}\"\nkeys = [\"/k\"]\n");
        let mut refused = 0;
        for [a, b, c] in sources.iter().flat_map(|a| sources.iter().flat_map(move |b| sources.map(|c| [*a, *b, c]))) {
            let Ok(policy) = Policy::parse([a, b, c].map(text).concat().as_bytes()) else {
                refused += 1;
                continue;
            };
            for (n, source) in [a, b, c].into_iter().enumerate() {
                let named = if source == "*" { "x" } else { source.trim_end_matches('/') };
                assert_eq!(policy.rule(named), Some(&policy.rules[n]), "{source} of {a}, {b}, {c}");
            }
        }
        assert!(refused > 0 && refused < 512, "{refused}");
    }

    #[test]
    fn the_first_rule_that_fits_counts() {
        let rule = |source: &str| format!("[[rule]]\nsource = \"{source}\"\nkeys = [\"/{source}\"]\n");
        let sources = ["docker://r.io:5000/os/", "docker://r.io/a/b", "docker://R.io", "dir:/srv", "oci:/x", "oci:/"];
        let policy = Policy::parse(sources.map(rule).concat().as_bytes()).unwrap();
        let found =
            |source: &str| policy.rule(source).map(|rule| rule.keys[0].value.trim_start_matches('/').to_owned());
        for (source, fits) in [
            ("docker://r.io:5000/os", Some("docker://r.io:5000/os/")),
            ("docker://r.io:5000/os/x", Some("docker://r.io:5000/os/")),
            ("docker://r.io:5000/os-evil", None),
            ("docker://r.io:5000", None),
            ("docker://r.io/a/b", Some("docker://r.io/a/b")),
            ("docker://r.io/a/c", Some("docker://R.io")),
            ("docker://r.io.evil/a", None),
            ("dir:/srv/x", Some("dir:/srv")),
            ("dir:/srvx", None),
            ("oci-archive:/srv/x", None),
            ("oci:/x/y", Some("oci:/x")),
            ("oci:/y", Some("oci:/")),
        ] {
            assert_eq!(found(source).as_deref(), fits, "{source}");
        }
        let any = Policy::parse(rule("*").as_bytes()).unwrap();
        assert!(any.rule("docker://x/y").is_some() && any.rule("dir:/").is_some());
    }
}
