//! The first sector of a FAT32 volume (Microsoft FAT specification, 2005, "Boot Sector and BPB").

use crate::prelude::*;

use super::{ENTRY_BITS, FIRST_END_OF_CHAIN, name::short_label};
use crate::bytes::{le16, le32, put_le32};

/// Number of the sector that says how many clusters are free (FSInfo), where we and mkfs.fat put it.
pub const INFO: u64 = 1;
/// Number of the sector with the copy of the first one.
pub const COPY: u64 = 6;
/// Number of the sector with the copy of FSInfo, behind that.
pub const INFO_COPY: u64 = COPY + INFO;

/// The fault of a FAT that does not begin with its first entry ([`is_first_entry`]).
pub const NO_FIRST_ENTRY: &str = "its FAT does not begin with the media byte";

/// Its fields, as they are: which of them are possible is for the caller to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BootSector {
    /// Bytes of a sector.
    pub sector: u64,
    /// Sectors of a cluster.
    pub per_cluster: u64,
    /// Sectors before the first FAT.
    pub reserved: u64,
    /// The number of FATs.
    pub fats: u64,
    /// Sectors of a FAT.
    pub fat_sectors: u64,
    /// Sectors of the volume.
    pub sectors: u64,
    /// Whether all FATs are kept alike. Else one of them alone is in force.
    pub is_mirrored: bool,
    /// First cluster of the root directory.
    pub root: u32,
    /// Number of the sector that says how many clusters are free (FSInfo).
    pub info: u64,
    /// Number of the sector with the copy of this one.
    pub copy: u64,
    /// Serial number of the volume.
    pub serial: u32,
    /// The fault for which GRUB and firmware refuse the volume, and that FAT32 itself lets pass.
    pub refused: Option<&'static str>,
}

impl BootSector {
    /// `None` of what does not call itself FAT32.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let b: &[u8; 512] = bytes.first_chunk()?;
        if b[510..] != [0x55, 0xaa] || &b[82..87] != b"FAT32" {
            return None;
        }
        let [sector, reserved, flags, info, copy] = [11, 14, 40, 48, 50].map(|at| u64::from(le16(b, at)));
        Some(BootSector {
            sector,
            per_cluster: b[13].into(),
            reserved,
            fats: b[16].into(),
            fat_sectors: le32(b, 36).into(),
            sectors: le32(b, 32).into(),
            is_mirrored: flags & 0x80 == 0,
            root: le32(b, 44),
            info,
            copy,
            serial: le32(b, 67),
            refused: refused(b),
        })
    }

    /// The sector of a volume of ours with this label, which has so many sectors of the disk before it.
    pub(super) fn encode(&self, label: &str, hidden: u32) -> Vec<u8> {
        let mut b = vec![0; self.sector as usize];
        b[..11].copy_from_slice(b"\xeb\x58\x90SLIPWAY ");
        // A nominal geometry, 63 sectors and 255 heads.
        let numbers = [(11, self.sector), (14, self.reserved), (24, 63), (26, 255), (48, self.info), (50, self.copy)];
        for (at, number) in numbers {
            b[at..at + 2].copy_from_slice(&(number as u16).to_le_bytes());
        }
        b[13] = self.per_cluster as u8;
        b[16] = self.fats as u8;
        b[21] = 0xf8; // fixed disk
        put_le32(&mut b, 28, hidden);
        put_le32(&mut b, 32, self.sectors as u32);
        put_le32(&mut b, 36, self.fat_sectors as u32);
        put_le32(&mut b, 44, self.root);
        b[64] = 0x80; // first hard disk
        b[66] = 0x29; // serial, label and type follow
        put_le32(&mut b, 67, self.serial);
        b[71..82].copy_from_slice(&short_label(label));
        b[82..90].copy_from_slice(b"FAT32   ");
        b[510..512].copy_from_slice(&[0x55, 0xaa]);
        b
    }

    /// Bytes of a cluster.
    pub const fn cluster(&self) -> u64 {
        self.per_cluster * self.sector
    }

    /// The byte of the volume at which a FAT begins, from 0.
    pub const fn fat(&self, number: u64) -> u64 {
        (self.reserved + number * self.fat_sectors) * self.sector
    }

    /// The byte of the volume at which the first cluster begins.
    pub const fn data(&self) -> u64 {
        self.fat(self.fats)
    }

    /// The number of clusters on so many sectors.
    pub fn clusters(&self, sectors: u64) -> u64 {
        let before = self.reserved + self.fats * self.fat_sectors;
        sectors.saturating_sub(before).checked_div(self.per_cluster).unwrap_or(0)
    }

    /// Whether each FAT has an entry for so many clusters, behind its two entries for none.
    pub const fn has_entries(&self, clusters: u64) -> bool {
        self.fat_sectors * self.sector / 4 >= clusters + 2
    }
}

fn refused(b: &[u8]) -> Option<&'static str> {
    // The media byte, and the fields of FAT12 and FAT16.
    if b[21] | 8 != 0xf8 || [17, 19, 22].iter().any(|at| le16(b, *at) != 0) {
        return Some("its boot sector is no FAT32's");
    }
    (le16(b, 42) != 0).then_some("its boot sector has an unknown version")
}

/// Whether a FAT may begin with this entry, which repeats the media byte. GRUB and firmware go by it; firmware and installers
/// disagree about bit 3 (GRUB, fs/fat.c).
pub const fn is_first_entry(entry: u32) -> bool {
    entry & ENTRY_BITS | 8 == FIRST_END_OF_CHAIN
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_decoded() {
        for sector in [512, 4096] {
            let boot = BootSector {
                sector,
                per_cluster: 8,
                reserved: 32,
                fats: 2,
                fat_sectors: 0x1_2345,
                sectors: 0x1234_5678,
                is_mirrored: true,
                root: 2,
                info: INFO,
                copy: COPY,
                serial: 0x89ab_cdef,
                refused: None,
            };
            let mut bytes = boot.encode("EFI", 2048);
            assert_eq!(BootSector::decode(&bytes), Some(boot));
            assert_eq!((boot.fat(1), boot.data()), ((32 + 0x1_2345) * sector, (32 + 2 * 0x1_2345) * sector));
            bytes[21] = 0;
            assert!(BootSector::decode(&bytes).is_some_and(|boot| boot.refused.is_some()));
            bytes[82] = b'f';
            assert_eq!(BootSector::decode(&bytes), None);
        }
    }
}
