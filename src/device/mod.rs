//! LAYER 2: the target disk as bytes at offsets.

mod busy;
mod disk;
mod firmware;
mod identity;
mod ioctl;
mod list;
mod rate_limit;

pub use disk::{Access, Disk, OpenError};
pub use firmware::kernel_args as firmware_kernel_args;
pub use list::disks;
pub use rate_limit::{RateLimited, RateLimiter};

use std::io;

use slipway_core::units::{Extent, SectorSize};

/// A whole disk or image file. Offsets and lengths are bytes; reads and writes are whole or an error.
///
/// The crash sweep runs the real executor on a recording implementation of this trait, so every byte
/// that reaches a disk goes through it.
pub trait BlockIo: Sync {
    /// Size in bytes.
    fn size(&self) -> u64;

    /// Logical block size.
    fn sector_size(&self) -> SectorSize;

    /// Read what is on the medium: past the page cache, where the file system under an image file can (tmpfs
    /// has no medium beside it). What was written counts only after a [`BlockIo::sync`].
    fn read_back(&self, offset: u64, buf: &mut [u8]) -> io::Result<()>;

    /// Write. Durable only after the next [`BlockIo::sync`] that succeeds.
    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()>;

    /// Flush everything written so far to the medium. Once this has failed it fails for ever: the kernel
    /// may have dropped the data, and a second call that succeeds would not bring it back.
    fn sync(&self) -> io::Result<()>;

    /// Make sure that there is room for a range that is going to be written, without changing a byte. Only
    /// image files can run out of it.
    fn reserve(&self, _extent: Extent) -> io::Result<()> {
        Ok(())
    }

    /// Make a range read as zeros, by the cheapest way the device has.
    fn zero(&self, extent: Extent) -> io::Result<()> {
        write_zeros(self, extent)
    }

    /// Tell the device that a range is not needed any more. What it reads as afterwards is not defined.
    fn discard(&self, _extent: Extent) -> io::Result<()> {
        Ok(())
    }

    /// Claim partitions for as long as the disk is open, so that nobody mounts them meanwhile. Nothing to do for a disk that
    /// no kernel knows.
    fn claim(&self, _parts: &[Extent]) -> io::Result<()> {
        Ok(())
    }

    /// Have the kernel forget what it cached of a partition through the partition's own node.
    fn forget_cached(&self, _extent: Extent) -> io::Result<()> {
        Ok(())
    }

    /// Tell the kernel that the partition table changed.
    fn reread_table(&self) -> io::Result<()> {
        Ok(())
    }
}

/// Zero a range by writing zeros.
fn write_zeros(disk: &(impl BlockIo + ?Sized), extent: Extent) -> io::Result<()> {
    let zeros = AlignedBuf::new(CHUNK_BYTES);
    let mut at = extent.offset;
    while at < extent.end() {
        let n = (extent.end() - at).min(CHUNK_BYTES as u64) as usize;
        disk.write_at(at, &zeros[..n])?;
        at += n as u64;
    }
    Ok(())
}

/// Bytes moved at once: large enough for the disk's full pace, small enough for a few in flight.
pub const CHUNK_BYTES: usize = 1 << 20;

/// Memory aligned for direct I/O.
pub struct AlignedBuf {
    raw: Vec<u8>,
    start: usize,
    len: usize,
}

impl AlignedBuf {
    /// Alignment in bytes: no disk wants more than a page.
    pub const ALIGN: usize = 4096;

    /// Zeroed memory.
    pub fn new(len: usize) -> Self {
        let raw = vec![0; len + Self::ALIGN];
        let start = raw.as_ptr().align_offset(Self::ALIGN);
        AlignedBuf { raw, start, len }
    }
}

impl std::ops::Deref for AlignedBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.raw[self.start..self.start + self.len]
    }
}

impl std::ops::DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.raw[self.start..self.start + self.len]
    }
}
