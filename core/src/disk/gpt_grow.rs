//! A GPT for a disk that became larger: the backup at the new end, and one partition with another last block. All else stays
//! as it is, byte for byte, by any writer.
//!
//! The primary must stay valid at every instant: GRUB and Linux look for no other. Its header is one sector, and its entry
//! array many. So the new array goes to a second place, which no header names, and the header then names it: one sector
//! replaces the old table with the new one. The same once more, and the array is at LBA 2 again. UEFI lets it stand
//! anywhere between the header and the first usable block (specification 2.10, section 5.3.2), but `sgdisk` warns of it.

use crate::prelude::*;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{
    gpt::{ENTRIES, ENTRY_BYTES, Entry, Gpt, GptError, Header, HeaderFields, encode_header},
    layout::Part,
};
use crate::units::{Extent, Lba, SectorSize};

/// One copy of a GPT as it was found, with the bytes of its entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawTable {
    header: Header,
    bytes: Vec<u8>,
}

impl Header {
    /// Blocks of the entry array.
    fn entry_blocks(&self, sector: SectorSize) -> u64 {
        (self.entries_bytes() as u64).div_ceil(sector.bytes())
    }

    /// Bytes of a copy of its table: a header, and as many entries as it says. A table of others may have fewer than ours.
    pub fn copy_bytes(&self, sector: SectorSize) -> u64 {
        (self.entry_blocks(sector) + 1) * sector.bytes()
    }
}

impl RawTable {
    /// Fails if the bytes do not match the header.
    pub fn new(header: Header, mut bytes: Vec<u8>) -> Result<Self, GptError> {
        header.decode_entries(&bytes)?;
        bytes.truncate(header.entries_bytes());
        Ok(RawTable { header, bytes })
    }

    /// Without a check of the bytes, which [`Self::changed`] fills.
    pub(super) const fn from_header(header: Header, bytes: Vec<u8>) -> Self {
        RawTable { header, bytes }
    }

    /// The same table, with other entries, for a disk with so many bytes.
    pub(super) fn changed(
        &self,
        disk_bytes: u64,
        sector: SectorSize,
        change: impl FnOnce(&mut [&mut [u8]]),
    ) -> Option<Self> {
        let mut table = self.clone();
        change(&mut table.bytes.chunks_exact_mut(ENTRY_BYTES).collect::<Vec<_>>());
        let backup = self.backup(disk_bytes, sector)?;
        table.header.usable[1] = Lba(backup.offset / sector.bytes() - 1);
        if self.place(sector) == Some(Place::Away) {
            table.header.usable[0] = Lba(HOME + self.array_blocks(sector));
        }
        Some(table)
    }

    /// Whether our partitions have room in it, and it has no more of that than a table of ours. `sgdisk` makes it smaller.
    pub const fn may_hold_ours(&self) -> bool {
        self.header.entries as usize >= Part::ALL.len() && self.header.entries <= ENTRIES
    }

    /// GUID of the disk.
    pub const fn disk_guid(&self) -> Uuid {
        self.header.disk_guid
    }

    /// Its partitions.
    pub fn entries(&self) -> Vec<Entry> {
        self.header.decode_entries(&self.bytes).unwrap_or_default()
    }

    /// Blocks of an entry array.
    fn array_blocks(&self, sector: SectorSize) -> u64 {
        self.header.entry_blocks(sector)
    }

    /// Whether it has the same partitions on the same disk.
    pub fn is_alike(&self, other: &RawTable) -> bool {
        self.disk_guid() == other.disk_guid() && self.bytes == other.bytes
    }

    /// Bytes of a copy of it.
    pub fn copy_bytes(&self, sector: SectorSize) -> u64 {
        self.header.copy_bytes(sector)
    }

    /// Place of the backup on a disk with so many bytes. Partitions must end before it.
    pub fn backup(&self, disk_bytes: u64, sector: SectorSize) -> Option<Extent> {
        let len = self.copy_bytes(sector);
        let end = disk_bytes - disk_bytes % sector.bytes();
        Some(Extent { offset: end.checked_sub(len)?, len })
    }

    /// The first block behind both places of the entry array.
    pub fn behind_both_places(&self, sector: SectorSize) -> Lba {
        Lba(HOME + 2 * self.array_blocks(sector))
    }

    /// The last block that partitions may use.
    pub const fn last_usable(&self) -> Lba {
        self.header.usable[1]
    }

    /// The first and the last block that partitions may use.
    pub const fn usable(&self) -> [Lba; 2] {
        self.header.usable
    }

    /// Partitions may begin right behind the entries.
    pub(super) fn use_all(&mut self, sector: SectorSize) {
        self.header.usable[0] = Lba(HOME + self.array_blocks(sector));
    }

    #[cfg(test)]
    pub(super) fn with_usable(mut self, usable: [Lba; 2]) -> Self {
        self.header.usable = usable;
        self
    }

    /// Block of the other copy's header.
    pub const fn other(&self) -> Lba {
        self.header.alternate_lba
    }

    /// Whether this copy says all that `wanted` says, as the one with its header at `at` and the other one's at `other`.
    pub fn says(&self, wanted: &RawTable, at: Lba, other: Lba) -> bool {
        let Header { my_lba, alternate_lba, usable: [_, last], disk_guid, .. } = self.header;
        (my_lba, alternate_lba, last, disk_guid) == (at, other, wanted.header.usable[1], wanted.header.disk_guid)
            && self.bytes == wanted.bytes
    }

    /// The same table for a disk with so many bytes, where partition `number` ends at `end`.
    pub fn grown(&self, number: u32, end: u64, disk_bytes: u64, sector: SectorSize) -> Option<Self> {
        let row = (number as usize).checked_sub(1).filter(|row| *row < self.bytes.len() / ENTRY_BYTES)?;
        self.changed(disk_bytes, sector, |rows| {
            rows[row][40..48].copy_from_slice(&(end / sector.bytes() - 1).to_le_bytes());
        })
    }

    /// Place of the entries according to the header, which is that of a primary.
    pub fn place(&self, sector: SectorSize) -> Option<Place> {
        let away = HOME + self.array_blocks(sector);
        match self.header.entries_lba.0 {
            HOME => Some(Place::Home),
            lba if lba == away => Some(Place::Away),
            _ => None,
        }
    }

    /// The bytes to write.
    pub fn render(&self, disk_bytes: u64, sector: SectorSize) -> Option<GrownGpt> {
        let (blocks, last) = (self.array_blocks(sector), disk_bytes / sector.bytes() - 1);
        let mut entries = self.bytes.clone();
        let crc = crc32fast::hash(&entries);
        entries.resize(usize::try_from(blocks * sector.bytes()).ok()?, 0);
        let [first_usable, last_usable] = self.header.usable.map(|lba| lba.0);
        let header = |my, other, array, first_usable| {
            let (entries, disk_guid) = (self.header.entries, self.header.disk_guid);
            let fields = HeaderFields { my, other, array, entries, first_usable, last_usable, disk_guid, crc };
            encode_header(sector, &fields)
        };
        let gpt = Gpt {
            primary_header: header(1, last, HOME, first_usable),
            backup_header: header(last, 1, last - blocks, first_usable),
            backup_entries_offset: (last - blocks) * sector.bytes(),
            backup_header_offset: last * sector.bytes(),
            entries,
        };
        let away = first_usable.max(self.behind_both_places(sector).0);
        Some(GrownGpt { gpt, away_header: header(1, last, HOME + blocks, away) })
    }
}

const HOME: u64 = 2;

/// Where the entries of a primary stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Place {
    /// At LBA 2, where every program puts them.
    Home,
    /// Right behind.
    Away,
}

/// A grown table as bytes to write.
#[derive(Clone, Debug)]
pub struct GrownGpt {
    /// The final table.
    pub gpt: Gpt,
    /// LBA 1 as long as the entries are away.
    pub away_header: Vec<u8>,
}

impl GrownGpt {
    /// LBA 1 that names the entries in a place.
    pub fn header(&self, entries: Place) -> &[u8] {
        match entries {
            Place::Home => &self.gpt.primary_header,
            Place::Away => &self.away_header,
        }
    }

    /// Byte offset of a place.
    pub fn offset(&self, place: Place) -> u64 {
        let home = HOME * self.gpt.primary_header.len() as u64;
        match place {
            Place::Home => home,
            Place::Away => home + self.gpt.entries.len() as u64,
        }
    }
}
