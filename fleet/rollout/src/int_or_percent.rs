//! A number of nodes, or a percentage.
//!
//! * A percent is rounded down, and is at least one node.
//! * What may be unavailable is never all of a pool of two or more nodes. That holds for a number, too: it was written
//!   for a pool of some size, and pools shrink.
//! * A pool of one node may lose it: else it could never be upgraded.
//! * The number 0 is a number: nothing may be unavailable, and nothing goes. 0 % is refused, since it would be rounded to
//!   at least one node, which is never meant.

use core::fmt;
use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// A number of nodes, or a share of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Form", into = "Form")]
pub enum IntOrPercent {
    /// A number of nodes.
    Nodes(u32),
    /// A percentage, 1 to 100.
    Percent(u8),
}

/// The written form: `3`, or `"25%"`.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Form {
    Nodes(u32),
    Text(String),
}

impl JsonSchema for IntOrPercent {
    fn schema_name() -> Cow<'static, str> {
        "IntOrPercent".into()
    }

    /// A number or a text, as Kubernetes has it: the pattern holds for texts, the minimum for numbers.
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "x-kubernetes-int-or-string": true,
            "minimum": 0,
            "maximum": u32::MAX,
            "pattern": "^([1-9][0-9]?|100)%$",
        })
    }
}

/// A text that is no amount.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no amount: write a number, or a percentage from \"1%\" to \"100%\"")]
pub struct InvalidIntOrPercent(String);

impl TryFrom<Form> for IntOrPercent {
    type Error = InvalidIntOrPercent;

    fn try_from(form: Form) -> Result<Self, InvalidIntOrPercent> {
        match form {
            Form::Nodes(nodes) => Ok(Self::Nodes(nodes)),
            Form::Text(text) => {
                let digits = text.strip_suffix('%').filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
                let percent =
                    digits.and_then(|digits| digits.parse().ok()).filter(|percent| (1..=100).contains(percent));
                percent.map(Self::Percent).ok_or(InvalidIntOrPercent(text))
            }
        }
    }
}

impl From<IntOrPercent> for Form {
    fn from(amount: IntOrPercent) -> Self {
        match amount {
            IntOrPercent::Nodes(nodes) => Self::Nodes(nodes),
            IntOrPercent::Percent(_) => Self::Text(amount.to_string()),
        }
    }
}

impl fmt::Display for IntOrPercent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nodes(nodes) => write!(f, "{nodes}"),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

impl IntOrPercent {
    fn share_of(self, total: u32) -> u32 {
        match self {
            Self::Nodes(nodes) => nodes,
            Self::Percent(percent) => {
                let nodes = u64::from(total) * u64::from(percent) / 100;
                u32::try_from(nodes).unwrap_or(u32::MAX).max(1)
            }
        }
    }

    /// Number of nodes, in a pool of `total`, that may be unavailable at once.
    ///
    /// ```
    /// use slipway_rollout::int_or_percent::IntOrPercent;
    ///
    /// assert_eq!(IntOrPercent::Percent(25).unavailable(10), 2); // 2.5, rounded down
    /// assert_eq!(IntOrPercent::Percent(10).unavailable(4), 1); // at least one
    /// assert_eq!(IntOrPercent::Percent(100).unavailable(5), 4); // never all of them
    /// assert_eq!(IntOrPercent::Nodes(3).unavailable(10), 3);
    /// assert_eq!(IntOrPercent::Nodes(3).unavailable(2), 1); // a number is capped, too
    /// assert_eq!(IntOrPercent::Nodes(0).unavailable(10), 0); // nothing goes
    /// assert_eq!(IntOrPercent::Percent(1).unavailable(1), 1); // a single node can be upgraded
    /// ```
    pub fn unavailable(self, total: u32) -> u32 {
        let most = if total >= 2 { total - 1 } else { total };
        self.share_of(total).min(most)
    }

    /// So many of `total` nodes, at least one and at most all: the size of a step, or how many failures are too many.
    ///
    /// ```
    /// use slipway_rollout::int_or_percent::IntOrPercent;
    ///
    /// assert_eq!(IntOrPercent::Percent(10).share(25), 2); // 2.5, rounded down
    /// assert_eq!(IntOrPercent::Percent(100).share(25), 25);
    /// assert_eq!(IntOrPercent::Nodes(0).share(25), 1); // the first failure
    /// assert_eq!(IntOrPercent::Nodes(7).share(5), 5);
    /// assert_eq!(IntOrPercent::Percent(50).share(0), 0);
    /// ```
    pub fn share(self, total: u32) -> u32 {
        self.share_of(total).max(1).min(total)
    }
}
