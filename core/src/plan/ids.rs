//! What a plan takes from outside, because planning has neither a clock nor randomness.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{digest::Sha256, disk::layout::Part, seeded_guid::seeded_guid};

/// All that would otherwise be random or depend on the clock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Ids {
    /// Disk GUID.
    pub disk: Uuid,
    /// PARTUUIDs by partition number; the file systems have the same UUIDs.
    pub parts: [Uuid; 7],
    /// Time stamp of files, seconds since 1970 UTC.
    pub time: u64,
}

impl Ids {
    /// GUIDs derived from a seed and their purpose, for reproducible images.
    pub fn seeded(seed: Sha256, time: u64) -> Self {
        let guid = |label: &str| seeded_guid(&[&seed.0, label.as_bytes()].concat());
        Ids { disk: guid("disk"), parts: Part::ALL.map(|part| guid(part.name())), time }
    }

    /// Nil GUIDs, for a plan that is only made to be hashed.
    pub const fn none(time: u64) -> Self {
        Ids { disk: Uuid::nil(), parts: [Uuid::nil(); 7], time }
    }

    /// The PARTUUID of a partition.
    pub const fn part(&self, part: Part) -> Uuid {
        self.parts[part.index()]
    }
}
