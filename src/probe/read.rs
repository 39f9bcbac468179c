//! Reads of a disk, past the page cache.

use super::error::ProbeError;
use crate::device::BlockIo;
use slipway_core::{disk::magic::HEAD_BYTES, units::Extent};

pub(super) fn read(disk: &dyn BlockIo, offset: u64, buf: &mut [u8]) -> Result<(), ProbeError> {
    disk.read_back(offset, buf).map_err(|source| ProbeError::Io { offset, source })
}

// The first bytes of a range, cut at the end of the range and of the disk. `None` if they cannot be read, so that one
// bad sector does not hide the rest of the table.
pub(super) fn head(disk: &dyn BlockIo, extent: Extent) -> Option<Vec<u8>> {
    let inside = disk.size().saturating_sub(extent.offset).min(extent.len);
    let mut head = vec![0; usize::try_from(inside).unwrap_or(HEAD_BYTES).min(HEAD_BYTES)];
    disk.read_back(extent.offset, &mut head).is_ok().then_some(head)
}
