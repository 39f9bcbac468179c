//! The interface through which all code reads and writes a disk.

use std::io;

use super::aligned_buf::AlignedBuf;
use slipway_core::{
    plan::Known,
    units::{Extent, SectorSize},
};

/// Bytes per transfer: large enough for the disk's full speed, small enough to hold several in memory.
pub const CHUNK_BYTES: usize = 1 << 20;

/// A whole disk or image file. Offsets and lengths are in bytes. A read or write that cannot be completed is an error.
///
/// Every access to the disk goes through this trait: the crash sweep runs the real executor on an implementation that
/// records the writes.
pub trait BlockIo: Sync {
    /// Bytes.
    fn size(&self) -> u64;

    fn sector_size(&self) -> SectorSize;

    /// Read from the disk itself, not from the page cache (except on file systems such as tmpfs, which have nothing
    /// else). Only meaningful for writes that a [`BlockIo::sync`] has flushed.
    fn read_back(&self, offset: u64, buf: &mut [u8]) -> io::Result<()>;

    /// Durable only after the next [`BlockIo::sync`] that succeeds.
    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()>;

    /// Flush all writes to the disk. Once this has failed, every later call fails too: the kernel may have dropped the
    /// data, and a second flush that succeeds would not bring it back.
    fn sync(&self) -> io::Result<()>;

    /// Allocate space for a range without changing its content. Only sparse image files can run out of space.
    fn reserve(&self, _extent: Extent) -> io::Result<()> {
        Ok(())
    }

    /// Nothing can be written behind this byte, though the disk goes on there: a limit of this process on the size of files.
    fn limit(&self) -> u64 {
        u64::MAX
    }

    /// Make a range read as zeros in the cheapest way. For an image file this may free its space.
    fn zero(&self, extent: Extent) -> io::Result<()> {
        write_zeros(self, extent)
    }

    /// Tell the device that a range is unused. Reading it is undefined afterwards.
    fn discard(&self, _extent: Extent) -> io::Result<()> {
        Ok(())
    }

    /// Claim the partitions on these ranges until the disk is closed, so that they cannot be mounted. Fails if anything uses
    /// any byte of them. A disk that no kernel knows has nothing to claim.
    fn claim(&self, _parts: &[Extent]) -> io::Result<()> {
        Ok(())
    }

    /// Have the kernel forget all partitions of the disk. Fails, and changes nothing, while any program has one open.
    fn drop_partitions(&self) -> io::Result<()> {
        Ok(())
    }

    /// Drop the page cache of the partition nodes on this range.
    fn forget_cached(&self, _extent: Extent) -> io::Result<()> {
        Ok(())
    }

    /// The kernel's entry of the partition that begins at this byte; none of a disk that it reads no partitions of.
    fn known(&self, _offset: u64) -> io::Result<Option<Known>> {
        Ok(None)
    }

    /// Have the kernel know that the partition which begins there is larger. It may be in use.
    fn resize_partition(&self, _extent: Extent) -> io::Result<()> {
        Ok(())
    }

    /// Grow the mounted XFS file system on this partition to all of it.
    fn grow_xfs(&self, _extent: Extent) -> io::Result<()> {
        Ok(())
    }

    /// Have the kernel read the changed partition table.
    fn reread_table(&self) -> io::Result<()> {
        Ok(())
    }
}

pub(super) fn write_zeros(disk: &(impl BlockIo + ?Sized), extent: Extent) -> io::Result<()> {
    let zeros = AlignedBuf::new(CHUNK_BYTES);
    let mut at = extent.offset;
    while at < extent.end() {
        let n = (extent.end() - at).min(CHUNK_BYTES as u64) as usize;
        disk.write_at(at, &zeros[..n])?;
        at += n as u64;
    }
    Ok(())
}
