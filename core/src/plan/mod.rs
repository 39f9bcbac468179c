//! LAYER 3, decide: from what was asked and what was found to a list of steps. Pure: no file, no clock,
//! no randomness; the same inputs always give the same plan. What a dry run prints is what a run does.

use crate::prelude::*;

mod activate;
mod confirm;
mod content;
mod facts;
mod install;
mod meta;
mod refusal;
mod rollback;
mod slots;
mod step;
mod unattended;
mod upgrade;
mod volume;
mod wipe;

pub use activate::{ActivateRequest, activate};
pub use confirm::confirm;
pub use content::kernel_args_notes;
pub use facts::{AssetFacts, DiskFacts, Found, GptCopies, GptFacts, SlotFacts, SystemFacts, VolumeHolds};
pub use install::{InstallRequest, install};
pub use meta::meta;
pub use refusal::{Refusal, Refusals};
pub use rollback::rollback;
pub use slots::{RequestBase, RunsFrom};
pub use step::Step;
pub use unattended::{Action, DiskHolds, LeftAlone, unattended};
pub use upgrade::{UpgradeRequest, upgrade};
pub use volume::{Content, Volume, VolumeFile};
pub use wipe::{WipeRequest, wipe};

use alloc::collections::BTreeMap;
use core::fmt;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{
    boot::{env::PATHS, slot::Slot},
    digest::Sha256,
    disk::layout::{Layout, Part},
    payload::manifest::FileInfo,
    units::{Extent, approx},
};

/// Everything that would otherwise be random or the time of day.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Ids {
    /// GUID of the disk.
    pub disk: Uuid,
    /// PARTUUIDs in order of partition number; also the UUIDs of the file systems.
    pub parts: [Uuid; 7],
    /// Time stamp of files, seconds since 1970 UTC.
    pub time: u64,
}

impl Ids {
    /// GUIDs that are made from a seed, the same from the same: version 8 (RFC 9562, section 5.8), the first 128 bits of
    /// SHA-256 over the seed and what each is for.
    pub fn seeded(seed: Sha256, time: u64) -> Self {
        let guid = |label: &str| {
            let digest = Sha256::of(&[&seed.0, label.as_bytes()].concat());
            let mut bytes = [0; 16];
            bytes.copy_from_slice(&digest.0[..16]);
            Uuid::new_v8(bytes)
        };
        Ids { disk: guid("disk"), parts: Part::ALL.map(|part| guid(part.name())), time }
    }

    /// None yet: for a plan that is only there to be hashed.
    pub const fn none(time: u64) -> Self {
        Ids { disk: Uuid::nil(), parts: [Uuid::nil(); 7], time }
    }

    /// The PARTUUID of a partition.
    pub const fn part(&self, part: Part) -> Uuid {
        self.parts[part as usize - 1]
    }
}

/// What a plan is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Goal {
    /// A disk with a system.
    Install,
    /// A new system in the other slot, tried at the next boot.
    Upgrade,
    /// A new system in the other slot.
    Stage,
    /// The staged system is tried at the next boot.
    Activate,
    /// The running trial is the default.
    Confirm,
    /// The other slot is the default, or the trial is given up.
    Rollback,
    /// Volumes of the OS are made anew.
    Wipe,
    /// Other tags in META.
    Meta,
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Goal::Install => "install",
            Goal::Upgrade => "upgrade",
            Goal::Stage => "stage",
            Goal::Activate => "activate",
            Goal::Confirm => "confirm",
            Goal::Rollback => "rollback",
            Goal::Wipe => "wipe",
            Goal::Meta => "meta",
        })
    }
}

/// A complete plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Plan {
    /// What it is for.
    pub goal: Goal,
    /// The disk, for people.
    pub disk: String,
    /// Its GUID (nil where only META is changed).
    pub disk_guid: Uuid,
    /// What goes into a slot; none where no slot is written.
    pub system: Option<System>,
    /// The partition table that is made; only an install makes one.
    pub table: Option<Table>,
    /// Tags for META, where it is written.
    pub meta: BTreeMap<u8, Vec<u8>>,
    /// New content of META's legacy area, where it changes.
    pub meta_legacy: Option<Vec<u8>>,
    /// What the user should know.
    pub warnings: Vec<String>,
    /// What is true once it is carried out, as a sentence.
    pub result: String,
    /// What is on the disk when it fails after its first write and before its commit, as a sentence.
    pub meanwhile: String,
    /// The steps in order; none where there is nothing to do.
    pub steps: Vec<Step>,
}

/// A system to be written to a slot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct System {
    /// Version of the payload.
    pub version: Option<String>,
    /// The slot it goes to.
    pub slot: Slot,
    /// The kernel command line of the slot, without what the boot rule adds.
    pub cmdline: String,
    /// What goes into the FAT32 file systems.
    pub volumes: BTreeMap<Part, Volume>,
}

/// A partition table to be made, and what belongs to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Table {
    /// Where the partitions lie.
    pub layout: Layout,
    /// GUIDs and time.
    pub ids: Ids,
    /// GRUB's core image for BIOS.
    pub core: Option<FileInfo>,
    /// The protective MBR's entry is marked bootable.
    pub bootable_mbr: bool,
}

impl Plan {
    /// Names the plan: the SHA-256 of its JSON form. The same for the same request on an unchanged disk with an
    /// unchanged payload, if the request carries the same time (`--plan-hash` is that of a plan made at time 0).
    pub fn hash(&self) -> Sha256 {
        // Strings, numbers and maps with text keys always serialize.
        Sha256::of(&serde_json::to_vec(self).unwrap_or_default())
    }

    /// Bytes of payload and boot image that a step moves, or bytes it erases; what a progress bar counts.
    pub fn step_bytes(&self, step: &Step) -> u64 {
        match step {
            Step::WriteVolume { part, .. } | Step::Verify { part, .. } => self.volume(*part).map_or(0, Volume::bytes),
            Step::Erase { extent } => extent.len,
            _ => 0,
        }
    }

    /// What is on the disk after step `failed` (counted from 0) failed, which may have reached the medium all the
    /// same.
    pub fn left_by(&self, failed: usize) -> &str {
        let wrote = |steps: &[Step]| steps.iter().any(|step| !step.writes().is_empty());
        let (before, after) = self.steps.split_at(failed);
        let commits = |steps: &[Step]| steps.iter().any(Step::is_commit);
        // Whatever changes boot.env may be in force though it failed.
        let committing = after.first().is_some_and(|s| s.is_commit() || matches!(s, Step::WriteBootEnv { .. }));
        match self.goal {
            _ if !wrote(before) && !wrote(&after[..1.min(after.len())]) => "nothing was written",
            Goal::Install if committing => {
                "the disk has either no partition table or the complete one; run the same command again"
            }
            Goal::Install if !wrote(before) => "the disk may have lost its partition table, nothing else was written",
            Goal::Wipe | Goal::Meta => &self.meanwhile,
            _ if committing && !commits(before) => {
                "it is not known whether the new boot state is in force; it is as safe as the old one; run the same \
                 command again"
            }
            _ if commits(before) => {
                "the change is in force, only what follows it is missing; run the same command again"
            }
            _ => &self.meanwhile,
        }
    }

    fn volume(&self, part: Part) -> Option<&Volume> {
        self.system.as_ref()?.volumes.get(&part)
    }

    /// One step as a sentence.
    pub fn describe(&self, step: &Step) -> String {
        let at = |e: &Extent| format!("{} at byte {}", approx(e.len), e.offset);
        let core = self.table.as_ref().and_then(|t| t.core.as_ref());
        let files = |part| match self.volume(part) {
            Some(v) => format!("{} files, {}", v.files.len(), approx(v.bytes())),
            None => core.map_or_else(String::new, |c| approx(c.size)),
        };
        let commit = if step.is_commit() { "   <- commit point" } else { "" };
        match step {
            Step::Reserve { extent } => format!("reserve    {}", at(extent)),
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
            Step::WriteBootEnv { copy, env, .. } => format!(
                "write      {}: default={} once={} a={} b={}{} (copy {copy} of 2, seq {}){commit}",
                PATHS[usize::from(copy.saturating_sub(1)).min(1)],
                env.default,
                env.once.map_or_else(|| "-".to_owned(), |s| s.to_string()),
                env.states.a,
                env.states.b,
                env.medium.map_or_else(String::new, |id| format!(" medium={id}")),
                env.seq,
            ),
            Step::WriteMarker { slot, marker, .. } => {
                format!("write      slot {slot}: its own marker, state={} seq={}", marker.state, marker.seq)
            }
            Step::WriteMetaCopy { copy, .. } => {
                format!("write      META: ADV copy {copy} of 2, {} tags", self.meta.len())
            }
            Step::WriteMetaLegacy { .. } => "write      META: legacy area".into(),
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
            Step::RereadTable => "tell       the kernel about the new partition table".into(),
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {}", self.goal, self.disk)?;
        if let Some(system) = &self.system {
            write!(f, ": {} into slot {}", system.version.as_deref().unwrap_or("(no version)"), system.slot)?;
        }
        writeln!(f)?;
        for (n, step) in (1..).zip(&self.steps) {
            writeln!(f, "  {n:>2}. {}", self.describe(step))?;
        }
        if let Some(system) = &self.system {
            writeln!(f, "  kernel command line: {}", system.cmdline)?;
        }
        self.warnings.iter().try_for_each(|w| writeln!(f, "  note: {w}"))
    }
}
