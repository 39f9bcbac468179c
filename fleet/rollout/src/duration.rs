//! A length of time, such as `4h` or `PT30M`. It is longer than nothing: a rate per no time, or a window of no length, is
//! a slip of the pen.

use core::fmt;
use std::borrow::Cow;

use jiff::{SignedDuration, Timestamp};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// A length of time, longer than nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PositiveDuration(SignedDuration);

impl JsonSchema for PositiveDuration {
    fn schema_name() -> Cow<'static, str> {
        "PositiveDuration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "maxLength": 64,
            // Each unit once, the longest first.
            "pattern": "^(PT([0-9]{1,9}H)?([0-9]{1,9}M)?([0-9]{1,9}S)?|\
                        [0-9]{1,9}(h( ?[0-9]{1,9}m)?( ?[0-9]{1,9}s)?|m( ?[0-9]{1,9}s)?|s))$",
            "x-kubernetes-validations": [{
                "rule": "self.matches('[1-9]')",
                "message": "a length of time is longer than nothing: 90s, 4h or 1h 30m",
            }],
        })
    }
}

/// A text that is no length of time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no length of time: write one like \"90s\", \"4h\" or \"1h 30m\"; it must be longer than nothing")]
pub struct InvalidDuration(String);

impl TryFrom<String> for PositiveDuration {
    type Error = InvalidDuration;

    fn try_from(text: String) -> Result<Self, InvalidDuration> {
        let length = text.parse::<SignedDuration>().ok().filter(SignedDuration::is_positive);
        length.map(Self).ok_or(InvalidDuration(text))
    }
}

impl From<PositiveDuration> for String {
    fn from(span: PositiveDuration) -> Self {
        span.to_string()
    }
}

impl fmt::Display for PositiveDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#}", self.0)
    }
}

impl PositiveDuration {
    /// So many minutes, of which there must be at least one.
    pub const fn from_minutes(minutes: u32) -> Self {
        assert!(minutes > 0, "a span is longer than nothing");
        Self(SignedDuration::from_mins(minutes as i64))
    }

    /// So many minutes; at least one.
    pub fn minutes(minutes: u32) -> Self {
        Self(SignedDuration::from_mins(i64::from(minutes.max(1))))
    }

    /// Its whole seconds.
    pub fn seconds(self) -> u64 {
        self.0.as_secs().unsigned_abs()
    }

    /// The time that is so much after `from`; the last one that can be written if there is none.
    pub fn after(self, from: Timestamp) -> Timestamp {
        from.checked_add(self.0).unwrap_or(Timestamp::MAX)
    }
}
