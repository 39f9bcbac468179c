//! Size of an XFS file system, and the size that it can reach; whether it was ever in use.

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
    pub fn of(superblock: &[u8]) -> Option<Self> {
        let be32 = |at: usize| Some(u32::from_be_bytes(superblock.get(at..at + 4)?.try_into().ok()?));
        let be64 = |at: usize| Some(u64::from_be_bytes(superblock.get(at..at + 8)?.try_into().ok()?));
        (superblock.get(..4)? == b"XFSB").then_some(())?;
        Self::new(be32(4)?, be32(84)?, be64(8)?)
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

/// Whether a file system with this superblock was ever mounted: the kernel writes the place in the log (`sb_lsn`) when it
/// mounts one, and `mkfs.xfs` leaves 0 there. True for what cannot be told.
pub fn was_mounted(superblock: &[u8]) -> bool {
    superblock.get(240..248).is_none_or(|lsn| lsn.iter().any(|byte| *byte != 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_little_for_a_group_is_left_out() {
        let mut superblock = [0; 88];
        superblock[..4].copy_from_slice(b"XFSB");
        superblock[4..8].copy_from_slice(&4096u32.to_be_bytes());
        superblock[8..16].copy_from_slice(&4000u64.to_be_bytes());
        superblock[84..].copy_from_slice(&1000u32.to_be_bytes());
        let xfs = XfsSize::of(&superblock).unwrap();
        assert_eq!((xfs.blocks, xfs.within(4096 * 4063), xfs.within(4096 * 4064)), (4000, 4000, 4064));
        assert!(!xfs.can_grow(4096 * 4063) && xfs.can_grow(4096 * 4064));
        assert_eq!(XfsSize::of(&[0; 88]), None);
        assert_eq!(XfsSize::of(&superblock[..80]), None);
        superblock[84..].fill(0);
        assert_eq!(XfsSize::of(&superblock), None);
    }
}
