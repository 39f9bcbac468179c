//! The answer of `status`.

use crate::prelude::*;

use alloc::collections::BTreeMap;
use core::fmt;

use serde::{Deserialize, Serialize};

use super::verify::{ChainCheck, NOT_RECORDED};
use crate::{
    boot::{
        env::{BootEnv, Marker},
        rule::NextBoot,
        running::Running,
        slot::{PerSlot, Slot, SlotState},
    },
    digest::Sha256,
    disk::{identity::DiskIdentity, layout::Part},
    text::printable,
    units::{Extent, approx},
};

/// What is on a disk, and what boots next.
#[derive(Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[expect(missing_docs, reason = "the other fields are what their names say")]
pub struct StatusReport {
    pub disk: DiskIdentity,
    /// Size of the disk in bytes.
    pub bytes: u64,
    /// Logical block size in bytes.
    pub sector_bytes: u64,
    pub disk_guid: uuid::Uuid,
    /// Where our partitions lie, in bytes.
    pub partitions: BTreeMap<Part, Extent>,
    pub next_boot: NextBoot,
    pub running: Running,
    /// The last known trial, and how it ended.
    pub last_trial: Option<String>,
    /// What `rollback` would do or why it would refuse. Only the files GRUB loads are checked; `rollback` checks all.
    pub rollback: String,
    /// The boot.env that counts; `null` if both copies are lost.
    pub boot_env: Option<BootEnv>,
    pub slots: PerSlot<SlotStatus>,
    /// What the firmware starts before any slot.
    pub boot_chain: ChainCheck,
    pub meta: BTreeMap<String, String>,
    /// What needs attention: damage, a copy that is lost, a clone of the disk. If there is any, the exit code is 7.
    pub problems: Vec<String>,
    /// What does not, such as a backup GPT that is not at the end of a larger disk.
    pub notes: Vec<String>,
}

/// One slot.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[expect(missing_docs, reason = "the other fields are what their names say")]
pub struct SlotStatus {
    /// State by boot.env.
    pub state: Option<SlotState>,
    /// When the installer last changed the state, UTC. A `tried` slot was tried later than that.
    pub since: Option<String>,
    pub version: Option<String>,
    /// Digest that names the payload.
    pub payload: Option<Sha256>,
    pub marker: Option<Marker>,
    /// Whether kernel, initramfs and slot.cfg match boot.sha256.
    pub verifies: bool,
    /// Whether every file matches SHA256SUMS; `null` if not all were read, which only `--full` does.
    pub whole: Option<bool>,
    /// What does not match.
    pub problem: Option<String>,
}

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
                None if s.whole.is_some() => "every file verifies".to_owned(),
                None => "kernel and initramfs verify, the rest was not read (--full reads it)".to_owned(),
                Some(problem) => problem.clone(),
            };
            writeln!(f, "slot {slot}     {state}{since}, version {version}, {check}")?;
            if let Some(payload) = s.payload {
                writeln!(f, "           payload {payload}")?;
            }
        }
        let (chain, links) = (&self.boot_chain, self.boot_chain.links.iter().map(|link| link.name.as_str()));
        match (chain.recorded, chain.problems().is_empty()) {
            (false, _) => writeln!(f, "boot chain {NOT_RECORDED}")?,
            (true, true) => writeln!(f, "boot chain verifies: {}", links.collect::<Vec<_>>().join(", "))?,
            (true, false) => writeln!(f, "boot chain DAMAGED")?,
        }
        if let Some(trial) = &self.last_trial {
            writeln!(f, "last trial {trial}")?;
        }
        writeln!(f, "rollback   {}", self.rollback)?;
        for (tag, value) in &self.meta {
            writeln!(f, "META {tag}  {}", printable(value))?;
        }
        for problem in &self.problems {
            writeln!(f, "problem    {problem}")?;
        }
        for note in &self.notes {
            writeln!(f, "note       {note}")?;
        }
        write!(f, "partitions")?;
        for (part, extent) in &self.partitions {
            write!(f, "\n  {} {part:<10} {:>10} at byte {}", part.number(), approx(extent.len), extent.offset)?;
        }
        Ok(())
    }
}
