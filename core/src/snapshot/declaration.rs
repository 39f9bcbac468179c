//! `/etc/slipway/state.toml`: the files and tags of a system. Read strictly: an overlooked entry would not go back.

use crate::prelude::*;

use crate::{
    config::{
        ConfigError,
        value::{Field, Placed, unknown_key},
    },
    disk::meta::parse_key,
    plan::META_UPGRADE,
    toml,
    yaml::{Entry, text},
};

/// Path of the file.
pub const PATH: &str = "/etc/slipway/state.toml";
/// Most bytes of the file.
pub const MAX_FILE: u64 = 64 << 10;
/// Most bytes of a path, as Linux has it (`PATH_MAX` with its zero).
const MAX_PATH: usize = 4095;

/// The files and tags that belong to a system.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Declaration {
    /// Absolute paths of files and directories, with all that is in them; none lies in another.
    pub paths: Vec<String>,
    /// Keys of META tags.
    pub meta: Vec<u8>,
    /// Directories that must be mount points.
    pub mounted: Vec<String>,
    /// Whether it may lie unencrypted on a disk that has an encrypted volume.
    pub plain: bool,
}

impl Declaration {
    /// The keys.
    pub const KEYS: [&str; 4] = ["paths", "meta", "mounted", "plain"];

    /// Read the file. Errors name line and column.
    pub fn parse(bytes: &[u8]) -> Result<Self, ConfigError> {
        let mut found = Declaration::default();
        let text = text(bytes)?;
        for entry in toml::entries(text)? {
            found.set(&entry)?;
        }
        if found.paths.is_empty() && found.meta.is_empty() {
            return Err(ConfigError::new(
                crate::yaml::Pos::behind(text),
                "nothing is declared: write paths, or meta, or take the file away".to_owned(),
            ));
        }
        Ok(found)
    }

    fn set(&mut self, Entry { at, key, node }: &Entry) -> Result<(), ConfigError> {
        let value = Field { key, node };
        match key.as_str() {
            "paths" => self.paths = paths(&value, "lies in")?,
            "mounted" => self.mounted = paths(&value, "")?,
            "meta" => self.meta = tags(&value)?,
            "plain" => self.plain = value.boolean()?,
            _ => return Err(unknown_key(*at, key, &Self::KEYS)),
        }
        Ok(())
    }
}

fn wrong(at: Option<crate::yaml::Pos>, key: &str, what: String) -> ConfigError {
    ConfigError::new(at.unwrap_or_else(|| crate::yaml::Pos::behind("")), format!("{key}: {what}"))
}

/// Paths that are told apart by their text. With `inside` none may lie in another one.
fn paths(value: &Field, inside: &str) -> Result<Vec<String>, ConfigError> {
    let mut found: Vec<String> = Vec::new();
    for Placed { at, value: path } in value.texts()? {
        is_path(&path).map_err(|why| wrong(at, value.key, format!("{path:?} {why}")))?;
        for other in &found {
            let text = match () {
                () if *other == path => format!("{path:?} is there twice"),
                () if inside.is_empty() => continue,
                () if lies_in(path.as_bytes(), other) => format!("{path:?} {inside} {other:?}: leave one of them out"),
                () if lies_in(other.as_bytes(), &path) => format!("{other:?} {inside} {path:?}: leave one of them out"),
                () => continue,
            };
            return Err(wrong(at, value.key, text));
        }
        found.push(path);
    }
    Ok(found)
}

fn tags(value: &Field) -> Result<Vec<u8>, ConfigError> {
    let mut found = Vec::new();
    for Placed { at, value: text } in value.texts()? {
        let key = parse_key(&text).map_err(|why| wrong(at, value.key, why))?;
        match () {
            () if key == META_UPGRADE => {
                return Err(wrong(
                    at,
                    value.key,
                    format!("{key:#04x} is Slipway's own tag, and changes with the slot"),
                ));
            }
            () if found.contains(&key) => return Err(wrong(at, value.key, format!("{key:#04x} is there twice"))),
            () => found.push(key),
        }
    }
    Ok(found)
}

/// Whether this may be the path of what belongs to a system.
pub fn is_path(path: &str) -> Result<(), &'static str> {
    let Some(inner) = path.strip_prefix('/') else { return Err("is not absolute: begin it with /") };
    match () {
        () if inner.is_empty() => Err("is everything: name what belongs to the system"),
        () if path.len() > MAX_PATH => Err("is too long"),
        () if path.chars().any(char::is_control) => Err("has a control character"),
        () if inner.split('/').any(|part| matches!(part, "" | "." | "..")) => {
            Err("has an empty part, . or ..: write it without")
        }
        () => Ok(()),
    }
}

/// Whether a path lies below another one.
pub fn lies_in(path: &[u8], above: &str) -> bool {
    path.strip_prefix(above.as_bytes()).is_some_and(|rest| rest.first() == Some(&b'/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        Declaration::parse(text.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn every_key_is_read() {
        let text = "paths = [\"/etc/ssh\", \"/etc/ssh2\"]\nmeta = [\"0x0b\", \"12\"]\nmounted = [\"/system/state\"]\nplain = true\n";
        let all = Declaration {
            paths: vec!["/etc/ssh".into(), "/etc/ssh2".into()],
            meta: vec![11, 12],
            mounted: vec!["/system/state".into()],
            plain: true,
        };
        assert_eq!(Declaration::parse(text.as_bytes()), Ok(all));
    }

    #[test]
    fn a_mistake_is_named_with_its_place() {
        for (text, said) in [
            ("", "nothing is declared: write paths, or meta, or take the file away"),
            ("path = [\"/a\"]\n", "line 1, column 1: \"path\" is not a known key: use paths, meta, mounted, plain"),
            ("paths = \"/a\"\n", "line 1, column 9: paths: this must be a list of texts: [\"…\", \"…\"]"),
            ("paths = [\"/a\",\n \"b\"]\n", "line 2, column 2: paths: \"b\" is not absolute: begin it with /"),
            ("paths = [\"/\"]\n", "line 1, column 10: paths: \"/\" is everything: name what belongs to the system"),
            ("paths = [\"/a/../b\"]\n", "has an empty part, . or ..: write it without"),
            ("paths = [\"/a/\"]\n", "has an empty part, . or ..: write it without"),
            ("paths = [\"/a\\tb\"]\n", "has a control character"),
            ("paths = [\"/a\", \"/a\"]\n", "line 1, column 16: paths: \"/a\" is there twice"),
            (
                "paths = [\"/a/b\", \"/a\"]\n",
                "line 1, column 18: paths: \"/a/b\" lies in \"/a\": leave one of them out",
            ),
            (
                "paths = [\"/a\", \"/a/b\"]\n",
                "line 1, column 16: paths: \"/a/b\" lies in \"/a\": leave one of them out",
            ),
            ("meta = [\"0x06\"]\n", "line 1, column 9: meta: 0x06 is Slipway's own tag, and changes with the slot"),
            ("meta = [\"11\", \"0x0b\"]\n", "line 1, column 15: meta: 0x0b is there twice"),
            ("meta = [\"0\"]\n", "META key \"0\": write a number from 1 to 255"),
            ("meta = [11]\n", "line 1, column 9: meta: this must be a text in quotes"),
            ("plain = \"yes\"\n", "line 1, column 9: plain: write true or false, without quotes"),
        ] {
            assert!(error(text).contains(said), "{text}: {}", error(text));
        }
        assert!(Declaration::parse(b"mounted = [\"/a\", \"/a/b\"]\nmeta = [\"7\"]\n").is_ok(), "mounts lie in mounts");
    }
}
