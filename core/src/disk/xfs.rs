//! Size of an XFS file system, and the size that it can reach; whether it was ever in use.

use crate::bytes::{get_be16, get_be32, get_be64, le32};

/// The first bytes of a superblock.
pub const MAGIC: &[u8; 4] = b"XFSB";
/// Fewest blocks of an allocation group (`XFS_MIN_AG_BLOCKS`): the kernel makes no smaller one at the end.
const MIN_GROUP: u64 = 64;

/// The sizes of an XFS file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XfsSize {
    block: u64,
    group: u64,
    /// Blocks that it has.
    pub blocks: u64,
}

impl XfsSize {
    /// `block` is in bytes, `group` in blocks. None if no file system has such sizes.
    pub fn new(block: u32, group: u32, blocks: u64) -> Option<Self> {
        let plausible = block.is_power_of_two() && (512..=65536).contains(&block) && group > 0;
        plausible.then_some(XfsSize { block: block.into(), group: group.into(), blocks })
    }

    /// From the first bytes of a superblock.
    pub fn from_superblock(superblock: &[u8]) -> Option<Self> {
        let [block, group] = [4, 84].map(|at| get_be32(superblock, at));
        superblock.starts_with(MAGIC).then_some(())?;
        Self::new(block?, group?, get_be64(superblock, 8)?)
    }

    /// Its bytes; None if no disk has so many.
    pub const fn bytes(&self) -> Option<u64> {
        self.blocks.checked_mul(self.block)
    }

    /// The byte at which its last allocation group begins, with a copy of the superblock. None if it has one group only.
    pub fn last_group(&self) -> Option<u64> {
        let group = self.blocks.checked_sub(1)? / self.group;
        (group > 0).then_some(group)?.checked_mul(self.group)?.checked_mul(self.block)
    }

    /// The number of blocks that it can have on so many bytes.
    pub const fn within(&self, bytes: u64) -> u64 {
        let blocks = bytes / self.block;
        let rest = blocks % self.group;
        if rest < MIN_GROUP && blocks > self.group { blocks - rest } else { blocks }
    }

    /// Whether there is room for more blocks on so many bytes.
    pub const fn can_grow(&self, bytes: u64) -> bool {
        self.within(bytes) > self.blocks
    }
}

/// Whether the checksum of a superblock is right (`sb_crc`, CRC-32C over its sector). Version 4 has none; others do not exist.
pub fn is_intact(superblock: &[u8]) -> bool {
    const CRC_AT: usize = 224;
    let (Some(version), Some(sector)) = (get_be16(superblock, 100), get_be16(superblock, 102)) else { return false };
    match version & 0xf {
        5 => {}
        version => return version == 4,
    }
    let Some(sector) = superblock.get(..usize::from(sector)).filter(|sector| sector.len() >= 512) else { return false };
    let covered =
        sector.iter().enumerate().map(|(at, byte)| if (CRC_AT..CRC_AT + 4).contains(&at) { 0 } else { *byte });
    le32(sector, CRC_AT) == crc32c(covered)
}

/// CRC-32C (Castagnoli), which `crc32fast` does not have.
fn crc32c(bytes: impl Iterator<Item = u8>) -> u32 {
    !bytes.fold(!0u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| (crc >> 1) ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 })
    })
}

/// The UUID in a superblock (`sb_uuid`).
pub fn uuid_of(superblock: &[u8]) -> Option<[u8; 16]> {
    superblock.starts_with(MAGIC).then_some(())?;
    superblock.get(32..48)?.try_into().ok()
}

/// Whether a file system with this superblock was ever mounted: the kernel writes the place in the log (`sb_lsn`) when it
/// mounts one, and `mkfs.xfs` leaves 0 there. True where it cannot be told.
pub fn was_mounted(superblock: &[u8]) -> bool {
    superblock.get(240..248).is_none_or(|lsn| lsn.iter().any(|byte| *byte != 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The check value of CRC-32C (RFC 3720, B.4, and every catalogue of CRCs).
    #[test]
    fn the_checksum_is_crc_32c() {
        assert_eq!(crc32c(b"123456789".iter().copied()), 0xe306_9283);
    }

    #[test]
    fn what_is_too_little_for_a_group_is_left_out() {
        let mut superblock = [0; 88];
        superblock[..4].copy_from_slice(MAGIC);
        superblock[4..8].copy_from_slice(&4096u32.to_be_bytes());
        superblock[8..16].copy_from_slice(&4000u64.to_be_bytes());
        superblock[84..].copy_from_slice(&1000u32.to_be_bytes());
        let xfs = XfsSize::from_superblock(&superblock).unwrap();
        assert_eq!((xfs.blocks, xfs.within(4096 * 4063), xfs.within(4096 * 4064)), (4000, 4000, 4064));
        assert!(!xfs.can_grow(4096 * 4063) && xfs.can_grow(4096 * 4064));
        let last_group = |blocks| XfsSize::new(4096, 1000, blocks).unwrap().last_group();
        assert_eq!([0, 1, 1000].map(last_group), [None; 3]);
        assert_eq!([1001, 4000].map(last_group), [Some(4096 * 1000), Some(4096 * 3000)]);
        assert_eq!(last_group(u64::MAX), None);
        assert_eq!(XfsSize::from_superblock(&[0; 88]), None);
        assert_eq!(XfsSize::from_superblock(&superblock[..80]), None);
        superblock[84..].fill(0);
        assert_eq!(XfsSize::from_superblock(&superblock), None);
    }
}
