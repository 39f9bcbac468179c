//! Disks with a damaged partition table, for its repair.

use slipway_core::units::Extent;
use slipway_test_support::fixtures::DISK_BYTES;

use super::{
    pages::{Pages, SECTOR},
    world::World,
};

pub const LBA: u64 = SECTOR as u64;
pub const ARRAY: u64 = 32 * LBA;
pub const PRIMARY: Extent = Extent { offset: LBA, len: LBA + ARRAY };
pub const BACKUP: Extent = Extent { offset: DISK_BYTES - LBA - ARRAY, len: LBA + ARRAY };
/// The other place of the entries, which a change of the table uses.
pub const BESIDE: Extent = Extent { offset: PRIMARY.offset + PRIMARY.len, len: ARRAY };

// The faults of a table, and the list of those that every sweep goes through.
macro_rules! damages {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Damage {
            $($(#[$doc])* $name,)*
            /// All partitions but the last end late, in the primary alone. It is for the reads that it takes.
            AllLong,
        }

        pub const ALL: &[Damage] = &[$(Damage::$name),*];
    };
}

damages! {
    BackupLost,
    PrimaryLost,
    PrimaryHeaderLost,
    BothLost,
    /// The signatures of both headers are cleared, as `wipefs` does it.
    BothUnsigned,
    /// A partition's type, in both copies, with checksums that fit.
    WrongType,
    /// A partition's name, in the primary alone.
    WrongName,
    /// The entry of META, in both copies.
    EntryDeleted,
    /// The primary is lost, and the backup has a wrong type: the primary is written first, so a cut leaves two tables.
    PrimaryLostWrongType,
    /// The backup is that of another table.
    OtherBackup,
    /// The backup is lost, and the primary is by a program that leaves more room before the first partition.
    BackupLostOfAnother,
    /// META and STATE overlap, in the primary alone.
    Overlap,
    /// META is too short, in the primary alone.
    ShortMeta,
    /// BOOT-B ends early, in the primary alone.
    ShortSlot,
    /// BIOS lacks its attribute, in the primary alone.
    Attribute,
    /// EPHEMERAL ends early, in the primary alone.
    ShortLast,
    /// The entry of META, in the primary alone.
    EntryDeletedInOne,
    /// BOOT-A has another PARTUUID, in the primary alone.
    OtherGuid,
    /// The primary lacks META, and the backup lacks BIOS.
    EachLacksOne,
    /// BOOT-A begins late in the primary, and the ESP ends early in the backup.
    EachShort,
    /// The ESP begins late, and META is deleted, in both copies.
    EspMovedEntryDeleted,
    /// EPHEMERAL ends at the end of the disk, in both copies, and so it lies on the second one.
    OnTheCopy,
}

use Damage::*;

/// Change the entry of a partition, in the copy whose header is at `header` and whose entries are at `entries`.
fn edit_entry(pages: &mut Pages, (header, entries): (u64, u64), number: u64, edit: &dyn Fn(&mut [u8])) {
    let mut array = vec![0; ARRAY as usize];
    pages.read(entries, &mut array);
    let at = (number as usize - 1) * 128;
    edit(&mut array[at..at + 128]);
    pages.write(entries, &array);
    let mut block = [0; SECTOR];
    pages.read(header, &mut block);
    block[88..92].copy_from_slice(&crc32fast::hash(&array).to_le_bytes());
    block[16..20].fill(0);
    let crc = crc32fast::hash(&block[..92]);
    block[16..20].copy_from_slice(&crc.to_le_bytes());
    pages.write(header, &block);
}

fn more(lba: &mut [u8]) {
    let number = u64::from_le_bytes(lba.try_into().unwrap()) + 8;
    lba.copy_from_slice(&number.to_le_bytes());
}

/// The number of a block, eight less.
fn less(lba: &mut [u8]) {
    let number = u64::from_le_bytes(lba.try_into().unwrap()) - 8;
    lba.copy_from_slice(&number.to_le_bytes());
}

pub fn damaged(damage: Damage) -> Pages {
    let mut pages = World::get().installed(0);
    let (first, last) = ((LBA, 2 * LBA), (DISK_BYTES - LBA, BACKUP.offset));
    match damage {
        BackupLost => pages.zero(BACKUP),
        PrimaryLost => pages.zero(PRIMARY),
        PrimaryHeaderLost => pages.zero(Extent { len: LBA, ..PRIMARY }),
        BothLost => [PRIMARY, BACKUP].into_iter().for_each(|extent| pages.zero(extent)),
        BothUnsigned => [first, last].into_iter().for_each(|(header, _)| pages.write(header, &[0; 8])),
        WrongType => [first, last].into_iter().for_each(|copy| edit_entry(&mut pages, copy, 4, &|entry| entry[3] ^= 1)),
        WrongName => edit_entry(&mut pages, first, 6, &|entry| entry[56] ^= 1),
        Overlap => edit_entry(&mut pages, first, 6, &|entry| less(&mut entry[32..40])),
        ShortMeta => edit_entry(&mut pages, first, 5, &|entry| less(&mut entry[40..48])),
        ShortSlot => edit_entry(&mut pages, first, 4, &|entry| less(&mut entry[40..48])),
        Attribute => edit_entry(&mut pages, first, 2, &|entry| entry[48] = 0),
        ShortLast => edit_entry(&mut pages, first, 7, &|entry| less(&mut entry[40..48])),
        AllLong => (1..7).for_each(|number| edit_entry(&mut pages, first, number, &|entry| more(&mut entry[40..48]))),
        EntryDeletedInOne => edit_entry(&mut pages, first, 5, &|entry| entry.fill(0)),
        OtherGuid => edit_entry(&mut pages, first, 3, &|entry| entry[16] ^= 1),
        EachLacksOne => {
            edit_entry(&mut pages, first, 5, &|entry| entry.fill(0));
            edit_entry(&mut pages, last, 2, &|entry| entry.fill(0));
        }
        EachShort => {
            edit_entry(&mut pages, first, 3, &|entry| more(&mut entry[32..40]));
            edit_entry(&mut pages, last, 1, &|entry| less(&mut entry[40..48]));
        }
        EspMovedEntryDeleted => [first, last].into_iter().for_each(|copy| {
            edit_entry(&mut pages, copy, 1, &|entry| more(&mut entry[32..40]));
            edit_entry(&mut pages, copy, 5, &|entry| entry.fill(0));
        }),
        OnTheCopy => [first, last].into_iter().for_each(|copy| {
            let end = (DISK_BYTES / LBA - 1).to_le_bytes();
            edit_entry(&mut pages, copy, 7, &|entry| entry[40..48].copy_from_slice(&end));
        }),
        EntryDeleted => {
            [first, last].into_iter().for_each(|copy| edit_entry(&mut pages, copy, 5, &|entry| entry.fill(0)));
        }
        PrimaryLostWrongType => {
            pages.zero(PRIMARY);
            edit_entry(&mut pages, last, 4, &|entry| entry[3] ^= 1);
        }
        BackupLostOfAnother => {
            let mut header = [0; SECTOR];
            pages.read(LBA, &mut header);
            header[40..48].copy_from_slice(&2048_u64.to_le_bytes());
            pages.write(LBA, &header);
            edit_entry(&mut pages, first, 1, &|_| ());
            pages.zero(BACKUP);
        }
        OtherBackup => {
            let mut bytes = vec![0; BACKUP.len as usize];
            theirs().read(BACKUP.offset, &mut bytes);
            pages.write(BACKUP.offset, &bytes);
        }
    }
    pages
}

/// A table by another program: the same partitions, another GUID of the disk.
pub fn theirs() -> Pages {
    let mut pages = World::get().installed(0);
    for (header, entries) in [(LBA, 2 * LBA), (DISK_BYTES - LBA, BACKUP.offset)] {
        let mut block = [0; SECTOR];
        pages.read(header, &mut block);
        block[56] ^= 1;
        pages.write(header, &block);
        edit_entry(&mut pages, (header, entries), 1, &|_| ());
    }
    pages
}
