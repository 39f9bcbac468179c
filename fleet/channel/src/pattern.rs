//! A pattern of tags: `*` is any text, also none; everything else is itself.

use core::fmt;

use serde::{Deserialize, Serialize};
use slipway_core::glob::glob;

/// A pattern of tags.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Pattern(String);

/// A text that no tag could match.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} matches no tag: write letters, digits, `_`, `.`, `-`, and `*` for any text")]
pub struct PatternError(String);

impl TryFrom<String> for Pattern {
    type Error = PatternError;

    fn try_from(text: String) -> Result<Self, PatternError> {
        let may_be = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-' | '*');
        if !text.is_empty() && text.chars().all(may_be) { Ok(Self(text)) } else { Err(PatternError(text)) }
    }
}

impl From<Pattern> for String {
    fn from(pattern: Pattern) -> Self {
        pattern.0
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Pattern {
    /// True if a tag matches.
    pub fn matches(&self, tag: &str) -> bool {
        glob(&self.0, tag)
    }
}
