//! GUID partition table, bytes in and bytes out (UEFI specification 2.10, chapter 5).
//!
//! The `gpt` crate does not fit, so it only checks our tables in the tests:
//! - It writes primary and backup GPT in one call, mixed and without a flush. The order of these writes is our commit.
//! - It numbers partitions in the order it finds them.
//! - It looks for the backup header only in the last block, so an image on a larger disk loses its backup.
//! - On a hostile header it panics, or allocates as much as the header claims (up to 512 GiB).

use crate::prelude::*;

use uuid::Uuid;

use super::layout::{ENTRY_ARRAY_BYTES, Layout, Part};
use crate::{
    bytes::{le16, le32, le64},
    units::{Extent, Lba, SectorSize},
};

/// The first bytes of a header.
pub const SIGNATURE: &[u8; 8] = b"EFI PART";
const REVISION: u32 = 0x0001_0000;
const HEADER_BYTES: usize = 92;
pub(super) const ENTRY_BYTES: usize = 128;
/// Entries in a table of ours.
pub const ENTRIES: u32 = 128;
// The GPT that xorriso puts into an ISO has more than the usual 128.
const MAX_ENTRIES_READ: u32 = 512;
/// Bytes of boot code at the start of the MBR.
pub const BOOT_CODE_BYTES: usize = 440;

/// Why a GPT cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GptError {
    /// No `EFI PART`.
    #[error("no GPT signature")]
    NoSignature,
    /// Header CRC-32 does not match.
    #[error("GPT header CRC is wrong: the header is damaged")]
    HeaderCrc,
    /// Entry array CRC-32 does not match.
    #[error("GPT partition entry array CRC is wrong: the table is damaged")]
    EntriesCrc,
    /// A field is outside the range that the specification or this program allows.
    #[error("GPT header is not usable: {0}")]
    Unusable(&'static str),
    /// It is whole, and of a kind that this program does not read.
    #[error("it has {entries} entries of {bytes} bytes each; up to 512 of 128 bytes are supported")]
    #[expect(missing_docs, reason = "the message says what they are")]
    Unsupported { entries: u32, bytes: u32 },
    /// It is the backup, whole and in its place, and says something else than the primary.
    #[error("it holds another partition table than the primary")]
    OtherTable,
    /// The disk does not return it.
    #[error("cannot be read: {0}")]
    Unreadable(String),
}

/// One partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Number, from 1.
    pub number: u32,
    /// Partition type GUID.
    pub type_guid: Uuid,
    /// PARTUUID.
    pub guid: Uuid,
    /// First block.
    pub first: Lba,
    /// Last block (inclusive).
    pub last: Lba,
    /// Attribute bits.
    pub attributes: u64,
    /// Name, at most 36 UTF-16 units.
    pub name: String,
}

impl Entry {
    /// Its bytes, or `None` if it ends before it begins or lies beyond 64 bits.
    pub fn extent(&self, sector: SectorSize) -> Option<Extent> {
        let blocks = self.last.0.checked_sub(self.first.0)?.checked_add(1)?;
        let offset = self.first.offset(sector)?;
        let len = Lba(blocks).offset(sector)?;
        offset.checked_add(len)?;
        Some(Extent { offset, len })
    }
}

/// A decoded header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Block of this header.
    pub my_lba: Lba,
    /// Block of the other header.
    pub alternate_lba: Lba,
    /// First block of its entry array.
    pub entries_lba: Lba,
    /// Number of entries, used or not, at most 512.
    pub entries: u32,
    /// First and last block that a partition may have.
    pub usable: [Lba; 2],
    /// GUID of the disk.
    pub disk_guid: Uuid,
    entries_crc: u32,
}

impl Header {
    /// Bytes of the entry array.
    pub fn entries_bytes(&self) -> usize {
        self.entries as usize * ENTRY_BYTES
    }

    /// Decode the block at `at`. Checks signature, CRC, own address and sizes.
    pub fn decode(block: &[u8], at: Lba) -> Result<Self, GptError> {
        let header = block.get(..HEADER_BYTES).ok_or(GptError::Unusable("shorter than 92 bytes"))?;
        if &header[..8] != SIGNATURE {
            return Err(GptError::NoSignature);
        }
        let size = le32(header, 12) as usize;
        if size < HEADER_BYTES || size > block.len() {
            return Err(GptError::Unusable("header size"));
        }
        // The CRC covers the header with the CRC field itself as zeros.
        let mut covered = block[..size].to_vec();
        covered[16..20].fill(0);
        if crc32fast::hash(&covered) != le32(header, 16) {
            return Err(GptError::HeaderCrc);
        }
        let my_lba = Lba(le64(header, 24));
        // Otherwise a stray copy of some other header could pass for this one.
        if my_lba != at {
            return Err(GptError::Unusable("it gives another block as its own address"));
        }
        let (entries, bytes) = (le32(header, 80), le32(header, 84));
        // UEFI 2.10, 5.3.2: 128 times a power of two.
        if entries == 0 || bytes < ENTRY_BYTES as u32 || !bytes.is_power_of_two() {
            return Err(GptError::Unusable("no possible number or size of entries"));
        }
        if bytes != ENTRY_BYTES as u32 || entries > MAX_ENTRIES_READ {
            return Err(GptError::Unsupported { entries, bytes });
        }
        Ok(Header {
            my_lba,
            alternate_lba: Lba(le64(header, 32)),
            entries_lba: Lba(le64(header, 72)),
            entries,
            usable: [Lba(le64(header, 40)), Lba(le64(header, 48))],
            disk_guid: guid(&header[56..72]),
            entries_crc: le32(header, 88),
        })
    }

    /// Decode the entry array, [`Header::entries_bytes`] long, without unused entries.
    pub fn decode_entries(&self, bytes: &[u8]) -> Result<Vec<Entry>, GptError> {
        let bytes = bytes.get(..self.entries_bytes()).ok_or(GptError::Unusable("truncated entry array"))?;
        if crc32fast::hash(bytes) != self.entries_crc {
            return Err(GptError::EntriesCrc);
        }
        let rows = (1..).zip(bytes.chunks_exact(ENTRY_BYTES));
        // A type GUID of zeros marks an unused entry.
        let used = rows.filter(|(_, row)| row[..16] != [0; 16]);
        Ok(used.map(|(number, row)| decode_entry(number, row)).collect())
    }
}

fn decode_entry(number: u32, row: &[u8]) -> Entry {
    let units: Vec<u16> = (56..128).step_by(2).map(|at| le16(row, at)).take_while(|unit| *unit != 0).collect();
    Entry {
        number,
        type_guid: guid(&row[..16]),
        guid: guid(&row[16..32]),
        first: Lba(le64(row, 32)),
        last: Lba(le64(row, 40)),
        attributes: le64(row, 48),
        name: String::from_utf16_lossy(&units),
    }
}

/// Where the first entry of an MBR begins, with its status byte.
const MBR_ENTRIES: usize = 446;

/// Whether a first block is a protective MBR. Without one, Linux, UEFI and GRUB all ignore the GPT; where its entry does not
/// begin at LBA 1, Linux and UEFI do.
pub fn is_protective_mbr(lba0: &[u8]) -> bool {
    lba0.get(510..512) == Some(&[0x55, 0xaa]) && protective_entries(lba0).next().is_some()
}

fn protective_entries(lba0: &[u8]) -> impl Iterator<Item = usize> {
    let entries = (0..4).map(|n| MBR_ENTRIES + 16 * n);
    entries.filter(|at| lba0[at + 4] == 0xee && lba0[at + 8..at + 12] == [1, 0, 0, 0])
}

/// The same block for one that only UEFI does not take for a protective MBR, by the status byte of the entry. None for all
/// others. A disk for some BIOSes has 0x80 there on purpose.
pub fn with_status_byte(lba0: &[u8]) -> Option<Vec<u8>> {
    let is_taken = |at: usize| lba0[at] & 0x7f == 0;
    if !is_protective_mbr(lba0) || protective_entries(lba0).any(is_taken) {
        return None;
    }
    let mut mended = lba0.to_vec();
    protective_entries(lba0).for_each(|at| mended[at] &= 0x80);
    Some(mended)
}

/// Whether the protective entry of a damaged first block is marked as bootable. None if too little is left of the entry.
pub fn is_bootable(lba0: &[u8]) -> Option<bool> {
    let entry = lba0.get(MBR_ENTRIES..MBR_ENTRIES + 16)?;
    (entry[4] == 0xee || entry[8..12] == [1, 0, 0, 0]).then_some(entry[0] & 0x80 != 0)
}

/// A GPT as the bytes to write.
#[derive(Clone, Debug)]
pub struct Gpt {
    /// One block at LBA 1.
    pub primary_header: Vec<u8>,
    /// The entry array: 16,384 bytes at LBA 2, and again in front of the backup header.
    pub entries: Vec<u8>,
    /// Byte offset of the second entry array.
    pub backup_entries_offset: u64,
    /// One block at the end of the disk.
    pub backup_header: Vec<u8>,
    /// Byte offset of the backup header.
    pub backup_header_offset: u64,
}

impl Gpt {
    /// Render `layout`; `parts` are the PARTUUIDs in order of partition number.
    pub fn new(layout: &Layout, disk_guid: Uuid, parts: &[Uuid; 7]) -> Self {
        let sector = layout.sector_size;
        let mut entries = vec![0; usize::try_from(ENTRY_ARRAY_BYTES).unwrap_or_default()];
        for ((part, guid), row) in Part::ALL.iter().zip(parts).zip(entries.chunks_exact_mut(ENTRY_BYTES)) {
            encode_entry(row, *part, *guid, layout.part(*part), sector);
        }
        let crc = crc32fast::hash(&entries);
        let last = layout.disk_sectors() - 1;
        let array_sectors = ENTRY_ARRAY_BYTES / sector.bytes();
        let header = |my: u64, other: u64, array: u64| {
            encode_header(
                sector,
                &HeaderFields {
                    my,
                    other,
                    array,
                    entries: ENTRIES,
                    first_usable: 2 + array_sectors,
                    last_usable: last - array_sectors - 1,
                    disk_guid,
                    crc,
                },
            )
        };
        Gpt {
            primary_header: header(1, last, 2),
            backup_header: header(last, 1, last - array_sectors),
            backup_entries_offset: (last - array_sectors) * sector.bytes(),
            backup_header_offset: last * sector.bytes(),
            entries,
        }
    }
}

pub(super) fn encode_entry(row: &mut [u8], part: Part, guid: Uuid, extent: Extent, sector: SectorSize) {
    row[..16].copy_from_slice(&part.type_guid().to_bytes_le());
    row[16..32].copy_from_slice(&guid.to_bytes_le());
    row[32..40].copy_from_slice(&extent.first_lba(sector).0.to_le_bytes());
    row[40..48].copy_from_slice(&extent.last_lba(sector).0.to_le_bytes());
    row[48..56].copy_from_slice(&part.attributes().to_le_bytes());
    for (pair, unit) in row[56..].chunks_exact_mut(2).zip(part.name().encode_utf16()) {
        pair.copy_from_slice(&unit.to_le_bytes());
    }
}

pub(super) struct HeaderFields {
    pub my: u64,
    pub other: u64,
    pub array: u64,
    pub entries: u32,
    pub first_usable: u64,
    pub last_usable: u64,
    pub disk_guid: Uuid,
    pub crc: u32,
}

pub(super) fn encode_header(sector: SectorSize, f: &HeaderFields) -> Vec<u8> {
    let mut h = Vec::with_capacity(HEADER_BYTES);
    h.extend_from_slice(SIGNATURE);
    h.extend_from_slice(&REVISION.to_le_bytes());
    h.extend_from_slice(&(HEADER_BYTES as u32).to_le_bytes());
    h.extend_from_slice(&[0; 8]); // CRC, filled in below; reserved
    for field in [f.my, f.other, f.first_usable, f.last_usable] {
        h.extend_from_slice(&field.to_le_bytes());
    }
    h.extend_from_slice(&f.disk_guid.to_bytes_le());
    h.extend_from_slice(&f.array.to_le_bytes());
    h.extend_from_slice(&f.entries.to_le_bytes());
    h.extend_from_slice(&(ENTRY_BYTES as u32).to_le_bytes());
    h.extend_from_slice(&f.crc.to_le_bytes());
    let crc = crc32fast::hash(&h);
    h[16..20].copy_from_slice(&crc.to_le_bytes());
    h.resize(usize::try_from(sector.bytes()).unwrap_or(512), 0);
    h
}

/// The first block of the disk: boot code and the protective MBR. `bootable` sets the entry's status to 0x80.
pub fn protective_mbr(layout: &Layout, boot_code: &[u8; BOOT_CODE_BYTES], bootable: bool) -> Vec<u8> {
    protective_mbr_of(layout.sector_size, layout.disk_sectors(), boot_code, bootable)
}

/// The same for a disk of so many blocks.
pub fn protective_mbr_of(
    sector: SectorSize,
    disk_sectors: u64,
    boot_code: &[u8; BOOT_CODE_BYTES],
    bootable: bool,
) -> Vec<u8> {
    let mut block = vec![0; usize::try_from(sector.bytes()).unwrap_or(512)];
    block[..BOOT_CODE_BYTES].copy_from_slice(boot_code);
    // On disks of more than 32 bits of blocks the field keeps its maximum (UEFI specification 2.10, table 5-4).
    let blocks = u32::try_from(disk_sectors.saturating_sub(1)).unwrap_or(u32::MAX);
    let entry = &mut block[MBR_ENTRIES..MBR_ENTRIES + 16];
    // The CHS addresses are those of the specification: the end "does not fit".
    entry[..8].copy_from_slice(&[0x00, 0x00, 0x02, 0x00, 0xee, 0xff, 0xff, 0xff]);
    // The specification demands 0, but some BIOSes boot only from a disk with a bootable entry.
    entry[0] = if bootable { 0x80 } else { 0 };
    entry[8..12].copy_from_slice(&1u32.to_le_bytes());
    entry[12..16].copy_from_slice(&blocks.to_le_bytes());
    block[510..512].copy_from_slice(&[0x55, 0xaa]);
    block
}

fn guid(bytes: &[u8]) -> Uuid {
    let mut raw = [0; 16];
    raw.copy_from_slice(bytes);
    Uuid::from_bytes_le(raw)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{disk::layout::MIN_EPHEMERAL_IMAGE, units::MIB};

    fn sample(sector: SectorSize) -> (Layout, Gpt) {
        let layout = Layout::new(2100 * MIB, sector, 300 * MIB, MIN_EPHEMERAL_IMAGE).unwrap();
        let parts = std::array::from_fn(|i| Uuid::from_u128(0x1000 + i as u128));
        let table = Gpt::new(&layout, Uuid::from_u128(0xd15c), &parts);
        (layout, table)
    }

    #[test]
    fn both_headers_decode_to_the_same_table() {
        for sector in [SectorSize::S512, SectorSize::S4096] {
            let (layout, table) = sample(sector);
            let last = Lba(layout.disk_sectors() - 1);
            let primary = Header::decode(&table.primary_header, Lba(1)).unwrap();
            let backup = Header::decode(&table.backup_header, last).unwrap();
            assert_eq!((primary.alternate_lba, backup.alternate_lba), (last, Lba(1)));
            assert_eq!(backup.entries_lba.offset(sector), Some(table.backup_entries_offset));
            let entries = primary.decode_entries(&table.entries).unwrap();
            assert_eq!(entries, backup.decode_entries(&table.entries).unwrap());
            for (entry, part) in entries.iter().zip(Part::ALL) {
                assert_eq!((entry.number, entry.name.as_str()), (part.number(), part.name()));
                assert_eq!(entry.extent(sector), Some(layout.part(part)));
            }
            assert_eq!(entries[1].attributes, 4);
        }
    }

    /// A table of another tool is whole, and is not called damaged.
    #[test]
    fn tables_of_another_kind_are_not_supported() {
        let (_, table) = sample(SectorSize::S512);
        let decoded = |entries: u32, bytes: u32| {
            let mut header = table.primary_header.clone();
            header[80..84].copy_from_slice(&entries.to_le_bytes());
            header[84..88].copy_from_slice(&bytes.to_le_bytes());
            header[16..20].fill(0);
            let crc = crc32fast::hash(&header[..HEADER_BYTES]);
            header[16..20].copy_from_slice(&crc.to_le_bytes());
            Header::decode(&header, Lba(1)).map(|header| header.entries)
        };
        assert_eq!((decoded(128, 128), decoded(512, 128)), (Ok(128), Ok(512)));
        for (entries, bytes) in [(128, 256), (128, 4096), (513, 128), (u32::MAX, 256)] {
            assert_eq!(decoded(entries, bytes), Err(GptError::Unsupported { entries, bytes }));
        }
        for (entries, bytes) in [(0, 128), (128, 64), (128, 0), (128, 129), (128, 384)] {
            assert!(matches!(decoded(entries, bytes), Err(GptError::Unusable(_))), "{entries} {bytes}");
        }
    }

    #[test]
    fn the_gpt_crate_agrees() {
        use std::io::{Seek, SeekFrom, Write};
        for (sector, theirs) in [
            (SectorSize::S512, gpt::disk::LogicalBlockSize::Lb512),
            (SectorSize::S4096, gpt::disk::LogicalBlockSize::Lb4096),
        ] {
            let (layout, table) = sample(sector);
            let mut file = tempfile::tempfile().unwrap();
            file.set_len(layout.disk_bytes).unwrap();
            for (offset, bytes) in [
                (0, &protective_mbr(&layout, &[0; BOOT_CODE_BYTES], false)),
                (sector.bytes(), &table.primary_header),
                (2 * sector.bytes(), &table.entries),
                (table.backup_entries_offset, &table.entries),
                (table.backup_header_offset, &table.backup_header),
            ] {
                file.seek(SeekFrom::Start(offset)).unwrap();
                file.write_all(bytes).unwrap();
            }
            let config = gpt::GptConfig::new().logical_block_size(theirs).only_valid_headers(true);
            let disk = config.open_from_device(file).unwrap();
            assert_eq!(disk.guid().as_u128(), 0xd15c);
            assert_eq!(disk.partitions().len(), 7);
            assert_eq!(disk.partitions()[&7].name, "EPHEMERAL");
        }
    }

    #[test]
    fn protective_mbr_is_recognised() {
        let (layout, _) = sample(SectorSize::S512);
        let block = protective_mbr(&layout, &[7; BOOT_CODE_BYTES], false);
        assert!(is_protective_mbr(&block));
        let bootable = protective_mbr(&layout, &[7; BOOT_CODE_BYTES], true);
        assert!(is_protective_mbr(&bootable));
        assert_eq!((bootable[446], &bootable[447..]), (0x80, &block[447..]));
        assert_eq!(&block[446..462], &[0, 0, 2, 0, 0xee, 0xff, 0xff, 0xff, 1, 0, 0, 0, 0xff, 0x9f, 0x41, 0]);
        assert!(!is_protective_mbr(&[0; 512]));
    }

    /// Linux wants the type and the first block (`pmbr_part_valid` in `block/partitions/efi.c`), and UEFI the status byte, too
    /// (EDK2, `Partition/Gpt.c`).
    #[test]
    fn no_wrong_bit_of_the_protective_entry_passes_for_a_right_one() {
        let (layout, _) = sample(SectorSize::S512);
        for bootable in [false, true] {
            let block = protective_mbr(&layout, &[7; BOOT_CODE_BYTES], bootable);
            assert_eq!((with_status_byte(&block), is_bootable(&block)), (None, Some(bootable)));
            for (at, bit) in (446..462).chain(510..512).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
                let mut wrong = block.clone();
                wrong[at] ^= 1 << bit;
                let counts = matches!(at, 450 | 454..=457 | 510 | 511);
                assert_eq!(is_protective_mbr(&wrong), !counts, "{at} {bit}");
                // Nothing tells that the highest bit is wrong.
                let mended = (at == 446 && bit < 7).then(|| block.clone());
                assert_eq!(with_status_byte(&wrong), mended, "{at} {bit}");
                assert_eq!(is_bootable(&wrong), Some(bootable != (at == 446 && bit == 7)), "{at} {bit}");
            }
        }
        assert_eq!(is_bootable(&[0; 512]), None);
        // Another entry of a hybrid MBR may be the one that is taken.
        let mut hybrid = protective_mbr(&layout, &[7; BOOT_CODE_BYTES], false);
        hybrid.copy_within(446..462, 462);
        hybrid[446] = 4;
        assert_eq!(with_status_byte(&hybrid), None);
    }

    #[test]
    fn damage_is_seen() {
        let (_, table) = sample(SectorSize::S512);
        let mut bad = table.primary_header.clone();
        bad[60] ^= 1;
        assert_eq!(Header::decode(&bad, Lba(1)), Err(GptError::HeaderCrc));
        assert_eq!(Header::decode(&[0; 512], Lba(1)), Err(GptError::NoSignature));
        assert!(Header::decode(&table.primary_header, Lba(2)).is_err());
        let header = Header::decode(&table.primary_header, Lba(1)).unwrap();
        let mut entries = table.entries.clone();
        entries[40] ^= 1;
        assert_eq!(header.decode_entries(&entries), Err(GptError::EntriesCrc));
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(mut block in prop::collection::vec(any::<u8>(), 0..600), sign: bool) {
            if sign && block.len() > 92 {
                block[..8].copy_from_slice(SIGNATURE);
                block[12..16].copy_from_slice(&92u32.to_le_bytes());
                block[16..20].fill(0);
                let crc = crc32fast::hash(&block[..92]);
                block[16..20].copy_from_slice(&crc.to_le_bytes());
            }
            let at = Lba(if block.len() > 92 { le64(&block, 24) } else { 1 });
            if let Ok(header) = Header::decode(&block, at) {
                let _ = header.decode_entries(&block);
            }
        }
    }
}
