//! The answer of `status`.

use crate::prelude::*;

use alloc::collections::BTreeMap;
use core::fmt;

use serde::{Deserialize, Serialize};

use super::{
    bootloader::Bootloaders,
    history::{self, HistoryEntry},
    next_step::NextStep,
    rows::{self, Row},
    snapshot::SnapshotStatus,
    verify::{ChainCheck, NOT_RECORDED},
    writer::Writer,
};
use crate::{
    boot::{
        env::{BootEnv, Marker},
        rule::NextBoot,
        running::Running,
        slot::{PerSlot, Slot, SlotState},
        trial::Failed,
    },
    digest::Sha256,
    disk::{identity::DiskIdentity, layout::Part},
    payload::components::Components,
    text::quoted,
    units::{Extent, approx},
};

/// The content of a disk, and the slot that boots next.
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
    /// Why it was not confirmed, or is not yet: what the system on trial recorded.
    #[serde(default)]
    pub trial_failure: Option<Failed>,
    /// The last three changes, the newest first.
    #[serde(default)]
    pub history: Vec<HistoryEntry>,
    /// The effect of `rollback`, or the reason why it would refuse. Only the files GRUB loads are checked; `rollback` checks all.
    pub rollback: String,
    /// The boot.env that counts; `null` if both copies are lost.
    pub boot_env: Option<BootEnv>,
    pub slots: PerSlot<SlotStatus>,
    /// The programs that the firmware starts before any slot.
    pub boot_chain: ChainCheck,
    /// Which boot loaders these are.
    #[serde(default)]
    pub bootloaders: Bootloaders,
    pub meta: BTreeMap<String, String>,
    /// Problems that need attention: damage, a copy that is lost, a clone of the disk. If there is one, the exit code is 7.
    pub problems: Vec<String>,
    /// Findings that need no attention, such as a backup GPT that is not at the end of a larger disk.
    pub notes: Vec<String>,
    /// Who writes to the disk meanwhile. What it writes is not reported as damage.
    #[serde(default)]
    pub writer: Option<Writer>,
    /// The command to type next.
    #[serde(default)]
    pub next_step: NextStep,
    /// Columns at which the text is wrapped; `None` for one line for each fact.
    #[serde(skip)]
    pub columns: Option<u16>,
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
    /// The epoch of what is in it. Upgrades keep to it if the slot was signed.
    #[serde(default)]
    pub epoch: u32,
    /// The versions of programs in it that its payload names.
    #[serde(default, skip_serializing_if = "Components::is_empty")]
    pub components: Components,
    /// The trusted keys that had signed what was written to it, each by the SHA-256 of its DER form. The slot says so itself.
    #[serde(default)]
    pub signed_by: Vec<Sha256>,
    /// Digest that names the payload.
    pub payload: Option<Sha256>,
    pub marker: Option<Marker>,
    /// Whether kernel, initramfs and slot.cfg match boot.sha256.
    pub verifies: bool,
    /// Whether every file matches SHA256SUMS; `null` if not all were read.
    pub whole: Option<bool>,
    /// The kernel command line, without what the boot rule adds.
    #[serde(default)]
    pub cmdline: Option<String>,
    /// The mismatch.
    pub problem: Option<String>,
    /// The snapshot that is kept for the way back to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<SnapshotStatus>,
}

impl SlotStatus {
    /// Whether a system that is in use, or was, differs from the installed one. Nothing in an empty slot is whole,
    /// which is no reason for alarm.
    pub fn is_damaged(&self) -> bool {
        self.is_used() && self.problem.is_some()
    }

    pub(super) fn is_used(&self) -> bool {
        self.state.map_or(self.version.is_some(), |state| state != SlotState::Empty)
    }
}

pub(super) fn next_boot(next: &NextBoot) -> String {
    let what = match (next.slot, next.trial) {
        (Some(slot), true) => format!("slot {slot}, one time"),
        (Some(slot), false) => format!("slot {slot}"),
        (None, _) => "NOTHING".to_owned(),
    };
    format!("{what}: {}", next.why)
}

impl StatusReport {
    /// The report as rows, with `verbose` all of it.
    fn rows(&self, verbose: bool) -> Vec<Row> {
        let mut rows = vec![("disk", format!("{}, {}", self.disk.path, approx(self.bytes)))];
        if verbose {
            rows.push(("", format!("{} bytes in sectors of {}", self.bytes, self.sector_bytes)));
            rows.push(("disk GUID", self.disk_guid.to_string()));
        }
        rows.extend(self.writer.iter().map(|writer| ("writer", writer.to_string())));
        rows.push(("running", self.running(verbose)));
        rows.push(("next boot", format!("{}{}", next_boot(&self.next_boot), self.unread_damage())));
        for slot in Slot::BOTH {
            rows.push((["slot A", "slot B"][slot as usize], self.slot(slot)));
            rows.extend(self.slots[slot].snapshot.iter().map(|found| ("", format!("snapshot: {}", found.text()))));
            if verbose {
                rows.extend(
                    self.slots[slot].signed_by.iter().map(|key| ("", format!("written as signed by key {key}"))),
                );
                rows.extend(self.slots[slot].components.listed().map(|all| ("", all)));
                rows.extend(self.slots[slot].payload.map(|payload| ("", format!("payload {payload}"))));
                rows.extend(self.slots[slot].cmdline.iter().map(|cmdline| ("", format!("kernel arguments {cmdline}"))));
            }
        }
        rows.push(("last trial", self.last_trial.clone().unwrap_or_else(|| "none".to_owned())));
        rows.extend(history::recent(&self.history));
        rows.push(("boot chain", self.boot_chain()));
        if verbose {
            rows.extend(self.bootloaders.rows());
            let offline = if self.running.slot().is_none() { " --offline" } else { "" };
            let update = format!("`installer bootloader update --disk {}{offline}`", quoted(&self.disk.path));
            rows.push(("boot menu", self.bootloaders.menu(self.boot_env.as_ref().map(|env| !env.no_menu), &update)));
            rows.push(("rollback", self.rollback.clone()));
            rows.extend(self.meta.iter().map(|(tag, value)| ("META", format!("{tag} {value}"))));
            rows.extend(self.partitions.iter().map(|(part, extent)| {
                let (number, size) = (part.number(), approx(extent.len));
                ("partition", format!("{number} {part:<10} {size:>9} at byte {}", extent.offset))
            }));
        }
        rows.extend(self.problems.iter().map(|problem| ("problem", problem.clone())));
        rows.extend(self.notes.iter().map(|note| ("note", note.clone())));
        rows.extend(self.next_step.rows());
        rows
    }

    /// A word on damage in the slot that boots next: what the boot loader compares is whole there.
    fn unread_damage(&self) -> &'static str {
        let is_damaged = |slot: Slot| self.slots[slot].verifies && self.slots[slot].problem.is_some();
        let note = "; the boot loader reads only kernel and initramfs, and not what is damaged";
        if self.next_boot.slot.is_some_and(is_damaged) { note } else { "" }
    }

    fn running(&self, verbose: bool) -> String {
        let version = |slot: Slot| self.slots[slot].version.as_deref().unwrap_or("(no version)");
        match self.running {
            // The kernel command line still says so after it was confirmed.
            Running::This { slot, trial: true } if self.slots[slot].state != Some(SlotState::Good) => {
                format!("slot {slot}, {}, on trial", version(slot))
            }
            Running::This { slot, .. } => format!("slot {slot}, {}", version(slot)),
            other if verbose => other.to_string(),
            Running::Other { .. } => "a system of another disk".to_owned(),
            Running::Unknown => "nothing of this disk".to_owned(),
        }
    }

    fn slot(&self, slot: Slot) -> String {
        let found = &self.slots[slot];
        if found.state == Some(SlotState::Empty) {
            let is_incomplete = self.boot_env.as_ref().is_some_and(|env| env.is_incomplete(slot));
            return match &self.writer {
                Some(writer) if is_incomplete && writer.may_write_a_slot() => "is being replaced",
                _ if is_incomplete => "incomplete: an upgrade was interrupted",
                _ => "empty",
            }
            .to_owned();
        }
        let waits = self.boot_env.as_ref().is_some_and(|env| env.once == Some(slot));
        let state = match found.state {
            None => "state unknown",
            Some(SlotState::Untried) if waits => "waits for its trial",
            Some(SlotState::Untried) => "staged",
            Some(SlotState::Tried) if self.running == (Running::This { slot, trial: true }) => "on trial",
            Some(state) => state.plain(),
        };
        let since = match (&found.since, found.state) {
            (Some(since), Some(SlotState::Untried)) if !waits => format!(", written {since}"),
            (Some(since), Some(SlotState::Untried | SlotState::Tried)) => format!(", activated {since}"),
            (Some(since), _) => format!(" since {since}"),
            (None, _) => String::new(),
        };
        // The system that was confirmed once is not the one that is there now.
        let (state, since) = match (&found.problem, &found.since, found.state) {
            (Some(_), Some(since), Some(SlotState::Good)) => ("confirmed", format!(" {since}")),
            _ => (state, since),
        };
        let check = match (&found.problem, found.whole) {
            (Some(_), _) => "files DAMAGED",
            (None, Some(_)) => "every file checked",
            (None, None) => "kernel and initramfs checked",
        };
        let epoch = if found.epoch > 0 { format!(" (epoch {})", found.epoch) } else { String::new() };
        format!("{}{epoch}, {state}{since}, {check}", found.version.as_deref().unwrap_or("(no version)"))
    }

    fn boot_chain(&self) -> String {
        let chain = &self.boot_chain;
        let links: Vec<&str> = chain.links.iter().map(|link| link.name.as_str()).collect();
        match (chain.recorded, chain.problems().is_empty()) {
            (false, _) => NOT_RECORDED.to_owned(),
            (true, true) => format!("verifies: {}", links.join(", ")),
            (true, false) => "DAMAGED".to_owned(),
        }
    }
}

/// With `{:#}` all of it.
impl fmt::Display for StatusReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&rows::lines(&self.rows(f.alternate()), self.columns.map(usize::from)).join("\n"))
    }
}
