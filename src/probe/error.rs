//! Why a disk cannot be read as a Slipway disk.

use std::io;

use crate::{fat::ReadError, transfer::StreamError};
use slipway_core::{digest::SumsError, disk::layout::Part};

const USED: &str =
    "a Slipway system that was in use, without a partition table, and too little is left to make the table again";
const UNFINISHED: &str = "an installation on it has not ended: run it again, it begins anew";

#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    #[error("at byte {offset} of the disk: {source}")]
    Io { offset: u64, source: io::Error },
    #[error("no partition table: {0}")]
    NoTable(String),
    /// A boot state of ours is left, and too little else to make the table again.
    #[error("no partition table: LBA 0 carries no protective MBR; {}", if *was_used { USED } else { UNFINISHED })]
    Unproven { was_used: bool },
    /// Nothing else of the table, and no data.
    #[error(
        "LBA 0 is lost, and with it the disk has no partition table; the table behind it is whole, and all data is there"
    )]
    Lba0Lost,
    /// It is certain what the table held.
    #[error("the partition table is damaged ({0}); what it held is known, and all data is there")]
    TableLost(String),
    /// The disk was larger when its table was written.
    #[error(
        "{part} ends beyond the end of the disk, or leaves no room there for the second copy of the table: the partition table is \
         for a disk of {needs} bytes, and this one has {has}; what lay behind that is lost, and the rest is as it was"
    )]
    Shrunk { part: Part, needs: u64, has: u64 },
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

impl ProbeError {
    /// The command that brings back a disk of ours that does not read as one; `None` if nothing of ours was found. `disk`
    /// is quoted for a shell.
    pub fn way_back(&self, disk: &str) -> Option<String> {
        match self {
            ProbeError::Lba0Lost => {
                Some(format!("`installer repair --disk {disk}` writes LBA 0 again, and keeps all data"))
            }
            ProbeError::TableLost(_) => {
                Some(format!("`installer repair --disk {disk}` writes the partition table again, and keeps all data"))
            }
            ProbeError::Shrunk { needs, .. } => Some(format!(
                "make it as large as it was: an image by `truncate --size={needs} {disk}`, a disk by a copy of it on one of at \
                 least {needs} bytes. Then `installer repair --disk {disk}` writes the table again"
            )),
            ProbeError::Unproven { was_used: true } => Some(format!(
                "no data on it can be kept: `installer install --disk {disk} --source SOURCE --force` makes a new system"
            )),
            ProbeError::Unproven { was_used: false } => Some(format!(
                "`installer install --disk {disk} --source SOURCE` installs it anew; nothing on it was in use"
            )),
            _ => None,
        }
    }
}
