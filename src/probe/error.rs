//! Why a disk cannot be read as a Slipway disk.

use std::io;

use crate::{fat::ReadError, transfer::StreamError};
use slipway_core::{digest::SumsError, disk::layout::Part};

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
