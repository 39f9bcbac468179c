//! Errors of copying a file to the disk and reading it back.

use std::io;

#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    #[error("reading at byte {at}: {source}")]
    Source { at: u64, source: io::Error },
    /// The source no longer has the size that the plan was made with.
    #[error("it has {} bytes than the {expected} it had before: it changed while it was read", if *longer { "more" } else { "fewer" })]
    Length { expected: u64, longer: bool },
    #[error("cannot start a thread to read and hash with: {0}")]
    Thread(io::Error),
    #[error("flushing the disk: {0}")]
    Flush(io::Error),
    #[error("at byte {offset} of the disk: {source}")]
    Disk { offset: u64, source: io::Error },
}
