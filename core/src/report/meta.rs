//! The answer of `meta`.

use crate::prelude::*;

use core::fmt;

use serde::{Deserialize, Serialize};

use crate::{disk::meta::Meta, text::printable};

/// The tags in META.
#[derive(Debug, Serialize, Deserialize, schemars::JsonSchema)]
pub struct MetaReport {
    /// Whether anything was written.
    pub changed: bool,
    /// Whether ADV copies 1 and 2 are valid.
    pub copies_valid: [bool; 2],
    /// The tags that were asked for.
    pub tags: Vec<MetaTag>,
    /// Print only the value (`meta get`).
    #[serde(skip)]
    pub bare: bool,
    /// The tag that is not there any more, and whether it was there before (`meta delete`).
    #[serde(skip)]
    pub deleted: Option<(u8, bool)>,
}

/// One tag.
#[derive(Debug, Serialize, Deserialize, schemars::JsonSchema)]
pub struct MetaTag {
    /// Key, such as `0x06`.
    pub key: String,
    /// Value as text, with U+FFFD for what is not UTF-8.
    pub value: String,
    /// Value as hex digits.
    pub hex: String,
    /// Whether only the legacy area has it.
    pub legacy: bool,
}

impl MetaReport {
    /// Report all tags, or `only` one.
    pub fn new(meta: &Meta, only: Option<u8>, changed: bool) -> Self {
        let wanted = only.map(MetaTag::name);
        let tags = MetaTag::all(meta).into_iter().filter(|t| wanted.as_ref().is_none_or(|w| t.key == *w));
        MetaReport { changed, copies_valid: meta.valid, tags: tags.collect(), bare: false, deleted: None }
    }
}

impl MetaTag {
    fn name(key: u8) -> String {
        format!("{key:#04x}")
    }

    /// The tags of the ADV, then those that only the legacy area has.
    pub fn all(meta: &Meta) -> Vec<MetaTag> {
        let legacy = meta.legacy.iter().filter(|(key, _)| meta.adv.get(**key).is_none());
        let own = meta.adv.iter().map(|(key, value)| (key, value, false));
        let all = own.chain(legacy.map(|(key, value)| (*key, value.as_slice(), true)));
        let tag = |(key, value, legacy): (u8, &[u8], bool)| MetaTag {
            key: MetaTag::name(key),
            value: String::from_utf8_lossy(value).into_owned(),
            hex: value.iter().map(|b| format!("{b:02x}")).collect(),
            legacy,
        };
        all.map(tag).collect()
    }
}

impl fmt::Display for MetaReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.bare {
            return self.tags.iter().try_for_each(|t| f.write_str(&t.value));
        }
        let mut lines: Vec<String> = self
            .tags
            .iter()
            .map(|t| format!("{}={}{}", t.key, printable(&t.value), if t.legacy { "   (legacy area)" } else { "" }))
            .collect();
        match self.deleted {
            Some((key, true)) => lines.push(format!("{} is deleted", MetaTag::name(key))),
            Some((key, false)) => lines.push(format!("there is no tag {}", MetaTag::name(key))),
            None if lines.is_empty() => lines.push("no tags".to_owned()),
            None => {}
        }
        for (n, valid) in (1..).zip(self.copies_valid) {
            if !valid {
                lines.push(format!("copy {n} of META is not valid"));
            }
        }
        f.write_str(&lines.join("\n"))
    }
}
