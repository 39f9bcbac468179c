//! Where kernel, initramfs and squashfs come from.

mod dir;
mod examine;
pub mod image;
pub mod registry;
mod source;

pub use dir::DirSource;
pub use examine::{ChecksumPolicy, PayloadError, TEXTS};
pub use source::{Source, SourceRef, image_store};

use std::{fs::File, io, os::unix::fs::OpenOptionsExt as _, path::Path};

use nix::libc;

/// Open a file for reading. A fifo would block in open without `O_NONBLOCK` (which means nothing to a file), a device never
/// end.
fn open_regular(path: &Path) -> io::Result<File> {
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    let wrong = || io::Error::new(io::ErrorKind::InvalidData, "not a regular file");
    if file.metadata()?.is_file() { Ok(file) } else { Err(wrong()) }
}
