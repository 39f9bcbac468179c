//! LAYER 2: an XFS file system in a byte range of a disk.
//!
//! mkfs.xfs takes no offset, the partition has no node before the table is on the disk, and an image
//! file never has one. So it works on a sparse side file of the partition's size, of which only the data
//! (superblocks, headers, root inode: some hundred KiB) is copied to the range. The log must be zero and is
//! a hole in the side file: it is zeroed here, as are both ends, where signatures of others may stand.

mod xfs;

use std::{
    ffi::OsString,
    fs::File,
    io,
    os::{fd::AsRawFd as _, unix::fs::FileExt as _},
};

use nix::unistd::Whence;
use uuid::Uuid;

use crate::{
    device::{AlignedBuf, BlockIo, CHUNK_BYTES},
    tools::{Tool, ToolError},
};
use slipway_core::units::{Extent, MIB, SectorSize};
use xfs::SUPERBLOCK_BYTES;

/// Below this, bytes, mkfs.xfs refuses unless told otherwise (xfsprogs 5.19 and later).
const XFS_MIN_SUPPORTED: u64 = 300 * MIB;

/// What a file system is made with.
pub struct XfsSpec {
    /// Label, at most 12 characters.
    pub label: String,
    /// UUID.
    pub uuid: Uuid,
    /// Smallest block the device writes.
    pub sector: SectorSize,
    /// Times in its inodes, seconds since 1970 UTC, whose generation numbers are then settled too: the same
    /// specification gives the same bytes. None: as mkfs.xfs leaves them.
    pub time: Option<u64>,
}

/// Why no file system was made.
#[derive(Debug, thiserror::Error)]
pub enum MkfsError {
    /// mkfs.xfs.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// The side file.
    #[error("temporary file for mkfs.xfs in {dir}: {source}")]
    SideFile {
        /// Directory for temporary files.
        dir: String,
        /// The cause.
        source: io::Error,
    },
    /// What was read back is not what was written.
    #[error("the piece at byte {offset} of the disk is not what was written there: the medium lies or is failing")]
    Differs {
        /// Byte offset on the disk.
        offset: u64,
    },
    /// The disk.
    #[error("at byte {offset} of the disk: {source}")]
    Disk {
        /// Byte offset on the disk.
        offset: u64,
        /// The cause.
        source: io::Error,
    },
}

/// A file system in its side file, ready to be copied.
pub struct PreparedXfs {
    side: File,
    /// Ranges with data, and the log, from the start of the file system.
    data: Vec<Extent>,
    log: Extent,
    len: u64,
}

fn side_error(source: io::Error) -> MkfsError {
    MkfsError::SideFile { dir: std::env::temp_dir().display().to_string(), source }
}

impl PreparedXfs {
    /// Make an XFS file system of `len` bytes.
    pub fn new(len: u64, spec: &XfsSpec) -> Result<Self, MkfsError> {
        // No name in any directory: nothing is left behind, however we end. mkfs.xfs reaches it by our /proc.
        let side = tempfile::tempfile().map_err(side_error)?;
        side.set_len(len).map_err(side_error)?;
        let mut args: Vec<OsString> = vec![
            "-q".into(),
            "-f".into(),
            "-K".into(),
            "-L".into(),
            spec.label.clone().into(),
            "-m".into(),
            format!("uuid={}", spec.uuid).into(),
            "-s".into(),
            format!("size={}", spec.sector.bytes()).into(),
            "-d".into(),
            format!("file,size={len}").into(),
        ];
        if len < XFS_MIN_SUPPORTED {
            args.push("--unsupported".into());
        }
        args.push(format!("/proc/{}/fd/{}", std::process::id(), side.as_raw_fd()).into());
        Tool::MkfsXfs.run(args)?;
        let mut superblock = [0; SUPERBLOCK_BYTES];
        side.read_exact_at(&mut superblock, 0).map_err(side_error)?;
        if let Some(time) = spec.time {
            settle_inodes(&side, &superblock, time).map_err(side_error)?;
        }
        let log = xfs::log_range(&superblock)
            .filter(|log| log.offset.checked_add(log.len).is_some_and(|end| end <= len))
            .ok_or_else(|| side_error(io::Error::other("mkfs.xfs left no superblock with an internal log")))?;
        let data = data_ranges(&side, len).map_err(side_error)?;
        Ok(PreparedXfs { side, data, log, len })
    }

    /// The ranges that will be written with data, on a disk where it fills `extent`.
    pub fn data(&self, extent: Extent) -> impl Iterator<Item = Extent> {
        self.data.iter().map(move |d| Extent { offset: extent.offset + d.offset, len: d.len })
    }

    /// Copy it to where it fills `extent`. Nothing is flushed.
    pub fn write(&self, disk: &dyn BlockIo, extent: Extent) -> Result<(), MkfsError> {
        let disk_error = |offset| move |source| MkfsError::Disk { offset, source };
        for zeros in self.zeroed() {
            let offset = extent.offset + zeros.offset;
            disk.zero(Extent { offset, len: zeros.len }).map_err(disk_error(offset))?;
        }
        // Zeroing an image file may have given back room that was reserved.
        for data in self.data(extent) {
            disk.reserve(data).map_err(disk_error(data.offset))?;
        }
        // The superblock comes after a flush of its own: a file system that is found is complete.
        let sector = disk.sector_size().bytes() as usize;
        let mut superblock = Vec::new();
        self.chunks(&self.data, |at, chunk| {
            let skip = if at == 0 { sector.min(chunk.len()) } else { 0 };
            superblock.extend_from_slice(&chunk[..skip]);
            let offset = extent.offset + at + skip as u64;
            disk.write_at(offset, &chunk[skip..]).map_err(disk_error(offset))
        })?;
        disk.sync().map_err(disk_error(extent.offset))?;
        disk.write_at(extent.offset, &superblock).map_err(disk_error(extent.offset))
    }

    /// Compare what is on the medium with the side file: everything that was written or zeroed.
    pub fn verify(&self, disk: &dyn BlockIo, extent: Extent) -> Result<(), MkfsError> {
        let mut back = AlignedBuf::new(CHUNK_BYTES);
        let ranges: Vec<Extent> = self.data.iter().copied().chain(self.zeroed()).collect();
        self.chunks(&ranges, |at, chunk| {
            let offset = extent.offset + at;
            let back = &mut back[..chunk.len()];
            disk.read_back(offset, back).map_err(|source| MkfsError::Disk { offset, source })?;
            if *back == *chunk { Ok(()) } else { Err(MkfsError::Differs { offset }) }
        })
    }

    /// Both ends, where signatures of others may stand, and the log, from the start of the file system.
    fn zeroed(&self) -> [Extent; 3] {
        [Extent { offset: 0, len: MIB }, Extent { offset: self.len - MIB, len: MIB }, self.log]
    }

    /// Read ranges of the side file piece by piece.
    fn chunks(
        &self,
        ranges: &[Extent],
        mut each: impl FnMut(u64, &[u8]) -> Result<(), MkfsError>,
    ) -> Result<(), MkfsError> {
        let mut buf = AlignedBuf::new(CHUNK_BYTES);
        for range in ranges {
            for at in (range.offset..range.end()).step_by(CHUNK_BYTES) {
                let len = (range.end() - at).min(CHUNK_BYTES as u64);
                let chunk = &mut buf[..len as usize];
                // A hole is not worth the page cache it would fill: the log of a large disk has 2 GiB.
                if self.data.iter().any(|data| data.offset < at + len && at < data.end()) {
                    self.side.read_exact_at(chunk, at).map_err(side_error)?;
                } else {
                    chunk.fill(0);
                }
                each(at, chunk)?;
            }
        }
        Ok(())
    }
}

/// mkfs.xfs (of version 6.1, Debian 12's) writes the time of day into the inodes it makes, and takes none from outside;
/// later ones draw generation numbers by chance as well. Nothing else in what it makes is anything but its arguments.
fn settle_inodes(side: &File, superblock: &[u8; SUPERBLOCK_BYTES], time: u64) -> io::Result<()> {
    let (at, size) = xfs::root_inodes(superblock).ok_or_else(|| {
        io::Error::other("mkfs.xfs made no version 5 file system with its first inodes where they belong")
    })?;
    let mut inodes = vec![0; at.len as usize];
    side.read_exact_at(&mut inodes, at.offset)?;
    xfs::settle_inodes(&mut inodes, size, time).map_err(io::Error::other)?;
    side.write_all_at(&inodes, at.offset)
}

/// Where a sparse file has data (lseek(2), `SEEK_DATA` and `SEEK_HOLE`).
fn data_ranges(file: &File, len: u64) -> io::Result<Vec<Extent>> {
    let mut ranges = Vec::new();
    let mut at = 0;
    while at < len.cast_signed() {
        let start = match nix::unistd::lseek(file, at, Whence::SeekData) {
            Ok(start) => start,
            Err(nix::Error::ENXIO) => break,
            Err(e) => return Err(e.into()),
        };
        at = nix::unistd::lseek(file, start, Whence::SeekHole)?;
        ranges.push(Extent { offset: start.cast_unsigned(), len: (at - start).cast_unsigned() });
    }
    Ok(ranges)
}
