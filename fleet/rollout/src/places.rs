//! Places of a plan, counted from 0, as one short line: `0-41,43`. Nodes go in the plan's order, so most places are one range.

use std::{borrow::Cow, collections::BTreeSet, fmt, str::FromStr};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// No plan has so many nodes.
const END: u32 = 100_000;

/// A set of places.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Places(BTreeSet<u32>);

/// Why a line has no places.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no list of places such as 0-41,43")]
pub struct PlacesError(String);

impl Places {
    /// One more.
    pub fn insert(&mut self, place: u32) {
        self.0.insert(place);
    }

    /// True if it is among them.
    pub fn contains(&self, place: u32) -> bool {
        self.0.contains(&place)
    }

    /// There is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromStr for Places {
    type Err = PlacesError;

    fn from_str(text: &str) -> Result<Self, PlacesError> {
        let wrong = || PlacesError(text.to_owned());
        let place = |text: &str| text.parse::<u32>().ok().filter(|place| *place < END).ok_or_else(wrong);
        let (mut places, mut left) = (BTreeSet::new(), END);
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (from, to) = part.split_once('-').unwrap_or((part, part));
            let (from, to) = (place(from)?, place(to)?);
            // A short line may have all places thousands of times, and would be read for a minute.
            left = left.checked_sub(to.saturating_sub(from).saturating_add(1)).ok_or_else(wrong)?;
            places.extend(from..=to);
        }
        Ok(Self(places))
    }
}

impl TryFrom<String> for Places {
    type Error = PlacesError;

    fn try_from(text: String) -> Result<Self, PlacesError> {
        text.parse()
    }
}

impl From<Places> for String {
    fn from(places: Places) -> Self {
        places.to_string()
    }
}

impl fmt::Display for Places {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut ranges: Vec<(u32, u32)> = Vec::new();
        for place in &self.0 {
            match ranges.last_mut() {
                Some((_, to)) if *to + 1 == *place => *to = *place,
                _ => ranges.push((*place, *place)),
            }
        }
        for (n, (from, to)) in ranges.into_iter().enumerate() {
            let comma = if n == 0 { "" } else { "," };
            if from == to { write!(f, "{comma}{from}")? } else { write!(f, "{comma}{from}-{to}")? }
        }
        Ok(())
    }
}

impl JsonSchema for Places {
    fn schema_name() -> Cow<'static, str> {
        "Places".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            // A plan of 7,500 nodes, every second one of them.
            "maxLength": 65_536,
            "pattern": "^([0-9]{1,5}(-[0-9]{1,5})?(,[0-9]{1,5}(-[0-9]{1,5})?)*)?$"
        })
    }
}
