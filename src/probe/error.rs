//! Why a disk cannot be read as a Slipway disk.

use std::io;

use crate::{device::BlockIo, fat::ReadError, transfer::StreamError};
use slipway_core::{
    digest::SumsError,
    disk::{layout::Part, magic::HEAD_BYTES},
    units::Extent,
};

#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    #[error("at byte {offset} of the disk: {source}")]
    Io { offset: u64, source: io::Error },
    #[error("no partition table: {0}")]
    NoTable(String),
    /// Nothing else of the table, and no data.
    #[error(
        "LBA 0 is lost, and with it the disk has no partition table; the table behind it is whole, and all data is there"
    )]
    Lba0Lost,
    #[error("the partition table cannot be read: {0}")]
    TableUnreadable(String),
    #[error("not a Slipway disk: {0}")]
    Foreign(String),
    #[error("{part}: {source}")]
    Fat { part: Part, source: ReadError },
    #[error("{part}: {file}: {source}")]
    Sums { part: Part, file: &'static str, source: SumsError },
    #[error("{part}: {file} is missing or empty")]
    NoSums { part: Part, file: &'static str },
    #[error("{part}: {file}: {source}")]
    Stream { part: Part, file: String, source: StreamError },
}

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
