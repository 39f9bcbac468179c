//! The write path: copy a file to the disk in one pass while hashing it, then read it back from the disk and compare.

pub mod checksum;
mod error;
mod read_back;
mod stream;

pub use error::StreamError;
pub use read_back::{ReadBack, read_back_digest};
pub use slipway_payload::{
    digest_file::digest_file,
    file_reader::{FileReader, PayloadFiles, Take},
    sha256,
};
pub use stream::write_stream;
