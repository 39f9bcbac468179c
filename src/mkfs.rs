//! Makes an XFS file system in a byte range of a disk.
//!
//! mkfs.xfs takes no offset, and the partition has no device node until the new table is on the disk. So mkfs.xfs works
//! on a sparse file of the partition's size, and only the parts with data (some hundred KiB; 24 KiB more for each TiB)
//! are copied to the disk. The log, a hole in that file, is zeroed on the disk. So are both ends of the range, where
//! other file systems may have left signatures.
//!
//! The side file is in memory: no other file system holds files of any size. ext4 ends at 16 TiB.

mod xfs;

use std::{
    ffi::OsString,
    fs::File,
    io,
    os::{fd::AsRawFd as _, unix::fs::FileExt as _},
};

use uuid::Uuid;

use crate::{
    device::{AlignedBuf, BlockIo, CHUNK_BYTES, data_ranges},
    tools::{Tool, ToolError, memory_file},
};
use slipway_core::units::{Extent, MIB, SectorSize};
use xfs::SUPERBLOCK_BYTES;

// mkfs.xfs 5.19 and later refuses smaller sizes (bytes) without `--unsupported`.
const XFS_MIN_SUPPORTED: u64 = 300 * MIB;

pub struct XfsSpec {
    /// At most 12 characters.
    pub label: String,
    pub uuid: Uuid,
    pub sector: SectorSize,
    /// Seconds since 1970 UTC. Sets the times in the inodes to this and their generation numbers to 0, so that the same
    /// specification gives the same bytes. `None` leaves the values of mkfs.xfs.
    pub time: Option<u64>,
}

#[derive(Debug, thiserror::Error)]
pub enum MkfsError {
    #[error(transparent)]
    Tool(#[from] ToolError),
    #[error("side file for mkfs.xfs, in memory: {0}")]
    SideFile(#[source] io::Error),
    #[error(
        "the data at byte {offset} of the disk is not what was written there: the disk is faulty, or another program wrote to it"
    )]
    Differs { offset: u64 },
    #[error("at byte {offset} of the disk: {source}")]
    Disk { offset: u64, source: io::Error },
}

/// A file system in its side file, ready to be copied.
pub struct PreparedXfs {
    side: File,
    // Relative to the start of the file system.
    data: Vec<Extent>,
    log: Extent,
    len: u64,
}

impl PreparedXfs {
    /// Make a file system of `len` bytes with mkfs.xfs. Does not touch the disk.
    pub fn new(len: u64, spec: &XfsSpec) -> Result<Self, MkfsError> {
        // mkfs.xfs opens it through our /proc.
        let side = memory_file(c"mkfs.xfs").map_err(MkfsError::SideFile)?;
        side.set_len(len).map_err(MkfsError::SideFile)?;
        // -K: nothing to discard in a file. -f: no question about the file's content.
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
        // It cuts the file to whole blocks. Other programs let a partition end at any sector.
        side.set_len(len).map_err(MkfsError::SideFile)?;
        let mut superblock = [0; SUPERBLOCK_BYTES];
        side.read_exact_at(&mut superblock, 0).map_err(MkfsError::SideFile)?;
        if let Some(time) = spec.time {
            normalise_inodes(&side, &superblock, time).map_err(MkfsError::SideFile)?;
        }
        let log = xfs::log_range(&superblock)
            .filter(|log| log.offset.checked_add(log.len).is_some_and(|end| end <= len))
            .ok_or_else(|| {
                MkfsError::SideFile(io::Error::other("mkfs.xfs wrote no superblock with an internal log"))
            })?;
        let data = data_ranges(&side, len).map_err(MkfsError::SideFile)?;
        Ok(PreparedXfs { side, data, log, len })
    }

    /// The ranges of the disk that [`Self::write`] will fill with data.
    pub fn data(&self, extent: Extent) -> impl Iterator<Item = Extent> {
        self.data.iter().map(move |d| Extent { offset: extent.offset + d.offset, len: d.len })
    }

    /// Copy it to `extent`. The caller must flush: the superblock, written last, is not flushed here.
    pub fn write(&self, disk: &dyn BlockIo, extent: Extent) -> Result<(), MkfsError> {
        let disk_error = |offset| move |source| MkfsError::Disk { offset, source };
        for zeros in self.zeroed() {
            let offset = extent.offset + zeros.offset;
            disk.zero(Extent { offset, len: zeros.len }).map_err(disk_error(offset))?;
        }
        // Zeroing an image file may have freed space that was reserved.
        for data in self.data(extent) {
            disk.reserve(data).map_err(disk_error(data.offset))?;
        }
        // After a power loss a file system with a superblock must be complete, so all else is flushed before it.
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

    /// Read everything that was written or zeroed back from the disk, and compare it.
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

    // Both ends and the log, relative to the start of the file system.
    fn zeroed(&self) -> [Extent; 3] {
        [Extent { offset: 0, len: MIB }, Extent { offset: self.len - MIB, len: MIB }, self.log]
    }

    // Call `each` with offset and content of every piece of these ranges of the side file.
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
                // Reading a hole would fill the page cache: the log of a large disk has 2 GiB.
                if self.data.iter().any(|data| data.meets(Extent { offset: at, len })) {
                    self.side.read_exact_at(chunk, at).map_err(MkfsError::SideFile)?;
                } else {
                    chunk.fill(0);
                }
                each(at, chunk)?;
            }
        }
        Ok(())
    }
}

// mkfs.xfs (6.1, in Debian 12) writes the current time into its inodes, and no option sets it. Later versions also
// write random generation numbers. The rest of its output depends only on its arguments.
fn normalise_inodes(side: &File, superblock: &[u8; SUPERBLOCK_BYTES], time: u64) -> io::Result<()> {
    let (at, size) = xfs::root_inodes(superblock).ok_or_else(|| {
        io::Error::other("mkfs.xfs did not make a version 5 file system with its first inodes in the expected place")
    })?;
    let mut inodes = vec![0; at.len as usize];
    side.read_exact_at(&mut inodes, at.offset)?;
    xfs::normalise_inodes(&mut inodes, size, time).map_err(io::Error::other)?;
    side.write_all_at(&inodes, at.offset)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    /// The log of the second has 2 GiB.
    #[test]
    fn hardly_any_memory_whatever_the_size() {
        for (len, most) in [(4 << 30, MIB), (100 << 40, 4 * MIB)] {
            let spec =
                XfsSpec { label: "EPHEMERAL".to_owned(), uuid: Uuid::nil(), sector: SectorSize::S512, time: None };
            let prepared = PreparedXfs::new(len, &spec).unwrap();
            let memory = prepared.side.metadata().unwrap().blocks() * 512;
            assert!(memory <= most, "{memory} bytes in memory for {len}");
            assert!(prepared.data.iter().map(|data| data.len).sum::<u64>() <= most, "{} ranges", prepared.data.len());
        }
    }
}
