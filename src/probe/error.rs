//! Why a disk cannot be read as one of ours.

use std::io;

use crate::{device::BlockIo, fat::ReadError, transfer::StreamError};
use slipway_core::{digest::SumsError, disk::layout::Part};

/// Why a disk cannot be read as ours.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The medium.
    #[error("at byte {offset} of the disk: {source}")]
    Io {
        /// Byte offset on the disk.
        offset: u64,
        /// The cause.
        source: io::Error,
    },
    /// No label.
    #[error("no partition table: {0}")]
    NoTable(String),
    /// A partition table of somebody else.
    #[error("not a Slipway disk: {0}")]
    Foreign(String),
    /// A file system that cannot be read.
    #[error("{part}: {source}")]
    Fat {
        /// Which partition.
        part: Part,
        /// The cause.
        source: ReadError,
    },
    /// A list of digests that cannot be read.
    #[error("{part}: {file}: {source}")]
    Sums {
        /// Which partition.
        part: Part,
        /// Which list.
        file: &'static str,
        /// The cause.
        source: SumsError,
    },
    /// A list of digests that is not there, or empty.
    #[error("{part}: {file} is missing or empty")]
    NoSums {
        /// Which partition.
        part: Part,
        /// Which list.
        file: &'static str,
    },
    /// Reading back.
    #[error("{part}: {file}: {source}")]
    Stream {
        /// Which partition.
        part: Part,
        /// Which file.
        file: String,
        /// The cause.
        source: StreamError,
    },
}

/// Read from the disk, past the page cache.
pub(super) fn read(disk: &dyn BlockIo, offset: u64, buf: &mut [u8]) -> Result<(), ProbeError> {
    disk.read_back(offset, buf).map_err(|source| ProbeError::Io { offset, source })
}
