//! Reads FAT32 file systems, our own and others', from a range of a disk, without trusting their content. Reads bypass the
//! page cache, because other programs may have written through other nodes of the same disk. The writer is
//! [`slipway_core::disk::fat`].
//!
//! Why not the `fatfs` crate: it allocates cluster by cluster while it writes (1.3 to 8 s for 299 MiB, where the disk
//! needs 0.13 s). It also cannot say where a file lies, which the read-back and the one-sector rewrite of boot.env
//! need. Our writer lays out the whole file system first, each file in one extent. The tests check its volumes with
//! `fatfs`, dosfstools, mtools, GRUB and Linux.

use std::io;

use crate::device::BlockIo;
use slipway_core::{
    bytes::le32,
    disk::fat::{
        DIR_ENTRY_BYTES, ENTRY_BITS, FIRST_END_OF_CHAIN,
        boot_sector::{BootSector, NO_FIRST_ENTRY, is_first_entry},
        entry::{DirEntry, DirReader, Row},
        layout::MIN_CLUSTERS,
        name::display_short,
    },
    units::{Extent, MIB},
};

#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("at byte {offset} of the disk: {source}")]
    Io { offset: u64, source: io::Error },
    #[error("no FAT32 file system at byte {offset} of the disk: {why}")]
    NotFat32 { offset: u64, why: &'static str },
    #[error("the FAT32 file system is damaged: {0}")]
    Damaged(&'static str),
    #[error("{path}: {size} bytes, more than the {limit} expected")]
    TooLarge { path: String, size: u64, limit: u64 },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FatFile {
    /// The long name, or the short one of a file without.
    pub name: String,
    /// Bytes.
    pub size: u64,
    /// On the disk, in the order of the file's content. Together exactly `size` bytes.
    pub extents: Vec<Extent>,
}

pub struct FatVolume<'d> {
    disk: &'d dyn BlockIo,
    extent: Extent,
    cluster: u64,
    fat: u64,
    /// The second FAT, if there are two.
    other_fat: Option<u64>,
    data: u64,
    clusters: u64,
    root: u32,
    /// Bytes of the volume, by its boot sector.
    bytes: u64,
    serial: u32,
    /// The fault of its boot sector for other readers.
    refused: Option<&'static str>,
}

// Our own files have one extent. The limits bound the memory that a damaged or hostile volume can use.
const MAX_EXTENTS: usize = 1 << 16;
const MAX_DIR_BYTES: usize = 1 << 20;

impl<'d> FatVolume<'d> {
    /// Check the boot sector at the start of `extent`. The volume may be smaller than `extent`.
    pub fn open(disk: &'d dyn BlockIo, extent: Extent) -> Result<Self, ReadError> {
        let not = |why| ReadError::NotFat32 { offset: extent.offset, why };
        let mut b = [0; 512];
        read(disk, extent.offset, &mut b)?;
        let boot = BootSector::decode(&b).ok_or_else(|| not("no FAT32 boot sector"))?;
        if !matches!(boot.sector, 512 | 1024 | 2048 | 4096) || !boot.per_cluster.is_power_of_two() {
            return Err(not("impossible sector or cluster size"));
        }
        // Bytes behind the end of the partition do not exist.
        let clusters = boot.clusters(boot.sectors.min(extent.len / boot.sector));
        if boot.reserved == 0 || clusters < MIN_CLUSTERS || !boot.has_entries(clusters) {
            return Err(not("impossible geometry"));
        }
        Ok(FatVolume {
            disk,
            extent,
            cluster: boot.cluster(),
            fat: extent.offset + boot.fat(0),
            other_fat: (boot.fats == 2).then(|| extent.offset + boot.fat(1)),
            data: extent.offset + boot.data(),
            clusters,
            root: boot.root,
            bytes: boot.sectors * boot.sector,
            serial: boot.serial,
            refused: boot.refused,
        })
    }

    /// Reads by the second FAT, if the first one does not begin as a FAT. Boot loaders know the first one only, but the ways
    /// back go by what is left.
    pub fn by_either_fat(self) -> Self {
        let other = self.other_fat.filter(|other| !self.begins(self.fat) && self.begins(*other));
        FatVolume { fat: other.unwrap_or(self.fat), ..self }
    }

    /// Checks that GRUB and firmware take it for a file system, too: if they refuse it, it does not boot.
    pub fn is_read_by_all(&self) -> Result<(), ReadError> {
        match self.refused {
            Some(fault) => Err(ReadError::Damaged(fault)),
            None if self.begins(self.fat) => Ok(()),
            None => Err(ReadError::Damaged(NO_FIRST_ENTRY)),
        }
    }

    /// Whether a FAT may begin here. An unreadable entry contradicts nothing: the ways back work without the FAT.
    fn begins(&self, fat: u64) -> bool {
        let mut first = [0; 4];
        let is_read = read(self.disk, fat, &mut first).is_ok();
        !is_read || is_first_entry(le32(&first, 0))
    }

    pub const fn extent(&self) -> Extent {
        self.extent
    }

    /// Bytes of the volume, by its boot sector.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Serial number of the volume.
    pub const fn serial(&self) -> u32 {
        self.serial
    }

    /// Whether no file or directory has a cluster in a range of the disk. Behind the end of the volume nothing is.
    pub fn is_free(&self, range: Extent) -> Result<bool, ReadError> {
        let at = |offset: u64| offset.saturating_sub(self.data) / self.cluster + 2;
        let mut window = FatWindow { at: u64::MAX, bytes: Vec::new() };
        if range.offset < self.data {
            return Ok(false);
        }
        for cluster in at(range.offset)..=at(range.end() - 1).min(self.clusters + 1) {
            if window.entry(self, cluster as u32)? != 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Find a file by path, `/` between directories, ignoring ASCII case, as firmware does: by its long or its short name.
    /// `None` if there is no such file or it is a directory.
    pub fn find(&self, path: &str) -> Result<Option<FatFile>, ReadError> {
        self.find_by(path, |entry, part| {
            entry.name.eq_ignore_ascii_case(part) || display_short(&entry.short).eq_ignore_ascii_case(part)
        })
    }

    /// Finds a file as every boot loader does: GRUB does not look at the short name of a file that has a long one.
    pub fn find_by_name(&self, path: &str) -> Result<Option<FatFile>, ReadError> {
        self.find_by(path, |entry, part| entry.name.eq_ignore_ascii_case(part) && !entry.is_passed_over())
    }

    fn find_by(&self, path: &str, is: fn(&DirEntry, &str) -> bool) -> Result<Option<FatFile>, ReadError> {
        let mut dir = self.root;
        let mut parts = path.split('/').peekable();
        while let Some(part) = parts.next() {
            let Some(entry) = self.search(dir, |entry| is(entry, part))? else {
                return Ok(None);
            };
            if parts.peek().is_none() {
                return if entry.is_directory() { Ok(None) } else { self.file(entry).map(Some) };
            }
            if !entry.is_directory() {
                return Ok(None);
            }
            dir = entry.at.cluster;
        }
        Ok(None)
    }

    /// Names of the files and directories in a directory, `""` for the root. None of one that is not there.
    pub fn names_in(&self, path: &str) -> Result<Vec<String>, ReadError> {
        let mut dir = self.root;
        for part in path.split('/').filter(|part| !part.is_empty()) {
            match self.search(dir, |entry| entry.is_directory() && entry.name.eq_ignore_ascii_case(part))? {
                Some(entry) => dir = entry.at.cluster,
                None => return Ok(vec![]),
            }
        }
        let mut names = Vec::new();
        self.search(dir, |entry| {
            names.push(entry.name.clone());
            false
        })?;
        Ok(names)
    }

    /// Names and sizes (bytes) of the files in the root directory.
    pub fn root_files(&self) -> Result<Vec<(String, u64)>, ReadError> {
        let mut files = Vec::new();
        self.search(self.root, |e| {
            if !e.is_directory() {
                files.push((e.name.clone(), u64::from(e.at.bytes)));
            }
            false
        })?;
        Ok(files)
    }

    /// Read a whole file. One of more than `limit` bytes is an error.
    pub fn read_small(&self, path: &str, limit: u64) -> Result<Option<Vec<u8>>, ReadError> {
        Ok(self.read_found(path, limit)?.map(|(_, bytes)| bytes))
    }

    /// Reads a small file, and finds its place.
    pub fn read_found(&self, path: &str, limit: u64) -> Result<Option<(FatFile, Vec<u8>)>, ReadError> {
        self.read(path, self.find(path)?, limit)
    }

    /// Read a whole file that every boot loader finds ([`Self::find_by_name`]).
    pub fn read_by_name(&self, path: &str, limit: u64) -> Result<Option<Vec<u8>>, ReadError> {
        Ok(self.read(path, self.find_by_name(path)?, limit)?.map(|(_, bytes)| bytes))
    }

    fn read(&self, path: &str, file: Option<FatFile>, limit: u64) -> Result<Option<(FatFile, Vec<u8>)>, ReadError> {
        let Some(file) = file else { return Ok(None) };
        if file.size > limit {
            return Err(ReadError::TooLarge { path: path.to_owned(), size: file.size, limit });
        }
        let (mut out, mut at) = (vec![0; file.size as usize], 0);
        for extent in &file.extents {
            let piece = extent.len as usize;
            read(self.disk, extent.offset, &mut out[at..at + piece])?;
            at += piece;
        }
        Ok(Some((file, out)))
    }

    fn file(&self, entry: DirEntry) -> Result<FatFile, ReadError> {
        let mut extents: Vec<Extent> = Vec::new();
        let mut left = u64::from(entry.at.bytes);
        let mut chain = self.chain(entry.at.cluster);
        while left > 0 {
            let cluster =
                chain.next().ok_or(ReadError::Damaged("a file's cluster chain is shorter than its size"))??;
            let offset = self.offset(cluster);
            let len = left.min(self.cluster);
            let pieces = extents.len();
            match extents.last_mut() {
                Some(last) if last.end() == offset => last.len += len,
                _ if pieces == MAX_EXTENTS => return Err(ReadError::Damaged("a file is in more than 65536 pieces")),
                _ => extents.push(Extent { offset, len }),
            }
            left -= len;
        }
        Ok(FatFile { name: entry.name, size: u64::from(entry.at.bytes), extents })
    }

    const fn offset(&self, cluster: u32) -> u64 {
        self.data + (cluster as u64 - 2) * self.cluster
    }

    // The clusters of a chain. A chain that leaves the volume or does not end yields an error.
    fn chain(&self, first: u32) -> impl Iterator<Item = Result<u32, ReadError>> {
        // The next cluster is looked up when it is asked for: the FAT is not needed for a file of one cluster.
        let mut next = Some(Ok(first));
        let mut seen = 0;
        let mut window = FatWindow { at: u64::MAX, bytes: Vec::new() };
        let mut current = None;
        std::iter::from_fn(move || {
            if let Some(current) = current.take() {
                next = Some(window.entry(self, current));
            }
            let cluster = match next.take()? {
                Ok(cluster) => cluster,
                Err(e) => return Some(Err(e)),
            };
            if cluster >= FIRST_END_OF_CHAIN {
                return None;
            }
            seen += 1;
            // A chain of more clusters than the volume has is a loop.
            if cluster < 2 || u64::from(cluster) - 2 >= self.clusters || seen > self.clusters {
                return Some(Err(ReadError::Damaged("a cluster chain leaves the volume or is a loop")));
            }
            current = Some(cluster);
            Some(Ok(cluster))
        })
    }

    // The first entry of a directory that is wanted. Nothing behind it is read, except for the rest of its cluster, which
    // may be unreadable.
    fn search(&self, dir: u32, mut wanted: impl FnMut(&DirEntry) -> bool) -> Result<Option<DirEntry>, ReadError> {
        let mut reader = DirReader::default();
        let mut read_bytes = 0;
        let mut bytes = vec![0; self.cluster as usize];
        for cluster in self.chain(dir) {
            read_bytes += bytes.len();
            if read_bytes > MAX_DIR_BYTES {
                return Err(ReadError::Damaged("a directory is larger than 1 MiB"));
            }
            let offset = self.offset(cluster?);
            let sector = self.disk.sector_size().bytes() as usize;
            let whole = read(self.disk, offset, &mut bytes).is_ok();
            for at in (0..bytes.len()).step_by(DIR_ENTRY_BYTES) {
                if !whole && at.is_multiple_of(sector) {
                    let end = bytes.len().min(at + sector);
                    read(self.disk, offset + at as u64, &mut bytes[at..end])?;
                }
                match reader.row(&bytes[at..at + DIR_ENTRY_BYTES]) {
                    Row::End => return Ok(None),
                    Row::Entry(entry) if wanted(&entry) => return Ok(Some(entry)),
                    _ => {}
                }
            }
        }
        Ok(None)
    }
}

// The part of the FAT that was read last. Chains are mostly contiguous, so one read serves many entries.
struct FatWindow {
    at: u64,
    bytes: Vec<u8>,
}

impl FatWindow {
    const BYTES: u64 = 64 << 10;

    fn entry(&mut self, volume: &FatVolume, cluster: u32) -> Result<u32, ReadError> {
        let byte = u64::from(cluster) * 4;
        if !(self.at..self.at.saturating_add(self.bytes.len() as u64)).contains(&byte) {
            // A bad sector in the window matters only if the chain goes through it.
            self.fill(volume, byte, Self::BYTES)
                .or_else(|_| self.fill(volume, byte, volume.disk.sector_size().bytes()))?;
        }
        Ok(le32(&self.bytes, (byte - self.at) as usize) & ENTRY_BITS)
    }

    fn fill(&mut self, volume: &FatVolume, byte: u64, len: u64) -> Result<(), ReadError> {
        let at = byte - byte % len;
        let end = (volume.clusters + 2) * 4;
        self.bytes = vec![0; (end - at).min(len) as usize];
        // Nothing is in the window if this fails.
        self.at = u64::MAX;
        read(volume.disk, volume.fat + at, &mut self.bytes)?;
        self.at = at;
        Ok(())
    }
}

fn read(disk: &dyn BlockIo, offset: u64, buf: &mut [u8]) -> Result<(), ReadError> {
    // Callers read a cluster, a FAT window or a small file at once. More would mean an unchecked size.
    debug_assert!(buf.len() as u64 <= 64 * MIB);
    disk.read_back(offset, buf).map_err(|source| ReadError::Io { offset, source })
}
