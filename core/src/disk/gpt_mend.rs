//! A GPT in which our seven entries are as an install made them: for a disk on which some of them were changed or deleted, or
//! that has lost both copies. Entries of other programs stay as they are, byte for byte.

use crate::prelude::*;

use uuid::Uuid;

use super::{
    gpt::{ENTRIES, Entry, Gpt, Header, encode_entry},
    gpt_grow::RawTable,
    layout::{
        BIOS_BYTES, BIOS_OFFSET, ESP_BYTES, ESP_OFFSET, Layout, META_BYTES, Part, STATE_BYTES, gpt_bytes, overlap,
    },
};
use crate::units::{Extent, Lba, MIB, SectorSize, round_down};

/// The facts about a disk beside its table.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hints {
    /// Bytes of a slot, by its file system.
    pub slot: Option<u64>,
    /// Bytes of EPHEMERAL, by its file system.
    pub ephemeral: Option<u64>,
    /// Bytes of a copy of the table, by that table. None: there is none, and a new one is as large as any of ours.
    pub copy: Option<u64>,
}

impl Hints {
    /// Bytes of the second copy of the table, which is to be at the end.
    pub fn copy_bytes(&self, sector: SectorSize) -> u64 {
        self.copy.unwrap_or_else(|| gpt_bytes(sector))
    }
}

/// Our entries as they shall be, and their faults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OurEntries {
    /// Where the partitions lie.
    pub parts: [Extent; 7],
    /// Their PARTUUIDs, as far as the table has them.
    pub guids: [Option<Uuid>; 7],
    /// Their attributes.
    pub attributes: [u64; 7],
    /// The numbers that they have in the table.
    pub numbers: Vec<u32>,
    /// The faults, each as a sentence.
    pub faults: Vec<String>,
    /// Not all places are in the table: they follow from the others and from what lies there, which has to be looked at.
    pub is_inferred: bool,
}

/// Our entries of the partitions: each by its number and its name, or else one with its name and type under another number. Where
/// a number and a name contradict each other, the order on the disk tells which of them was changed: a partition that only has
/// the name of another one is not moved to its number, because the boot loader goes by that.
pub(super) fn known(
    entries: &[Entry],
    hints: Hints,
    disk_bytes: u64,
    sector: SectorSize,
) -> [Option<&Entry>; Part::ALL.len()] {
    let fits = |entry: &&Entry| entry.extent(sector).is_some_and(|extent| extent.end() <= disk_bytes);
    let named = |part: Part, entry: &Entry| entry.name == part.name();
    let numbered = |part: Part, entry: &Entry| entry.number == part.number();
    let has_name_of_ours = |entry: &Entry| Part::ALL.into_iter().any(|part| named(part, entry));
    let find = |is: &dyn Fn(&Entry) -> bool| entries.iter().filter(fits).find(|entry| is(entry));
    let certain = Part::ALL.map(|part| find(&|entry| numbered(part, entry) && named(part, entry)));
    let or = |is: &dyn Fn(Part, &Entry) -> bool| {
        Part::ALL.map(|part| certain[part.index()].or_else(|| find(&|entry| is(part, entry))))
    };
    let by_name = or(&|part, entry| named(part, entry) && entry.type_guid == part.type_guid());
    let by_number = or(&|part, entry| numbered(part, entry) && has_name_of_ours(entry));
    let count = |known: &[Option<&Entry>]| known.iter().flatten().count();
    if count(&by_number) < count(&by_name) && follow_one_another(&by_name, &certain) {
        return by_name;
    }
    let room = Room { disk_bytes, copy: hints.copy_bytes(sector), renamed: None, others: vec![] };
    let has_room = |known: [Option<&Entry>; 7]| {
        places(known.map(|entry| entry.and_then(|entry| entry.extent(sector))), hints, &room).is_some()
    };
    match [&by_name, &by_number].map(|known| follow_one_another(known, &certain)) {
        [true, false] => by_name,
        [false, true] => by_number,
        [true, true] if !has_room(by_name) && has_room(by_number) => by_number,
        [true, true] => by_name,
        [false, false] => certain,
    }
}

/// Whether the entries that are not certain lie between those before them and those behind them.
fn follow_one_another(known: &[Option<&Entry>; 7], certain: &[Option<&Entry>; 7]) -> bool {
    let pairs = (0..known.len()).flat_map(|one| (one + 1..known.len()).map(move |other| (one, other)));
    pairs.filter(|(one, other)| certain[*one].is_none() || certain[*other].is_none()).all(|(one, other)| {
        let [one, other] = [known[one], known[other]];
        one.zip(other).is_none_or(|(one, other)| one.first < other.first)
    })
}

/// Our entries as they shall be, by those that are there. None if that is not certain: a place is not known, or another
/// partition has it or its number.
pub fn our_entries(entries: &[Entry], hints: Hints, disk_bytes: u64, sector: SectorSize) -> Option<OurEntries> {
    let known = known(entries, hints, disk_bytes, sector);
    let is_used = |entry: &Entry| known.iter().flatten().any(|known| known.number == entry.number);
    let others: Vec<(&Entry, Extent)> = entries
        .iter()
        .filter(|entry| !is_used(entry))
        .filter_map(|entry| Some((entry, entry.extent(sector)?)))
        .collect();
    let last = |entry: &Entry| entry.number == Part::Ephemeral.number();
    let renamed = others.iter().find(|(entry, _)| last(entry)).map(|(_, extent)| *extent);
    let others_at = others.iter().filter(|(entry, _)| !last(entry)).map(|(_, extent)| *extent).collect();
    let room = Room { disk_bytes, copy: hints.copy_bytes(sector), renamed, others: others_at };
    let parts = places(known.map(|entry| entry.and_then(|entry| entry.extent(sector))), hints, &room)?;
    if overlap(&parts).is_some() {
        return None;
    }
    let (mut guids, mut faults, mut is_inferred) = ([None; 7], vec![], false);
    let (mut attributes, mut numbers) = ([0; 7], Vec::new());
    for part in Part::ALL {
        let at = part.index();
        // Under its number, and renamed.
        let renamed = || others.iter().find(|(entry, extent)| entry.number == part.number() && *extent == parts[at]);
        let entry = known[at].or_else(|| renamed().map(|(entry, _)| *entry));
        is_inferred |= known[at].is_none_or(|entry| entry.number == part.number() && entry.name != part.name());
        // One that lies nowhere keeps its PARTUUID.
        let nowhere = || entries.iter().find(|entry| entry.number == part.number() && entry.name == part.name());
        guids[at] = entry.or_else(nowhere).map(|entry| entry.guid);
        let found = entry.map_or(0, |entry| entry.attributes);
        attributes[at] = (part.attributes() | found) & !part.forbidden_attributes();
        numbers.extend(entry.map(|entry| entry.number));
        faults.extend(fault(part, entry));
    }
    // No byte of a foreign partition is written over.
    let is_free = |extent: &Extent| parts.iter().all(|part| extent.end() <= part.offset || part.end() <= extent.offset);
    let rest = || others.iter().filter(|(entry, _)| !numbers.contains(&entry.number));
    let certain =
        !is_inferred || rest().all(|(entry, extent)| entry.number > Part::ALL.len() as u32 && is_free(extent));
    certain.then_some(OurEntries { parts, guids, attributes, numbers, faults, is_inferred })
}

fn fault(part: Part, entry: Option<&Entry>) -> Option<String> {
    let (number, name) = (part.number(), part.name());
    let Some(entry) = entry else { return Some(format!("partition {number} ({name}) is missing from the table")) };
    if entry.number != number {
        return Some(format!("{name} is partition {} in the table, and it has to be {number}", entry.number));
    }
    if entry.name != name {
        return Some(format!("partition {number} is called {:?} in the table, and not {name}", entry.name));
    }
    wrong_kind(part, entry)
}

/// The fault in the type or the attributes of an entry, for which firmware does not find what is there.
pub fn wrong_kind(part: Part, entry: &Entry) -> Option<String> {
    wrong_type(part, entry).or_else(|| wrong_attributes(part, entry.attributes))
}

fn wrong_attributes(part: Part, has: u64) -> Option<String> {
    let (number, name) = (part.number(), part.name());
    if has & part.forbidden_attributes() != 0 {
        return Some(format!(
            "partition {number} ({name}) has attribute bit 1 in the table, so that UEFI reads no files there"
        ));
    }
    (part.attributes() & !has != 0).then(|| {
        format!("partition {number} ({name}) lacks attribute bit 2 in the table, by which some BIOSes tell a disk that boots")
    })
}

/// A partition of ours that lies outside of the blocks that a table calls usable, as a sentence.
pub fn outside(usable: [Lba; 2], parts: &[Extent; 7], sector: SectorSize) -> Option<String> {
    let [first, last] = usable;
    let is_outside = |part: &Part| {
        let place = parts[part.index()];
        place.first_lba(sector) < first || place.last_lba(sector) > last
    };
    let part = Part::ALL.into_iter().find(is_outside)?;
    Some(format!(
        "partition {} ({part}) lies outside of the blocks that the table calls usable, so that UEFI takes it for none",
        part.number()
    ))
}

/// Firmware finds the ESP by its type, and GRUB its core image.
fn wrong_type(part: Part, entry: &Entry) -> Option<String> {
    let (number, name) = (part.number(), part.name());
    (entry.type_guid != part.type_guid()).then(|| {
        let named = |guid| super::partition_type::gpt_type(guid).map_or_else(|| guid.to_string(), str::to_owned);
        let [has, wants] = [entry.type_guid, part.type_guid()].map(named);
        let why = if part == Part::Esp { ", so that firmware looks for no boot loader there" } else { "" };
        format!("partition {number} ({name}) has the wrong type in the table: {has}, and not {wants}{why}")
    })
}

pub(super) struct Room {
    pub disk_bytes: u64,
    /// Bytes of the second copy of the table, at the end.
    pub copy: u64,
    /// The entry with the number of EPHEMERAL, and another name.
    pub renamed: Option<Extent>,
    pub others: Vec<Extent>,
}

/// Where our partitions lie: they follow one another, and all but the slots and the last one have a size of their own.
pub(super) fn places(known: [Option<Extent>; 7], hints: Hints, room: &Room) -> Option<[Extent; 7]> {
    let of = |part: Part| known[part.index()];
    let first_slot = BIOS_OFFSET + BIOS_BYTES;
    let by_meta = || Some(of(Part::Meta)?.offset.checked_sub(first_slot)? / 2);
    let by_b = || of(Part::BootB)?.offset.checked_sub(first_slot);
    let slots = [Part::BootA, Part::BootB].into_iter().find_map(of).map(|extent| extent.len);
    let slot = slots.or_else(by_meta).or_else(by_b).or(hints.slot);
    let mut parts = [Extent { offset: 0, len: 0 }; 7];
    let mut end = ESP_OFFSET;
    for part in Part::ALL {
        let len = match part {
            Part::Esp => Some(ESP_BYTES),
            Part::Bios => Some(BIOS_BYTES),
            Part::BootA | Part::BootB => slot,
            Part::Meta => Some(META_BYTES),
            Part::State => Some(STATE_BYTES),
            Part::Ephemeral => room.ephemeral(end, hints.ephemeral),
        };
        let place = of(part).or_else(|| Some(Extent { offset: end, len: len? }))?;
        parts[part.index()] = place;
        end = place.end();
    }
    // Who moved them all knows why.
    let is_told = known.iter().all(Option::is_some);
    let follow = is_told || parts.windows(2).all(|pair| pair[0].end() <= pair[1].offset);
    (follow && end <= room.disk_bytes && parts.iter().all(|part| part.len > 0)).then_some(parts)
}

impl Room {
    /// Bytes of EPHEMERAL if it begins here: as many as its file system has, or else all up to what follows.
    pub(super) fn ephemeral(&self, begin: u64, by_file_system: Option<u64>) -> Option<u64> {
        if let Some(renamed) = self.renamed.filter(|renamed| renamed.offset == begin) {
            return Some(renamed.len);
        }
        let end = self.end(begin)?;
        let all = round_down(end, MIB).checked_sub(begin)?;
        Some(by_file_system.and_then(|bytes| with_rest(bytes, end - begin)).unwrap_or(all))
    }

    /// The end of the room for a partition that begins here.
    pub(super) fn end(&self, begin: u64) -> Option<u64> {
        let behind = self.others.iter().filter(|other| other.offset >= begin).map(|other| other.offset);
        Some(behind.min().unwrap_or(u64::MAX).min(self.disk_bytes.checked_sub(self.copy)?))
    }
}

/// The end of EPHEMERAL by the end of its file system: with the rest of that MiB, or where there is no room for it, without: other
/// programs let a partition end with the last sector that it can have. None: the file system has no room.
pub fn with_rest(end: u64, room: u64) -> Option<u64> {
    [end.checked_next_multiple_of(MIB)?, end].into_iter().find(|end| *end <= room)
}

impl RawTable {
    /// A table without entries for a disk with so many bytes.
    pub fn empty(disk_guid: Uuid, disk_bytes: u64, sector: SectorSize) -> Option<Self> {
        let layout = Layout::new(disk_bytes, sector, super::layout::min_slot_bytes(sector), 0).ok()?;
        let Gpt { primary_header, .. } = Gpt::new(&layout, disk_guid, &[Uuid::nil(); 7]);
        let header = Header::decode(&primary_header, Lba(1)).ok()?;
        Some(Self::from_header(header, vec![0; ENTRIES as usize * super::gpt::ENTRY_BYTES]))
    }

    /// The same table with our entries under their numbers, and none of them elsewhere.
    pub fn with_ours(&self, ours: &OurEntries, guids: &[Uuid; 7], disk_bytes: u64, sector: SectorSize) -> Option<Self> {
        let mut table = self.changed(disk_bytes, sector, |rows| {
            for (number, row) in (1..).zip(rows.iter_mut()) {
                if ours.numbers.contains(&number) {
                    row.fill(0);
                }
            }
            for (part, row) in Part::ALL.into_iter().zip(rows) {
                let at = part.index();
                encode_entry(row, part, guids[at], ours.parts[at], sector);
                row[48..56].copy_from_slice(&ours.attributes[at].to_le_bytes());
            }
        })?;
        if outside(table.usable(), &ours.parts, sector).is_some() {
            table.use_all(sector);
        }
        Some(table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::layout::MIN_EPHEMERAL_IMAGE;

    const DISK: u64 = 600 * MIB;
    const SECTOR: SectorSize = SectorSize::S512;

    fn table() -> (Layout, RawTable) {
        let layout = Layout::new(DISK, SECTOR, 36 * MIB, MIN_EPHEMERAL_IMAGE).unwrap();
        let guids = Part::ALL.map(|part| Uuid::from_u128(0x100 + u128::from(part.number())));
        let gpt = Gpt::new(&layout, Uuid::from_u128(7), &guids);
        (layout, RawTable::new(Header::decode(&gpt.primary_header, Lba(1)).unwrap(), gpt.entries).unwrap())
    }

    fn bytes(table: &RawTable) -> [Vec<u8>; 3] {
        let Gpt { primary_header, entries, backup_header, .. } = table.render(DISK, SECTOR).unwrap().gpt;
        [primary_header, entries, backup_header]
    }

    fn found(entries: &[Entry], hints: Hints) -> Option<OurEntries> {
        our_entries(entries, hints, DISK, SECTOR)
    }

    #[test]
    fn a_whole_table_has_no_fault_and_stays_what_it_is() {
        let (layout, raw) = table();
        let ours = found(&raw.entries(), Hints::default()).unwrap();
        assert_eq!((&ours.faults, ours.is_inferred), (&vec![], false));
        assert_eq!(ours.parts, Part::ALL.map(|part| layout.part(part)));
        assert_eq!(bytes(&raw.with_ours(&ours, &ours.guids.map(Option::unwrap), DISK, SECTOR).unwrap()), bytes(&raw));
    }

    /// Whatever single entry is changed or deleted, the table is the same again; only a PARTUUID can be lost.
    #[test]
    fn any_entry_comes_back() {
        type Damage = fn(&mut Vec<Entry>, usize);
        let damages: [(&str, Damage); 4] = [
            ("deleted", |entries, n| drop(entries.remove(n))),
            ("type", |entries, n| entries[n].type_guid = Uuid::from_u128(1)),
            ("name", |entries, n| entries[n].name = "other".to_owned()),
            ("number", |entries, n| entries[n].number = 9),
        ];
        let (layout, raw) = table();
        let parts = Part::ALL.map(|part| layout.part(part));
        for (what, damage) in damages {
            for (n, part) in Part::ALL.into_iter().enumerate() {
                let mut entries = raw.entries();
                damage(&mut entries, n);
                let ours = found(&entries, Hints::default()).unwrap_or_else(|| panic!("{what} {part}"));
                assert_eq!((ours.parts, ours.faults.len()), (parts, 1), "{what} {part}");
                assert!(ours.faults[0].contains(part.name()), "{:?}", ours.faults);
                assert_eq!(ours.guids[n].is_none(), what == "deleted");
            }
        }
    }

    /// Firmware does not read what it hides. Other bits may mean something to someone.
    #[test]
    fn attributes_that_firmware_minds_are_as_an_install_made_them() {
        let (_, raw) = table();
        for part in Part::ALL {
            let mut entries = raw.entries();
            entries[part.index()].attributes = 1 << 1 | 1 << 60;
            let ours = found(&entries, Hints::default()).unwrap();
            let hides = matches!(part, Part::Esp | Part::BootA | Part::BootB);
            assert_eq!(ours.faults.len(), usize::from(hides || part == Part::Bios), "{part}: {:?}", ours.faults);
            let kept = if hides { 0 } else { 1 << 1 };
            assert_eq!(ours.attributes[part.index()], part.attributes() | kept | 1 << 60, "{part}");
        }
    }

    /// UEFI takes no partition outside of them.
    #[test]
    fn the_usable_blocks_have_all_of_ours_again() {
        let (layout, raw) = table();
        let parts = Part::ALL.map(|part| layout.part(part));
        let ours = found(&raw.entries(), Hints::default()).unwrap();
        let whole = raw.usable();
        assert_eq!(outside(whole, &parts, SECTOR), None);
        for (n, lba, part) in [(0, 2049, "1 (EFI)"), (1, 1 << 20, "7 (EPHEMERAL)"), (1, 4096, "1 (EFI)")] {
            let mut usable = whole;
            usable[n] = Lba(lba);
            let fault = outside(usable, &parts, SECTOR).unwrap();
            assert!(fault.starts_with(&format!("partition {part}")), "{fault}");
            let wrong = raw.clone().with_usable(usable);
            let mended = wrong.with_ours(&ours, &ours.guids.map(Option::unwrap), DISK, SECTOR).unwrap();
            assert_eq!(mended.usable(), whole);
        }
        // What others chose stays, as long as there is room for ours.
        let aligned = raw.clone().with_usable([Lba(2048), whole[1]]);
        let kept = aligned.with_ours(&ours, &ours.guids.map(Option::unwrap), DISK, SECTOR).unwrap();
        assert_eq!(kept.usable(), aligned.usable());
    }

    /// A foreign partition has the number or the place of one of ours.
    #[test]
    fn what_others_have_is_not_taken() {
        let (_, raw) = table();
        let mut entries = raw.entries();
        entries[5] =
            Entry { name: "theirs".to_owned(), first: Lba(1 << 20), last: Lba((1 << 20) + 7), ..entries[5].clone() };
        assert_eq!(found(&entries, Hints::default()), None, "its number");
        let mut entries = raw.entries();
        entries[5] =
            Entry { name: "theirs".to_owned(), number: 9, last: Lba(entries[5].last.0 - 8), ..entries[5].clone() };
        assert_eq!(found(&entries, Hints::default()), None, "its place");
    }

    /// Without any entry the size of a slot has to be known.
    #[test]
    fn a_table_is_made_from_what_lies_on_the_disk() {
        let (layout, raw) = table();
        assert_eq!(found(&[], Hints::default()), None);
        let ours = found(&[], Hints { slot: Some(36 * MIB), ..Hints::default() }).unwrap();
        assert_eq!((ours.parts, ours.is_inferred), (Part::ALL.map(|part| layout.part(part)), true));
        let guids = Part::ALL.map(|part| Uuid::from_u128(0x100 + u128::from(part.number())));
        let made = RawTable::empty(Uuid::from_u128(7), DISK, SECTOR).unwrap();
        assert_eq!(bytes(&made.with_ours(&ours, &guids, DISK, SECTOR).unwrap()), bytes(&raw));
        // It ends where the second copy of this table may begin.
        let larger = DISK + 24 * 512;
        for (copy, end) in [(Some(17 * 512), DISK), (None, DISK - MIB)] {
            let hints = Hints { copy, ..Hints::default() };
            let ours = our_entries(&raw.entries()[..6], hints, larger, SECTOR).unwrap();
            assert_eq!(ours.parts[6].end(), end, "{copy:?}");
        }
        let ours = found(&[], Hints { slot: Some(36 * MIB), ephemeral: Some(64 * MIB - 4096), copy: None }).unwrap();
        assert_eq!(ours.parts[6].len, 64 * MIB);
        // It may end with the last sector. What is larger is not there.
        let begin = layout.part(Part::Ephemeral).offset;
        let most = (DISK - gpt_bytes(SECTOR) - begin) / 4096 * 4096;
        for (ephemeral, len) in [(most, most), (most + 4096, 124 * MIB), (124 * MIB + 1024, 124 * MIB + 1024)] {
            let ours = found(&[], Hints { slot: Some(36 * MIB), ephemeral: Some(ephemeral), copy: None }).unwrap();
            assert_eq!(ours.parts[6].len, len);
        }
    }
}
