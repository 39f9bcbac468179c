//! The length of a squashfs, and whether Linux mounts it, by its superblock (Documentation/filesystems/squashfs.rst;
//! `struct squashfs_super_block` in fs/squashfs/squashfs_fs.h, `squashfs_fill_super` in fs/squashfs/super.c).

use super::{Unbootable, cut, le16, le32, le64};

const MAGIC: &[u8] = b"hsqs";
const SUPERBLOCK_BYTES: u64 = 96;
// Data blocks have 4 KiB to 1 MiB.
const BLOCK_LOGS: core::ops::RangeInclusive<u64> = 12..=20;
// A block of metadata, in which the root directory begins at an offset.
const METADATA_BYTES: u64 = 8192;

/// By which a squashfs is compressed (`ZLIB_COMPRESSION` and the rest in squashfs_fs.h), as mksquashfs calls it.
const COMPRESSORS: [&str; 6] = ["gzip", "lzma", "lzo", "xz", "lz4", "zstd"];
// Of them, which squashfs in Linux knows by its number only.
const NEVER_IN_LINUX: &str = "lzma";

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
    compressor(head).ok_or(short)??;
    let root = le64(head, 32).unwrap_or_default();
    if root % (1 << 16) >= METADATA_BYTES {
        return Err(Unbootable::OtherSquashfs("its superblock gives no possible place of the root directory"));
    }
    if le16(head, 26) == Some(0) {
        return Err(Unbootable::OtherSquashfs("its superblock says that no user owns anything in it"));
    }
    // mksquashfs pads the file to whole pages, so it may be longer.
    cut("superblock", used.max(SUPERBLOCK_BYTES), size)
}

/// By what it is compressed, as mksquashfs calls that. `None`: the superblock is cut off before it.
fn compressor(head: &[u8]) -> Option<Result<&'static str, Unbootable>> {
    let number = le16(head, 20)?;
    let known = usize::try_from(number).ok().and_then(|number| COMPRESSORS.get(number.checked_sub(1)?));
    Some(match known {
        Some(&name) if name != NEVER_IN_LINUX => Ok(name),
        Some(_) => Err(Unbootable::OtherSquashfs(
            "it is compressed with lzma, which squashfs in Linux has never had; make it with `mksquashfs -comp zstd`, or gzip, \
             xz, lz4 or lzo",
        )),
        None => Err(Unbootable::OtherSquashfs(
            "the number of its compressor stands for none; make it with `mksquashfs -comp zstd`, or gzip, xz, lz4 or lzo",
        )),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prelude::*;

    fn superblock(used: u64, block: u32, log: u16, version: [u16; 2]) -> Vec<u8> {
        let mut head = vec![0; 96];
        head[..4].copy_from_slice(MAGIC);
        head[12..16].copy_from_slice(&block.to_le_bytes());
        head[20..22].copy_from_slice(&1_u16.to_le_bytes());
        head[22..24].copy_from_slice(&log.to_le_bytes());
        head[26..28].copy_from_slice(&1_u16.to_le_bytes());
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

    #[test]
    fn by_its_compressor() {
        let compressed = |number: u16| {
            let mut head = superblock(96, 1 << 17, 17, [4, 0]);
            head[20..22].copy_from_slice(&number.to_le_bytes());
            check(&head, 96)
        };
        for number in [1, 3, 4, 5, 6] {
            assert_eq!(compressed(number), Ok(()), "{number}");
        }
        let why = |number| compressed(number).unwrap_err().to_string();
        assert!(why(2).contains("lzma") && why(2).contains("-comp zstd"));
        for number in [0, 7, 0x100, u16::MAX] {
            assert!(why(number).contains("stands for none") && why(number).contains("-comp zstd"), "{number}");
        }
    }

    #[test]
    fn what_linux_does_not_mount() {
        let mut head = superblock(96, 1 << 17, 17, [4, 0]);
        head[32..40].copy_from_slice(&8191_u64.to_le_bytes());
        assert_eq!(check(&head, 96), Ok(()));
        head[32..40].copy_from_slice(&8192_u64.to_le_bytes());
        assert!(matches!(check(&head, 96), Err(Unbootable::OtherSquashfs(_))));
        let mut head = superblock(96, 1 << 17, 17, [4, 0]);
        head[26] = 0;
        assert!(matches!(check(&head, 96), Err(Unbootable::OtherSquashfs(_))));
    }
}
