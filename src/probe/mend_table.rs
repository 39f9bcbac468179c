//! A partition table of ours that is to be written again: entries were changed or deleted, or both copies are lost.

use super::{
    at_end::at_end,
    error::ProbeError,
    files::{has_boot_state, is_free_of_others, slot_boots},
    gpt::{
        Gpt, ON_THE_COPY, is_backup_gone, lba1, needs, ours, place, raw_table, second_copy, unsigned_table,
        wrong_places,
    },
    head,
    part_content::{PartContent, has_meta},
    read_lba0, table_bytes,
    table_guids::{disk_guid, found_guids, seeded},
    twice,
};
use crate::{device::BlockIo, fat::FatVolume};
use slipway_core::{
    boot::slot::Slot,
    disk::{
        gpt::{Entry, GptError, is_protective_mbr},
        gpt_choice::{Chosen, Copies, choose},
        gpt_grow::{GrownGpt, RawTable},
        gpt_mend::{Hints, OurEntries, our_entries, outside, with_rest},
        layout::{BIOS_BYTES, BIOS_OFFSET, DEFAULT_SLOT_BYTES, ESP_BYTES, ESP_OFFSET, Part, min_slot_bytes},
        magic::recognise,
        volume_bytes::volume_bytes,
        xfs::{XfsSize, is_intact},
    },
    plan::{Lba0, MendTableFacts},
    units::{Extent, Lba, MIB, round_down},
    zeros::are_zeros,
};

/// The table as it shall be, and LBA 1 as it is: None if it cannot be read.
pub struct MendedTable {
    pub facts: MendTableFacts,
    pub lba1: Option<Vec<u8>>,
    /// Partitions that do not lie where the table says, each with a sentence.
    pub misplaced: Misplaced,
}

type Misplaced = Vec<(Part, String)>;

/// None if nothing is wrong with the table, or if it is not certain what it held.
pub fn mended_table(disk: &dyn BlockIo) -> Result<Option<MendedTable>, ProbeError> {
    if disk.size() == 0 {
        return Ok(None);
    }
    let lba0 = lba0(disk);
    if lba0 != Lba0::Whole && !is_free_of_others(disk) {
        return Ok(None);
    }
    // Read before the copies: a table that another program writes meanwhile is noticed.
    let lba1 = lba1(disk);
    // Else another copy could become the one that counts.
    let gpt = twice(|| Gpt::tables(disk), Gpt::is_unreadable);
    if let Some(shrunk) = shrunk(disk, &gpt) {
        return Err(shrunk);
    }
    let found = look(disk, &gpt, lba0);
    Ok(found.map(|(facts, misplaced)| MendedTable { facts, lba1, misplaced }))
}

// One that cannot be read may be written over.
fn lba0(disk: &dyn BlockIo) -> Lba0 {
    let (bytes, is_read) = twice(|| read_lba0(disk), |(_, is_read)| is_read.is_err());
    match is_read {
        Err(_) => Lba0::Unreadable,
        Ok(()) if is_protective_mbr(&bytes) => Lba0::Whole,
        Ok(()) => Lba0::Lost,
    }
}

fn look(disk: &dyn BlockIo, gpt: &Gpt, lba0: Lba0) -> Option<(MendTableFacts, Misplaced)> {
    let (sector, bytes) = (disk.sector_size(), table_bytes(disk));
    let basis = basis(disk, gpt)?;
    let are_lost = gpt.in_use().is_err();
    let first = basis.as_ref().map(RawTable::entries).unwrap_or_default();
    let (second, by_first) = (gpt.contradicting(), hints(disk, &first, basis.as_ref()));
    let copies = Copies { first: &first, second, hints: by_first, disk_bytes: bytes, sector };
    let chosen = choose(&copies, &PartContent::new(disk))?;
    let by_chosen = hints(disk, &chosen.entries, basis.as_ref());
    let mut ours = our_entries(&chosen.entries, by_chosen, bytes, sector)?;
    let end = second_copy(disk, by_first.copy_bytes(sector));
    let room = off_the_copy(disk, ours.parts[Part::Ephemeral.index()], end);
    if let Some(room) = room {
        ours.parts[Part::Ephemeral.index()] = room;
        ours.faults.push(ON_THE_COPY.to_owned());
    }
    // A whole backup that says something else may be the one that is right.
    let is_told = chosen.misplaced.is_empty() && !matches!(gpt.backup, Err(GptError::OtherTable));
    let is_doubtful = are_lost || ours.is_inferred || !is_told;
    if wrong_places(&ours.parts, sector).is_some() || (is_doubtful && !is_there(disk, &ours)) {
        return None;
    }
    // So does an install leave a disk that did not end: it takes META away before it writes, and brings it back when what boots
    // is verified.
    if lba0 != Lba0::Whole && are_lost && !has_meta(disk, ours.parts[Part::Meta.index()]) {
        return None;
    }
    let disk_guid = || disk_guid(disk, &ours).unwrap_or_else(|| seeded(disk, "disk"));
    let basis = basis.or_else(|| RawTable::empty(disk_guid(), bytes, sector))?;
    let found = found_guids(disk, &ours, are_lost);
    let guids = Part::ALL.map(|part| found[part.index()].unwrap_or_else(|| seeded(disk, part.name())));
    let new_guids = Part::ALL.into_iter().filter(|part| found[part.index()].is_none()).map(Part::name).collect();
    let wanted = basis.with_ours(&ours, &guids, bytes, sector)?;
    let table = wanted.render(bytes, sector)?;
    let is_outside = |raw: &RawTable| outside(raw.usable(), &ours.parts, sector);
    let says_it = |at: Lba| raw_table(disk, at).is_some_and(|raw| raw.is_alike(&wanted) && is_outside(&raw).is_none());
    let last = Lba(bytes / sector.bytes() - 1);
    let backup_is_right = is_at_end(disk, &table) && says_it(last);
    // Where the second copy is written, the first one has to name it.
    let names_it = raw_table(disk, Lba(1)).is_some_and(|raw| raw.other() == last);
    let primary_is_right = gpt.primary.is_ok() && says_it(Lba(1)) && (names_it || backup_is_right);
    let misplaced = misplaced(gpt, &copies, &chosen);
    let faults = if are_lost {
        vec![both_lost(gpt)?]
    } else {
        let first = chosen_faults(&chosen, &misplaced).chain(ours.faults.iter().cloned());
        first.chain(is_outside(&basis)).chain(lost_copies(gpt, backup_is_right)).collect()
    };
    // One that is whole stays so at every instant, whatever it says. That takes the place of its entries.
    let primary = if gpt.primary.is_ok() { Some(raw_table(disk, Lba(1))?.place(sector)) } else { None };
    let backup_last = (copies.second.is_some() || (room.is_some() && gpt.backup.is_ok())) && !primary_is_right;
    let facts = MendTableFacts {
        disk_guid: basis.disk_guid(),
        sector,
        faults,
        primary,
        primary_is_right,
        backup_is_right,
        backup_last,
        table,
        new_guids,
        others_lost: chosen.entries.is_empty() && had_room(by_chosen, ours.parts[Part::Ephemeral.index()], end),
        lba0,
        end_is_blank: is_backup_gone(disk, &gpt.copies(sector)),
    };
    (!facts.faults.is_empty()).then_some((facts, misplaced))
}

// Whether others may have had a partition between EPHEMERAL and the second copy of the table, which begins at `end`.
fn had_room(hints: Hints, ephemeral: Extent, end: u64) -> bool {
    // An installation leaves less than that.
    hints.ephemeral.is_none() || end.saturating_sub(ephemeral.end()) > 2 * MIB
}

// The disk was larger: by its table, or by a file system that ends beyond its end. Nothing is made smaller to fit.
fn shrunk(disk: &dyn BlockIo, gpt: &Gpt) -> Option<ProbeError> {
    // The second copy stands at the end. If the first one names a place behind that, it is one of before a growth: it counts only
    // if the volume did not grow.
    let is_behind = |at: Lba| at.0 >= disk.size() / disk.sector_size().bytes();
    if let Some(others) = gpt.contradicting() {
        let was_larger = raw_table(disk, Lba(1)).is_some_and(|raw| is_behind(raw.other()));
        let is_held = |(place, _): (Extent, _)| held(disk, place).is_some_and(|held| held <= place.len);
        if !was_larger || self::place(others, Part::Ephemeral, disk.sector_size()).is_some_and(is_held) {
            return None;
        }
    }
    if let Err(shrunk @ ProbeError::Shrunk { .. }) = ours(disk, gpt) {
        return Some(shrunk);
    }
    let (sector, has, part) = (disk.sector_size(), table_bytes(disk), Part::Ephemeral);
    // The second copy would be written over the end of a partition.
    let is_in_the_way = |entry: &Entry, end: u64| {
        let place = entry.extent(sector).filter(|place| place.end() <= has && place.end() > end);
        let is_ours = entry.number == part.number() && entry.name == part.name();
        // On a disk that did not shrink, it was lost in another way, as where a repair was cut off while it wrote it.
        let is_lost = gpt.backup.is_err() && !(is_ours && gpt.is_for_this_size(disk));
        place.is_some_and(|place| is_lost || (is_ours && off_the_copy(disk, place, end).is_none()))
    };
    if let Ok((header, entries)) = gpt.in_use()
        && entries.iter().any(|entry| is_in_the_way(entry, second_copy(disk, header.copy_bytes(sector))))
    {
        return Some(ProbeError::Shrunk { part, needs: needs(header, entries, sector), has });
    }
    let basis = basis(disk, gpt)?;
    let entries = basis.as_ref().map(RawTable::entries).unwrap_or_default();
    let hints = hints(disk, &entries, basis.as_ref());
    let ours = our_entries(&entries, hints, has, sector)?;
    let place = ours.parts[part.index()];
    let head = head(disk, place).filter(|_| ours.guids[part.index()].is_none())?;
    let bytes = match XfsSize::from_superblock(&head) {
        Some(size) => size.bytes().filter(|_| is_intact(&head)),
        None => volume_bytes(&head),
    };
    let (bytes, around) = (bytes?, place.offset + hints.copy_bytes(sector));
    let has_room = has.checked_sub(around).is_some_and(|room| with_rest(bytes, room).is_some());
    let needs = bytes.checked_next_multiple_of(MIB)?.checked_add(around)?;
    (!has_room).then_some(ProbeError::Shrunk { part, needs, has })
}

// EPHEMERAL where it lies on the second copy of the table, which begins at `end`: it ends before that if what is in it does.
fn off_the_copy(disk: &dyn BlockIo, place: Extent, end: u64) -> Option<Extent> {
    let len = round_down(end, MIB).checked_sub(place.offset).filter(|len| *len > 0 && place.end() > end)?;
    (held(disk, place)? <= len).then_some(Extent { len, ..place })
}

// The bytes that the content of a volume takes. None: it is not known.
fn held(disk: &dyn BlockIo, place: Extent) -> Option<u64> {
    let head = head(disk, place)?;
    if are_zeros(&head) { Some(0) } else { XfsSize::from_superblock(&head)?.bytes() }
}

// The copy that counts. `Some(None)` if both are lost, and None if one of them may come back or is of another kind. One that
// only lacks its signature is not lost.
fn basis(disk: &dyn BlockIo, gpt: &Gpt) -> Option<Option<RawTable>> {
    let at = match (&gpt.primary, &gpt.backup) {
        (Ok(_), _) => Some(Lba(1)),
        // A table of another kind.
        (Err(GptError::Unsupported { .. }), _) => return None,
        (Err(_), Ok(_)) => Some(gpt.backup_at()),
        (Err(p), Err(b)) => {
            let is_lost = |e: &GptError| !matches!(e, GptError::Unreadable(_) | GptError::Unsupported { .. });
            (is_lost(p) && is_lost(b) && gpt.for_other_sectors().is_none()).then_some(())?;
            None
        }
    };
    match at {
        None => Some(unsigned(disk)),
        Some(at) => raw_table(disk, at).filter(|raw| raw.may_hold_ours()).map(Some),
    }
}

// A copy without its signature that is of what lies on this disk. Others may be of an earlier life of the disk.
fn unsigned(disk: &dyn BlockIo) -> Option<RawTable> {
    let last = table_bytes(disk) / disk.sector_size().bytes() - 1;
    let tables = [Lba(1), Lba(last)].into_iter().filter_map(|at| unsigned_table(disk, at));
    tables.filter(RawTable::may_hold_ours).find(|raw| is_of_this_system(disk, raw))
}

// Whether a table has all of our partitions where they lie, and is of the same disk as they.
fn is_of_this_system(disk: &dyn BlockIo, raw: &RawTable) -> bool {
    let (entries, sector, bytes) = (raw.entries(), disk.sector_size(), table_bytes(disk));
    let is_here = |part: Part| place(&entries, part, sector).is_some_and(|(place, _)| place.end() <= bytes);
    let ours = our_entries(&entries, hints(disk, &entries, Some(raw)), bytes, sector);
    let Some(ours) = ours.filter(|ours| Part::ALL.into_iter().all(is_here) && is_there(disk, ours)) else {
        return false;
    };
    // Without a slot that says the GUID, the serial number of the ESP has to agree: its PARTUUID begins with that.
    let esp = Part::Esp.index();
    let has_serial = || {
        let volume = FatVolume::open(disk, ours.parts[esp]);
        volume.is_ok_and(|volume| ours.guids[esp].is_some_and(|guid| guid.as_fields().0 == volume.serial()))
    };
    disk_guid(disk, &ours).map_or_else(has_serial, |guid| guid == raw.disk_guid())
}

fn misplaced(gpt: &Gpt, copies: &Copies, chosen: &Chosen) -> Misplaced {
    let which = if copies.second.is_some() { "its first copy" } else { "it" };
    let impossible = || {
        let parts = Part::ALL.map(|part| Some(place(copies.first, part, copies.sector)?.0));
        let parts: Vec<Extent> = parts.into_iter().flatten().collect();
        wrong_places(parts.as_slice().try_into().ok()?, copies.sector)
    };
    let why = chosen.misplaced.first().filter(|_| gpt.primary.is_ok()).and_then(|_| impossible());
    let says = |part: &Part| match &why {
        Some(why) => (*part, format!("{which} is wrong: {why}")),
        None => (*part, format!("{which} is wrong: partition {} ({part}) lies elsewhere", part.number())),
    };
    chosen.misplaced.iter().map(says).collect()
}

fn both_lost(gpt: &Gpt) -> Option<String> {
    let (primary, backup) = (gpt.primary.as_ref().err()?, gpt.backup.as_ref().err()?);
    Some(format!("both copies of it are lost: primary: {primary}; backup: {backup}"))
}

fn chosen_faults(chosen: &Chosen, misplaced: &Misplaced) -> impl Iterator<Item = String> {
    let (mut places, missing, changed) = (misplaced.clone(), chosen.missing.clone(), chosen.changed.clone());
    places.dedup_by(|(_, one), (_, other)| one == other);
    let missing = missing.into_iter().map(|part| format!("its first copy lacks partition {} ({part})", part.number()));
    let changed = changed.into_iter().map(|part| {
        format!("its first copy gives partition {} ({part}) another PARTUUID or other attributes", part.number())
    });
    places.into_iter().map(|(_, why)| why).chain(missing).chain(changed)
}

// A second copy that contradicts the first one may be the one that is right.
fn lost_copies(gpt: &Gpt, backup_is_right: bool) -> impl Iterator<Item = String> {
    let backup = gpt.backup.as_ref().err().filter(|why| !(matches!(why, GptError::OtherTable) && backup_is_right));
    let copies = [("first", gpt.primary.as_ref().err()), ("second", backup)];
    copies.into_iter().filter_map(|(which, why)| Some(format!("its {which} copy is damaged: {}", why?)))
}

// A disk that became larger has its backup elsewhere, and only `grow` moves that.
fn is_at_end(disk: &dyn BlockIo, table: &GrownGpt) -> bool {
    let mut header = vec![0; table.gpt.backup_header.len()];
    disk.read_back(table.gpt.backup_header_offset, &mut header).is_ok_and(|()| header == table.gpt.backup_header)
}

// The volume of a slot fills it. `basis`: the copy of the table that counts.
fn hints(disk: &dyn BlockIo, entries: &[Entry], basis: Option<&RawTable>) -> Hints {
    let first = BIOS_OFFSET + BIOS_BYTES;
    let slot = FatVolume::open(disk, Extent { offset: first, len: disk.size().saturating_sub(first) }).ok();
    let slot = slot.map(|volume| volume.bytes());
    // Without any entry nothing else says where the second one is.
    let slot = slot.or_else(|| entries.is_empty().then(|| size_by_the_second_slot(disk, first)).flatten());
    let hints = Hints { slot, copy: basis.map(|raw| raw.copy_bytes(disk.sector_size())), ephemeral: None };
    let sized = our_entries(entries, hints, table_bytes(disk), disk.sector_size());
    let ephemeral = sized.and_then(|ours| {
        let place = ours.parts[Part::Ephemeral.index()];
        let head = head(disk, place)?;
        let has_entry = ours.numbers.contains(&Part::Ephemeral.number());
        let by_itself = XfsSize::from_superblock(&head).and_then(|size| size.bytes());
        if has_entry { by_itself } else { without_entry(disk, place, &head, by_itself, basis) }
    });
    Hints { ephemeral, ..hints }
}

// Bytes of EPHEMERAL without an entry, if it begins here: by what is in it, or by the table. None: all of `place`, which is more
// than it had where the disk became larger. What keeps its description at its end is found at no other end.
fn without_entry(
    disk: &dyn BlockIo,
    place: Extent,
    head: &[u8],
    by_itself: Option<u64>,
    basis: Option<&RawTable>,
) -> Option<u64> {
    let by_table = basis.and_then(|raw| {
        let end = Lba(raw.last_usable().0.checked_add(1)?).offset(disk.sector_size())?;
        round_down(end, MIB).checked_sub(place.offset).filter(|len| (1..=place.len).contains(len))
    });
    let ends_there = |len: &u64| matches!(at_end(disk, Extent { len: *len, ..place }), Ok(Some(_)));
    // What is in it fills it, but for the rest of the last MiB; in a DRBD device it does not.
    let told = by_table.filter(ends_there).or(by_itself).or_else(|| {
        let bytes = volume_bytes(head)?;
        let whole = bytes.checked_next_multiple_of(MIB)?;
        Some([whole, whole + MIB].into_iter().find(ends_there).unwrap_or(bytes))
    });
    if told.is_some() || are_zeros(head) {
        return told;
    }
    if recognise(head).is_some() || place.len > MOST_SEARCHED_BYTES {
        return by_table;
    }
    // Programs for tables give it the room of the whole disk. The last end is its own: others are of disk images in it.
    (1..=place.len / MIB).rev().map(|mib| mib * MIB).find(ends_there).or(by_table)
}

// Slots and volumes that are larger are not searched for: that takes reads for each MiB.
const MOST_SEARCHED_BYTES: u64 = 8 << 30;

// The first slot has lost its beginning. The second one begins behind it, and is as large. Only of a disk that is ours: an empty
// one has neither.
fn size_by_the_second_slot(disk: &dyn BlockIo, first: u64) -> Option<u64> {
    if !has_boot_state(disk, Extent { offset: ESP_OFFSET, len: ESP_BYTES }) {
        return None;
    }
    let most = (disk.size().saturating_sub(first) / 2).min(MOST_SEARCHED_BYTES);
    let others = (min_slot_bytes(disk.sector_size())..=most).step_by(MIB as usize);
    [DEFAULT_SLOT_BYTES].into_iter().chain(others).find(|size| {
        let Some(len) = disk.size().checked_sub(first + size) else { return false };
        FatVolume::open(disk, Extent { offset: first + size, len }).is_ok_and(|volume| volume.bytes() == *size)
    })
}

// Whether what the table is to say lies there: an ESP with our boot state, or a slot that boots; and nothing else where one of
// ours is to be.
fn is_there(disk: &dyn BlockIo, ours: &OurEntries) -> bool {
    let at = |part: Part| ours.parts[part.index()];
    let boots = |slot: Slot| slot_boots(disk, at(slot.into()), slot);
    let fits = |part: Part| {
        let Some(head) = head(disk, at(part)) else { return true };
        let found = recognise(&head).map(|magic| magic.short);
        match part {
            Part::Esp | Part::BootA | Part::BootB => match FatVolume::open(disk, at(part)) {
                Ok(volume) => volume.bytes() == at(part).len,
                Err(_) => found.is_none_or(|short| matches!(short, "FAT32" | "boot sector")),
            },
            Part::Bios => true,
            Part::Meta => found.is_none_or(|short| short == "Talos ADV"),
            Part::State | Part::Ephemeral => true,
        }
    };
    let is_known = has_boot_state(disk, at(Part::Esp)) || Slot::BOTH.into_iter().any(boots);
    is_known && Part::ALL.into_iter().all(fits)
}
