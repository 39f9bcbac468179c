//! The write path: copy a file to the disk in one pass while hashing it, then read it back from the disk and compare.

mod read_back;
mod stream;

pub use read_back::{ReadBack, read_back_digest};
pub use slipway_payload::{
    digest_file::digest_file,
    file_reader::{FileReader, PayloadFiles, Take},
    sha256,
};
pub use stream::write_stream;

use std::io;

use twox_hash::XxHash3_128;

/// A fast checksum, to compare written bytes with the bytes read back: XXH3, 128 bits (xxHash specification 0.2.0).
///
/// It runs about as fast as memory can be read and misses accidental damage once in 2^128. It does not resist a
/// deliberate attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checksum(u128);

impl Checksum {
    pub fn of_bytes(bytes: &[u8]) -> Self {
        Checksum(XxHash3_128::oneshot(bytes))
    }
}

#[derive(Default)]
pub struct Checksummer(XxHash3_128);

impl Checksummer {
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }

    pub fn finish(self) -> Checksum {
        Checksum(self.0.finish_128())
    }
}

/// The failure to copy a file to the disk or to read it back.
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
