//! The versions of programs in a payload by which a cluster decides.

use crate::prelude::*;

use alloc::collections::BTreeMap;
use core::str::FromStr;

use crate::text::printable;
use serde::{Deserialize, Serialize};

/// Name of the component by whose version it is known which data of etcd a system reads.
pub const ETCD: &str = "etcd";
/// Name of the component that is held to Kubernetes' version skew policy.
pub const KUBELET: &str = "kubelet";

/// The versions of programs in a payload, by name: `etcd`, `kubelet`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(transparent)]
pub struct Components(BTreeMap<String, String>);

/// One component, as `NAME=VERSION`; `NAME=` for one that is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Component {
    /// Its name.
    pub name: String,
    /// Its version; `None` if it is not there.
    pub version: Option<String>,
}

impl Components {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The version of a component. One that no `NAME=VERSION` could have is none: a manifest may be damaged.
    pub fn version(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|version| is_word(version, "+~_", 64))
    }

    /// All of them, for people; `None` if there is none.
    pub fn listed(&self) -> Option<String> {
        let one = |name: &String| Some(format!("{name} {}", self.version(name)?));
        let all: Vec<String> = self.0.keys().filter_map(one).collect();
        (!all.is_empty()).then(|| printable(&all.join(", ")))
    }

    /// Those in a `manifest.json`. None if they cannot be read; the rest of it does not matter.
    pub fn of_manifest(manifest: &[u8]) -> Self {
        #[derive(Default, Deserialize)]
        struct Part {
            #[serde(default)]
            components: Components,
        }
        serde_json::from_slice::<Part>(manifest).unwrap_or_default().components
    }

    /// The same with these changed.
    pub fn with(mut self, changes: impl IntoIterator<Item = Component>) -> Self {
        for Component { name, version } in changes {
            match version {
                Some(version) => self.0.insert(name, version),
                None => self.0.remove(&name),
            };
        }
        self
    }
}

impl FromStr for Component {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, version) = text.split_once('=').ok_or_else(|| format!("{text:?} is not NAME=VERSION"))?;
        if !is_word(name, "", 32) {
            return Err(format!("{name:?} is no name: up to 32 letters, digits, '.' and '-'"));
        }
        if !version.is_empty() && !is_word(version, "+~_", 64) {
            return Err(format!("{version:?} is no version: up to 64 letters, digits and characters of \".-+~_\""));
        }
        let version = Some(version.to_owned()).filter(|version| !version.is_empty());
        Ok(Self { name: name.to_owned(), version })
    }
}

fn is_word(text: &str, more: &str, longest: usize) -> bool {
    let is_one = |c: char| c.is_ascii_alphanumeric() || c == '.' || c == '-' || more.contains(c);
    (1..=longest).contains(&text.len()) && text.chars().all(is_one)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_component_is_a_name_and_a_version() {
        let one = |text: &str| text.parse::<Component>();
        let etcd = Component { name: "etcd".to_owned(), version: Some("3.5.16".to_owned()) };
        assert_eq!(one("etcd=3.5.16"), Ok(etcd));
        assert_eq!(one("kubelet=v1.31.2+k3s1").unwrap().version.as_deref(), Some("v1.31.2+k3s1"));
        assert_eq!(one("etcd="), Ok(Component { name: "etcd".to_owned(), version: None }));
        for wrong in
            ["etcd", "=3.5", "et cd=3.5", "etcd=3.5 ", "etcd=\u{1b}", "a=b=c", &format!("e={}", "1".repeat(65))]
        {
            assert!(one(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn changes_replace_and_take_away() {
        let all = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<Component>>();
        let before = Components::default().with(all(&["etcd=3.5.16", "kubelet=1.31.2"]));
        let after = before.clone().with(all(&["etcd=", "kubelet=1.32.0"]));
        assert_eq!((after.version(ETCD), after.version(KUBELET)), (None, Some("1.32.0")));
        assert!(!after.is_empty() && after.with(all(&["kubelet="])).is_empty());
        assert_eq!(before.version(ETCD), Some("3.5.16"));
    }

    #[test]
    fn what_no_option_could_have_written_is_no_version() {
        let of = |text: &str| Components::of_manifest(text.as_bytes());
        assert_eq!(of(r#"{"format": 1, "components": {"etcd": "3.5.16"}}"#).version(ETCD), Some("3.5.16"));
        assert_eq!(of(r#"{"components": {"etcd": "3.5\u001b[2J"}}"#).version(ETCD), None);
        for wrong in ["", "[]", "{}", r#"{"components": []}"#, r#"{"components": {"etcd": 3}}"#] {
            assert!(of(wrong).is_empty(), "{wrong}");
        }
    }
}
