//! The length of a squashfs, by its superblock (Documentation/filesystems/squashfs.rst; `struct squashfs_super_block` in
//! fs/squashfs/squashfs_fs.h).

use super::{Unbootable, cut, le16, le32, le64};

const MAGIC: &[u8] = b"hsqs";
const SUPERBLOCK_BYTES: u64 = 96;
// Data blocks have 4 KiB to 1 MiB.
const BLOCK_LOGS: core::ops::RangeInclusive<u64> = 12..=20;

pub fn check(head: &[u8], size: u64) -> Result<(), Unbootable> {
    if !head.starts_with(MAGIC) {
        return Err(Unbootable::NotSquashfs);
    }
    let short = Unbootable::Cut { what: "superblock", needs: SUPERBLOCK_BYTES, has: size };
    let fields = (le16(head, 28), le16(head, 30), le32(head, 12), le16(head, 22), le64(head, 40));
    let (Some(major), Some(minor), Some(block), Some(log), Some(used)) = fields else { return Err(short) };
    if (major, minor) != (4, 0) {
        return Err(Unbootable::OtherSquashfs("its version is not 4.0"));
    }
    if !BLOCK_LOGS.contains(&log) || block != 1 << log {
        return Err(Unbootable::OtherSquashfs("its superblock gives no possible size of blocks"));
    }
    // mksquashfs pads the file to whole pages, so it may be longer.
    cut("superblock", used.max(SUPERBLOCK_BYTES), size)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prelude::*;

    fn superblock(used: u64, block: u32, log: u16, version: [u16; 2]) -> Vec<u8> {
        let mut head = vec![0; 96];
        head[..4].copy_from_slice(MAGIC);
        head[12..16].copy_from_slice(&block.to_le_bytes());
        head[22..24].copy_from_slice(&log.to_le_bytes());
        head[28..30].copy_from_slice(&version[0].to_le_bytes());
        head[30..32].copy_from_slice(&version[1].to_le_bytes());
        head[40..48].copy_from_slice(&used.to_le_bytes());
        head
    }

    #[test]
    fn by_its_superblock() {
        let head = superblock(5000, 1 << 17, 17, [4, 0]);
        assert_eq!(check(&head, 5000), Ok(()));
        assert_eq!(check(&head, 8192), Ok(()), "padded");
        assert_eq!(check(&head, 4999), Err(Unbootable::Cut { what: "superblock", needs: 5000, has: 4999 }));
        assert!(matches!(check(&head[..95], 95), Err(Unbootable::Cut { .. })));
        assert!(matches!(check(b"hsqs", 4), Err(Unbootable::Cut { needs: 96, .. })));
        assert!(matches!(check(&superblock(u64::MAX, 4096, 12, [4, 0]), 5000), Err(Unbootable::Cut { .. })));
        assert!(matches!(check(&superblock(0, 4096, 12, [4, 0]), 95), Err(Unbootable::Cut { .. })));
    }

    #[test]
    fn other_squashfs() {
        for (block, log, version) in [(4096, 12, [3, 1]), (4096, 12, [4, 1]), (4096, 13, [4, 0]), (2048, 11, [4, 0])] {
            let head = superblock(96, block, log, version);
            assert!(matches!(check(&head, 96), Err(Unbootable::OtherSquashfs(_))), "{block} {log} {version:?}");
        }
        assert!(matches!(check(&superblock(96, 0, 32, [4, 0]), 96), Err(Unbootable::OtherSquashfs(_))));
    }
}
