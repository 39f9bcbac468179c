//! Every cluster of a FAT32 volume that a file or a directory has: needed before one file is replaced.
//!
//! A reader makes the best of what it finds. This module refuses doubt: a used cluster that is taken for free would be
//! written over. Clusters that the FAT calls used and that nothing refers to belong to no file. A power cut while a
//! file was replaced leaves such.

use crate::prelude::*;

use alloc::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{
    DIR_ENTRY_BYTES, Directory, ENTRY_BITS, FIRST_END_OF_CHAIN,
    boot_sector::{BootSector, NO_FIRST_ENTRY, is_first_entry},
    entry::{DirEntry, DirReader, FileAt, Row},
    layout::{CACHE_BYTES, END_OF_CHAIN, MIN_CLUSTERS},
};
use crate::{
    bytes::{le32, put_le32},
    units::Extent,
    zeros::are_zeros,
};

/// Reads from the volume: byte offset, buffer. False if that cannot be read.
pub type Read<'r> = dyn FnMut(u64, &mut [u8]) -> bool + 'r;

const BAD_CLUSTER: u32 = 0x0fff_fff7;
const FAT_ENTRY_BYTES: u64 = 4;
// Entries 0 and 1 of a FAT stand for no cluster.
const RESERVED: usize = 2;
// Our own directories have one cluster. These bound the cost of a damaged volume.
const MAX_DIRECTORY_BYTES: u64 = 1 << 20;
const MAX_DIRECTORIES: usize = 4096;
// The unit in which a FAT is looked through for what is not zero, bytes.
const BLOCK: usize = 512;
// More new files than these are never put into one directory.
const MOST_UNUSED: usize = 8;

/// Why no file of a volume can be replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MapError {
    /// A sector that decides which clusters are free.
    #[error("byte {0} of it cannot be read")]
    Unreadable(u64),
    /// It is something else, or another kind of FAT32.
    #[error("it is no file system that this program writes to: {0}")]
    Other(&'static str),
    /// It contradicts itself.
    #[error("it is damaged: {0}")]
    Damaged(&'static str),
}

/// Consecutive clusters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Run {
    /// The first of them.
    pub first: u32,
    /// The number of clusters.
    pub count: u32,
}

impl Run {
    const fn end(self) -> u32 {
        self.first + self.count
    }
}

/// A file that may be replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundFile {
    /// Byte offset of its directory entry in the volume.
    pub entry: u64,
    /// Content of that entry.
    pub at: FileAt,
    /// Its clusters, in order.
    pub runs: Vec<Run>,
}

/// The map of a volume.
#[derive(Clone, Debug)]
pub struct FatMap {
    pub(super) sector: u64,
    pub(super) cluster: u64,
    // Byte offsets in the volume.
    fats: Vec<u64>,
    data: u64,
    fs_info: u64,
    /// The volume's own count of free clusters.
    free_count: Option<u32>,
    tables: Vec<Vec<u8>>,
    // By number of the cluster: a file, a directory or a bad sector has it.
    live: Vec<bool>,
    files: BTreeMap<String, FoundFile>,
    // By path, in small letters.
    pub(super) directories: BTreeMap<String, Directory>,
    // Every file's path.
    pub(super) names: Vec<String>,
    // Paths of directories that GRUB passes over, in small letters.
    pub(super) passed_over: Vec<String>,
}

impl FatMap {
    /// Look at all directories of a volume of `len` bytes on a disk with sectors of `sector` bytes. Of the files, those at
    /// these paths can be asked for afterwards.
    pub fn look(len: u64, sector: u64, paths: &[&str], read: &mut Read) -> Result<Self, MapError> {
        let boot = boot_sector(sector, read)?;
        let mut map = Self::empty(&boot, len, sector)?;
        let entries = map.live.len() as u64;
        let table_bytes = (entries * FAT_ENTRY_BYTES).next_multiple_of(sector) as usize;
        for fat in map.fats.clone() {
            let mut table = vec![0; table_bytes];
            read_all(fat, &mut table, sector as usize, read)?;
            map.tables.push(table);
        }
        if !is_first_entry(map.entry(0, 0)) {
            return Err(MapError::Damaged(NO_FIRST_ENTRY));
        }
        // One that cannot be read says nothing, and decides nothing.
        let mut info = vec![0; sector as usize];
        map.free_count = read(map.fs_info, &mut info).then(|| free_count(&info)).flatten();
        map.walk(boot.root, paths, read)?;
        let is_bad = |number: &u32| (0..map.tables.len()).any(|copy| map.entry(copy, *number) == BAD_CLUSTER);
        let bad: Vec<u32> = map.near_used().filter(is_bad).collect();
        bad.into_iter().for_each(|number| map.live[number as usize] = true);
        Ok(map)
    }

    /// Where the copies of the FAT lie in a volume, as far as they have clusters.
    pub(super) fn places(len: u64, sector: u64, read: &mut Read) -> Result<Vec<Extent>, MapError> {
        let map = Self::empty(&boot_sector(sector, read)?, len, sector)?;
        let len = (map.live.len() as u64 * FAT_ENTRY_BYTES).next_multiple_of(sector);
        Ok(map.fats.into_iter().map(|offset| Extent { offset, len }).collect())
    }

    /// A file that was asked for, if it is there.
    pub fn file(&self, path: &str) -> Option<&FoundFile> {
        self.files.get(path)
    }

    /// The paths of all files.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The number of clusters that a file of so many bytes takes.
    pub const fn clusters(&self, bytes: u64) -> u32 {
        bytes.div_ceil(self.cluster) as u32
    }

    /// The number of copies of the FAT.
    pub const fn copies(&self) -> usize {
        self.fats.len()
    }

    /// The bytes of these clusters in the volume.
    pub const fn extent(&self, run: Run) -> Extent {
        let offset = self.data + (run.first as u64 - RESERVED as u64) * self.cluster;
        Extent { offset, len: run.count as u64 * self.cluster }
    }

    /// Free clusters for files of so many clusters each, which are in one piece. Each gets sectors of the FAT of its own: a
    /// power cut that damages one of them, now or when its clusters are freed some day, harms no other file. And there is as
    /// much room before each file as firmware reads at once.
    pub fn place(&self, files: &[u32]) -> Option<Vec<Run>> {
        let gap = (CACHE_BYTES / self.cluster).max(1) as u32;
        let per_sector = (self.sector / FAT_ENTRY_BYTES) as usize;
        let mut sectors = self.live.chunks(per_sector).enumerate();
        let mut next = |count: u32| {
            let (mut first, mut found) = (None, 0);
            while found < gap + count {
                let (n, sector) = sectors.next()?;
                if sector.iter().any(|live| *live) {
                    (first, found) = (None, 0);
                } else {
                    first = first.or(Some((n * per_sector) as u32));
                    found += sector.len() as u32;
                }
            }
            Some(Run { first: first? + gap, count })
        };
        files.iter().map(|count| next(*count)).collect()
    }

    /// The sectors of one copy of the FAT (from 0) with the entries of these clusters.
    pub fn sectors(&self, copy: usize, run: Run) -> Extent {
        let begin = u64::from(run.first) * FAT_ENTRY_BYTES / self.sector * self.sector;
        let end = (u64::from(run.end()) * FAT_ENTRY_BYTES).next_multiple_of(self.sector);
        Extent { offset: self.fats[copy] + begin, len: end - begin }
    }

    /// Content of these sectors of a copy.
    pub fn held(&self, copy: usize, sectors: Extent) -> &[u8] {
        let at = (sectors.offset - self.fats[copy]) as usize;
        &self.tables[copy][at..at + sectors.len as usize]
    }

    /// Their content once these clusters are a chain, and all others in them are free.
    pub fn linked(&self, copy: usize, sectors: Extent, run: Run) -> Vec<u8> {
        let mut bytes = vec![0; sectors.len as usize];
        let before = ((sectors.offset - self.fats[copy]) / FAT_ENTRY_BYTES) as u32;
        for number in run.first..run.end() {
            let next = if number + 1 == run.end() { END_OF_CHAIN } else { number + 1 };
            put_le32(&mut bytes, (number - before) as usize * 4, next);
        }
        bytes
    }

    /// Their content once those of these clusters that no file has are free.
    pub fn freed(&self, copy: usize, sectors: Extent, runs: &[Run]) -> Vec<u8> {
        let mut bytes = self.held(copy, sectors).to_vec();
        let before = ((sectors.offset - self.fats[copy]) / FAT_ENTRY_BYTES) as usize;
        for number in runs.iter().flat_map(|run| run.first..run.end()).map(|number| number as usize) {
            let is_unowned = self.live.get(number) == Some(&false);
            let at = number.checked_sub(before).map(|n| n * 4).filter(|at| is_unowned && *at < bytes.len());
            at.into_iter().for_each(|at| put_le32(&mut bytes, at, 0));
        }
        bytes
    }

    /// Whether these clusters are a chain in every copy of the FAT.
    pub fn is_chain(&self, run: Run) -> bool {
        let next = |number: u32| if number + 1 == run.end() { END_OF_CHAIN } else { number + 1 };
        let copies = 0..self.tables.len();
        copies
            .flat_map(|copy| (run.first..run.end()).map(move |n| (copy, n)))
            .all(|(copy, n)| (n as usize) < self.live.len() && self.entry(copy, n) == next(n))
    }

    /// Whether no file has any of these clusters.
    pub fn are_unowned(&self, runs: &[Run]) -> bool {
        runs.iter().flat_map(|run| run.first..run.end()).all(|n| self.live.get(n as usize) == Some(&false))
    }

    /// Clusters that a copy of the FAT calls used, and that no file has.
    pub fn lost(&self) -> Vec<Run> {
        let used = |number: u32| (0..self.tables.len()).any(|copy| self.entry(copy, number) != 0);
        runs(self.near_used().filter(|number| !self.live[*number as usize] && used(*number)))
    }

    /// Byte offset of the sector that says how many clusters are free, and whether it is right.
    pub fn free_count(&self) -> (u64, bool) {
        (self.fs_info, self.free_count.is_none_or(|count| count == u32::MAX || count == self.free()))
    }

    fn free(&self) -> u32 {
        let used = self.near_used().filter(|number| self.entry(0, *number) != 0);
        (self.live.len() - RESERVED - used.count()) as u32
    }

    /// The clusters whose entries lie near one that is not zero, in any copy of the FAT. The others are free: most are.
    fn near_used(&self) -> impl Iterator<Item = u32> {
        let per_block = BLOCK / FAT_ENTRY_BYTES as usize;
        let is_zero = |table: &Vec<u8>, n: usize| table[n * BLOCK..].chunks(BLOCK).next().is_none_or(are_zeros);
        (0..self.live.len().div_ceil(per_block))
            .filter(move |n| !self.tables.iter().all(|table| is_zero(table, *n)))
            .flat_map(move |n| (n * per_block).max(RESERVED)..((n + 1) * per_block).min(self.live.len()))
            .map(|number| number as u32)
    }

    /// Write the right number into the sector that says how many clusters are free. False if it is no such sector.
    pub fn count_free(&self, sector: &mut [u8]) -> bool {
        let is_one = free_count(sector).is_some();
        if is_one {
            put_le32(sector, 488, self.free());
        }
        is_one
    }

    fn entry(&self, copy: usize, number: u32) -> u32 {
        le32(&self.tables[copy], number as usize * 4) & ENTRY_BITS
    }

    /// The clusters of a chain. From now on they belong to a file.
    fn take(&mut self, first: u32) -> Result<Vec<Run>, MapError> {
        let (mut taken, mut number) = (Vec::new(), first);
        while number < FIRST_END_OF_CHAIN {
            match self.live.get_mut(number as usize) {
                Some(live) if number as usize >= RESERVED && !*live => *live = true,
                Some(_) if number as usize >= RESERVED => {
                    return Err(MapError::Damaged("two files share a cluster, or the clusters of one are a loop"));
                }
                _ => return Err(MapError::Damaged("the clusters of a file lead out of the volume")),
            }
            taken.push(number);
            let next = self.entry(0, number);
            if (1..self.tables.len()).any(|copy| self.entry(copy, number) != next) {
                return Err(MapError::Damaged("its copies of the FAT differ about a file"));
            }
            number = next;
        }
        Ok(runs(taken))
    }

    fn walk(&mut self, root: u32, paths: &[&str], read: &mut Read) -> Result<(), MapError> {
        let (mut directories, mut seen) = (vec![(root, String::new())], 0);
        while let Some((first, path)) = directories.pop() {
            seen += 1;
            let runs = self.take(first)?;
            let bytes = runs.iter().map(|run| self.extent(*run).len).sum::<u64>();
            if bytes > MAX_DIRECTORY_BYTES || seen > MAX_DIRECTORIES {
                return Err(MapError::Other("its directories are larger than any of ours"));
            }
            let (listed, mut directory) = self.directory(&runs, read)?;
            match (path.is_empty(), directory.is_whole) {
                (true, true) => return Err(MapError::Damaged("its root is another directory")),
                // What does not begin with itself was zeroed, and is none to add to.
                (false, false) => directory.unused.clear(),
                _ => {}
            }
            self.directories.insert(path.to_ascii_lowercase(), directory);
            for (entry, found) in listed {
                let path = if path.is_empty() { found.name.clone() } else { format!("{path}/{}", found.name) };
                if found.is_directory() {
                    self.passed_over.extend(found.is_passed_over().then(|| path.to_ascii_lowercase()));
                    directories.push((found.at.cluster, path));
                    continue;
                }
                let runs = if found.at.cluster == 0 { vec![] } else { self.take(found.at.cluster)? };
                if runs.iter().map(|run| self.extent(*run).len).sum::<u64>() < u64::from(found.at.bytes) {
                    return Err(MapError::Damaged("a file has fewer clusters than its size needs"));
                }
                self.names.push(path.clone());
                if let Some(wanted) = paths.iter().find(|wanted| wanted.eq_ignore_ascii_case(&path)) {
                    let file = FoundFile { entry, at: found.at, runs };
                    self.files.insert((*wanted).to_owned(), file);
                }
            }
        }
        Ok(())
    }

    /// The entries of a directory, each with its byte offset in the volume, and the facts that a new entry needs.
    fn directory(&self, runs: &[Run], read: &mut Read) -> Result<(Vec<(u64, DirEntry)>, Directory), MapError> {
        let (mut listed, mut found, mut reader) = (Vec::new(), Directory::default(), DirReader::default());
        found.first = runs.first().map_or(0, |run| run.first);
        for run in runs {
            let extent = self.extent(*run);
            let mut bytes = vec![0; extent.len as usize];
            read_all(extent.offset, &mut bytes, self.sector as usize, read)?;
            for (entry, raw) in (extent.offset..).step_by(DIR_ENTRY_BYTES).zip(bytes.chunks_exact(DIR_ENTRY_BYTES)) {
                match reader.row(raw) {
                    Row::End => {
                        let rest = (entry..extent.end()).step_by(DIR_ENTRY_BYTES);
                        found.unused.extend(rest.take(MOST_UNUSED));
                        return Ok((listed, found));
                    }
                    Row::Dot => found.is_whole = true,
                    Row::Deleted => found.unused.push(entry),
                    Row::NamePart => {}
                    Row::Entry(of) => {
                        found.short_names.push(of.short);
                        listed.push((entry, of));
                    }
                }
            }
        }
        Ok((listed, found))
    }

    /// Nothing but the geometry, by the boot sector.
    fn empty(boot: &BootSector, len: u64, sector: u64) -> Result<Self, MapError> {
        let other = |why| Err(MapError::Other(why));
        if let Some(fault) = boot.refused {
            return Err(MapError::Damaged(fault));
        }
        // A sector is written whole or not at all. That holds for sectors of the disk.
        if boot.sector != sector {
            return other("its sectors are not those of the disk");
        }
        if !boot.is_mirrored {
            return other("one of its FATs alone is in force");
        }
        let clusters = boot.clusters(boot.sectors);
        if !boot.per_cluster.is_power_of_two()
            || !(1..=4).contains(&boot.fats)
            || !(1..boot.reserved).contains(&boot.info)
            || boot.sectors * sector > len
            || !(MIN_CLUSTERS..u64::from(BAD_CLUSTER)).contains(&clusters)
            || !boot.has_entries(clusters)
        {
            return other("its geometry is impossible");
        }
        Ok(FatMap {
            sector,
            cluster: boot.cluster(),
            fats: (0..boot.fats).map(|number| boot.fat(number)).collect(),
            data: boot.data(),
            fs_info: boot.info * sector,
            free_count: None,
            tables: vec![],
            live: [vec![true; RESERVED], vec![false; clusters as usize]].concat(),
            files: BTreeMap::new(),
            directories: BTreeMap::new(),
            names: vec![],
            passed_over: vec![],
        })
    }
}

fn boot_sector(sector: u64, read: &mut Read) -> Result<BootSector, MapError> {
    let mut bytes = vec![0; sector as usize];
    read_all(0, &mut bytes, sector as usize, read)?;
    BootSector::decode(&bytes).ok_or(MapError::Other("no FAT32"))
}

// None if the sector does not give it; `0xffff_ffff` stands for an unknown number.
pub(super) fn free_count(sector: &[u8]) -> Option<u32> {
    let is_one = sector.len() >= 512 && &sector[..4] == b"RRaA" && &sector[484..488] == b"rrAa";
    is_one.then(|| le32(sector, 488))
}

fn runs(numbers: impl IntoIterator<Item = u32>) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            Some(last) if last.end() == number => last.count += 1,
            _ => runs.push(Run { first: number, count: 1 }),
        }
    }
    runs
}

// Reads in one go, or not at all: the rest names the sector.
fn read_all(offset: u64, bytes: &mut [u8], sector: usize, read: &mut Read) -> Result<(), MapError> {
    if read(offset, bytes) {
        return Ok(());
    }
    let bad = (0..bytes.len()).step_by(sector).find(|at| !read(offset + *at as u64, &mut bytes[*at..*at + sector]));
    Err(MapError::Unreadable(offset + bad.unwrap_or(0) as u64))
}

#[cfg(test)]
#[path = "map_tests.rs"]
mod tests;
