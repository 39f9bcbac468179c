//! Finds the copies of the boot state on the ESP: as much of FAT32 as finds two files of one sector.
//!
//! The loader reads and writes these sectors by their place. A file system driver would write the directory with them, and
//! could answer a read from its own memory.

use crate::env_block::SECTOR_BLOCK_BYTES;

/// Reads from the partition: byte offset, buffer. False if that cannot be read.
pub type Read<'r> = dyn FnMut(u64, &mut [u8]) -> bool + 'r;

// Names as directory entries have them (Microsoft FAT specification, 2005).
const DIRECTORY: &[u8; 11] = b"SLIPWAY    ";
const COPIES: [&[u8; 11]; 2] = [b"BOOT    ENV", b"BOOT2   ENV"];
const ENTRY_BYTES: usize = 32;
const ATTR_DIRECTORY: u8 = 0x10;
// Each entry of a long name has this bit, too.
const ATTR_VOLUME_LABEL: u8 = 0x08;
// The installer's own directories have one cluster. This bounds the cost of a damaged volume.
const MAX_CLUSTERS: u32 = 64;
const END_OF_CHAIN: u32 = 0x0fff_fff8;

/// The byte offset of each copy ([`crate::env::PATHS`]) in the partition. `None` for a missing copy, or one that is not
/// a file of one sector.
pub fn copies(read: &mut Read) -> [Option<u64>; 2] {
    let mut found = || {
        let volume = Volume::open(read)?;
        let directory = volume.search(read, volume.root, DIRECTORY)?;
        if directory.attr & ATTR_DIRECTORY == 0 {
            return None;
        }
        let [first, second] = COPIES.map(|name| {
            let file = volume.search(read, directory.cluster, name)?;
            let whole = file.attr & ATTR_DIRECTORY == 0 && file.bytes as usize == SECTOR_BLOCK_BYTES;
            volume.offset(file.cluster).filter(|_| whole)
        });
        // A sector is no second copy of itself.
        Some([first, second.filter(|_| first != second)])
    };
    found().unwrap_or_default()
}

struct Volume {
    cluster_bytes: u64,
    fat: u64,
    data: u64,
    clusters: u32,
    root: u32,
}

struct Entry {
    attr: u8,
    cluster: u32,
    bytes: u32,
}

impl Volume {
    fn open(read: &mut Read) -> Option<Self> {
        let mut b = [0; 512];
        if !read(0, &mut b) || b[510..] != [0x55, 0xaa] || &b[82..87] != b"FAT32" {
            return None;
        }
        let sector = u64::from(u16::from_le_bytes([b[11], b[12]]));
        let per_cluster = u64::from(b[13]);
        let reserved = u64::from(u16::from_le_bytes([b[14], b[15]]));
        if !matches!(sector, 512 | 1024 | 2048 | 4096) || !per_cluster.is_power_of_two() || reserved == 0 {
            return None;
        }
        let (total, fat_sectors) = (u64::from(le32(&b, 32)), u64::from(le32(&b, 36)));
        let data = reserved + u64::from(b[16]) * fat_sectors;
        let clusters = u32::try_from(total.saturating_sub(data) / per_cluster).ok()?;
        Some(Volume {
            cluster_bytes: per_cluster * sector,
            fat: reserved * sector,
            data: data * sector,
            clusters,
            root: le32(&b, 44),
        })
    }

    /// Byte offset of a cluster that the volume has.
    fn offset(&self, cluster: u32) -> Option<u64> {
        let index = cluster.checked_sub(2).filter(|index| *index < self.clusters)?;
        Some(self.data + u64::from(index) * self.cluster_bytes)
    }

    fn next(&self, read: &mut Read, cluster: u32) -> Option<u32> {
        let mut entry = [0; 4];
        let next = read(self.fat + u64::from(cluster) * 4, &mut entry).then(|| le32(&entry, 0) & 0x0fff_ffff)?;
        (next < END_OF_CHAIN).then_some(next)
    }

    /// The entry of a directory with this name.
    fn search(&self, read: &mut Read, directory: u32, name: &[u8; 11]) -> Option<Entry> {
        let mut cluster = directory;
        for _ in 0..MAX_CLUSTERS {
            let at = self.offset(cluster)?;
            // Sector by sector: an unreadable one hides only its own entries.
            for sector in (0..self.cluster_bytes).step_by(512) {
                let mut bytes = [0; 512];
                if !read(at + sector, &mut bytes) {
                    continue;
                }
                for raw in bytes.chunks_exact(ENTRY_BYTES) {
                    if raw[0] == 0 {
                        return None;
                    }
                    if raw[..11] == *name && raw[11] & ATTR_VOLUME_LABEL == 0 {
                        let high = u32::from(u16::from_le_bytes([raw[20], raw[21]])) << 16;
                        let cluster = high | u32::from(u16::from_le_bytes([raw[26], raw[27]]));
                        return Some(Entry { attr: raw[11], cluster, bytes: le32(raw, 28) });
                    }
                }
            }
            cluster = self.next(read, cluster)?;
        }
        None
    }
}

fn le32(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::prelude::*;

    /// A volume with one FAT, whose root directory holds `slipway` in its second cluster. Clusters of one sector.
    fn volume() -> Vec<u8> {
        let (reserved, fat_sectors, sectors) = (32_usize, 8, 200_u32);
        let mut v = vec![0; sectors as usize * 512];
        v[11..13].copy_from_slice(&512_u16.to_le_bytes());
        (v[13], v[14], v[16]) = (1, reserved as u8, 1);
        v[32..36].copy_from_slice(&sectors.to_le_bytes());
        v[36] = fat_sectors;
        v[44] = 2;
        v[82..90].copy_from_slice(b"FAT32   ");
        v[510..512].copy_from_slice(&[0x55, 0xaa]);
        let fat = reserved * 512;
        for (cluster, next) in [(2, 3_u32), (3, END_OF_CHAIN), (4, END_OF_CHAIN), (5, END_OF_CHAIN), (9, END_OF_CHAIN)]
        {
            v[fat + cluster * 4..][..4].copy_from_slice(&next.to_le_bytes());
        }
        let at = |cluster: usize| (reserved + fat_sectors as usize + cluster - 2) * 512;
        let mut put = |at: usize, name: &[u8], attr: u8, cluster: u8, bytes: u32| {
            v[at..at + 11].copy_from_slice(name);
            (v[at + 11], v[at + 26]) = (attr, cluster);
            v[at + 28..at + 32].copy_from_slice(&bytes.to_le_bytes());
        };
        for n in 0..16 {
            put(at(2) + n * 32, b"OTHER   TXT", 0x20, 0, 0);
        }
        put(at(3), b"SLIPWAY    ", ATTR_DIRECTORY, 4, 0);
        put(at(4), b"BOOT    ENV", 0x20, 5, 512);
        put(at(4) + 32, b"BOOT2   ENV", 0x20, 9, 512);
        v
    }

    fn reader(v: &[u8]) -> impl FnMut(u64, &mut [u8]) -> bool {
        |offset, buffer| {
            let found = usize::try_from(offset).ok().and_then(|at| v.get(at..)?.get(..buffer.len()));
            found.map(|bytes| buffer.copy_from_slice(bytes)).is_some()
        }
    }

    #[test]
    fn both_copies_are_found() {
        let v = volume();
        let of = |cluster: u64| Some((32 + 8 + cluster - 2) * 512);
        assert_eq!(copies(&mut reader(&v)), [of(5), of(9)]);
        // The second cluster of the root cannot be found: nothing is.
        let mut cut = v.clone();
        cut[32 * 512 + 8..][..4].copy_from_slice(&END_OF_CHAIN.to_le_bytes());
        assert_eq!(copies(&mut reader(&cut)), [None, None]);
        // With one dead sector, the other copies stay where they are.
        let mut read = reader(&v);
        let mut dead = |offset: u64, buffer: &mut [u8]| offset != 40 * 512 && read(offset, buffer);
        assert_eq!(copies(&mut dead), [of(5), of(9)]);
    }

    #[test]
    fn a_copy_is_a_file_of_one_sector() {
        let at = (32 + 8 + 4 - 2) * 512;
        for (byte, value) in [(11, 0x10), (11, 0x08), (28, 1), (29, 3), (26, 0), (26, 250), (0, 0xe5)] {
            let mut v = volume();
            v[at + byte] = value;
            let [first, second] = copies(&mut reader(&v));
            assert_eq!((first, second.is_some()), (None, true), "byte {byte} {value}");
        }
        let mut chain = volume();
        chain[32 * 512 + 8] = 2;
        assert_eq!(copies(&mut reader(&chain)), [None, None], "a chain that is a loop");
    }

    proptest! {
        #[test]
        fn damage_never_panics(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20)) {
            let mut v = volume();
            for (at, value) in changes {
                let at = at.index(v.len());
                // Mostly in the sectors that matter.
                v[if at % 3 == 0 { at } else { at % 90 }] = value;
            }
            for offset in copies(&mut reader(&v)).into_iter().flatten() {
                prop_assert!(offset >= 512);
            }
        }
    }
}
