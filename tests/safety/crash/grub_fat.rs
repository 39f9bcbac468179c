//! FAT32 as GRUB reads it (fs/fat.c of 2.06), for volumes whose structures are wrong: the `fatfs` crate gives up where GRUB goes
//! on, and goes on where GRUB gives up.

use std::collections::BTreeMap;

use slipway_core::units::Extent;

use super::pages::{Pages, SECTOR};

const ENTRY: usize = 32;
const END_OF_CHAIN: u32 = 0x0fff_fff8;
const LONG_NAME: u8 = 0x0f;
const VOLUME_ID: u8 = 0x08;
const DIRECTORY: u8 = 0x10;
const VALID: u8 = 0x3f;
/// Nothing of ours is larger.
const MAX_BYTES: u32 = 64 << 20;

/// A volume.
pub struct Volume<'p> {
    pages: &'p Pages,
    part: Extent,
    cluster: u64,
    fats: Vec<u64>,
    data: u64,
    clusters: u32,
    root: u32,
}

/// An entry of a directory.
#[derive(Clone, Debug)]
struct Entry {
    /// In lower case: GRUB compares without it.
    name: String,
    attributes: u8,
    cluster: u32,
    bytes: u32,
}

fn long(b: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]])
}

fn short(b: &[u8], at: usize) -> u32 {
    u32::from(u16::from_le_bytes([b[at], b[at + 1]]))
}

impl<'p> Volume<'p> {
    /// `grub_fat_mount`.
    pub fn open(pages: &'p Pages, part: Extent) -> Option<Self> {
        let mut b = [0; SECTOR];
        pages.read(part.offset, &mut b);
        let (sector, reserved, per_cluster) = (u64::from(short(&b, 11)), u64::from(short(&b, 14)), u64::from(b[13]));
        let (copies, each) = (u64::from(b[16]), u64::from(long(&b, 36)));
        let total = long(&b, 32);
        // GRUB itself goes on with a size in 16 bits, which has to be 0 in a FAT32 (fatgen103, "BPB_TotSec16"). Firmware need not,
        // so nothing may be made to depend on that volume.
        let odd = short(&b, 17) != 0 || short(&b, 19) != 0 || short(&b, 22) != 0 || short(&b, 42) != 0;
        let powers = sector.is_power_of_two() && (512..1 << 15).contains(&sector) && per_cluster.is_power_of_two();
        if odd || !powers || reserved == 0 || each == 0 || copies == 0 {
            return None;
        }
        let data = reserved + copies * each;
        let clusters = u64::from(total).checked_sub(data)? / per_cluster + 2;
        let mut first = [0; 4];
        pages.read(part.offset + reserved * sector, &mut first);
        let media = u32::from(b[21]);
        if clusters <= 2 || (u32::from_le_bytes(first) & 0x0fff_ffff | 8) != (0x0fff_ff00 | media | 8) {
            return None;
        }
        Some(Volume {
            pages,
            part,
            cluster: per_cluster * sector,
            fats: (0..copies).map(|n| part.offset + (reserved + n * each) * sector).collect(),
            data: part.offset + data * sector,
            clusters: clusters as u32,
            root: long(&b, 44),
        })
    }

    fn next(&self, cluster: u32) -> u32 {
        let mut entry = [0; 4];
        self.pages.read(self.fats[0] + u64::from(cluster) * 4, &mut entry);
        u32::from_le_bytes(entry) & 0x0fff_ffff
    }

    fn is_one(&self, cluster: u32) -> bool {
        (2..self.clusters).contains(&cluster)
    }

    /// `grub_fat_read_data`: so many bytes, or up to the end of the chain. None where it is broken. And where the last piece lies.
    fn data(&self, first: u32, bytes: u32) -> Option<(Vec<u8>, u64)> {
        let (mut found, mut cluster, mut at) = (Vec::new(), first, 0);
        while (found.len() as u32) < bytes {
            if !self.is_one(cluster) {
                return None;
            }
            at = self.data + u64::from(cluster - 2) * self.cluster;
            // GRUB reads no sector behind the end of the partition.
            if at + self.cluster > self.part.end() {
                return None;
            }
            let mut piece = vec![0; self.cluster.min(u64::from(bytes) - found.len() as u64) as usize];
            self.pages.read(at, &mut piece);
            found.extend(piece);
            cluster = self.next(cluster);
            if cluster >= END_OF_CHAIN {
                break;
            }
        }
        Some((found, at))
    }

    /// `grub_fat_iterate_dir`.
    fn entries(&self, directory: u32) -> Vec<Entry> {
        let (mut found, mut units, mut slots, mut slot, mut sum) = (Vec::new(), vec![0_u16; 64 * 13], 0, None, None);
        let (mut cluster, mut seen) = (directory, 0);
        while self.is_one(cluster) && seen < self.clusters {
            seen += 1;
            let mut bytes = vec![0; self.cluster as usize];
            self.pages.read(self.data + u64::from(cluster - 2) * self.cluster, &mut bytes);
            for raw in bytes.chunks_exact(ENTRY) {
                if raw[0] == 0 {
                    return found;
                }
                if raw[11] == LONG_NAME {
                    if raw[0] & 0x40 != 0 {
                        slots = usize::from(raw[0] & 0x3f);
                        (slot, sum) = (Some(raw[0] & 0x3f), Some(raw[13]));
                    }
                    match slot {
                        Some(at) if at > 0 && at == raw[0] & 0x3f && sum == Some(raw[13]) => {
                            let places = (1..11).step_by(2).chain((14..26).step_by(2)).chain((28..32).step_by(2));
                            for (n, place) in places.enumerate() {
                                units[usize::from(at - 1) * 13 + n] = short(raw, place) as u16;
                            }
                            slot = Some(at - 1);
                        }
                        _ => sum = None,
                    }
                    continue;
                }
                if raw[0] == 0xe5 || raw[11] & !VALID != 0 {
                    continue;
                }
                let own = raw[..11].iter().fold(0_u8, |sum, byte| sum.rotate_right(1).wrapping_add(*byte));
                let name = if slot == Some(0) && sum == Some(own) {
                    let units = &units[..slots * 13];
                    let end = units.iter().position(|unit| *unit == 0 || *unit == 0xffff).unwrap_or(units.len());
                    String::from_utf16_lossy(&units[..end])
                } else {
                    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
                    let (base, extension) = (text(&raw[..8]), text(&raw[8..11]));
                    if extension.is_empty() { base } else { format!("{base}.{extension}") }
                };
                (slot, sum) = (None, None);
                units.fill(0);
                if raw[11] & VOLUME_ID == 0 {
                    let cluster = short(raw, 20) << 16 | short(raw, 26);
                    found.push(Entry { name: name.to_lowercase(), attributes: raw[11], cluster, bytes: long(raw, 28) });
                }
            }
            cluster = self.next(cluster);
        }
        found
    }

    fn find(&self, path: &str) -> Option<Entry> {
        let (mut directory, mut parts) = (self.root, path.split('/').peekable());
        while let Some(part) = parts.next() {
            let entry = self.entries(directory).into_iter().find(|entry| entry.name == part.to_lowercase())?;
            match (parts.peek().is_some(), entry.attributes & DIRECTORY != 0) {
                (true, true) => directory = entry.cluster,
                (false, false) => return Some(entry),
                _ => return None,
            }
        }
        None
    }

    /// A file, and where its last piece lies on the disk. None if it is not there, or less of it than its size.
    pub fn file(&self, path: &str) -> Option<(Vec<u8>, u64)> {
        let entry = self.find(path).filter(|entry| entry.bytes <= MAX_BYTES)?;
        self.data(entry.cluster, entry.bytes).filter(|(found, _)| found.len() as u32 == entry.bytes)
    }

    /// All files of the root directory that can be read, by their names in lower case. Of two by one name the first.
    pub fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let mut files = BTreeMap::new();
        for entry in self.entries(self.root).into_iter().filter(|entry| entry.attributes & DIRECTORY == 0) {
            let bytes = Some(entry.bytes).filter(|bytes| *bytes <= MAX_BYTES);
            let found = bytes.and_then(|bytes| self.data(entry.cluster, bytes)).map(|(found, _)| found);
            if let Some(found) = found.filter(|found| found.len() as u32 == entry.bytes) {
                files.entry(entry.name).or_insert(found);
            }
        }
        files
    }

    /// The bytes that lead somewhere, and are read.
    pub fn structures(&self) -> Vec<Extent> {
        // Of the boot sector what says where things are.
        let boot = [(11, 14), (32, 12), (44, 4)].map(|(at, len)| Extent { offset: self.part.offset + at, len });
        let mut found = boot.to_vec();
        let of_fat =
            |cluster: u32| self.fats.iter().map(move |fat| Extent { offset: fat + u64::from(cluster) * 4, len: 4 });
        found.extend(of_fat(0));
        let mut directories = vec![self.root];
        while let Some(first) = directories.pop() {
            let mut cluster = first;
            while self.is_one(cluster) {
                found.extend(of_fat(cluster));
                let at = self.data + u64::from(cluster - 2) * self.cluster;
                let mut bytes = vec![0; self.cluster as usize];
                self.pages.read(at, &mut bytes);
                // The one behind the last may become another.
                let used =
                    bytes.chunks_exact(ENTRY).position(|raw| raw[0] == 0).map_or(bytes.len(), |n| (n + 1) * ENTRY);
                found.push(Extent { offset: at, len: used as u64 });
                cluster = self.next(cluster);
            }
            for entry in self.entries(first).into_iter().filter(|entry| !entry.name.starts_with('.')) {
                if entry.attributes & DIRECTORY != 0 {
                    directories.push(entry.cluster);
                } else if self.is_one(entry.cluster) {
                    // Of a long chain its beginning.
                    let next = Some(self.next(entry.cluster)).filter(|next| self.is_one(*next));
                    found.extend([Some(entry.cluster), next].into_iter().flatten().flat_map(of_fat));
                }
            }
        }
        found
    }
}
