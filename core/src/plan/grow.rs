//! Growth: the disk is larger than its partition table says, because an image was written to a larger disk, or a virtual
//! disk was made larger. EPHEMERAL, the last partition, takes the rest.
//!
//! Everything may be mounted, and the old table is valid until the new one is:
//!
//! 1. **The new end** is cleared, before and behind the old backup: traces of an older use of the disk, such as the label
//!    of a RAID member, would count for EPHEMERAL. Then **the backup GPT** is written at the end of the disk. Until step 3
//!    no reader looks there, because the primary is valid and names the old backup. That one is not touched; the grown
//!    EPHEMERAL covers it.
//! 2. **The new entries** are written beside the old ones, where no header names them.
//! 3. **Commit:** LBA 1. One sector names the new entries and the new backup. Before it every reader finds the old
//!    table, after it the new one; they differ in the last block of EPHEMERAL and in nothing else.
//! 4. The entries are written where the old ones were, and LBA 1 names them there: not every program looks elsewhere.
//! 5. The kernel is told of the larger partition, and XFS grows into it while it is mounted. After any interruption,
//!    the next run goes on here.
//!
//! LBA 0 is left alone: no reader uses the size of its protective entry, and without LBA 0 nothing boots.

use crate::prelude::*;

use serde::{Deserialize, Serialize};

use super::{Goal, GptFacts, Plan, Refusal, Refusals, Step, mend_table::END_IS_BLANK, step::TAIL_BYTES};
use crate::{
    disk::{
        gpt_grow::{GrownGpt, Place, RawTable},
        layout::Part,
        xfs::XfsSize,
    },
    text::quoted,
    units::{Extent, Lba, MIB, SectorSize, approx, round_down},
};

/// The facts of a disk that growing needs.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the other fields are what their names say")]
pub struct GrowFacts {
    pub gpt: GptFacts,
    pub sector: SectorSize,
    pub disk_bytes: u64,
    /// The copy at LBA 1.
    pub primary: Option<RawTable>,
    /// The copy with its header in the last block.
    pub last: Option<RawTable>,
    pub held: EphemeralContent,
    /// The place of the backup that the primary names is blank.
    pub end_is_blank: bool,
    /// EPHEMERAL as the kernel knows it. None of an image file, or if the kernel reads no partitions of the disk.
    pub known: Option<Known>,
}

/// Content of EPHEMERAL, judged by its beginning and its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EphemeralContent {
    /// Zeros: the OS makes it.
    Blank,
    /// An XFS file system, by its superblock on the disk.
    Xfs(XfsSize),
    /// An XFS file system whose superblock is damaged: nothing says how large it is.
    Damaged,
    /// Something that keeps nothing at the end of its partition, but that only the OS can grow.
    Other(&'static str),
    /// Something that may keep its description at the end of its partition: it would be lost in the middle.
    Unsafe(&'static str),
}

/// A partition as the kernel knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// Its size.
    pub bytes: u64,
    /// Mount point of an XFS file system on it that is mounted for writing, and its size.
    pub mounted: Option<(String, XfsSize)>,
    /// Where it is mounted otherwise, and what helps, in words.
    pub elsewhere: Option<String>,
}

/// The outcome of a growth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Growth {
    /// Bytes of EPHEMERAL before.
    pub before: u64,
    /// And afterwards.
    pub after: u64,
    /// The fate of the file system in it.
    pub file_system: FileSystemGrowth,
}

/// The fate of the file system in a partition that grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FileSystemGrowth {
    /// It grows.
    Grows,
    /// It has all of the partition already.
    Full,
    /// It is smaller than the partition, and XFS grows only while it is mounted: run the same command again then.
    LeftUntilMounted,
    /// It is not XFS: the OS grows it.
    LeftToTheOs,
    /// There is none yet: the OS makes it.
    None,
    /// Its superblock is damaged, or it is larger than the partition.
    Damaged,
}

/// Plan the growth of `disk`, and make the table that the plan writes, if it writes one.
pub fn grow(disk: &str, facts: &GrowFacts) -> Result<(Plan, Option<GrownGpt>), Refusals> {
    let primary = facts.primary.as_ref().ok_or_else(|| {
        let why = facts.gpt.copies.primary.as_ref().err().map(ToString::to_string).unwrap_or_default();
        refused(format!(
            "the primary GPT is damaged ({why}), and a table grows only while both copies can: `installer repair` mends it"
        ))
    })?;
    if let Some(intruder) = facts.gpt.intruders.iter().find(|intruder| intruder.on == Part::Ephemeral) {
        return Err(Refusal::Intruder(intruder.clone()).into());
    }
    let before = facts.gpt.part(Part::Ephemeral);
    let after = Extent { len: room(primary, facts)? - before.offset, ..before };
    if after.len > before.len
        && let EphemeralContent::Unsafe(what) = facts.held
    {
        return Err(refused(format!(
            "EPHEMERAL holds {what}, which may keep its description at the end of the partition, so it is left as it is"
        )));
    }
    let (table, mut steps) = table(primary, after, facts)?;
    let growth = Growth { before: before.len, after: after.len, file_system: file_system(facts, after.len) };
    if facts.known.as_ref().is_some_and(|known| known.bytes < after.len) {
        steps.push(Step::ResizePartition { part: Part::Ephemeral, extent: after });
    }
    if let (FileSystemGrowth::Grows, Some((place, _))) = (growth.file_system, mounted(facts)) {
        steps.push(Step::GrowXfs { part: Part::Ephemeral, extent: after, mounted_on: place.clone() });
    }
    let result = result(growth, facts);
    let is_damaged = growth.file_system == FileSystemGrowth::Damaged;
    // The new backup takes the last sign of it away.
    let lost_end = facts.end_is_blank.then(|| END_IS_BLANK.to_owned());
    let plan = Plan {
        goal: Goal::Grow,
        disk: disk.to_owned(),
        disk_guid: facts.gpt.disk_guid,
        system: None,
        table: None,
        meta: [].into(),
        meta_removed: vec![],
        left: vec![],
        meta_found: None,
        esp: None,
        boot_env_at: [None; 2],
        warnings: lost_end.into_iter().chain(is_damaged.then(|| result.clone())).collect(),
        result,
        meanwhile: "the partition table is the one that was there before".to_owned(),
        growth: Some(growth),
        bootloader: None,
        steps,
    };
    Ok((plan, table))
}

/// The end that EPHEMERAL can have: in front of the next partition, or of the backup GPT.
fn room(primary: &RawTable, facts: &GrowFacts) -> Result<u64, Refusals> {
    let (ephemeral, entries) = (facts.gpt.part(Part::Ephemeral), primary.entries());
    let extents = entries.iter().filter_map(|entry| Some((entry, entry.extent(facts.sector)?)));
    let backup = primary.backup(facts.disk_bytes, facts.sector).map_or(0, |backup| backup.offset);
    let (last, named) = (Lba(facts.disk_bytes / facts.sector.bytes() - 1), primary.other());
    if named > last {
        return Err(refused(format!(
            "its partition table says that the disk has {} blocks, and it has {}: it is smaller than its partition table says; \
             make it as large as it was",
            named.0 + 1,
            last.0 + 1
        )));
    }
    let mut room = backup;
    for (entry, extent) in extents {
        if extent.end() > backup {
            return Err(refused(format!(
                "partition {} ends at {} bytes, and the disk has {} bytes: it is smaller than its partition table says, \
                 and has no room for the backup GPT; make it as large as it was",
                entry.number,
                extent.end(),
                facts.disk_bytes
            )));
        }
        if extent.offset >= ephemeral.end() {
            room = room.min(extent.offset);
        }
    }
    Ok(round_down(room, MIB).max(ephemeral.end()))
}

/// The table with EPHEMERAL in its new place, and the steps that write the parts that are not on the disk.
fn table(primary: &RawTable, ephemeral: Extent, facts: &GrowFacts) -> Result<(Option<GrownGpt>, Vec<Step>), Refusals> {
    let (sector, bytes) = (facts.sector, facts.disk_bytes);
    let (first, last) = (Lba(1), Lba(bytes / sector.bytes() - 1));
    let too_small = || refused("the disk has no room for a partition table".to_owned());
    let grown = primary.grown(Part::Ephemeral.number(), ephemeral.end(), bytes, sector).ok_or_else(too_small)?;
    let is_there = primary.says(&grown, first, last);
    let has_backup = facts.last.as_ref().is_some_and(|copy| copy.says(&grown, last, first));
    let gpt = grown.render(bytes, sector).ok_or_else(too_small)?;
    let (header, array) = (sector.bytes(), gpt.gpt.entries.len() as u64);
    let mut steps = Vec::new();
    if !has_backup {
        let part = Part::Ephemeral;
        let clear = new_end(primary, ephemeral, facts).into_iter().filter(|extent| extent.len > 0);
        steps.extend(clear.map(|extent| Step::ClearEnd { part, extent }));
        let extent = Extent { offset: gpt.gpt.backup_entries_offset, len: array + header };
        steps.push(Step::WriteBackupGpt { extent });
    }
    let places: &[Place] = match primary.place(sector) {
        Some(Place::Home) if is_there => &[],
        Some(Place::Home) => &[Place::Away, Place::Home],
        Some(Place::Away) => &[Place::Home],
        None if is_there => &[],
        None => return Err(refused("the partition entries stand neither at LBA 2 nor right behind that".to_owned())),
    };
    check_places(primary, sector, places)?;
    for (n, entries) in places.iter().enumerate() {
        steps.push(Step::WriteEntries { extent: Extent { offset: gpt.offset(*entries), len: array } });
        let extent = Extent { offset: header, len: header };
        steps.push(Step::WritePrimaryHeader { extent, entries: *entries, commit: n == 0 && !is_there });
    }
    Ok((Some(gpt).filter(|_| !steps.is_empty()), steps))
}

/// The end of EPHEMERAL in its new place, and the room between it and the backup GPT, unless a foreign partition is
/// there: in front of the backup of the table on the disk, and behind that.
fn new_end(primary: &RawTable, ephemeral: Extent, facts: &GrowFacts) -> [Extent; 2] {
    let (sector, before) = (facts.sector, facts.gpt.part(Part::Ephemeral));
    let at = |lba: Lba| (lba.0 + 1) * sector.bytes();
    // A file system that is larger than its partition was in all of it: the table is from before a growth.
    let held = match facts.held {
        EphemeralContent::Xfs(xfs) => {
            xfs.bytes().and_then(|bytes| bytes.checked_add(before.offset)?.checked_next_multiple_of(MIB))
        }
        EphemeralContent::Damaged => None,
        _ => Some(0),
    };
    let from = (ephemeral.end() - TAIL_BYTES).max(before.end()).max(held.unwrap_or(u64::MAX));
    let is_last = primary.entries().iter().all(|entry| {
        entry.number == Part::Ephemeral.number()
            || entry.extent(sector).is_none_or(|other| other.end() <= ephemeral.end())
    });
    let backup = primary.backup(facts.disk_bytes, sector).map(|backup| backup.offset);
    let to = backup.filter(|_| is_last).unwrap_or(ephemeral.end());
    let clear = |from: u64, to: u64| Extent { offset: from, len: to.saturating_sub(from) };
    [clear(from, to.min(at(primary.last_usable()))), clear(from.max(at(primary.other())), to)]
}

/// No partition may lie where the entries are to be written.
fn check_places(primary: &RawTable, sector: SectorSize, places: &[Place]) -> Result<(), Refusals> {
    let behind = primary.behind_both_places(sector);
    match primary.entries().iter().find(|entry| entry.first < behind && !places.is_empty()) {
        None => Ok(()),
        Some(entry) => Err(refused(format!(
            "partition {} begins at block {}, where the new table is to be written: it would have to begin at {} or later",
            entry.number, entry.first.0, behind.0
        ))),
    }
}

fn mounted(facts: &GrowFacts) -> Option<&(String, XfsSize)> {
    facts.known.as_ref()?.mounted.as_ref()
}

/// `bytes` is the size of EPHEMERAL afterwards.
fn file_system(facts: &GrowFacts, bytes: u64) -> FileSystemGrowth {
    match (facts.held, mounted(facts)) {
        // The kernel's size counts, also while the superblock does not have it yet.
        (_, Some((_, xfs))) if xfs.can_grow(bytes) => FileSystemGrowth::Grows,
        (_, Some(_)) => FileSystemGrowth::Full,
        (EphemeralContent::Damaged, None) => FileSystemGrowth::Damaged,
        (EphemeralContent::Xfs(xfs), None) if xfs.bytes().is_none_or(|held| held > bytes) => FileSystemGrowth::Damaged,
        (EphemeralContent::Xfs(xfs), None) if xfs.can_grow(bytes) => FileSystemGrowth::LeftUntilMounted,
        (EphemeralContent::Xfs(_), None) => FileSystemGrowth::Full,
        (EphemeralContent::Blank, None) => FileSystemGrowth::None,
        (EphemeralContent::Other(_) | EphemeralContent::Unsafe(_), None) => FileSystemGrowth::LeftToTheOs,
    }
}

fn result(growth: Growth, facts: &GrowFacts) -> String {
    let size = approx(growth.after);
    let elsewhere = facts.known.as_ref().and_then(|known| known.elsewhere.as_deref());
    match (growth.file_system, facts.held) {
        (FileSystemGrowth::Grows | FileSystemGrowth::Full, _) => {
            format!("EPHEMERAL has {size}, and its file system has all of it")
        }
        (FileSystemGrowth::Damaged, held) => {
            let what = if held == EphemeralContent::Damaged {
                "the superblock of its file system is damaged"
            } else {
                "its file system is larger"
            };
            format!("EPHEMERAL has {size}, and {what}: `installer status` says what helps")
        }
        (FileSystemGrowth::LeftUntilMounted, _) => format!(
            "EPHEMERAL has {size}; its file system is smaller, and XFS grows only while it is mounted: {}",
            elsewhere.unwrap_or("run the same command again then")
        ),
        (_, EphemeralContent::Other(what) | EphemeralContent::Unsafe(what)) => {
            format!("EPHEMERAL has {size}; it holds {what}, which only the OS can grow")
        }
        _ => format!("EPHEMERAL has {size}; it is blank"),
    }
}

/// Describes a step as a line of a dry run.
pub fn described(plan: &Plan, step: &Step, at: &dyn Fn(&Extent) -> String) -> String {
    match step {
        Step::ClearEnd { part, extent } => format!("clear      old labels at the new end of {part}: {}", at(extent)),
        Step::WriteEntries { extent } => format!("write      new partition entries: {}", at(extent)),
        Step::WritePrimaryHeader { extent, commit: true, .. } => {
            let size = plan.growth.map_or_else(String::new, |growth| approx(growth.after));
            format!("write      primary GPT header: {}, EPHEMERAL has {size}", at(extent))
        }
        Step::WritePrimaryHeader { extent, entries: Place::Away, .. } => {
            format!("write      primary GPT header: {}, the entries are beside the old ones", at(extent))
        }
        Step::WritePrimaryHeader { extent, .. } => {
            format!("write      primary GPT header: {}, the entries are at LBA 2 again", at(extent))
        }
        Step::ResizePartition { part, extent } => {
            format!("tell       the kernel that {part} has {}", approx(extent.len))
        }
        Step::GrowXfs { part, extent, mounted_on } => {
            format!("grow       {part}: XFS on {}, to {}", quoted(mounted_on), approx(extent.len))
        }
        _ => String::new(),
    }
}

fn refused(why: String) -> Refusals {
    Refusal::CannotGrow(why).into()
}
