//! The size of file systems that people make of EPHEMERAL, by themselves. Where its entry in the table is lost, nothing else says
//! where it ends, and a partition of others may lie behind it.

use super::magic::recognise;
use crate::bytes::{get_le32, get_le64};

/// Bytes of the ext2/3/4 or btrfs file system or of the LVM physical volume that begins with these bytes
/// ([`super::magic::HEAD_BYTES`] of them). None of all else.
pub fn volume_bytes(head: &[u8]) -> Option<u64> {
    let bytes = match recognise(head)?.short {
        "ext2/3/4" => ext(head)?,
        // The size of this device (`dev_item.total_bytes`): the file system may have others.
        "btrfs" => get_le64(head, 0x1_0000 + 0xd1)?,
        // The label says where the header of the volume is, which has its UUID before its size.
        "LVM" => get_le64(head, 512 + get_le32(head, 512 + 20)? as usize + 32)?,
        _ => 0,
    };
    (bytes > 0).then_some(bytes)
}

fn ext(head: &[u8]) -> Option<u64> {
    const SUPERBLOCK: usize = 1024;
    const HAS_64_BITS: u32 = 0x80;
    let field = |at: usize| get_le32(head, SUPERBLOCK + at);
    let high = if field(96)? & HAS_64_BITS == 0 { 0 } else { field(336)? };
    let blocks = u64::from(high) << 32 | u64::from(field(4)?);
    blocks.checked_mul(1024_u64.checked_shl(field(24)?)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{disk::magic::HEAD_BYTES, prelude::*, units::GIB};

    fn head(parts: &[(usize, &[u8])]) -> Vec<u8> {
        let mut head = vec![0; HEAD_BYTES];
        parts.iter().for_each(|(at, bytes)| head[*at..at + bytes.len()].copy_from_slice(bytes));
        head
    }

    /// The tests of the installer ask the programs that make them.
    #[test]
    fn each_says_its_size() {
        let blocks = (GIB as u32 / 4096).to_le_bytes();
        let of_a_gib: [(usize, &[u8]); 3] = [(1080, b"\x53\xef"), (1028, &blocks), (1048, &[2])];
        let ext = |more: &[(usize, &[u8])]| {
            let mut head = head(&of_a_gib);
            more.iter().for_each(|(at, bytes)| head[*at..at + bytes.len()].copy_from_slice(bytes));
            head
        };
        assert_eq!(volume_bytes(&ext(&[])), Some(GIB));
        assert_eq!(volume_bytes(&ext(&[(1360, &[1])])), Some(GIB), "a field of others");
        assert_eq!(volume_bytes(&ext(&[(1120, &[0x80]), (1360, &[1])])), Some((1 << 44) + GIB));
        assert_eq!(volume_bytes(&ext(&[(1048, &[64])])), None, "no block is so large");
        let btrfs = head(&[(65600, b"_BHRfS_M"), (65745, &GIB.to_le_bytes())]);
        assert_eq!(volume_bytes(&btrfs), Some(GIB));
        let lvm = head(&[(512, b"LABELONE"), (532, &[32]), (576, &GIB.to_le_bytes())]);
        assert_eq!(volume_bytes(&lvm), Some(GIB));
        let outside = head(&[(512, b"LABELONE"), (532, &[0xff; 4])]);
        assert_eq!(volume_bytes(&outside), None);
        assert_eq!(volume_bytes(&head(&[(0, b"LUKS\xba\xbe")])), None);
        assert_eq!(volume_bytes(&head(&[])), None);
    }
}
