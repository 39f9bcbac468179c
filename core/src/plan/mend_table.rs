//! The partition table written again: our entries as an install made them, and both copies.
//!
//! While the primary is whole, it stays so at every instant, as in a growth (`grow.rs`): the backup comes first, then the new
//! entries beside the old ones, then LBA 1, which names them. If the primary is damaged, it is written first, and the backup
//! stays as it is until then; so it does while it says something that the primary does not, and where EPHEMERAL lies on it. No
//! byte behind the table is written, so all data is as it was, before and afterwards.

use crate::prelude::*;

use alloc::collections::BTreeMap;

use uuid::Uuid;

use super::{Goal, Plan, RequestBase, Step};
use crate::{
    disk::gpt_grow::{GrownGpt, Place},
    text::quoted,
    units::{Extent, SectorSize},
};

/// LBA 0 beside a table that is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lba0 {
    /// A protective MBR.
    Whole,
    /// Something else.
    Lost,
    /// It cannot be read. Nor can what the drive keeps in the same sector be written without it.
    Unreadable,
}

/// A disk of ours whose table is to be written again.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the other fields are what their names say")]
pub struct MendTableFacts {
    pub disk_guid: Uuid,
    pub sector: SectorSize,
    /// Its faults, each as a sentence.
    pub faults: Vec<String>,
    /// The table to be written.
    pub table: GrownGpt,
    /// Where the entries of the primary stand; None if the primary is damaged.
    pub primary: Option<Option<Place>>,
    /// The primary says what it shall say.
    pub primary_is_right: bool,
    /// The backup says what it shall say, at the end of the disk.
    pub backup_is_right: bool,
    /// The backup says something that the primary does not, or EPHEMERAL lies on it: it stays as it is until the primary is written.
    pub backup_last: bool,
    /// Partitions with new PARTUUIDs, because nothing says the old ones.
    pub new_guids: Vec<&'static str>,
    /// No entry of any partition was left, and others may have had some behind EPHEMERAL.
    pub others_lost: bool,
    /// What is known of LBA 0.
    pub lba0: Lba0,
    /// The place of the backup is blank.
    pub end_is_blank: bool,
}

/// The note of a disk whose backup GPT was not damaged, but is gone with the end of the disk.
pub const END_IS_BLANK: &str = "the place of the backup GPT is blank, as where the disk was smaller for a time: then EPHEMERAL has \
                                lost its end, too, and `xfs_repair -n` on its partition tells";

/// The note of a table without any entry: EPHEMERAL takes all room that is left, now or when it grows.
const OTHERS_ARE_LOST: &str = "if others had partitions behind EPHEMERAL, their entries are lost with the table, and EPHEMERAL lies on \
                               them now or grows over them at the next boot, unless `sgdisk` gives them their places back before";

/// Plan it. Another repair finds other losses.
pub fn mend_table(base: &RequestBase, facts: &MendTableFacts) -> Plan {
    let (disk, new) = (quoted(&base.disk), &facts.new_guids);
    let what = facts.faults.join("; ");
    let more = if facts.lba0 != Lba0::Whole {
        format!("LBA 0 is still lost: `installer repair --disk {disk}` once more writes it")
    } else {
        format!("`installer status --disk {disk}` shows whether more is lost")
    };
    let warning = (!new.is_empty()).then(|| {
        format!("these partitions get new PARTUUIDs, because nothing says the old ones any more: {}", new.join(", "))
    });
    let end = facts.end_is_blank.then_some(END_IS_BLANK);
    let others = facts.others_lost.then_some(OTHERS_ARE_LOST);
    Plan {
        warnings: warning.into_iter().chain([end, others].into_iter().flatten().map(str::to_owned)).collect(),
        result: format!("the partition table is written again ({what}), and no data was changed; {more}"),
        meanwhile: "the partition table is not written again in whole, and all data is as it was".to_owned(),
        ..bare(base, facts.disk_guid, steps(facts))
    }
}

/// A repair that knows nothing of what the table leads to.
pub(super) fn bare(base: &RequestBase, disk_guid: Uuid, steps: Vec<Step>) -> Plan {
    Plan {
        goal: Goal::Repair,
        disk: base.disk.clone(),
        disk_guid,
        steps,
        system: None,
        table: None,
        meta: BTreeMap::new(),
        meta_removed: vec![],
        left: vec![],
        meta_found: None,
        esp: None,
        boot_env_at: [None; 2],
        warnings: vec![],
        result: String::new(),
        meanwhile: String::new(),
        growth: None,
        bootloader: None,
    }
}

fn steps(facts: &MendTableFacts) -> Vec<Step> {
    let (header, gpt) = (facts.sector.bytes(), &facts.table.gpt);
    let array = gpt.entries.len() as u64;
    let backup = Step::WriteBackupGpt { extent: Extent { offset: gpt.backup_entries_offset, len: array + header } };
    let backup = (!facts.backup_is_right).then_some(backup);
    let mut steps = Vec::new();
    let Some(place) = facts.primary else {
        let offset = if facts.lba0 == Lba0::Unreadable { 0 } else { header };
        steps.push(Step::WritePrimaryGpt { extent: Extent { offset, len: 2 * header + array - offset } });
        steps.extend(backup);
        steps.push(Step::RereadTable);
        return steps;
    };
    let (before, after) = if facts.backup_last { (None, backup) } else { (backup, None) };
    steps.extend(before);
    let places: &[Place] = match place {
        _ if facts.primary_is_right => &[],
        Some(Place::Home) => &[Place::Away, Place::Home],
        Some(Place::Away) | None => &[Place::Home],
    };
    for entries in places {
        steps.push(Step::WriteEntries { extent: Extent { offset: facts.table.offset(*entries), len: array } });
        let extent = Extent { offset: header, len: header };
        steps.push(Step::WritePrimaryHeader { extent, entries: *entries, commit: false });
    }
    steps.extend(after);
    if !places.is_empty() {
        steps.push(Step::RereadTable);
    }
    steps
}
