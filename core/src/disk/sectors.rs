//! The size of sectors that the content of a disk was written for. An image file does not tell it, and a RAID controller or a
//! USB bridge may show a disk with another one.

use super::{gpt::SIGNATURE, layout::ESP_OFFSET};
use crate::units::SectorSize;

/// What tells the size of sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sign {
    /// The first copy of a partition table.
    FirstTable,
    /// The second one, at the end of the disk.
    SecondTable,
    /// The file system of an ESP: its sectors are those of the disk.
    Esp,
}

impl Sign {
    /// From the surest to the least sure.
    pub const ALL: [Sign; 3] = [Sign::FirstTable, Sign::SecondTable, Sign::Esp];

    /// Whether it is there for sectors of this size, on a disk of so many bytes. `read` reads at a byte, if it can.
    pub fn is_there(self, sector: SectorSize, bytes: u64, mut read: impl FnMut(u64, &mut [u8]) -> bool) -> bool {
        let is_table = |at: u64, read: &mut dyn FnMut(u64, &mut [u8]) -> bool| {
            let mut magic = [0; 8];
            read(at, &mut magic) && &magic == SIGNATURE
        };
        match self {
            Sign::FirstTable => is_table(sector.bytes(), &mut read),
            Sign::SecondTable => match (bytes / sector.bytes()).checked_sub(1) {
                Some(last) => is_table(last * sector.bytes(), &mut read),
                None => false,
            },
            Sign::Esp => {
                let mut boot = [0; 512];
                let of_this_size = (sector.bytes() as u16).to_le_bytes();
                read(ESP_OFFSET, &mut boot) && &boot[82..90] == b"FAT32   " && boot[11..13] == of_this_size
            }
        }
    }
}

/// The size for which a file has the surest sign.
pub fn sector_size(bytes: u64, mut read: impl FnMut(u64, &mut [u8]) -> bool) -> Option<SectorSize> {
    // A file may hold remains of both. 512 is by far the more common.
    let sizes = [SectorSize::S512, SectorSize::S4096];
    Sign::ALL.into_iter().find_map(|sign| sizes.into_iter().find(|sector| sign.is_there(*sector, bytes, &mut read)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prelude::*;

    const BYTES: usize = 2 << 20;

    fn size_of(disk: &[u8]) -> Option<SectorSize> {
        sector_size(disk.len() as u64, |at, bytes| {
            let found = disk.get(at as usize..).and_then(|rest| rest.get(..bytes.len()));
            found.map(|found| bytes.copy_from_slice(found)).is_some()
        })
    }

    fn with(signs: &[(usize, &[u8])]) -> Vec<u8> {
        let mut disk = vec![0; BYTES];
        for (at, bytes) in signs {
            disk[*at..at + bytes.len()].copy_from_slice(bytes);
        }
        disk
    }

    #[test]
    fn by_its_surest_sign() {
        const TABLE: &[u8] = b"EFI PART";
        let esp = ESP_OFFSET as usize;
        let fat: &[u8] = b"FAT32   ";
        let (small, large) = (512_u16.to_le_bytes(), 4096_u16.to_le_bytes());
        for (signs, size) in [
            (&[(512, TABLE)][..], Some(SectorSize::S512)),
            (&[(4096, TABLE)], Some(SectorSize::S4096)),
            (&[(512, TABLE), (4096, TABLE)], Some(SectorSize::S512)),
            (&[(BYTES - 512, TABLE)], Some(SectorSize::S512)),
            (&[(BYTES - 4096, TABLE)], Some(SectorSize::S4096)),
            (&[(4096, TABLE), (BYTES - 512, TABLE)], Some(SectorSize::S4096)),
            (&[(esp + 11, &large[..]), (esp + 82, fat)], Some(SectorSize::S4096)),
            (&[(esp + 11, &small[..]), (esp + 82, fat)], Some(SectorSize::S512)),
            (&[(esp + 11, &small[..]), (esp + 82, fat), (BYTES - 4096, TABLE)], Some(SectorSize::S4096)),
            (&[(esp + 11, &large[..])], None),
            (&[], None),
        ] {
            assert_eq!(size_of(&with(signs)), size, "{signs:?}");
        }
        for bytes in [0, 1, 511, 512, 4096] {
            assert_eq!(size_of(&vec![0; bytes]), None, "{bytes}");
        }
    }
}
