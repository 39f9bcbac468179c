//! The length of a squashfs, and whether Linux mounts it, by its superblock (Documentation/filesystems/squashfs.rst;
//! `struct squashfs_super_block` in fs/squashfs/squashfs_fs.h, `squashfs_fill_super` in fs/squashfs/super.c).

use crate::prelude::*;

use super::{Unbootable, cut, le16, le32, xz::FOR_PROGRAMS};
use crate::bytes::get_le64;

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
// In that block's size.
const NOT_COMPRESSED: u64 = 0x8000;
// It is read into a page.
const MOST_OPTIONS: u64 = 4096;
// Of a table that it does not have.
const NO_TABLE: u64 = u64::MAX;
// The only version of lz4's (fs/squashfs/lz4_wrapper.c).
const LZ4_LEGACY: u64 = 1;

pub fn check(head: &[u8], size: u64) -> Result<(), Unbootable> {
    if !head.starts_with(MAGIC) {
        return Err(Unbootable::NotSquashfs);
    }
    let short = Unbootable::Cut { what: "superblock", needs: SUPERBLOCK_BYTES, has: size };
    let fields = (le16(head, 28), le16(head, 30), le32(head, 12), le16(head, 22), get_le64(head, 40));
    let (Some(major), Some(minor), Some(block), Some(log), Some(used)) = fields else { return Err(short) };
    if (major, minor) != (4, 0) {
        return Err(Unbootable::OtherSquashfs("its version is not 4.0"));
    }
    let (name, _) = compressor(head).ok_or(short)??;
    // Linux takes lz4 only with its options.
    if name == "lz4" && option(head, 0) != Some(LZ4_LEGACY) {
        return Err(Unbootable::OtherSquashfs("Linux does not know its version of lz4"));
    }
    // mksquashfs pads the file to whole pages, so it may be longer.
    cut("superblock", used.max(SUPERBLOCK_BYTES), size)?;
    if used.next_multiple_of(DEVICE_BLOCK_BYTES) > size {
        return Err(Unbootable::OtherSquashfs(
            "its end fills no block of 1 KiB, in which Linux reads it; make it without `mksquashfs -nopad`",
        ));
    }
    // What Linux calls insane, as far as the superblock tells.
    if !BLOCK_LOGS.contains(&log) || block != 1 << log || !has_options(head, name) || !places_are_possible(head, used) {
        return Err(Unbootable::OtherSquashfs("its superblock makes no sense: copy or make it again"));
    }
    Ok(())
}

/// Whether the options of the compressor are such as Linux reads, if it has some: in a block of metadata that is not compressed.
fn has_options(head: &[u8], name: &str) -> bool {
    if le16(head, 24).is_none_or(|flags| flags & HAS_OPTIONS == 0) {
        return true;
    }
    let stored = le16(head, OPTIONS_AT - 2)
        .is_some_and(|size| (NOT_COMPRESSED + 1..=NOT_COMPRESSED + MOST_OPTIONS).contains(&size));
    // A dictionary has 2^n bytes, or 2^n + 2^(n + 1) (fs/squashfs/xz_wrapper.c).
    let is_dictionary = |bytes: u64| matches!(bytes >> bytes.trailing_zeros().min(31), 1 | 3);
    stored && (name != "xz" || option(head, 0).is_some_and(is_dictionary))
}

/// Whether the tables lie in their order, none in the next one, and the root directory's inode among the inodes.
fn places_are_possible(head: &[u8], used: u64) -> bool {
    let at = |offset| get_le64(head, offset).unwrap_or(NO_TABLE);
    // The places of the blocks that a table has, which stand one behind the other at the place that the superblock gives.
    let list = |entries: u64, bytes: u64| (entries * bytes).div_ceil(METADATA_BYTES) * 8;
    let ends = |begin: u64, len: u64| begin.saturating_add(len);
    let (inodes, fragments) = (le32(head, 4).unwrap_or(0), le32(head, 16).unwrap_or(0));
    let users = list(le16(head, 26).unwrap_or(0), 4);
    let (root, [ids, xattrs, inode_table, directories, fragment_list, exports]) =
        (at(32), [48, 56, 64, 72, 80, 88].map(at));
    let ids_are_right = match xattrs {
        NO_TABLE => ends(ids, users) == used,
        // The head of that table has 16 bytes.
        _ => ends(ids, users) <= xattrs && ends(xattrs, 16) <= used,
    };
    let end = if exports == NO_TABLE { ids } else { exports };
    let exports_are_right = exports == NO_TABLE || inodes > 0 && ends(exports, list(inodes, 8)) <= ids;
    let fragments_are_right = fragments == 0 || ends(fragment_list, list(fragments, 16)) <= end;
    let end = if fragments == 0 { end } else { fragment_list };
    let inode = ends(inode_table, root >> 16);
    users > 0
        && ids_are_right
        && exports_are_right
        && fragments_are_right
        && directories <= end
        && inode_table >= SUPERBLOCK_BYTES
        && inode < directories
        && root % (1 << 16) < METADATA_BYTES
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

    /// Without extended attributes, exports and fragments.
    fn superblock(used: u64, block: u32, log: u16, version: [u16; 2]) -> Vec<u8> {
        let mut head = vec![0; 96];
        head[..4].copy_from_slice(MAGIC);
        head[4] = 1;
        head[12..16].copy_from_slice(&block.to_le_bytes());
        head[20..22].copy_from_slice(&1_u16.to_le_bytes());
        head[22..24].copy_from_slice(&log.to_le_bytes());
        head[26..28].copy_from_slice(&1_u16.to_le_bytes());
        head[28..30].copy_from_slice(&version[0].to_le_bytes());
        head[30..32].copy_from_slice(&version[1].to_le_bytes());
        let places = [used, used.wrapping_sub(8), NO_TABLE, 96, used.wrapping_sub(40), NO_TABLE, NO_TABLE];
        places.iter().enumerate().for_each(|(n, place)| put(&mut head, 40 + 8 * n, *place));
        head
    }

    fn put(head: &mut [u8], at: usize, number: u64) {
        head[at..at + 8].copy_from_slice(&number.to_le_bytes());
    }

    fn is_refused(head: &[u8]) -> bool {
        matches!(check(head, 8192), Err(Unbootable::OtherSquashfs(_)))
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
            let head = superblock(200, block, log, version);
            assert!(matches!(check(&head, 1024), Err(Unbootable::OtherSquashfs(_))), "{block} {log} {version:?}");
        }
        assert!(matches!(check(&superblock(200, 0, 32, [4, 0]), 1024), Err(Unbootable::OtherSquashfs(_))));
    }

    #[test]
    fn by_its_compressor() {
        let compressed = |number: u16| {
            let mut head = superblock(200, 1 << 17, 17, [4, 0]);
            head[20..22].copy_from_slice(&number.to_le_bytes());
            check(&head, 1024)
        };
        for number in [1, 3, 4, 6] {
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
        let of = |at: usize, number: u64| {
            let mut head = superblock(5000, 1 << 17, 17, [4, 0]);
            // Of smaller fields the neighbours stay.
            let bytes = match at {
                4 | 16 => 4,
                26 => 2,
                _ => 8,
            };
            head[at..at + bytes].copy_from_slice(&number.to_le_bytes()[..bytes]);
            head
        };
        let last = METADATA_BYTES - 1;
        for (at, right, wrong) in [
            (26, &[1, 2048][..], &[0, 2049][..]),
            (32, &[last, 4863 << 16], &[last + 1, 4864 << 16, u64::MAX]),
            (48, &[4992], &[4991, 4993, 0, u64::MAX]),
            // The head of its table has to fit in, behind the ids.
            (56, &[u64::MAX], &[4991, 4985, 5000, 0, 1]),
            (64, &[96, 4959], &[95, 4960, u64::MAX]),
            (72, &[4992, 97], &[4993, 96, u64::MAX]),
            (80, &[0, u64::MAX], &[]),
            (88, &[u64::MAX, 4984, 4960], &[4985, 0, 4959, u64::MAX - 1]),
            (4, &[0, u64::from(u32::MAX)], &[]),
            (16, &[], &[1, u64::from(u32::MAX)]),
        ] {
            right.iter().for_each(|number| assert_eq!(check(&of(at, *number), 8192), Ok(()), "{number} at {at}"));
            wrong.iter().for_each(|number| assert!(is_refused(&of(at, *number)), "{number} at {at}"));
        }
        // With all tables: the users' list of 8 bytes, and behind it the attributes.
        let mut head = of(56, 4984);
        for (at, place) in [(48, 4968), (88, 4952), (80, 4944), (72, 4940)] {
            put(&mut head, at, place);
        }
        head[16] = 1;
        assert_eq!(check(&head, 8192), Ok(()));
        for (at, place) in [(48, 4977), (88, 4961), (80, 4945), (72, 4945)] {
            let mut wrong = head.clone();
            put(&mut wrong, at, place);
            assert!(is_refused(&wrong), "{place} at {at}");
        }
        head[4] = 0;
        assert!(is_refused(&head), "exports of no inodes");
    }

    fn with_options(number: u16, options: &[u32]) -> Vec<u8> {
        let mut head = superblock(200, 1 << 17, 17, [4, 0]);
        head[20..22].copy_from_slice(&number.to_le_bytes());
        head[24..26].copy_from_slice(&0x400_u16.to_le_bytes());
        head.extend([(4 * options.len()) as u8, 0x80]);
        options.iter().for_each(|option| head.extend(option.to_le_bytes()));
        head
    }

    #[test]
    fn what_a_kernel_needs_for_it() {
        assert_eq!(needs(&superblock(200, 1 << 17, 17, [4, 0])), ["CONFIG_SQUASHFS_ZLIB"]);
        assert_eq!(needs(&with_options(6, &[15])), ["CONFIG_SQUASHFS_ZSTD"]);
        let xz = needs(&with_options(4, &[1 << 17, 0b100_0001]));
        assert_eq!(xz, ["CONFIG_SQUASHFS_XZ", "CONFIG_XZ_DEC_X86", "CONFIG_XZ_DEC_ARM64"]);
        assert_eq!(needs(b"hsqs"), [""; 0]);
    }

    #[test]
    fn options_that_linux_reads() {
        for dictionary in [8192, 3 << 16, 1 << 20, 1 << 31, 3 << 30] {
            assert_eq!(check(&with_options(4, &[dictionary, 0]), 1024), Ok(()), "{dictionary}");
        }
        for dictionary in [0, 5 << 16, u32::MAX] {
            assert!(is_refused(&with_options(4, &[dictionary, 0])), "{dictionary}");
        }
        // Compressed, empty, larger than a page, or not there at all.
        for size in [8_u16, 0x8000, 0x9001, 0xffff] {
            let mut head = with_options(6, &[15]);
            head[96..98].copy_from_slice(&size.to_le_bytes());
            assert!(is_refused(&head), "{size}");
        }
        let mut head = superblock(200, 1 << 17, 17, [4, 0]);
        head[24..26].fill(0xff);
        assert!(is_refused(&head));
    }

    #[test]
    fn versions_of_lz4() {
        let mut without = superblock(200, 1 << 17, 17, [4, 0]);
        without[20] = 5;
        assert!(is_refused(&without));
        assert_eq!(check(&with_options(5, &[1, 0]), 1024), Ok(()));
        assert!(matches!(check(&with_options(5, &[2, 0]), 1024), Err(Unbootable::OtherSquashfs(_))));
        assert_eq!(check(&with_options(6, &[2]), 1024), Ok(()), "a level of zstd");
    }
}
