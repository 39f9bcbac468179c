//! A person's word.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Who says something, and why. Both are shown wherever it has an effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Word {
    /// Who says so.
    #[schemars(length(min = 1, max = 253))]
    pub who: String,
    /// Why, for the person who reads it at night.
    #[schemars(length(min = 1, max = 1024))]
    pub why: String,
}

impl std::fmt::Display for Word {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.who, self.why)
    }
}
