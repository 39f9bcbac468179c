//! Lays out a complete FAT32 file system from names and sizes (Microsoft FAT specification, 2005).

use crate::prelude::*;

use alloc::rc::Rc;

use super::{
    ATTR_ARCHIVE, ATTR_DIRECTORY, ATTR_VOLUME_LABEL, DIR_ENTRY_BYTES,
    boot_sector::{BootSector, COPY, INFO, INFO_COPY},
    name::{checksum, display_short, long_name_entries, short_label, short_name},
};
use crate::units::{Extent, MIB, SectorSize, approx, round_up};

/// Fewest clusters of a FAT32 volume. With fewer, every reader takes it for FAT16.
pub const MIN_CLUSTERS: u64 = 65_525;
// Readers round differently: keep a distance from the limit.
const CLUSTER_MARGIN: u64 = 16;
const MAX_CLUSTER_BYTES: u64 = 32 << 10;
/// The bytes that UEFI firmware reads at once for its cache of a volume: one sector in it that cannot be read, and the
/// end of a file beside it cannot be read either. (EDK II, FatPkg.)
pub(super) const CACHE_BYTES: u64 = 64 << 10;
pub(super) const END_OF_CHAIN: u32 = 0x0fff_ffff;

/// A time stamp: seconds since 1970 UTC. FAT stores 1980 to 2107, in steps of two seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FatTime(pub u64);

impl FatTime {
    // Date and time as FAT packs them.
    fn words(self) -> (u16, u16) {
        const Y1980: u64 = 315_532_800;
        const Y2107: u64 = 4_354_819_198;
        let secs = self.0.clamp(Y1980, Y2107);
        let (days, rest) = (secs / 86_400, secs % 86_400);
        // Civil date from days, proleptic Gregorian, years counted from March.
        let z = days + 719_468;
        let (era, doe) = (z / 146_097, z % 146_097);
        let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
        let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
        let mp = (5 * doy + 2) / 153;
        let day = doy - (153 * mp + 2) / 5 + 1;
        let month = if mp < 10 { mp + 3 } else { mp - 9 };
        let year = yoe + era * 400 + u64::from(month <= 2);
        let date = (year - 1980) << 9 | month << 5 | day;
        let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
        let time = hour << 11 | minute << 5 | (second / 2);
        (date as u16, time as u16)
    }
}

/// A file to place.
#[derive(Clone, Debug)]
pub struct FileSpec {
    /// Path from the root, with `/` between directories and none at the start.
    pub path: String,
    /// Size in bytes.
    pub size: u64,
}

/// A file system to lay out.
#[derive(Clone, Debug)]
pub struct VolumeSpec {
    /// At most 11 upper-case ASCII characters.
    pub label: String,
    /// Volume serial number.
    pub serial: u32,
    /// Time stamp of all files and directories.
    pub time: FatTime,
    /// Files, in the order of their data on the disk.
    pub files: Vec<FileSpec>,
}

/// Place of a file's data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Path from the root.
    pub path: String,
    /// Byte offset in the volume, a multiple of the cluster size.
    pub offset: u64,
    /// Size in bytes.
    pub size: u64,
    /// Bytes to write: the size rounded up to whole clusters. The rest is zeros.
    pub padded: u64,
}

/// A complete file system, except for the files' data.
#[derive(Clone, Debug)]
pub struct VolumeLayout {
    /// First sector. Write it last: until then nothing takes the rest for a file system.
    pub boot_sector: Vec<u8>,
    /// All other metadata, with byte offsets in the volume.
    pub metadata: Vec<(u64, Rc<[u8]>)>,
    /// The files, in the order given.
    pub files: Vec<Placed>,
}

/// Why a volume cannot be laid out.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum FatError {
    /// The volume is too small for FAT32.
    #[error("{} are too small for FAT32 with {}-byte sectors", approx(*.0), .1)]
    TooSmall(u64, u64),
    /// The files do not fit.
    #[error("{}", too_few(*need, *have))]
    Full {
        /// Bytes needed, in whole clusters.
        need: u64,
        /// Bytes of all clusters.
        have: u64,
    },
    /// A file is larger than FAT32 allows.
    #[error("{} has {}: a file on FAT32 holds less than 4 GiB", .0, approx(*.1))]
    FileTooLarge(String, u64),
    /// FAT cannot store this name.
    #[error("{0:?} cannot be a file name on FAT")]
    BadName(String),
}

/// The shortage in tenths of a MiB, with the need rounded up: so it is the difference of the two numbers before it.
fn too_few(need: u64, have: u64) -> String {
    let tenths = |bytes: u64| u128::from(bytes) * 10;
    let (need, have) = (tenths(need).div_ceil(u128::from(MIB)), tenths(have) / u128::from(MIB));
    let shown = |tenths: u128| match (tenths / 10, tenths % 10) {
        (whole, 0) => format!("{whole} MiB"),
        (whole, rest) => format!("{whole}.{rest} MiB"),
    };
    let short = shown(need - have);
    format!(
        "the files need {} in whole clusters, the volume has room for {} ({short} too few)",
        shown(need),
        shown(have)
    )
}

struct Geometry {
    sector: u64,
    cluster: u64,
    reserved: u64,
    fat_bytes: u64,
    data: u64,
    clusters: u64,
}

impl Geometry {
    fn new(len: u64, sector: SectorSize) -> Result<Self, FatError> {
        // The largest cluster that still makes FAT32: it keeps the FATs small.
        let mut cluster = MAX_CLUSTER_BYTES;
        while cluster >= sector.bytes() {
            if let Some(g) = Self::with_cluster(len, sector.bytes(), cluster) {
                return Ok(g);
            }
            cluster /= 2;
        }
        Err(FatError::TooSmall(len, sector.bytes()))
    }

    fn with_cluster(len: u64, sector: u64, cluster: u64) -> Option<Self> {
        let fat_bytes = round_up((len / cluster + 2) * 4, sector)?;
        // Data starts on a multiple of the cluster size and of 4 KiB, so that direct I/O needs no bounce buffer.
        let data = round_up(32 * sector + 2 * fat_bytes, cluster.max(4096))?;
        let clusters = len.checked_sub(data)? / cluster;
        // The boot sector has 32 bits for the number of sectors.
        (clusters >= MIN_CLUSTERS + CLUSTER_MARGIN && len / sector <= u64::from(u32::MAX)).then_some(Geometry {
            sector,
            cluster,
            reserved: data - 2 * fat_bytes,
            fat_bytes,
            data,
            clusters,
        })
    }

    const fn offset(&self, cluster: u32) -> u64 {
        self.data + (cluster as u64 - 2) * self.cluster
    }

    // First cluster of a file that has room around it, if this is the first free cluster. A large one starts on a MiB.
    // One exists, because cluster sizes divide a MiB.
    const fn spaced(&self, cluster: u64, file: &FileSpec) -> u64 {
        let at = self.data + (cluster - 2) * self.cluster;
        if file.size >= MIB { cluster + (at.next_multiple_of(MIB) - at) / self.cluster } else { cluster }
    }

    // Free clusters behind it.
    const fn gap(&self, file: &FileSpec) -> u64 {
        if file.size >= CACHE_BYTES { CACHE_BYTES / self.cluster } else { 0 }
    }
}

struct Dir {
    path: String,
    parent: usize,
    cluster: u32,
    clusters: u64,
    entries: Vec<u8>,
    short_names: Vec<[u8; 11]>,
}

struct Builder<'s> {
    geometry: Geometry,
    spec: &'s VolumeSpec,
    fat: Vec<u32>,
    dirs: Vec<Dir>,
}

impl VolumeLayout {
    /// Lay out a volume that fills `extent` of the disk.
    pub fn new(extent: Extent, sector: SectorSize, spec: &VolumeSpec) -> Result<Self, FatError> {
        let geometry = Geometry::new(extent.len, sector)?;
        // Entries 0 and 1 of a FAT are reserved: the media type, and a mark for the end of a chain.
        let mut builder = Builder { geometry, spec, fat: vec![0x0fff_fff8, END_OF_CHAIN], dirs: Vec::new() };
        builder.make_dirs()?;
        let files = builder.place_files()?;
        Ok(builder.finish(extent, files))
    }
}

pub(super) fn split_path(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

impl Builder<'_> {
    // Parents come first. Each directory gets its clusters now, enough for all of its entries.
    fn make_dirs(&mut self) -> Result<(), FatError> {
        let mut paths = vec![String::new()];
        for file in &self.spec.files {
            let (dir, _) = split_path(&file.path);
            let ends = dir.match_indices('/').map(|(i, _)| i).chain((!dir.is_empty()).then_some(dir.len()));
            for end in ends {
                if !paths.iter().any(|p| p == &dir[..end]) {
                    paths.push(dir[..end].to_owned());
                }
            }
        }
        for path in &paths {
            let parent = paths.iter().position(|p| p == split_path(path).0).unwrap_or(0);
            let children = paths.iter().skip(1).chain(self.spec.files.iter().map(|f| &f.path));
            let names = children.filter(|p| split_path(p).0 == path).map(|p| split_path(p).1);
            // "." and "..", or the label in the root. For each name an 8.3 entry, and one for each 13 characters.
            let slots = 2 + names.map(|n| 1 + n.encode_utf16().count().div_ceil(13)).sum::<usize>();
            let bytes = (slots * DIR_ENTRY_BYTES) as u64;
            let (cluster, clusters) = self.allocate(bytes)?;
            let dir =
                Dir { path: path.clone(), parent, cluster, clusters, entries: Vec::new(), short_names: Vec::new() };
            self.dirs.push(dir);
        }
        let label = short_label(&self.spec.label);
        self.dirs[0].entries.extend(raw_entry(label, ATTR_VOLUME_LABEL, 0, 0, self.spec.time));
        for i in 1..self.dirs.len() {
            let (own, parent) = (self.dirs[i].cluster, self.dirs[i].parent);
            // The root counts as cluster 0 here, wherever it lies.
            let up = if parent == 0 { 0 } else { self.dirs[parent].cluster };
            for (name, cluster) in [(*b".          ", own), (*b"..         ", up)] {
                let entry = raw_entry(name, ATTR_DIRECTORY, cluster, 0, self.spec.time);
                self.dirs[i].entries.extend(entry);
            }
            let name = split_path(&self.dirs[i].path).1.to_owned();
            self.add_entry(parent, &name, ATTR_DIRECTORY, own, 0)?;
        }
        Ok(())
    }

    fn place_files(&mut self) -> Result<Vec<Placed>, FatError> {
        let mut placed = Vec::new();
        let size = |file: &FileSpec| {
            u32::try_from(file.size).map_err(|_| FatError::FileTooLarge(file.path.clone(), file.size))
        };
        // First of all: the sizes come from a manifest, and sums of absurd ones would overflow.
        self.spec.files.iter().try_for_each(|file| size(file).map(|_| ()))?;
        let spaced = self.fit_spaced();
        for file in &self.spec.files {
            let size = size(file)?;
            if spaced {
                self.fat.resize(self.geometry.spaced(self.fat.len() as u64, file) as usize, 0);
            }
            let (cluster, clusters) = match size {
                0 => (0, 0),
                _ => self.allocate(file.size)?,
            };
            let (dir, name) = split_path(&file.path);
            let dir = self.dirs.iter().position(|d| d.path == dir).unwrap_or(0);
            self.add_entry(dir, name, ATTR_ARCHIVE, cluster, size)?;
            placed.push(Placed {
                path: file.path.clone(),
                offset: if clusters == 0 { self.geometry.data } else { self.geometry.offset(cluster) },
                size: file.size,
                padded: clusters * self.geometry.cluster,
            });
            if spaced {
                self.fat.resize(self.fat.len() + self.geometry.gap(file) as usize, 0);
            }
        }
        Ok(placed)
    }

    // Whether files can have room around them. If every large one starts on a MiB, those behind one that grows a little
    // stay where they are, and an upgrade need not write them again. And a bad sector in one file, such as a boot.env that
    // is written again and again, keeps the firmware from no other: GRUB's image lies before it.
    fn fit_spaced(&self) -> bool {
        let geometry = &self.geometry;
        let end = self.spec.files.iter().fold(self.fat.len() as u64, |next, file| {
            geometry.spaced(next, file) + file.size.div_ceil(geometry.cluster) + geometry.gap(file)
        });
        end - 2 <= self.geometry.clusters
    }

    // Takes consecutive clusters. Returns the first and their number.
    fn allocate(&mut self, bytes: u64) -> Result<(u32, u64), FatError> {
        let count = bytes.div_ceil(self.geometry.cluster).max(1);
        let first = self.fat.len() as u64;
        if first - 2 + count > self.geometry.clusters {
            let cluster = self.geometry.cluster;
            let files = self.spec.files.iter().map(|f| f.size.div_ceil(cluster) * cluster);
            let dirs = self.dirs.iter().map(|d| d.clusters * cluster);
            let need = files.chain(dirs).sum::<u64>();
            let have = self.geometry.clusters * cluster;
            // The directory that found no room is not counted in `need`.
            return Err(FatError::Full { need: need.max(have + 1), have });
        }
        let last = first + count - 1;
        self.fat.extend((first + 1..=last).map(|next| next as u32));
        self.fat.push(END_OF_CHAIN);
        Ok((first as u32, count))
    }

    fn add_entry(&mut self, dir: usize, name: &str, attr: u8, cluster: u32, size: u32) -> Result<(), FatError> {
        let dir = &mut self.dirs[dir];
        let short = short_name(name, &dir.short_names).ok_or_else(|| FatError::BadName(name.to_owned()))?;
        dir.short_names.push(short);
        // A name that its 8.3 entry already spells exactly needs no long name.
        if display_short(&short) != name {
            dir.entries.extend(long_name_entries(name, checksum(&short)));
        }
        dir.entries.extend(raw_entry(short, attr, cluster, size, self.spec.time));
        Ok(())
    }

    fn finish(self, extent: Extent, files: Vec<Placed>) -> VolumeLayout {
        let g = &self.geometry;
        let boot_sector = self.boot_sector(extent);
        let mut reserved = vec![0; g.reserved as usize];
        let sector = g.sector as usize;
        let fs_info = self.fs_info();
        for (number, bytes) in [(INFO, &fs_info), (COPY, &boot_sector), (INFO_COPY, &fs_info)] {
            reserved[number as usize * sector..][..sector].copy_from_slice(bytes);
        }
        let mut fat: Vec<u8> = self.fat.iter().flat_map(|entry| entry.to_le_bytes()).collect();
        fat.resize(g.fat_bytes as usize, 0);
        // Both copies share this memory.
        let fat: Rc<[u8]> = fat.into();
        let mut metadata = vec![
            (g.sector, reserved.split_off(sector).into()),
            (g.reserved, Rc::clone(&fat)),
            (g.reserved + g.fat_bytes, fat),
        ];
        for dir in self.dirs {
            let mut entries = dir.entries;
            entries.resize((dir.clusters * g.cluster) as usize, 0);
            metadata.push((g.offset(dir.cluster), entries.into()));
        }
        VolumeLayout { boot_sector, metadata, files }
    }

    fn boot_sector(&self, extent: Extent) -> Vec<u8> {
        let g = &self.geometry;
        let boot = BootSector {
            sector: g.sector,
            per_cluster: g.cluster / g.sector,
            reserved: g.reserved / g.sector,
            fats: 2,
            fat_sectors: g.fat_bytes / g.sector,
            sectors: extent.len / g.sector,
            is_mirrored: true,
            root: 2,
            info: INFO,
            copy: COPY,
            serial: self.spec.serial,
            refused: None,
        };
        boot.encode(&self.spec.label, u32::try_from(extent.offset / g.sector).unwrap_or(0))
    }

    fn fs_info(&self) -> Vec<u8> {
        let next = self.fat.len() as u32;
        let used = self.fat.iter().skip(2).filter(|entry| **entry != 0).count();
        let free = self.geometry.clusters as u32 - used as u32;
        fs_info(self.geometry.sector as usize, free, next)
    }
}

/// The sector with the number of free clusters, and where to look for one.
pub(super) fn fs_info(sector: usize, free: u32, next: u32) -> Vec<u8> {
    let mut b = vec![0; sector];
    b[..4].copy_from_slice(b"RRaA");
    b[484..488].copy_from_slice(b"rrAa");
    b[488..492].copy_from_slice(&free.to_le_bytes());
    b[492..496].copy_from_slice(&next.to_le_bytes());
    b[510..512].copy_from_slice(&[0x55, 0xaa]);
    b
}

pub(super) fn raw_entry(name: [u8; 11], attr: u8, cluster: u32, size: u32, time: FatTime) -> [u8; DIR_ENTRY_BYTES] {
    let (date, clock) = time.words();
    let mut e = [0; DIR_ENTRY_BYTES];
    e[..11].copy_from_slice(&name);
    e[11] = attr;
    // Creation, last write.
    for at in [14, 22] {
        e[at..at + 2].copy_from_slice(&clock.to_le_bytes());
    }
    // Creation, last access, last write.
    for at in [16, 18, 24] {
        e[at..at + 2].copy_from_slice(&date.to_le_bytes());
    }
    e[20..22].copy_from_slice(&((cluster >> 16) as u16).to_le_bytes());
    e[26..28].copy_from_slice(&(cluster as u16).to_le_bytes());
    e[28..32].copy_from_slice(&size.to_le_bytes());
    e
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fat_time_words() {
        // 2026-11-21 07:45:30 UTC, by date(1).
        let (date, time) = FatTime(1_795_247_130).words();
        assert_eq!((date >> 9) + 1980, 2026);
        assert_eq!((date >> 5 & 15, date & 31), (11, 21));
        assert_eq!((time >> 11, time >> 5 & 63, (time & 31) * 2), (7, 45, 30));
        assert_eq!(FatTime(0).words(), (1 << 5 | 1, 0));
    }

    // 300 MiB of files in a slot of 512 MiB.
    fn slot(files: [(&str, u64); 3]) -> VolumeLayout {
        let files = files.map(|(path, size)| FileSpec { path: path.to_owned(), size });
        let spec = VolumeSpec { label: "X".to_owned(), serial: 1, time: FatTime(0), files: files.to_vec() };
        VolumeLayout::new(Extent { offset: MIB, len: 512 * MIB }, SectorSize::S512, &spec).unwrap()
    }

    #[test]
    fn a_file_that_grows_a_little_moves_no_other() {
        let old = slot([("big", 266 * MIB), ("middle", 20 * MIB + 1), ("last", 14 * MIB)]);
        let new = slot([("big", 266 * MIB), ("middle", 20 * MIB + 70_000), ("last", 14 * MIB)]);
        let offsets = |layout: &VolumeLayout| layout.files.iter().map(|f| f.offset).collect::<Vec<_>>();
        assert_eq!(offsets(&old), offsets(&new));
        assert!(offsets(&new).iter().all(|at| at % MIB == 0), "{:?}", offsets(&new));
    }

    #[test]
    fn the_firmware_reads_nothing_behind_a_file_with_its_end() {
        let layout = slot([("image", 700_000), ("boot.env", 512), ("boot2.env", 512)]);
        let [image, one, other] = &layout.files[..] else { panic!("{:?}", layout.files) };
        assert!(one.offset >= image.offset + image.size + CACHE_BYTES, "{:?}", layout.files);
        assert_eq!(other.offset, one.offset + one.padded);
    }

    #[test]
    fn where_there_is_no_room_between_them_files_lie_close() {
        // The tables take more than 1 MiB: one file begins at 2 MiB, all end at 511 MiB and some.
        let layout = slot([("a", 255 * MIB + 1), ("b", 255 * MIB), ("c", MIB / 4)]);
        let [a, b, _] = &layout.files[..] else { panic!("{:?}", layout.files) };
        assert_eq!(a.offset + a.padded, b.offset);
    }
}
