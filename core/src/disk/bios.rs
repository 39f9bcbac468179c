//! BIOS boot: the boot code in LBA 0, and the core image in the BIOS partition.
//!
//! The partition has room for two core images, one in each half. The boot code says which one is started, so one sector's
//! write switches between them.

use crate::{
    bytes::{get_le16, get_le64},
    units::{Extent, SectorSize},
};

// Offset in the boot code of the core image's first LBA (GRUB, `GRUB_BOOT_MACHINE_KERNEL_SECTOR`).
const KERNEL_SECTOR: usize = 0x5c;
// Offset in a core image's first sector of the number of sectors behind it (`GRUB_BOOT_MACHINE_LIST_SIZE`).
const BLOCK_LIST_SECTORS: usize = 0x1fc;
/// Bytes of the sectors that a BIOS reads.
pub const SECTOR: u64 = SectorSize::S512.bytes();

/// The two places for a core image in the BIOS partition.
pub const fn halves(part: Extent) -> [Extent; 2] {
    let len = part.len / 2 / SECTOR * SECTOR;
    [Extent { offset: part.offset, len }, Extent { offset: part.offset + len, len }]
}

/// The half that the boot code of LBA 0 starts. None if it starts something else.
pub fn started(lba0: &[u8], part: Extent) -> Option<usize> {
    let lba = get_le64(lba0, KERNEL_SECTOR)?;
    halves(part).iter().position(|half| half.offset / SECTOR == lba)
}

/// Offset of the SBAT text of a core image, in bytes from the beginning of the image: in a sector behind those that
/// are loaded. `first` is its first sector.
pub fn sbat_at(first: &[u8]) -> Option<u64> {
    Some((1 + u64::from(get_le16(first, BLOCK_LIST_SECTORS)?)) * SECTOR)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::MIB;

    #[test]
    fn the_boot_code_says_which_half() {
        let part = Extent { offset: 301 * MIB, len: MIB };
        let [first, second] = halves(part);
        assert_eq!((first.offset, first.len, second.offset), (301 * MIB, MIB / 2, 301 * MIB + MIB / 2));
        for (lba, half) in [(301 * 2048, Some(0)), (301 * 2048 + 1024, Some(1)), (301 * 2048 + 1, None), (0, None)] {
            let mut lba0 = [0; 512];
            lba0[0x5c..0x64].copy_from_slice(&u64::to_le_bytes(lba));
            assert_eq!(started(&lba0, part), half, "{lba}");
        }
        assert_eq!(started(&[0; 0x60], part), None);
    }
}
