//! The write path: from a reader to the disk in one pass, and back from the disk to compare.

pub mod checksum;
mod file_reader;
mod read_back;
pub mod sha256;
mod stream;

pub use file_reader::{FileReader, PayloadFiles, Take};
pub use read_back::{ReadBack, read_back_digest};
pub use stream::{StreamError, digest_file, write_stream};
