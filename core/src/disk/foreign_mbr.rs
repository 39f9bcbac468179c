//! MBR partition tables of foreign disks (UEFI specification 2.10, table 5-2). For our own protective MBR see
//! [`super::gpt`].

use crate::prelude::*;

use crate::{
    bytes::le32,
    units::{Extent, Lba, SectorSize},
};

/// One of the four entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Number, 1 to 4.
    pub number: u32,
    /// Type of the partition; never 0.
    pub kind: u8,
    /// First block.
    pub first: Lba,
    /// Number of blocks; never 0.
    pub blocks: u32,
}

impl Entry {
    /// Its bytes.
    pub fn extent(&self, sector: SectorSize) -> Extent {
        // Blocks have 32 bits, so nothing overflows.
        Extent { offset: self.first.0 * sector.bytes(), len: u64::from(self.blocks) * sector.bytes() }
    }

    /// Whether it is an extended partition, which contains others.
    pub const fn is_extended(&self) -> bool {
        matches!(self.kind, 0x05 | 0x0f | 0x85)
    }
}

/// The partitions in a first block; `None` if it is not an MBR or has no partitions.
pub fn partitions(lba0: &[u8]) -> Option<Vec<Entry>> {
    let rows = || lba0[446..510].chunks_exact(16);
    // A boot sector ends in 55 AA, too. But it has code or text where an MBR has the status bytes, which are 0 or 0x80.
    if lba0.get(510..512) != Some(&[0x55, 0xaa]) || rows().any(|row| row[0] & 0x7f != 0) {
        return None;
    }
    let entries = (1..).zip(rows()).map(|(number, row)| Entry {
        number,
        kind: row[4],
        first: Lba(u64::from(le32(row, 8))),
        blocks: le32(row, 12),
    });
    // Unused entries have type 0, and some tools leave entries of no blocks.
    let used: Vec<Entry> = entries.filter(|e| e.kind != 0 && e.blocks != 0).collect();
    (!used.is_empty()).then_some(used)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn block(rows: &[(u8, u8, u32, u32)]) -> Vec<u8> {
        let mut block = vec![0; 512];
        for (row, (status, kind, first, blocks)) in block[446..510].chunks_exact_mut(16).zip(rows) {
            (row[0], row[4]) = (*status, *kind);
            row[8..12].copy_from_slice(&first.to_le_bytes());
            row[12..].copy_from_slice(&blocks.to_le_bytes());
        }
        block[510..].copy_from_slice(&[0x55, 0xaa]);
        block
    }

    #[test]
    fn entries_keep_their_numbers() {
        let rows = [(0x80, 0x0c, 2048, 100), (0, 0, 0, 0), (0, 0x05, 4096, u32::MAX)];
        let found = partitions(&block(&rows)).unwrap();
        assert_eq!(found.iter().map(|e| (e.number, e.is_extended())).collect::<Vec<_>>(), [(1, false), (3, true)]);
        assert_eq!(found[0].extent(SectorSize::S512), Extent { offset: 1 << 20, len: 51_200 });
        assert_eq!(found[1].extent(SectorSize::S4096).len, u64::from(u32::MAX) * 4096);
    }

    #[test]
    fn what_is_none() {
        assert_eq!(partitions(&[0; 512]), None);
        assert_eq!(partitions(&[]), None);
        assert_eq!(partitions(&block(&[])), None, "no partitions");
        assert_eq!(partitions(&block(&[(0, 0x83, 2048, 8), (b'x', 0, 0, 0)])), None, "text of a boot sector");
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(mut block in prop::collection::vec(any::<u8>(), 0..600), sign: bool) {
            if sign && block.len() > 512 {
                block[510..512].copy_from_slice(&[0x55, 0xaa]);
                for row in 0..4 {
                    block[446 + 16 * row] &= 0x80;
                }
            }
            for entry in partitions(&block).unwrap_or_default() {
                prop_assert!(entry.extent(SectorSize::S4096).len > 0);
            }
        }
    }
}
