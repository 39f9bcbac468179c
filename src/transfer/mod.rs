//! The write path: copy a file to the disk in one pass while hashing it, then read it back from the disk and compare.

pub mod checksum;
mod error;
mod file_reader;
mod read_back;
pub mod sha256;
mod stream;

pub use error::StreamError;
pub use file_reader::{FileReader, PayloadFiles, Take};
pub use read_back::{ReadBack, read_back_digest};
pub use stream::{digest_file, fill, write_stream};
