//! The parts of the XFS on-disk format that are read or changed here (XFS Algorithms & Data Structures, 3rd edition,
//! "Superblocks" and "On-disk Inode"). Integers are big-endian, checksums little-endian.

use slipway_core::{
    bytes::{be16, be32, be64},
    disk::xfs::MAGIC,
    units::Extent,
};

pub const SUPERBLOCK_BYTES: usize = 128;

// mkfs.xfs allocates inodes in chunks of this many.
const CHUNK_INODES: u64 = 64;
// Seconds from the beginning of the `bigtime` scale, 1901-12-13, to 1970-01-01 UTC.
const BIGTIME_EPOCH: u64 = 1 << 31;
// `di_flags2`: times are nanoseconds on the `bigtime` scale.
const FLAG2_BIGTIME: u64 = 1 << 3;
// `di_mtime`, `di_ctime`, `di_crtime`. Not `di_atime`: mkfs.xfs does not set it, and the inode of the realtime bitmap
// uses the field for something else.
const TIMES: [usize; 3] = [40, 48, 144];
const DI_VERSION: usize = 4;
const DI_GEN: usize = 92;
const DI_CRC: usize = 100;
const DI_FLAGS2: usize = 120;
const MIN_INODE_BYTES: usize = 256;

/// The range of the internal log. `sb_logstart` is a block number with the allocation group in its upper bits.
pub fn log_range(sb: &[u8; SUPERBLOCK_BYTES]) -> Option<Extent> {
    let (block, ag_blocks, log_blocks) = (u64::from(be32(sb, 4)), u64::from(be32(sb, 84)), u64::from(be32(sb, 96)));
    let log_start = be64(sb, 48);
    let ag_bits = u32::from(sb[124]);
    if !sb.starts_with(MAGIC) || log_start == 0 || ag_bits >= 32 {
        return None;
    }
    let group_block = (log_start >> ag_bits).checked_mul(ag_blocks)?.checked_add(log_start & ((1 << ag_bits) - 1))?;
    Some(Extent { offset: group_block.checked_mul(block)?, len: log_blocks.checked_mul(block)? })
}

/// The chunk with all inodes that mkfs.xfs makes (root directory, realtime bitmap and summary), and the size of an
/// inode in bytes. `None` if this is not a version 5 file system with that layout.
pub fn root_inodes(sb: &[u8; SUPERBLOCK_BYTES]) -> Option<(Extent, usize)> {
    let version = sb[101] & 0xf;
    let size = usize::from(be16(sb, 104));
    let root = be64(sb, 56);
    // In the first allocation group an inode number is also an index from the start of the file system.
    let first_group = 1_u64.checked_shl(u32::from(sb[123]) + u32::from(sb[124]))?;
    let good = sb.starts_with(MAGIC)
        && version == 5
        && size >= MIN_INODE_BYTES
        && root.checked_add(CHUNK_INODES)? <= first_group;
    good.then_some((Extent { offset: root * size as u64, len: CHUNK_INODES * size as u64 }, size))
}

#[derive(Debug, thiserror::Error)]
#[error("inode {0} of the root directory's chunk is not a version 3 inode with a valid checksum")]
pub struct NotAnInode(usize);

/// Make inodes of `size` bytes reproducible: set the times of used ones to `time` (seconds since 1970 UTC) and all
/// generation numbers to 0, and update the checksums.
pub fn normalise_inodes(inodes: &mut [u8], size: usize, time: u64) -> Result<(), NotAnInode> {
    for (number, inode) in inodes.chunks_exact_mut(size).enumerate() {
        let crc = inode.get(DI_CRC..DI_CRC + 4).map(<[u8]>::to_vec);
        if !inode.starts_with(b"IN") || inode[DI_VERSION] != 3 || crc != Some(checksum(inode).to_vec()) {
            return Err(NotAnInode(number));
        }
        // A free inode has no times to set.
        if inode[2..4] != [0, 0] {
            let stamp = timestamp(time, be64(inode, DI_FLAGS2) & FLAG2_BIGTIME != 0);
            for at in TIMES {
                inode[at..at + 8].copy_from_slice(&stamp);
            }
        }
        inode[DI_GEN..DI_GEN + 4].fill(0);
        let crc = checksum(inode);
        inode[DI_CRC..DI_CRC + 4].copy_from_slice(&crc);
    }
    Ok(())
}

// In the on-disk form. A time beyond the format's range becomes the latest that it can hold.
fn timestamp(time: u64, bigtime: bool) -> [u8; 8] {
    if bigtime {
        return time.saturating_add(BIGTIME_EPOCH).saturating_mul(1_000_000_000).to_be_bytes();
    }
    (time.min(i32::MAX as u64) << 32).to_be_bytes()
}

// CRC32C of the inode with its checksum field taken as zeros.
fn checksum(inode: &[u8]) -> [u8; 4] {
    let crc = crc32c::crc32c(&inode[..DI_CRC]);
    let crc = crc32c::crc32c_append(crc, &[0; 4]);
    crc32c::crc32c_append(crc, &inode[DI_CRC + 4..]).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inode(mode: u16, flags2: u64) -> Vec<u8> {
        let mut inode = vec![0xa5; 512];
        inode[..2].copy_from_slice(b"IN");
        inode[2..4].copy_from_slice(&mode.to_be_bytes());
        inode[DI_VERSION] = 3;
        inode[DI_FLAGS2..DI_FLAGS2 + 8].copy_from_slice(&flags2.to_be_bytes());
        let crc = checksum(&inode);
        inode[DI_CRC..DI_CRC + 4].copy_from_slice(&crc);
        inode
    }

    #[test]
    fn only_times_and_generations_change() {
        let (used, free) = (inode(0o40755, FLAG2_BIGTIME), inode(0, 0));
        let mut both = [used.clone(), free.clone()].concat();
        normalise_inodes(&mut both, 512, 1).unwrap();
        let changed = |old: &[u8], new: &[u8]| (0..512).filter(|at| old[*at] != new[*at]).collect::<Vec<_>>();
        let own: Vec<usize> = (92..96).chain(100..104).collect();
        assert_eq!(changed(&free, &both[512..]), own);
        let times: Vec<usize> = (40..56).chain(92..96).chain(100..104).chain(144..152).collect();
        assert_eq!(changed(&used, &both[..512]), times);
        // 2^31 s + 1 s in ns: 1970-01-01 00:00:01 as xfs_db shows it.
        assert_eq!(be64(&both, 40), ((1 << 31) + 1) * 1_000_000_000);
        assert_eq!(timestamp(1, false), [0, 0, 0, 1, 0, 0, 0, 0]);
        assert_eq!(timestamp(u64::MAX, false), [0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0]);
    }

    #[test]
    fn what_is_no_inode_is_an_error() {
        let mut damaged = inode(0, 0);
        damaged[200] ^= 1;
        assert!(normalise_inodes(&mut damaged, 512, 0).is_err());
        assert!(normalise_inodes(&mut [0; 512], 512, 0).is_err());
    }
}
