//! The length of a squashfs, and whether Linux mounts it, by its superblock (Documentation/filesystems/squashfs.rst;
//! `struct squashfs_super_block` in fs/squashfs/squashfs_fs.h, `squashfs_fill_super` in fs/squashfs/super.c).

use crate::prelude::*;

use super::{Unbootable, cut, le16, le32, le64, xz::FOR_PROGRAMS};

const MAGIC: &[u8] = b"hsqs";
const SUPERBLOCK_BYTES: u64 = 96;
// It is read in blocks of so many bytes (`SQUASHFS_DEVBLK_SIZE`), and its loop device ends where the file does.
const DEVICE_BLOCK_BYTES: u64 = 1024;
// Data blocks have 4 KiB to 1 MiB.
const BLOCK_LOGS: core::ops::RangeInclusive<u64> = 12..=20;
// A block of metadata, in which the root directory begins at an offset.
const METADATA_BYTES: u64 = 8192;

/// By which a squashfs is compressed (`ZLIB_COMPRESSION` and the rest in squashfs_fs.h): as mksquashfs calls it, and the option of
/// the kernel that has it.
pub const COMPRESSORS: [(&str, &str); 6] = [
    ("gzip", "CONFIG_SQUASHFS_ZLIB"),
    ("lzma", ""),
    ("lzo", "CONFIG_SQUASHFS_LZO"),
    ("xz", "CONFIG_SQUASHFS_XZ"),
    ("lz4", "CONFIG_SQUASHFS_LZ4"),
    ("zstd", "CONFIG_SQUASHFS_ZSTD"),
];
// Linux's squashfs knows this one by its number only.
const NEVER_IN_LINUX: &str = "lzma";
// Flag of the superblock: options of the compressor follow it, behind the two bytes of a block of metadata.
const HAS_OPTIONS: u64 = 0x400;
const OPTIONS_AT: usize = SUPERBLOCK_BYTES as usize + 2;
// The only version of lz4's (fs/squashfs/lz4_wrapper.c).
const LZ4_LEGACY: u64 = 1;

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
    let (name, _) = compressor(head).ok_or(short)??;
    if let (true, Some(version)) = (name == "lz4", option(head, 0))
        && version != LZ4_LEGACY
    {
        return Err(Unbootable::OtherSquashfs("Linux does not know its version of lz4"));
    }
    let root = le64(head, 32).unwrap_or_default();
    if root % (1 << 16) >= METADATA_BYTES {
        return Err(Unbootable::OtherSquashfs("its superblock gives no possible place of the root directory"));
    }
    if le16(head, 26) == Some(0) {
        return Err(Unbootable::OtherSquashfs("its superblock says that no user owns anything in it"));
    }
    // mksquashfs pads the file to whole pages, so it may be longer.
    cut("superblock", used.max(SUPERBLOCK_BYTES), size)?;
    if used.next_multiple_of(DEVICE_BLOCK_BYTES) > size {
        return Err(Unbootable::OtherSquashfs(
            "its end fills no block of 1 KiB, in which Linux reads it; make it without `mksquashfs -nopad`",
        ));
    }
    Ok(())
}

/// The options that a kernel needs to mount it. A filter of xz is one of several that each block may have gone through.
pub fn needs(head: &[u8]) -> Vec<&'static str> {
    let Some(Ok((name, compressor))) = compressor(head) else { return vec![] };
    // The options begin with the size of the dictionary.
    let filters = option(head, 4).filter(|_| name == "xz").unwrap_or_default();
    // In the order of mksquashfs (xz_wrapper.c), which is that of their numbers in xz.
    let filters = FOR_PROGRAMS.into_iter().enumerate().filter(|(bit, _)| filters & (1 << bit) != 0);
    [compressor].into_iter().chain(filters.map(|(_, option)| option)).collect()
}

/// A number in the options of the compressor, if it has some.
fn option(head: &[u8], at: usize) -> Option<u64> {
    le16(head, 24).filter(|flags| flags & HAS_OPTIONS != 0).and_then(|_| le32(head, OPTIONS_AT + at))
}

/// The compressor. `None`: the superblock is cut off before it.
fn compressor(head: &[u8]) -> Option<Result<(&'static str, &'static str), Unbootable>> {
    let number = le16(head, 20)?;
    let known = usize::try_from(number).ok().and_then(|number| COMPRESSORS.get(number.checked_sub(1)?));
    Some(match known {
        Some(&known) if known.0 != NEVER_IN_LINUX => Ok(known),
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
        assert_eq!(check(&head, 5120), Ok(()));
        assert_eq!(check(&head, 8192), Ok(()), "padded");
        assert!(matches!(check(&head, 5000), Err(Unbootable::OtherSquashfs(why)) if why.contains("-nopad")));
        assert!(matches!(check(&head, 5119), Err(Unbootable::OtherSquashfs(_))));
        assert_eq!(check(&head, 4999), Err(Unbootable::Cut { what: "superblock", needs: 5000, has: 4999 }));
        assert_eq!(check(&superblock(5120, 1 << 17, 17, [4, 0]), 5120), Ok(()));
        assert!(matches!(check(&head[..95], 95), Err(Unbootable::Cut { .. })));
        assert!(matches!(check(b"hsqs", 4), Err(Unbootable::Cut { needs: 96, .. })));
        assert!(matches!(check(&superblock(u64::MAX, 4096, 12, [4, 0]), 5000), Err(Unbootable::Cut { .. })));
        assert!(matches!(check(&superblock(0, 4096, 12, [4, 0]), 95), Err(Unbootable::Cut { .. })));
    }

    #[test]
    fn other_squashfs() {
        for (block, log, version) in [(4096, 12, [3, 1]), (4096, 12, [4, 1]), (4096, 13, [4, 0]), (2048, 11, [4, 0])] {
            let head = superblock(96, block, log, version);
            assert!(matches!(check(&head, 1024), Err(Unbootable::OtherSquashfs(_))), "{block} {log} {version:?}");
        }
        assert!(matches!(check(&superblock(96, 0, 32, [4, 0]), 1024), Err(Unbootable::OtherSquashfs(_))));
    }

    #[test]
    fn by_its_compressor() {
        let compressed = |number: u16| {
            let mut head = superblock(96, 1 << 17, 17, [4, 0]);
            head[20..22].copy_from_slice(&number.to_le_bytes());
            check(&head, 1024)
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
        assert_eq!(check(&head, 1024), Ok(()));
        head[32..40].copy_from_slice(&8192_u64.to_le_bytes());
        assert!(matches!(check(&head, 1024), Err(Unbootable::OtherSquashfs(_))));
        let mut head = superblock(96, 1 << 17, 17, [4, 0]);
        head[26] = 0;
        assert!(matches!(check(&head, 1024), Err(Unbootable::OtherSquashfs(_))));
    }

    fn with_options(number: u16, options: &[u32]) -> Vec<u8> {
        let mut head = superblock(200, 1 << 17, 17, [4, 0]);
        head[20..22].copy_from_slice(&number.to_le_bytes());
        head[24..26].copy_from_slice(&0x400_u16.to_le_bytes());
        head.extend([8, 0x80]);
        options.iter().for_each(|option| head.extend(option.to_le_bytes()));
        head
    }

    #[test]
    fn what_a_kernel_needs_for_it() {
        assert_eq!(needs(&superblock(96, 1 << 17, 17, [4, 0])), ["CONFIG_SQUASHFS_ZLIB"]);
        assert_eq!(needs(&with_options(6, &[15])), ["CONFIG_SQUASHFS_ZSTD"]);
        let xz = needs(&with_options(4, &[1 << 17, 0b100_0001]));
        assert_eq!(xz, ["CONFIG_SQUASHFS_XZ", "CONFIG_XZ_DEC_X86", "CONFIG_XZ_DEC_ARM64"]);
        assert_eq!(needs(b"hsqs"), [""; 0]);
    }

    #[test]
    fn versions_of_lz4() {
        assert_eq!(check(&with_options(5, &[1, 0]), 1024), Ok(()));
        assert!(matches!(check(&with_options(5, &[2, 0]), 1024), Err(Unbootable::OtherSquashfs(_))));
        assert_eq!(check(&with_options(6, &[2]), 1024), Ok(()), "a level of zstd");
    }
}
