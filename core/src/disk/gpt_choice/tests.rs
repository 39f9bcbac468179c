use core::cell::Cell;

use proptest::prelude::*;

use super::*;
use crate::{
    disk::{
        gpt::{Gpt, Header},
        gpt_mend::our_entries,
        layout::{Layout, MIN_EPHEMERAL_IMAGE},
    },
    units::{Lba, MIB},
};

const DISK: u64 = 600 * MIB;
const SLOT: u64 = 36 * MIB;
const SECTOR: SectorSize = SectorSize::S512;

/// A disk as an installation or an upgrade left it.
struct Disk {
    layout: Layout,
    entries: Vec<Entry>,
    /// Slot B, STATE and EPHEMERAL hold something; else they are blank.
    filled: [bool; 3],
    /// Nothing can be read.
    dead: Cell<bool>,
}

fn disk(filled: [bool; 3]) -> Disk {
    let layout = Layout::new(DISK, SECTOR, SLOT, MIN_EPHEMERAL_IMAGE).unwrap();
    let guids = Part::ALL.map(|part| Uuid::from_u128((0x100 + u128::from(part.number())) << 96 | 7));
    let gpt = Gpt::new(&layout, Uuid::from_u128(7), &guids);
    let entries = Header::decode(&gpt.primary_header, Lba(1)).unwrap().decode_entries(&gpt.entries).unwrap();
    Disk { layout, entries, filled, dead: Cell::new(false) }
}

impl Disk {
    fn is_filled(&self, part: Part) -> bool {
        match part {
            Part::BootB => self.filled[0],
            Part::State => self.filled[1],
            Part::Ephemeral => self.filled[2],
            _ => true,
        }
    }

    fn guid(&self, part: Part) -> Uuid {
        self.entries[part.index()].guid
    }

    fn parts(&self) -> [Extent; 7] {
        Part::ALL.map(|part| self.layout.part(part))
    }

    fn chosen(&self, first: &[Entry], second: Option<&[Entry]>) -> Option<Chosen> {
        let hints = Hints { slot: Some(SLOT), ..Hints::default() };
        choose(&Copies { first, second, hints, disk_bytes: DISK, sector: SECTOR }, self)
    }

    /// What a repair writes, from the entries that count: the places and the PARTUUIDs. None if it refuses.
    fn mended(&self, first: &[Entry], second: Option<&[Entry]>) -> Option<([Extent; 7], [Option<Uuid>; 7])> {
        let chosen = self.chosen(first, second)?;
        let ours = our_entries(&chosen.entries, Hints { slot: Some(SLOT), ..Hints::default() }, DISK, SECTOR)?;
        Some((ours.parts, ours.guids))
    }

    /// The table that a repair writes.
    fn written(&self, first: &[Entry], second: &[Entry]) -> Option<Vec<Entry>> {
        let (parts, guids) = self.mended(first, Some(second))?;
        let entry = |part: Part| Entry {
            number: part.number(),
            type_guid: part.type_guid(),
            guid: guids[part.index()].unwrap_or(Uuid::max()),
            first: parts[part.index()].first_lba(SECTOR),
            last: parts[part.index()].last_lba(SECTOR),
            attributes: part.attributes(),
            name: part.name().to_owned(),
        };
        Some(Part::ALL.map(entry).to_vec())
    }
}

impl Content for Disk {
    fn begins(&self, part: Part, place: Extent) -> Begins {
        let is = self.layout.part(part);
        if self.dead.get() {
            return Begins::Unreadable;
        }
        // The file systems of the slots look alike.
        let begins = match part {
            Part::BootA | Part::BootB => [Part::BootA, Part::BootB]
                .iter()
                .any(|s| self.is_filled(*s) && self.layout.part(*s).offset == place.offset),
            _ => self.is_filled(part) && is.offset == place.offset,
        };
        match begins {
            true if place.len < is.len => Begins::Other,
            true => Begins::Ours,
            false => Begins::Nothing,
        }
    }

    fn is_whole(&self, part: Part, place: Extent) -> bool {
        !matches!(part, Part::State | Part::Ephemeral) || place.len == self.layout.part(part).len
    }

    fn says(&self, part: Part, place: Extent, guid: Uuid) -> bool {
        let says = !matches!(part, Part::Bios | Part::Meta) && self.is_filled(part);
        says && place.offset == self.layout.part(part).offset && guid == self.guid(part)
    }

    fn volume(&self, begin: u64) -> Option<u64> {
        let data = [Part::State, Part::Ephemeral].into_iter().filter(|part| self.is_filled(*part));
        let mut found = data.map(|part| self.layout.part(part)).filter(|place| place.offset == begin);
        found.next().map(|place| place.len)
    }
}

/// A change of one entry.
#[derive(Clone, Debug)]
enum Change {
    Deleted,
    Name,
    Type,
    Attributes,
    Number,
    Guid(u8),
    NoGuid,
    GuidOf(usize),
    Places(i64, i64),
}

fn change() -> impl Strategy<Value = Change> {
    let blocks = || prop_oneof![Just(0_i64), -9_i64..9, (-40_i64..40).prop_map(|mib| mib * 2048)];
    prop_oneof![
        Just(Change::Deleted),
        Just(Change::Name),
        Just(Change::Type),
        Just(Change::Attributes),
        Just(Change::Number),
        (0_u8..128).prop_map(Change::Guid),
        Just(Change::NoGuid),
        (0_usize..7).prop_map(Change::GuidOf),
        (blocks(), blocks()).prop_map(|(first, last)| Change::Places(first, last)),
    ]
}

fn damaged(entries: &[Entry], changes: &[(usize, Change)]) -> Vec<Entry> {
    let mut all: Vec<Option<Entry>> = entries.iter().cloned().map(Some).collect();
    for (n, change) in changes {
        let other = |n: usize| entries[n].guid;
        let Some(entry) = &mut all[*n] else { continue };
        match change {
            Change::Deleted => all[*n] = None,
            Change::Name => entry.name = "other".to_owned(),
            Change::Type => entry.type_guid = Uuid::from_u128(1),
            Change::Attributes => entry.attributes ^= 1 << 60,
            Change::Number => entry.number = 20 + *n as u32,
            Change::Guid(bit) => entry.guid = Uuid::from_u128(entry.guid.as_u128() ^ 1 << bit),
            Change::NoGuid => entry.guid = Uuid::nil(),
            Change::GuidOf(n) => entry.guid = other(*n),
            Change::Places(first, last) => {
                entry.first.0 = entry.first.0.saturating_add_signed(*first);
                entry.last.0 = entry.last.0.saturating_add_signed(*last);
            }
        }
    }
    all.into_iter().flatten().collect()
}

/// Whether the copies say the same wrong place of a partition that may be blank: people do that.
fn is_wish(disk: &Disk, first: &[Entry], second: &[Entry], part: Part) -> bool {
    let place = |entries: &[Entry]| {
        entries.iter().find(|entry| entry.name == part.name() || entry.number == part.number())?.extent(SECTOR)
    };
    let is_wrong = place(first).is_some_and(|place| place != disk.layout.part(part));
    is_wrong && place(first) == place(second)
}

fn check(disk: &Disk, first: &[Entry], second: &[Entry], changes: &[(usize, Change)]) -> Result<(), TestCaseError> {
    // It is refused, with a sentence.
    let Some((parts, guids)) = disk.mended(first, Some(second)) else { return Ok(()) };
    if !Part::ALL.into_iter().any(|part| is_wish(disk, first, second, part)) {
        prop_assert_eq!(parts, disk.parts());
    }
    for part in Part::ALL {
        let guid_at = |entries: &[Entry]| {
            let entry = entries.iter().find(|entry| entry.number == part.number() || entry.name == part.name());
            entry.is_some_and(|entry| entry.guid == disk.guid(part))
        };
        let is_changed = changes.iter().any(|(n, change)| {
            *n == part.index() && matches!(change, Change::Guid(_) | Change::NoGuid | Change::GuidOf(_))
        });
        // Nothing on the disk says those of BIOS, META and of what is blank.
        let is_said = disk.says(part, disk.layout.part(part), disk.guid(part));
        if guid_at(first) && !is_changed || (is_said && (guid_at(first) || guid_at(second))) {
            prop_assert_eq!(guids[part.index()], Some(disk.guid(part)), "{}", part);
        }
    }
    // A cut while the second copy, or the first one, is written.
    let written = disk.written(first, second).unwrap();
    for (first, second) in [(&written[..], second), (first, &written[..])] {
        prop_assert_eq!(disk.written(first, second), Some(written.clone()));
    }
    prop_assert_eq!(disk.mended(&written, None).map(|mended| mended.0), Some(parts));
    Ok(())
}

fn any_disk() -> impl Strategy<Value = Disk> {
    any::<[bool; 3]>().prop_map(disk)
}

impl core::fmt::Debug for Disk {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "filled: {:?}", self.filled)
    }
}

proptest! {
    /// Whatever one entry of one copy says, it is undone.
    #[test]
    fn one_wrong_entry_is_undone(disk in any_disk(), in_first in any::<bool>(), n in 0_usize..7, change in change()) {
        let changes = [(n, change)];
        let wrong = damaged(&disk.entries, &changes);
        let (first, second) = if in_first { (&wrong, &disk.entries) } else { (&disk.entries, &wrong) };
        let is_lost = matches!(changes[0].1, Change::Guid(_)) && in_first;
        let (parts, guids) = disk.mended(first, Some(second)).expect("it is not refused");
        prop_assert_eq!(parts, disk.parts());
        for part in Part::ALL {
            // The first copy is in force, where nothing else says it.
            let says = disk.says(part, disk.layout.part(part), disk.guid(part));
            if says || !is_lost {
                prop_assert_eq!(guids[part.index()], Some(disk.guid(part)), "{}", part);
            }
        }
        check(&disk, first, second, &changes)?;
    }

    /// And so are two, in one copy, in both, or in one entry; or it is refused.
    #[test]
    fn two_wrong_entries_are_undone_or_refused(
        disk in any_disk(),
        in_first in any::<[bool; 2]>(),
        n in [0_usize..7, 0_usize..7],
        changes in [change(), change()],
    ) {
        // Whose PARTUUID it is that two have, is not certain where one of the two is gone.
        if changes.iter().any(|change| matches!(change, Change::GuidOf(_))) {
            return Ok(());
        }
        let all: Vec<(usize, Change)> = n.into_iter().zip(changes).collect();
        let of = |first: bool| all.iter().zip(in_first).filter(move |(_, is)| *is == first).map(|(one, _)| one.clone());
        let first = damaged(&disk.entries, &of(true).collect::<Vec<_>>());
        let second = damaged(&disk.entries, &of(false).collect::<Vec<_>>());
        check(&disk, &first, &second, &all)?;
    }

    /// What cannot be read decides nothing.
    #[test]
    fn nothing_is_chosen_by_what_cannot_be_read(n in 0_usize..7, blocks in 1_i64..9) {
        let disk = disk([true; 3]);
        let first = damaged(&disk.entries, &[(n, Change::Places(blocks, 0))]);
        disk.dead.set(true);
        prop_assert_eq!(disk.chosen(&first, Some(&disk.entries)), None);
        prop_assert_eq!(disk.chosen(&disk.entries, None).map(|chosen| chosen.entries), Some(disk.entries.clone()));
    }
}

/// By both copies a partition lies where nothing of it lies.
#[test]
fn what_lies_on_the_disk_counts_more_than_both_copies() {
    let disk = disk([true; 3]);
    for part in [Part::Esp, Part::Bios, Part::BootA, Part::BootB] {
        let moved = (part.index(), Change::Places(8, 0));
        for more in [vec![], vec![(4, Change::Deleted)]] {
            let entries = damaged(&disk.entries, &[&[moved.clone()][..], &more].concat());
            let chosen = disk.chosen(&entries, None).unwrap();
            assert_eq!(chosen.misplaced, [part]);
            assert_eq!(disk.mended(&entries, None).unwrap().0, disk.parts(), "{part}");
        }
    }
}

/// The entry of a volume is changed in both copies, and its whole file system says where it lies. Without that it is as people
/// wanted it.
#[test]
fn a_volume_lies_where_its_file_system_says() {
    let wrong = [
        (5, 8, 0),
        (5, 4096, 0),
        (5, 8, 8),
        (5, 0, -8),
        (6, 8, 0),
        (6, 8, 8),
        (6, 0, -2048),
        (6, 0, -8),
        (6, 4096, -8),
    ];
    for (n, first, last) in wrong {
        let part = Part::ALL[n];
        for filled in [true, false] {
            let disk = disk([true, filled, filled]);
            let entries = damaged(&disk.entries, &[(n, Change::Places(first, last))]);
            let chosen = disk.chosen(&entries, None).unwrap();
            // Blank ones do not overlap either.
            let is_mended = filled || (n, last) == (5, 8);
            assert_eq!(chosen.misplaced.contains(&part), is_mended, "{part} {first} {last} {filled}");
            if filled {
                assert_eq!(disk.mended(&entries, None).unwrap().0, disk.parts(), "{part} {first} {last}");
            } else if !is_mended {
                assert_eq!(chosen.entries, entries, "{part} {first} {last}");
            }
        }
    }
    // One that people made elsewhere, beside the old one, is theirs.
    let disk = disk([true; 3]);
    let mut entries = damaged(&disk.entries, &[(6, Change::Places(0, -4096)), (5, Change::Guid(3))]);
    (entries[5].first, entries[5].last) = (Lba(entries[6].last.0 + 1), Lba(entries[6].last.0 + 2048));
    assert!(!disk.chosen(&entries, None).unwrap().misplaced.contains(&Part::State));
    // A table for a larger disk, as `grow` leaves it, ends where it says.
    let entries = damaged(&disk.entries, &[(6, Change::Places(8, 16 * 2048 + 8))]);
    let hints = Hints { slot: Some(SLOT), ..Hints::default() };
    let copies = Copies { first: &entries, second: None, hints, disk_bytes: DISK + 40 * MIB, sector: SECTOR };
    let chosen = choose(&copies, &disk).unwrap();
    assert_eq!((chosen.entries[6].first, chosen.entries[6].last), (disk.entries[6].first, entries[6].last));
}

/// The same disk, with data that is encrypted: it does not say how large it is.
struct Encrypted(Disk);

impl Content for Encrypted {
    fn begins(&self, part: Part, place: Extent) -> Begins {
        let is_there = place.offset == self.0.layout.part(part).offset;
        match part {
            Part::State | Part::Ephemeral => {
                if is_there {
                    Begins::Ours
                } else {
                    Begins::Nothing
                }
            }
            _ => self.0.begins(part, place),
        }
    }

    fn is_whole(&self, part: Part, place: Extent) -> bool {
        !matches!(part, Part::State | Part::Ephemeral) && self.0.is_whole(part, place)
    }

    fn says(&self, part: Part, place: Extent, guid: Uuid) -> bool {
        !matches!(part, Part::State | Part::Ephemeral) && self.0.says(part, place, guid)
    }

    fn volume(&self, _: u64) -> Option<u64> {
        None
    }
}

#[test]
fn an_encrypted_volume_lies_where_it_begins() {
    let disk = Encrypted(disk([true; 3]));
    let hints = Hints { slot: Some(SLOT), ..Hints::default() };
    let chosen = |entries: &[Entry]| {
        choose(&Copies { first: entries, second: None, hints, disk_bytes: DISK, sector: SECTOR }, &disk).unwrap()
    };
    for (n, first, last) in [(5, 8, 0), (5, 4096, 0), (5, -8, 0), (5, 0, 8), (6, 8, 0), (6, 4096, 0), (6, -8, 0)] {
        let wrong = damaged(&disk.0.entries, &[(n, Change::Places(first, last))]);
        assert_eq!(chosen(&wrong).entries, disk.0.entries, "{n} {first} {last}");
    }
    // Where it ends is not known.
    let shorter = damaged(&disk.0.entries, &[(6, Change::Places(0, -4096))]);
    assert_eq!(chosen(&shorter).entries, shorter);
}

/// In both copies one of ours reaches into another one.
#[test]
fn an_entry_that_reaches_into_another_one_is_cut_off() {
    for filled in [[true; 3], [false; 3], [true, false, true], [false, true, false]] {
        let disk = disk(filled);
        for n in 0..7 {
            for (first, last) in [(0, 2048), (0, 8), (-8, 0), (-2048, 0), (-8, 8), (0, 5 * 2048)] {
                // Its end is that of the disk, and before the first one is the table.
                if (n == 6 && last > 0) || (n == 0 && first < 0) {
                    continue;
                }
                let entries = damaged(&disk.entries, &[(n, Change::Places(first, last))]);
                let mended = disk.mended(&entries, None).map(|(parts, _)| parts);
                assert_eq!(mended, Some(disk.parts()), "{filled:?} {n} {first} {last}");
            }
        }
    }
}

/// The boot loader goes by the number: another name moves nothing. Entries that were exchanged as a whole are put back.
#[test]
fn a_name_of_another_one_moves_no_entry() {
    let disk = disk([true; 3]);
    let guids = Part::ALL.map(|part| Some(disk.guid(part)));
    let orders: [&[usize]; 6] = [&[2, 3], &[5, 6], &[4, 5], &[0, 1], &[2, 3, 4], &[2, 6, 3]];
    let (mut moved, mut more_wrong) = (0, 0);
    for order in orders {
        let [mut names, mut numbers] = [disk.entries.clone(), disk.entries.clone()];
        for (n, from) in order.iter().zip(order.iter().cycle().skip(1)) {
            names[*n].name = disk.entries[*from].name.clone();
            numbers[*n].number = disk.entries[*from].number;
        }
        for entries in [&names, &numbers] {
            for second in [None, Some(&disk.entries[..])] {
                assert_eq!(disk.mended(entries, second), Some((disk.parts(), guids)), "{order:?}");
            }
        }
        // Another fault beside it changes nothing about that.
        for n in 0..6 {
            let entries = damaged(&names, &[(n, Change::Places(0, 2048))]);
            let Some(mended) = disk.mended(&entries, None) else { continue };
            assert_eq!(mended, (disk.parts(), guids), "{order:?} {n}");
            moved += 1;
        }
        for more in [(4, Change::Type), (1, Change::Deleted), (3, Change::Number)] {
            let entries = damaged(&names, core::slice::from_ref(&more));
            let Some(mended) = disk.mended(&entries, None) else { continue };
            assert_eq!(mended.0, disk.parts(), "{order:?} {more:?}");
            more_wrong += 1;
        }
    }
    // It may refuse, but few of them.
    assert!(moved > 30 && more_wrong > 10, "{moved} of 36, {more_wrong} of 18");
    // One name twice.
    let mut entries = disk.entries.clone();
    entries[3].name = Part::BootA.name().to_owned();
    assert_eq!(disk.mended(&entries, None), Some((disk.parts(), guids)));
    // Slot A alone, by its name that of slot B: it lies before all that B could lie behind.
    let mut entries = damaged(&disk.entries, &[(3, Change::Deleted)]);
    entries[2].name = Part::BootB.name().to_owned();
    assert_eq!(disk.mended(&entries, None).map(|mended| mended.0), Some(disk.parts()));
}

/// Data of others keeps its place: EPHEMERAL ends before it.
#[test]
fn partitions_of_others_stay() {
    let disk = disk([true, true, false]);
    let mut entries = disk.entries.clone();
    let first = entries[6].last.0 - 4095;
    entries[6].last.0 -= 4096;
    entries.push(Entry { number: 8, name: "theirs".to_owned(), first: Lba(first), ..disk.entries[6].clone() });
    entries[7].guid = Uuid::from_u128(0x99);
    let wrong = damaged(&entries, &[(6, Change::Places(0, -8))]);
    for (one, other) in [(&wrong, &entries), (&entries, &wrong)] {
        let chosen = disk.chosen(one, Some(other)).unwrap();
        assert_eq!(chosen.entries, entries);
    }
}
