//! What `status` says.

use crate::prelude::*;

use alloc::collections::BTreeMap;
use core::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    boot::{
        env::{BootEnv, Marker},
        rule::NextBoot,
        running::Running,
        slot::{PerSlot, Slot, SlotState},
    },
    digest::Sha256,
    disk::{identity::DiskIdentity, layout::Part},
    units::{Extent, approx},
};

/// What is on a disk, and what boots next.
#[derive(Debug, Serialize, Deserialize, schemars::JsonSchema)]
pub struct StatusReport {
    /// Which disk.
    pub disk: DiskIdentity,
    /// Size in bytes.
    pub bytes: u64,
    /// Logical block size in bytes.
    pub sector_bytes: u64,
    /// GUID in the GPT.
    pub disk_guid: uuid::Uuid,
    /// Our partitions.
    pub partitions: BTreeMap<Part, Extent>,
    /// What the next boot starts, and why.
    pub next_boot: NextBoot,
    /// The system that runs, seen from this disk.
    pub running: Running,
    /// The last trial, and how it ended; none where none is known.
    pub last_trial: Option<String>,
    /// What `rollback` would do, or why it would be refused (by what GRUB loads; the command looks at every file).
    pub rollback: String,
    /// The boot.env that counts; none where both copies are lost.
    pub boot_env: Option<BootEnv>,
    /// The slots.
    pub slots: PerSlot<SlotStatus>,
    /// Tags in META.
    pub meta: BTreeMap<String, String>,
    /// What is not as it should be, though the system boots: damaged copies, a backup GPT that is not at
    /// the end of the disk.
    pub problems: Vec<String>,
}

/// One slot.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
pub struct SlotStatus {
    /// State by boot.env.
    pub state: Option<SlotState>,
    /// When the installer last changed that state, UTC; a `tried` slot was tried after that.
    pub since: Option<String>,
    /// Version of its payload.
    pub version: Option<String>,
    /// Digest that names its payload.
    pub payload: Option<Sha256>,
    /// Its own marker.
    pub marker: Option<Marker>,
    /// Whether kernel, initramfs and slot.cfg are what boot.sha256 says.
    pub verifies: bool,
    /// If not, why.
    pub problem: Option<String>,
}

/// What the next boot starts, and why, as a sentence.
pub(super) fn next_boot(next: &NextBoot) -> String {
    let what = match (next.slot, next.trial) {
        (Some(slot), true) => format!("slot {slot}, one time"),
        (Some(slot), false) => format!("slot {slot}"),
        (None, _) => "NOTHING".to_owned(),
    };
    format!("{what}: {}", next.why)
}

impl fmt::Display for StatusReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "disk       {} ({}, {}-byte sectors)", self.disk.path, approx(self.bytes), self.sector_bytes)?;
        writeln!(f, "disk GUID  {}", self.disk_guid)?;
        writeln!(f, "next boot  {}", next_boot(&self.next_boot))?;
        writeln!(f, "running    {}", self.running)?;
        for slot in Slot::BOTH {
            let s = &self.slots[slot];
            let state = s.state.map_or_else(|| "unknown".to_owned(), |s| s.to_string());
            let since = match (&s.since, s.state) {
                (Some(since), Some(SlotState::Tried)) => format!(" (activated {since}, tried after that)"),
                (Some(since), _) => format!(" (since {since})"),
                (None, _) => String::new(),
            };
            let version = s.version.as_deref().unwrap_or("-");
            let check = match &s.problem {
                None => "verifies".to_owned(),
                Some(problem) => problem.clone(),
            };
            writeln!(f, "slot {slot}     {state}{since}, version {version}, {check}")?;
            if let Some(payload) = s.payload {
                writeln!(f, "           payload {payload}")?;
            }
        }
        if let Some(trial) = &self.last_trial {
            writeln!(f, "last trial {trial}")?;
        }
        writeln!(f, "rollback   {}", self.rollback)?;
        for (tag, value) in &self.meta {
            writeln!(f, "META {tag}  {value}")?;
        }
        for problem in &self.problems {
            writeln!(f, "problem    {problem}")?;
        }
        write!(f, "partitions")?;
        for (part, extent) in &self.partitions {
            write!(f, "\n  {} {part:<10} {:>10} at byte {}", part.number(), approx(extent.len), extent.offset)?;
        }
        Ok(())
    }
}
