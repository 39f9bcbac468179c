//! Who asked for a change, and why.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Who says something, and why. Both are shown wherever it has an effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Attribution {
    /// Who says so.
    #[schemars(length(min = 1, max = 253))]
    pub who: String,
    /// Why.
    #[schemars(length(min = 1, max = 1024))]
    pub why: String,
}

impl std::fmt::Display for Attribution {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.who, self.why)
    }
}
