//! Find files on a disk without its partition table: those that a list names, and an ESP or a slot of ours.

use super::{
    error::ProbeError,
    gpt::{place, raw_table},
    head,
};
use crate::{
    device::BlockIo,
    fat::{FatFile, FatVolume},
    transfer::read_back_digest,
};
use slipway_core::{
    boot::{env::PATHS, slot::Slot},
    digest::{Sha256, Sums},
    disk::{
        foreign_mbr,
        gpt_grow::RawTable,
        layout::{ENTRY_ARRAY_BYTES, ESP_OFFSET, Part},
        magic::recognise,
    },
    payload::manifest::BOOT_SHA256,
    report::{FileCheck, FileState},
    units::{Extent, Lba, MIB, SectorSize},
    zeros::are_zeros,
};

/// Whether there is an ESP of ours. Its files are not read.
pub(super) fn has_boot_state(disk: &dyn BlockIo, esp: Extent) -> bool {
    let volume = FatVolume::open(disk, esp);
    volume.is_ok_and(|volume| PATHS.iter().any(|path| matches!(volume.find(path), Ok(Some(_)))))
}

/// Whether the boot loader would load this slot.
pub(super) fn slot_boots(disk: &dyn BlockIo, extent: Extent, slot: Slot) -> bool {
    let Ok(volume) = FatVolume::open(disk, extent) else { return false };
    let checks = check_files(disk, &volume, slot.into(), BOOT_SHA256, &mut |_| ());
    checks.is_ok_and(|checks| checks.iter().all(|check| check.state == FileState::Good))
}

/// Whether LBA 0 is not in use by another program, though it says nothing of a GPT.
pub(super) fn is_free_of_others(disk: &dyn BlockIo) -> bool {
    let Some(head) = head_of(disk) else { return false };
    // A wrong bit turns a protective MBR into a table that begins at LBA 1, or a type of its own that begins elsewhere.
    let was_protective = |entry: &foreign_mbr::Entry| entry.first == Lba(1) || entry.kind == 0xee;
    let is_protective = |entries: Vec<foreign_mbr::Entry>| entries.iter().all(was_protective);
    let is_unused = recognise(&head)
        .is_none_or(|found| found.short == "boot sector" && foreign_mbr::partitions(&head).is_none_or(is_protective));
    // What others make of a whole disk goes over the first copy of the table.
    let has_esp = |table: RawTable| place(&table.entries(), Part::Esp, disk.sector_size()).is_some();
    let is_table_whole = || raw_table(disk, Lba(1)).is_some_and(has_esp);
    is_unused && (is_table_whole() || is_blank_behind_the_table(disk))
}

// Where all of it cannot be read at once, so much may be unreadable.
const STEP: usize = 64 << 10;

/// Whether there are zeros from the table to the first partition, as an install leaves them: what others make of a whole disk need
/// not have its magic at the beginning. What cannot be read counts as zeros.
fn is_blank_behind_the_table(disk: &dyn BlockIo) -> bool {
    // Entries may stand in one of two places, and the table may be one for larger sectors.
    let behind = 2 * (SectorSize::S4096.bytes() + ENTRY_ARRAY_BYTES);
    let end = ESP_OFFSET.min(disk.size());
    let mut bytes = vec![0; end.saturating_sub(behind) as usize];
    let is_zero = |at: u64, bytes: &mut [u8]| disk.read_back(at, bytes).map(|()| are_zeros(bytes)).ok();
    is_zero(behind, &mut bytes).unwrap_or_else(|| {
        let mut steps = bytes.chunks_mut(STEP).zip((behind..).step_by(STEP));
        steps.all(|(bytes, at)| is_zero(at, bytes).unwrap_or(true))
    })
}

/// The first bytes of a disk, with zeros for what cannot be read of LBA 0 and the table: a sector of the drive may hold eight of
/// the disk's.
fn head_of(disk: &dyn BlockIo) -> Option<Vec<u8>> {
    let (sector, size) = (disk.sector_size().bytes(), disk.size());
    let table = 2 * sector + ENTRY_ARRAY_BYTES;
    let by_sector =
        |offset: u64| head(disk, Extent { offset, len: sector }).unwrap_or_else(|| vec![0; sector as usize]);
    let without = || {
        let behind = head(disk, Extent { offset: table, len: size.checked_sub(table)? })?;
        Some((0..table).step_by(sector as usize).flat_map(by_sector).chain(behind).collect())
    };
    head(disk, Extent { offset: 0, len: size }).or_else(without)
}

/// Read every file that `list` names back from the disk, and compare its digest.
pub fn check_files(
    disk: &dyn BlockIo,
    volume: &FatVolume,
    part: Part,
    list: &'static str,
    progress: &mut dyn FnMut(u64),
) -> Result<Vec<FileCheck>, ProbeError> {
    let fat = |source| ProbeError::Fat { part, source };
    volume.is_read_by_all().map_err(fat)?;
    let bytes = volume.read_by_name(list, MIB).map_err(fat)?.ok_or(ProbeError::NoSums { part, file: list })?;
    let sums = Sums::parse(&bytes).map_err(|source| ProbeError::Sums { part, file: list, source })?;
    // An empty list proves nothing. GRUB refuses it too.
    if sums.0.is_empty() {
        return Err(ProbeError::NoSums { part, file: list });
    }
    let mut checks = Vec::new();
    for (name, expected) in sums.0 {
        let file = volume.find_by_name(&name).map_err(fat)?;
        checks.push(check_file(disk, part, name, expected, file, progress)?);
    }
    Ok(checks)
}

pub(super) fn missing(name: String, expected: Option<Sha256>) -> FileCheck {
    FileCheck { name, state: FileState::Missing, size: None, expected, actual: None, offset: None }
}

fn check_file(
    disk: &dyn BlockIo,
    part: Part,
    name: String,
    expected: Sha256,
    file: Option<FatFile>,
    progress: &mut dyn FnMut(u64),
) -> Result<FileCheck, ProbeError> {
    let Some(file) = file else {
        return Ok(missing(name, Some(expected)));
    };
    let actual = read_back_digest(disk, &file.extents, progress).map_err(|source| ProbeError::Stream {
        part,
        file: name.clone(),
        source,
    })?;
    let state = if actual == expected { FileState::Good } else { FileState::Damaged };
    let offset = file.extents.first().map(|e| e.offset);
    Ok(FileCheck { name, state, size: Some(file.size), expected: Some(expected), actual: Some(actual), offset })
}
