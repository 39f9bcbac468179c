//! Payloads: kernel, initramfs and squashfs, or a unified kernel image, as they come from a directory, a container image or a
//! registry; and their signers. Installer and fleet share this crate.
//!
//! * [`image`]: container images, wherever they are stored
//! * [`registry`]: registries as stores of images
//! * [`trust`]: verifies signatures
//! * [`delta`]: reads a layer of which the disk has most bytes already
//! * [`file_reader`]: the files of a payload as readers
//! * [`digest_file`]: the digest of a file that is read to its end
//! * [`sha256`]: SHA-256 of one message, or of two that share their bytes
//! * [`side_file`]: files that get their name when they are complete

mod checksum_policy;
pub mod delta;
pub mod digest_file;
mod dir;
mod examine;
pub mod file_reader;
pub mod image;
mod initramfs_watch;
mod kernel_watch;
mod lz4_blocks;
mod lzop_blocks;
mod payload_error;
pub mod registry;
pub mod sha256;
pub mod side_file;
mod source;
mod source_ref;
pub mod trust;
mod watched;
mod watches;

pub use checksum_policy::ChecksumPolicy;
pub use dir::{DirSource, SignedList, WRAPPED_COLUMNS};
pub use payload_error::PayloadError;
pub use slipway_core::payload::unused::TEXTS;
pub use source::{Source, image_store};
pub use source_ref::{LayoutRef, SourceRef};

use std::{fs::File, io, os::unix::fs::OpenOptionsExt as _, path::Path};

use nix::libc;

/// The text behind the byte order mark that some editors begin a file with.
fn without_mark(text: &[u8]) -> &[u8] {
    text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text)
}

/// Open a file for reading and refuse everything that is not a regular file: a device might never end.
fn open_regular(path: &Path) -> io::Result<File> {
    // Opening a fifo would block without O_NONBLOCK. For a regular file it has no effect.
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    let wrong = || io::Error::new(io::ErrorKind::InvalidData, "not a regular file");
    if file.metadata()?.is_file() { Ok(file) } else { Err(wrong()) }
}
