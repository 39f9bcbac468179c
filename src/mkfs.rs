//! LAYER 2: an XFS file system in a byte range of a disk.
//!
//! mkfs.xfs takes no offset, the partition has no node before the table is on the disk, and an image
//! file never has one. So it works on a sparse side file of the partition's size, of which only the data
//! (superblocks, headers, root inode: some hundred KiB) is copied to the range. The log must be zero and is
//! a hole in the side file: it is zeroed here, as are both ends, where signatures of others may stand.

use std::{ffi::OsString, fs::File, io, os::unix::fs::FileExt};

use nix::unistd::Whence;
use uuid::Uuid;

use crate::{
    device::{AlignedBuf, BlockIo, CHUNK_BYTES},
    model::{
        digest::Sha256,
        units::{Extent, MIB, SectorSize},
    },
    payload::digest_file,
    tools::{Tool, ToolError},
};

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
    /// The disk.
    #[error("at byte {offset} of the disk: {source}")]
    Disk {
        /// Byte offset on the disk.
        offset: u64,
        /// The cause.
        source: io::Error,
    },
}

/// Make an XFS file system that fills `extent`. Nothing is flushed. Returns what must be on the disk then:
/// byte ranges and their digests.
pub fn xfs(disk: &dyn BlockIo, extent: Extent, spec: &XfsSpec) -> Result<Vec<(Extent, Sha256)>, MkfsError> {
    let dir = std::env::temp_dir().display().to_string();
    let side_error = |source| MkfsError::SideFile { dir: dir.clone(), source };
    let side = tempfile::NamedTempFile::new().map_err(side_error)?;
    side.as_file().set_len(extent.len).map_err(side_error)?;
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
        format!("file,size={}", extent.len).into(),
    ];
    if extent.len < XFS_MIN_SUPPORTED {
        args.push("--unsupported".into());
    }
    args.push(side.path().as_os_str().to_owned());
    Tool::MkfsXfs.run(args)?;
    let disk_error = |offset| move |source| MkfsError::Disk { offset, source };
    let mut superblock = [0; 128];
    side.as_file().read_exact_at(&mut superblock, 0).map_err(side_error)?;
    let log = log_range(&superblock)
        .filter(|log| log.offset.checked_add(log.len).is_some_and(|end| end <= extent.len))
        .ok_or_else(|| side_error(io::Error::other("mkfs.xfs left no superblock with an internal log")))?;
    let ends = [Extent { offset: 0, len: MIB }, Extent { offset: extent.len - MIB, len: MIB }];
    for zeros in ends.into_iter().chain([log]) {
        let offset = extent.offset + zeros.offset;
        disk.zero(Extent { offset, len: zeros.len }).map_err(disk_error(offset))?;
    }
    let ranges = data_ranges(side.as_file(), extent.len).map_err(side_error)?;
    let mut buf = AlignedBuf::new(CHUNK_BYTES);
    for data in &ranges {
        for at in (data.offset..data.end()).step_by(CHUNK_BYTES) {
            let chunk = &mut buf[..(data.end() - at).min(CHUNK_BYTES as u64) as usize];
            side.as_file().read_exact_at(chunk, at).map_err(side_error)?;
            let offset = extent.offset + at;
            disk.write_at(offset, chunk).map_err(disk_error(offset))?;
        }
    }
    let digest = |range: Extent| {
        let (sha256, _) = digest_file(&mut RangeReader { file: side.as_file(), range }, |_| ())?;
        Ok((Extent { offset: extent.offset + range.offset, len: range.len }, sha256))
    };
    ranges.into_iter().chain([log]).map(digest).collect::<io::Result<_>>().map_err(side_error)
}

/// Reads a range of a file.
struct RangeReader<'f> {
    file: &'f File,
    range: Extent,
}

impl io::Read for RangeReader<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = (self.range.len).min(buf.len() as u64) as usize;
        let n = self.file.read_at(&mut buf[..n], self.range.offset)?;
        self.range = Extent { offset: self.range.offset + n as u64, len: self.range.len - n as u64 };
        Ok(n)
    }
}

/// Bytes of the internal log, from the superblock (XFS Algorithms & Data Structures, "Superblocks"):
/// `sb_logstart` is a block number whose upper bits name the allocation group.
fn log_range(sb: &[u8; 128]) -> Option<Extent> {
    let be32 = |at: usize| u64::from(u32::from_be_bytes([sb[at], sb[at + 1], sb[at + 2], sb[at + 3]]));
    let (block, ag_blocks, log_blocks) = (be32(4), be32(84), be32(96));
    let log_start = be32(48) << 32 | be32(52);
    let ag_bits = u32::from(sb[124]);
    if &sb[..4] != b"XFSB" || log_start == 0 || ag_bits >= 32 {
        return None;
    }
    let group_block = (log_start >> ag_bits).checked_mul(ag_blocks)?.checked_add(log_start & ((1 << ag_bits) - 1))?;
    Some(Extent { offset: group_block.checked_mul(block)?, len: log_blocks.checked_mul(block)? })
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
