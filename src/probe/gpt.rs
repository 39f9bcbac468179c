//! The partition table of an installed disk.

use uuid::Uuid;

use super::{error::ProbeError, read, table_bytes, twice};
use crate::device::BlockIo;
use slipway_core::{
    disk::{
        gpt::{ENTRIES, Entry, GptError, Header, SIGNATURE},
        gpt_grow::RawTable,
        gpt_mend::{outside, wrong_kind},
        layout::{ENTRY_ARRAY_BYTES, META_BYTES, Part, overlap},
        sectors::Sign,
    },
    plan::{GptCopies, GptFacts, Intruder},
    units::{Extent, Lba, SectorSize},
    zeros::are_zeros,
};

pub(super) type Table = (Header, Vec<Entry>);

/// Both copies of a GPT by any program.
pub(super) struct Gpt {
    pub primary: Result<Table, GptError>,
    /// From the end of the disk, or from where the primary says it is.
    pub backup: Result<Table, GptError>,
    backup_lba: Lba,
    // The last block holds a backup that does not belong to the primary.
    foreign_backup: bool,
    // A whole backup at the end of the disk that says something else than the primary.
    other_backup: Option<Table>,
    // What is on the disk is for sectors of another size.
    other: Option<String>,
}

impl Gpt {
    /// Ignores LBA 0. `lba0::read_gpt` is for a disk whose table counts.
    pub fn tables(disk: &dyn BlockIo) -> Self {
        let sector = disk.sector_size();
        let primary = table(disk, Lba(1));
        let last = Lba(table_bytes(disk) / sector.bytes() - 1);
        let mut backup = (last, table(disk, last));
        // An image that was copied to a larger disk has its backup where the image ended. The last block then holds
        // nothing, or the backup of an earlier table.
        let (mut foreign, mut other_backup) = (false, None);
        if let Ok((header, entries)) = &primary {
            let ours = |t: &Result<Table, GptError>| {
                t.as_ref().is_ok_and(|(h, e)| (h.disk_guid, e) == (header.disk_guid, entries))
            };
            foreign = !ours(&backup.1) && backup.1.is_ok();
            if !ours(&backup.1) {
                // If the last block cannot be read, this says so unless the backup is elsewhere.
                let elsewhere = (header.alternate_lba != last).then_some(header.alternate_lba);
                let there = elsewhere.map(|at| (at, twice(|| table(disk, at), Result::is_err)));
                // The primary may be from before a growth. EPHEMERAL has the place of its backup since, and the right table is
                // in the last block.
                let is_older = |there: &Result<Table, GptError>| {
                    there.is_err()
                        && backup.1.as_ref().is_ok_and(|(last, found)| is_same_disk(last, found, header, entries))
                };
                if let Some(there) = there.filter(|(_, there)| !is_older(there)) {
                    backup = there;
                } else if foreign {
                    foreign = false;
                    other_backup = std::mem::replace(&mut backup.1, Err(GptError::OtherTable)).ok();
                }
            }
        }
        let primary = match primary {
            Ok(ours) if backup.1.is_ok() && !fits(disk, &ours, backup.0, last) => {
                Err(GptError::Unusable("it gives wrong places for its second copy or for partitions"))
            }
            primary => primary,
        };
        if let (Ok(ours), Ok(copy)) = (&primary, &backup.1)
            && has_outside(copy)
            && !has_outside(ours)
        {
            backup.1 = Err(GptError::Unusable("partitions lie outside of the blocks that it calls usable"));
        }
        let other = primary.as_ref().err().and_then(|_| for_other_sectors(disk));
        Gpt { primary, backup: backup.1, backup_lba: backup.0, foreign_backup: foreign, other_backup, other }
    }

    /// The primary, or the backup if the primary is damaged. If neither is valid and one cannot be read, it is not known
    /// whether there is a table.
    pub fn in_use(&self) -> Result<&Table, ProbeError> {
        match (&self.primary, &self.backup) {
            (Ok(table), _) | (Err(_), Ok(table)) => Ok(table),
            (Err(p), Err(b)) if [p, b].iter().any(|e| matches!(e, GptError::Unreadable(_))) => {
                Err(ProbeError::TableUnreadable(format!("primary: {p}; backup: {b}")))
            }
            (Err(e @ GptError::Unsupported { .. }), Err(_)) | (Err(_), Err(e @ GptError::Unsupported { .. })) => {
                Err(ProbeError::Foreign(format!("its partition table is not supported: {e}")))
            }
            (Err(p), Err(b)) => {
                let why = self.other.clone().unwrap_or_else(|| format!("primary: {p}; backup: {b}"));
                Err(ProbeError::NoTable(why))
            }
        }
    }

    /// The copy in the last block, if it is whole, of the same disk, and says something else than the primary.
    pub fn contradicting(&self) -> Option<&[Entry]> {
        let ((header, entries), (other, others)) = (self.primary.as_ref().ok()?, self.other_backup.as_ref()?);
        is_same_disk(other, others, header, entries).then_some(others)
    }

    /// Whether the disk does not return one of them.
    pub fn is_unreadable(&self) -> bool {
        [&self.primary, &self.backup].iter().any(|copy| matches!(copy, Err(GptError::Unreadable(_))))
    }

    /// Whether by its header the table ends in the last block.
    pub fn is_for_this_size(&self, disk: &dyn BlockIo) -> bool {
        let blocks = table_bytes(disk) / disk.sector_size().bytes();
        self.in_use().is_ok_and(|(header, _)| last(header).0.checked_add(1) == Some(blocks))
    }

    /// Block of the backup's header.
    pub const fn backup_at(&self) -> Lba {
        self.backup_lba
    }

    /// Why what is on the disk does not count: it is for sectors of another size.
    pub fn for_other_sectors(&self) -> Option<&str> {
        self.other.as_deref()
    }

    pub fn copies(&self, sector: SectorSize) -> GptCopies {
        GptCopies {
            primary: self.primary.as_ref().map(|_| ()).map_err(Clone::clone),
            backup: self.backup.as_ref().map(|_| ()).map_err(Clone::clone),
            backup_offset: self.backup.is_ok().then(|| self.backup_lba.offset(sector)).flatten(),
            foreign_backup: self.foreign_backup,
        }
    }
}

fn is_same_disk(one: &Header, of_one: &[Entry], other: &Header, of_other: &[Entry]) -> bool {
    let has = |entry: &Entry| of_other.iter().any(|other| other.guid == entry.guid);
    one.disk_guid == other.disk_guid || of_one.iter().any(has)
}

// UEFI takes no such partition.
fn has_outside((header, entries): &Table) -> bool {
    let [first, last] = header.usable;
    entries.iter().any(|entry| entry.first < first || entry.last > last)
}

// Linux takes no table whose usable blocks end beyond the disk, and firmware writes a second copy where the first one says that
// it is. After a `grow` that was interrupted, there may be one in either place.
fn fits(disk: &dyn BlockIo, (primary, entries): &Table, backup: Lba, last: Lba) -> bool {
    let [first, end] = primary.usable;
    let is_there = || table(disk, primary.alternate_lba).is_ok_and(|(_, found)| found == *entries);
    first <= end && end <= last && (primary.alternate_lba == backup || is_there())
}

/// Whether what is on a disk is for sectors of another size, in words.
pub(super) fn for_other_sectors(disk: &dyn BlockIo) -> Option<String> {
    let (sector, size) = (disk.sector_size(), disk.size());
    let other = if sector == SectorSize::S512 { SectorSize::S4096 } else { SectorSize::S512 };
    let mut read = |at: u64, bytes: &mut [u8]| {
        at.checked_add(bytes.len() as u64).is_some_and(|end| end <= size) && read(disk, at, bytes).is_ok()
    };
    let what = match Sign::ALL.into_iter().find(|sign| sign.is_there(other, size, &mut read))? {
        Sign::FirstTable => "a partition table",
        Sign::SecondTable => "the second copy of a partition table",
        Sign::Esp => "the file system of an ESP",
    };
    Some(format!(
        "{what} for sectors of {} bytes, and here the disk has sectors of {} bytes, as some RAID controllers and USB bridges show \
         them; attach the disk as it was when that was written",
        other.bytes(),
        sector.bytes()
    ))
}

/// LBA 1, which every change of the primary changes. None if it cannot be read.
pub fn lba1(disk: &dyn BlockIo) -> Option<Vec<u8>> {
    let mut block = vec![0; disk.sector_size().bytes() as usize];
    read(disk, disk.sector_size().bytes(), &mut block).ok()?;
    Some(block)
}

/// The copy with its header at `at`, byte for byte.
pub(super) fn raw_table(disk: &dyn BlockIo, at: Lba) -> Option<RawTable> {
    let (header, bytes) = copy(disk, at).ok()?;
    RawTable::new(header, bytes).ok()
}

/// Whether the backup was not damaged, but is gone with the end of the disk: its place, as the primary names it, is blank.
pub(super) fn is_backup_gone(disk: &dyn BlockIo, copies: &GptCopies) -> bool {
    if copies.primary.is_err() || copies.backup.is_ok() {
        return false;
    }
    let Some(copy) = raw_table(disk, Lba(1)) else { return false };
    let sector = disk.sector_size();
    let end = copy.other().0.checked_add(1).and_then(|blocks| blocks.checked_mul(sector.bytes()));
    let mut bytes = vec![0; copy.copy_bytes(sector) as usize];
    let from = end.and_then(|end| end.checked_sub(bytes.len() as u64));
    from.is_some_and(|from| disk.read_back(from, &mut bytes).is_ok()) && are_zeros(&bytes)
}

/// The partitions of a table, if they are ours.
pub(super) fn ours(disk: &dyn BlockIo, gpt: &Gpt) -> Result<GptFacts, ProbeError> {
    let sector = disk.sector_size();
    let (header, entries) = gpt.in_use()?;
    if header.entries > ENTRIES {
        let is_ours = Part::ALL.iter().all(|part| place(entries, *part, sector).is_some());
        let remedy =
            if is_ours { format!("; `sgdisk --resize-table={ENTRIES} DISK` makes it as small") } else { String::new() };
        return Err(ProbeError::Foreign(format!("its table has {} entries, not {ENTRIES}{remedy}", header.entries)));
    }
    let (mut parts, mut guids) = ([Extent { offset: 0, len: 0 }; 7], [Uuid::nil(); 7]);
    let found = |part: Part| place(entries, part, sector);
    // Said first: as long as the disk is too small, nothing else can be mended.
    let is_beyond = |part: &Part| found(*part).is_some_and(|(extent, _)| extent.end() > disk.size());
    if let Some(part) = Part::ALL.into_iter().find(is_beyond) {
        return Err(ProbeError::Shrunk { part, needs: needs(header, entries, sector), has: disk.size() });
    }
    for ((place, guid), part) in parts.iter_mut().zip(&mut guids).zip(Part::ALL) {
        (*place, *guid) = found(part).ok_or_else(|| {
            ProbeError::Foreign(format!(
                "partition {} is not {} or lies beyond the end of the disk",
                part.number(),
                part.name()
            ))
        })?;
    }
    if let Some(why) = wrong_places(&parts, sector) {
        return Err(ProbeError::Foreign(why));
    }
    let intruders = intruders(entries, &parts, sector);
    let entry = |part: Part| entries.iter().find(|entry| entry.number == part.number());
    let kinds = Part::ALL.into_iter().filter_map(|part| wrong_kind(part, entry(part)?));
    let faults = kinds.chain(outside(header.usable, &parts, sector)).collect();
    let (disk_guid, copies) = (header.disk_guid, gpt.copies(sector));
    let has_copy = copies.backup.is_ok() || gpt.is_for_this_size(disk);
    let on_the_copy = parts[Part::Ephemeral.index()].end() > second_copy(disk, header.copy_bytes(sector)) && has_copy;
    let misplaced = on_the_copy.then(|| (Part::Ephemeral, ON_THE_COPY.to_owned())).into_iter().collect();
    Ok(GptFacts { disk_guid, parts, guids, copies, intruders, faults, misplaced })
}

/// A file system of that size would overwrite that copy, and the copy what is in the file system.
pub(super) const ON_THE_COPY: &str = "partition 7 (EPHEMERAL) lies on the second copy of the table";

/// The byte at which a second copy of so many bytes begins, at the end of the disk.
pub(super) fn second_copy(disk: &dyn BlockIo, bytes: u64) -> u64 {
    table_bytes(disk).saturating_sub(bytes)
}

pub(super) fn place(entries: &[Entry], part: Part, sector: SectorSize) -> Option<(Extent, Uuid)> {
    let entry = entries.iter().find(|e| e.number == part.number() && e.name == part.name())?;
    Some((entry.extent(sector)?, entry.guid))
}

/// Why ours cannot lie there.
pub(super) fn wrong_places(parts: &[Extent; 7], sector: SectorSize) -> Option<String> {
    if let Some((one, other)) = overlap(parts) {
        return Some(format!("partitions {} and {} overlap", one.name(), other.name()));
    }
    let table_end = 2 * sector.bytes() + ENTRY_ARRAY_BYTES;
    if let Some(part) = Part::ALL.into_iter().find(|part| parts[part.index()].offset < table_end) {
        return Some(format!("partition {} overlaps the partition table", part.name()));
    }
    (parts[Part::Meta.index()].len != META_BYTES).then(|| "META is not exactly 1 MiB".to_owned())
}

// The last block of a table, by its header. A backup says where it lies itself.
fn last(header: &Header) -> Lba {
    header.my_lba.max(header.alternate_lba)
}

// Bytes of the disk that a table is for.
pub(super) fn needs(header: &Header, entries: &[Entry], sector: SectorSize) -> u64 {
    let by_header = last(header).0.checked_add(1).and_then(|blocks| Lba(blocks).offset(sector)).unwrap_or(0);
    let ends =
        entries.iter().filter_map(|entry| Some(entry.extent(sector)?.end().saturating_add(header.copy_bytes(sector))));
    ends.max().unwrap_or(0).max(by_header)
}

// An entry without a readable range lies nowhere.
pub(super) fn intruders(entries: &[Entry], parts: &[Extent; 7], sector: SectorSize) -> Vec<Intruder> {
    let is_ours = |entry: &&Entry| Part::ALL.iter().any(|part| part.number() == entry.number);
    let others = entries.iter().filter(|entry| !is_ours(entry));
    let on = |entry: &Entry| {
        let lies = entry.extent(sector)?;
        Part::ALL.into_iter().find(|part| lies.meets(parts[part.index()]))
    };
    let found: Vec<(&Entry, Part)> = others.filter_map(|entry| Some((entry, on(entry)?))).collect();
    let all: Vec<u32> = found.iter().map(|(entry, _)| entry.number).collect();
    let intruder = |(entry, on): (&Entry, Part)| {
        let Entry { number, name, .. } = entry.clone();
        Intruder { number, name, on, all: all.clone(), sector }
    };
    found.into_iter().map(intruder).collect()
}

fn table(disk: &dyn BlockIo, at: Lba) -> Result<Table, GptError> {
    let (header, bytes) = copy(disk, at)?;
    let entries = header.decode_entries(&bytes)?;
    Ok((header, entries))
}

/// The copy with its header at `at`, whatever stands in the place of its signature: `wipefs` and `fdisk` clear no more of a table.
/// The checksums prove the rest.
pub(super) fn unsigned_table(disk: &dyn BlockIo, at: Lba) -> Option<RawTable> {
    let mut block = header(disk, at).ok()?;
    block[..SIGNATURE.len()].copy_from_slice(SIGNATURE);
    let (header, bytes) = with_entries(disk, at, &block).ok()?;
    RawTable::new(header, bytes).ok()
}

// The copy with its header at `at`. One that cannot be read is as lost as a damaged one.
fn copy(disk: &dyn BlockIo, at: Lba) -> Result<(Header, Vec<u8>), GptError> {
    with_entries(disk, at, &header(disk, at)?)
}

fn header(disk: &dyn BlockIo, at: Lba) -> Result<Vec<u8>, GptError> {
    fetch(disk, at, disk.sector_size().bytes() as usize, "it lies beyond the end of the disk")
}

fn with_entries(disk: &dyn BlockIo, at: Lba, block: &[u8]) -> Result<(Header, Vec<u8>), GptError> {
    let header = Header::decode(block, at)?;
    let entries =
        fetch(disk, header.entries_lba, header.entries_bytes(), "its entries lie beyond the end of the disk")?;
    Ok((header, entries))
}

fn fetch(disk: &dyn BlockIo, at: Lba, len: usize, beyond: &'static str) -> Result<Vec<u8>, GptError> {
    let is_inside = |offset: &u64| offset.checked_add(len as u64).is_some_and(|end| end <= disk.size());
    let offset = at.offset(disk.sector_size()).filter(is_inside).ok_or(GptError::Unusable(beyond))?;
    let mut bytes = vec![0; len];
    read(disk, offset, &mut bytes).map_err(|e| GptError::Unreadable(e.to_string()))?;
    Ok(bytes)
}
