//! Deciding: a request and the facts about the disk become a plan, which is a list of steps.
//!
//! Planning is pure: no files, no clock, no randomness. The same input always gives the same plan, so a run
//! takes exactly the steps that its dry run printed.

use crate::prelude::*;

mod activate;
mod after_failure;
pub mod auto_upgrade;
mod boot_menu;
pub mod bootloader;
mod bootloader_facts;
mod confirm;
mod content;
mod draft;
mod enroll;
mod env_copies;
mod esp;
mod facts;
mod goal;
mod grow;
mod history;
mod holds_payload;
mod ids;
mod install;
mod intruder;
mod kernel_notes;
mod lba0;
mod live_root;
mod mend_table;
mod meta;
mod missing_files;
mod rebuild_boot_state;
mod refusal;
mod renewal;
mod repair;
mod request;
mod rollback;
mod slots;
mod snapshot;
mod snapshot_request;
mod step;
mod trial;
mod unattended;
mod upgrade;
mod volume;
mod wipe;

pub use crate::snapshot::head::HeadChange;
pub use activate::{ActivateRequest, activate};
pub use after_failure::state_after_failure;
pub use boot_menu::boot_menu;
pub use bootloader_facts::BiosFacts;
pub use confirm::confirm;
pub use content::{Described, SlotContent, Words};
pub(crate) use draft::META_UPGRADE;
pub use enroll::{EnrollFacts, EnrollPlan, EnrollStep, FirmwareFacts, Judged, enroll};
pub use esp::boot_env as made_boot_env;
pub use facts::{
    AssetFacts, Covered, DiskFacts, Found, GptCopies, GptFacts, Intruder, SlotFacts, SystemFacts, Unreadable,
    VolumeHolds,
};
pub use goal::Goal;
pub use grow::{EphemeralContent, FileSystemGrowth, GrowFacts, Growth, Known, grow};
pub use history::Asked;
pub use ids::Ids;
pub use install::{InstallRequest, install, is_refused_by_the_disk, room};
pub use intruder::beside_others;
pub use kernel_notes::{kernel_args_notes, kernel_note, uki_note};
pub use lba0::{Lba0Facts, lba0};
pub use live_root::{is_on_disk, root_elsewhere};
pub use mend_table::{Lba0, MendTableFacts, mend_table};
pub use meta::meta;
pub use refusal::{Refusal, Refusals};
pub use renewal::update_bootloader;
pub use repair::{formats_esp, is_first_half, makes_esp, needs_loaders, repair, rewrites_esp};
pub use request::{RequestBase, RunsFrom};
pub use rollback::{rollback, rollback_offline};
pub use snapshot::{keep_aside, owner, snapshot_is_put_back};
pub use snapshot_request::SnapshotRequest;
pub use step::Step;
pub use trial::{record_failure, unconfirmed};
pub use unattended::{Action, DiskHolds, LeftAlone, unattended};
pub use upgrade::{Exceptions, UpgradeRequest, is_last_resort, takes_an_upgrade, upgrade};
pub use volume::{Content, Volume, VolumeFile};
pub use wipe::{WipeRequest, wipe};

use alloc::collections::BTreeMap;
use core::fmt;

use bootloader::BootloaderChange;
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use uuid::Uuid;

use crate::{
    boot::{env::BootEnv, slot::Slot},
    digest::Sha256,
    disk::layout::{Layout, Part},
    payload::manifest::FileInfo,
    report::Left,
    units::{Extent, MIB, approx},
};

/// Everything that a run will write, decided before the first write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[expect(missing_docs, reason = "the other fields are what their names say")]
pub struct Plan {
    pub goal: Goal,
    /// Path of the disk, for people.
    pub disk: String,
    /// GUID of the disk; nil if only META changes.
    pub disk_guid: Uuid,
    /// The system to be written to a slot, if any.
    pub system: Option<System>,
    /// The new partition table; only an install makes one.
    pub table: Option<Table>,
    /// META tags that are set. All others stay as they are when META is written.
    #[serde(deserialize_with = "tags")]
    pub meta: BTreeMap<u8, Vec<u8>>,
    /// META tags that are removed.
    pub meta_removed: Vec<u8>,
    /// Byte offsets of both copies of boot.env on a disk that is installed already.
    pub boot_env_at: [Option<u64>; 2],
    pub warnings: Vec<String>,
    /// The state afterwards, as a sentence.
    pub result: String,
    /// The state of the disk after a failure between the first write and the commit, as a sentence.
    pub meanwhile: String,
    /// The fate of EPHEMERAL; only `grow` changes its size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub growth: Option<Growth>,
    /// The ESP that is made again, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub esp: Option<Volume>,
    /// The change of the boot loaders, if they change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bootloader: Option<BootloaderChange>,
    /// Digest of all tags of META as they were found, if META changes: what is kept belongs to the plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meta_found: Option<Sha256>,
    /// The parts that a repair cannot write again, each as a sentence with its remedy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left: Vec<String>,
    /// The steps in order; empty if there is nothing to do.
    pub steps: Vec<Step>,
}

/// A system to be written to a slot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[expect(missing_docs, reason = "the other fields are what their names say")]
pub struct System {
    pub version: Option<String>,
    pub slot: Slot,
    /// Kernel command line, without what the boot rule adds.
    pub cmdline: String,
    /// The FAT32 file systems to be written.
    pub volumes: BTreeMap<Part, Volume>,
}

/// A partition table to be written, with the boot code that goes with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[expect(missing_docs, reason = "the other fields are what their names say")]
pub struct Table {
    pub layout: Layout,
    pub ids: Ids,
    /// GRUB's core image, if the disk boots under BIOS.
    pub core: Option<FileInfo>,
    /// Whether the protective MBR's entry is marked active.
    pub bootable_mbr: bool,
}

/// Tags of META by their keys. JSON has no keys but strings, and inside a tagged report serde does not read them as numbers.
fn tags<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<u8, Vec<u8>>, D::Error> {
    let tags = BTreeMap::<String, Vec<u8>>::deserialize(deserializer)?;
    tags.into_iter().map(|(key, value)| Ok((key.parse().map_err(D::Error::custom)?, value))).collect()
}

impl Plan {
    /// SHA-256 of the plan's actions, as JSON: without the history, and without the sentences that are for people.
    /// Equal requests, disks and payloads give equal hashes, provided the request carries the same time; `--plan-hash`
    /// therefore compares plans made for time 0.
    pub fn hash(&self) -> Sha256 {
        let done = Plan {
            bootloader: self.bootloader.clone().map(|change| BootloaderChange { mends: vec![], ..change }),
            warnings: vec![],
            result: String::new(),
            meanwhile: String::new(),
            left: vec![],
            ..self.without_history()
        };
        // Cannot fail: the plan holds only strings, numbers and maps with text keys.
        Sha256::of(&serde_json::to_vec(&done).unwrap_or_default())
    }

    /// The part by which two plans are compared. The number of an entry depends on records that nothing boots from:
    /// one that cannot be read every time must not stand in the way of a change.
    fn without_history(&self) -> Plan {
        let mut plan = self.clone();
        plan.steps.retain(|step| !matches!(step, Step::WriteHistory { .. }));
        for step in &mut plan.steps {
            if let Step::WriteBootEnv { env, over, .. } = step {
                env.history = None;
                over.iter_mut().for_each(|env| env.history = None);
            }
        }
        plan
    }

    /// Bytes a step moves or erases, for a progress bar. Other steps count as 0.
    pub fn step_bytes(&self, step: &Step) -> u64 {
        match step {
            Step::WriteVolume { part, .. } | Step::Verify { part, .. } => self.volume(*part).map_or(0, Volume::bytes),
            Step::Erase { extent } => extent.len,
            _ => 0,
        }
    }

    /// Whether the plan reaches its goal without this step. A cache counts until the next boot only, and nothing needs the
    /// history. The ways back do without META, where they only drop a label, and without a marker, which counts only if both
    /// copies of boot.env are lost: an upgrade needs one, because it destroys the other slot.
    pub fn is_optional(&self, step: &Step) -> bool {
        match step {
            // The subjects of these steps are in force. Lost clusters do no harm.
            Step::ForgetCached { .. } | Step::FreeClusters { .. } => true,
            Step::CountFree { .. } => !repair::counts_anew(self),
            // The record of a trial is all that its plan is about.
            Step::WriteHistory { .. } => !matches!(self.goal, Goal::Trial),
            Step::WriteMarker { .. } | Step::WriteMetaLegacy { .. } | Step::WriteMetaCopy { .. } => {
                matches!(self.goal, Goal::Confirm | Goal::Rollback)
            }
            _ => false,
        }
    }

    /// Whether another plan of the same request leads to the same boot states, over the same ones, with the same system
    /// in the same place. The plans may differ in META, markers and warnings.
    pub fn boots_the_same(&self, other: &Plan) -> bool {
        let boot_envs = |plan: &Plan| {
            let mut envs: Vec<BootEnv> = Vec::new();
            // The copies before the plan; later writes to a copy find the bytes that the plan has written.
            let mut before: [Option<Option<BootEnv>>; 2] = [None, None];
            for step in &plan.without_history().steps {
                if let Step::WriteBootEnv { copy, env, over, .. } = step {
                    before[usize::from(*copy != 1)].get_or_insert_with(|| over.clone());
                    if envs.last() != Some(env) {
                        envs.push(env.clone());
                    }
                }
            }
            (envs, before.map(Option::flatten))
        };
        let ((envs, before), (others, others_before)) = (boot_envs(self), boot_envs(other));
        let conflict = before.iter().zip(&others_before).any(|(a, b)| a.is_some() && b.is_some() && a != b);
        let same = (self.goal, self.disk_guid, &self.system) == (other.goal, other.disk_guid, &other.system);
        same && self.esp == other.esp && self.bootloader == other.bootloader && envs == others && !conflict
    }

    /// Whether the step after `n` (from 0) writes the other copy of the same.
    pub fn other_copy_follows(&self, n: usize) -> bool {
        match (self.steps.get(n), self.steps.get(n + 1)) {
            (
                Some(Step::WriteBootEnv { copy: one, env, .. }),
                Some(Step::WriteBootEnv { copy: other, env: same, .. }),
            ) => one != other && env == same,
            (Some(Step::WriteMetaCopy { copy: one, .. }), Some(Step::WriteMetaCopy { copy: other, .. })) => {
                one != other
            }
            _ => false,
        }
    }

    /// State of the disk if step `failed` (from 0) does not come to its end: for observers, and for a run that a signal
    /// ends. Once a step has failed, [`state_after_failure`] tells the state.
    pub fn left_by(&self, failed: usize) -> Left {
        let wrote = |steps: &[Step]| steps.iter().any(|step| !step.writes().is_empty());
        let (before, after) = self.steps.split_at(failed);
        let commits = |steps: &[Step]| steps.iter().any(Step::is_commit);
        // A write of boot.env that failed may be in force all the same.
        let committing = after.first().is_some_and(|s| s.is_commit() || matches!(s, Step::WriteBootEnv { .. }));
        let state = match self.goal {
            _ if !wrote(before) && !wrote(&after[..1.min(after.len())]) => return Left::nothing_written(),
            Goal::Install if committing => "the disk has either no partition table or the complete one",
            Goal::Install if !wrote(before) => "the disk may have lost its partition table, nothing else was written",
            Goal::Wipe | Goal::Meta | Goal::Bootloader | Goal::Snapshot => &self.meanwhile,
            Goal::Grow if committing => {
                "it is not known whether the new partition table is in force; it is as good as the old one"
            }
            _ if committing && !commits(before) => {
                "it is not known whether the new boot state is in force; it is as safe as the old one"
            }
            _ if commits(before) => "the change is in force, only the steps after it are missing",
            _ => &self.meanwhile,
        };
        Left::new(state, self.again(failed))
    }

    /// The changes in META, for people: the tags that were asked for. The tag of an upgrade is left out.
    fn meta_change(&self) -> String {
        let own = |key: &u8| *key == META_UPGRADE && self.goal != Goal::Meta;
        let keys = |word: &str, keys: &mut dyn Iterator<Item = &u8>| {
            let keys: Vec<String> = keys.filter(|key| !own(key)).map(|key| format!("{key:#04x}")).collect();
            if keys.is_empty() { String::new() } else { format!(", {word} {}", keys.join(" ")) }
        };
        keys("sets tag", &mut self.meta.keys()) + &keys("removes tag", &mut self.meta_removed.iter())
    }

    /// The FAT32 file system that is written to a partition, if any.
    pub fn volume(&self, part: Part) -> Option<&Volume> {
        let made = self.esp.as_ref().filter(|_| part == Part::Esp);
        made.or_else(|| self.system.as_ref()?.volumes.get(&part))
    }

    /// Describes a step as a line of a dry run.
    pub fn describe(&self, step: &Step) -> String {
        // Partitions begin at whole MiB, and two plans differ where a place does.
        let place = |offset: u64| match offset.is_multiple_of(MIB) {
            true => format!("{} MiB", offset / MIB),
            false => approx(offset),
        };
        self.described(step, |extent| format!("{} at {}", approx(extent.len), place(extent.offset)))
    }

    fn boot_state(&self, copy: u8, env: &BootEnv) -> String {
        let next = match env.once {
            Some(slot) => format!("slot {slot} is tried next"),
            None => format!("slot {} boots next", env.default),
        };
        let what = match (self.goal, env.no_menu) {
            (Goal::Menu, true) => ", the menu is off".to_owned(),
            (Goal::Menu, false) => ", the menu is on".to_owned(),
            _ => format!(" (A {}, B {})", env.states.a.plain(), env.states.b.plain()),
        };
        format!("write      boot state, {}: {next}{what}", which(copy))
    }

    fn described(&self, step: &Step, at: impl Fn(&Extent) -> String) -> String {
        let core = self.table.as_ref().and_then(|t| t.core.as_ref());
        let files = |part| match self.volume(part) {
            Some(v) => format!("{} files, {}", v.files.len(), approx(v.bytes())),
            None => core.map_or_else(String::new, |c| approx(c.size)),
        };
        let commit = if step.is_commit() { "   <- commit point" } else { "" };
        match step {
            Step::Reserve { extent } => format!("reserve    {}", at(extent)),
            Step::DropPartitions => "tell       the kernel to forget the old partitions".into(),
            Step::ClearLba0 { .. } => "clear      LBA 0: from here on the disk has no partition table".into(),
            Step::ClearLabels { head, tail } => format!("clear      old labels: {}, {}", at(head), at(tail)),
            Step::Erase { extent } => format!("erase      {} (flushed, not read back)", at(extent)),
            Step::WriteVolume { part, extent } => {
                format!("write      {part}: FAT32, {} (partition {}, {})", files(*part), part.number(), at(extent))
            }
            Step::WriteCore { extent } => format!("write      BIOS: GRUB core image (partition 2, {})", at(extent)),
            Step::Verify { part, .. } => {
                format!("verify     {part}: read back past the page cache, {}", files(*part))
            }
            Step::Blank { part, tail, .. } if tail.len == 0 => format!("blank      {part}: its beginning zeroed"),
            Step::Blank { part, .. } => format!("blank      {part}: both ends zeroed"),
            Step::Discard { part, extent } => format!("discard    {part}: {}", at(extent)),
            Step::WriteBootEnv { copy, env, .. } => self.boot_state(*copy, env) + commit,
            Step::WriteMarker { slot, marker, .. } => {
                format!("write      slot {slot}: marked {}", marker.state.plain())
            }
            Step::WriteHistory { entry, .. } => format!("write      history: entry {}, {}", entry.n, entry.verb),
            Step::WriteMetaCopy { copy, .. } => format!("write      META, {}{}", which(*copy), self.meta_change()),
            Step::WriteMetaLegacy { .. } => format!("write      META, the old area{}", self.meta_change()),
            Step::ForgetCached { part, .. } => format!("tell       the kernel to forget what it cached of {part}"),
            Step::PrepareXfs { part, extent, .. } => {
                format!("prepare    {part}: XFS of {} in a side file", approx(extent.len))
            }
            Step::WriteXfs { part, extent } => {
                format!("format     {part}: XFS (partition {}, {})", part.number(), at(extent))
            }
            Step::WriteBackupGpt { extent } => format!("write      backup GPT: {}", at(extent)),
            Step::WritePrimaryGpt { extent } => format!("write      primary GPT: {}", at(extent)),
            Step::WriteLba0 { .. } => {
                let bootable = self.table.as_ref().is_some_and(|table| table.bootable_mbr);
                let marked = if bootable { ", marked bootable" } else { "" };
                format!("write      LBA 0: boot code and protective MBR{marked}{commit}")
            }
            Step::MendLba0 { .. } => format!("write      LBA 0: boot code and protective MBR{commit}"),
            Step::RereadTable => "tell       the kernel about the new partition table".into(),
            Step::ClearEnd { .. }
            | Step::WriteEntries { .. }
            | Step::WritePrimaryHeader { .. }
            | Step::ResizePartition { .. }
            | Step::GrowXfs { .. } => grow::described(self, step, &at) + commit,
            Step::WriteSnapshot { .. } | Step::WriteSnapshotHead { .. } => snapshot::described(step),
            _ => renewal::described(step, &at),
        }
    }
}

/// Name of a copy, by its number.
const fn which(copy: u8) -> &'static str {
    if copy == 1 { "first copy" } else { "second copy" }
}

/// With `{:#}` places in bytes.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exactly = |extent: &Extent| format!("{} bytes at byte {}", extent.len, extent.offset);
        // "menu on" would say that the menu is on.
        let on = if self.goal == Goal::Menu { "of" } else { "on" };
        write!(f, "{} {on} {}", self.goal, self.disk)?;
        if let Some(system) = &self.system {
            write!(f, ": {} into slot {}", system.version.as_deref().unwrap_or("(no version)"), system.slot)?;
        }
        writeln!(f)?;
        for (n, step) in (1..).zip(&self.steps) {
            let line = if f.alternate() { self.described(step, exactly) } else { self.describe(step) };
            writeln!(f, "  {n:>2}. {line}")?;
        }
        if let Some(system) = &self.system {
            writeln!(f, "  kernel command line: {}", system.cmdline)?;
        }
        self.warnings.iter().try_for_each(|w| writeln!(f, "  note: {w}"))
    }
}
