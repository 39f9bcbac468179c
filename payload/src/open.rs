//! Opens a file of a payload: regular files only, without waiting for a FIFO.

use std::{fs::File, io, os::unix::fs::OpenOptionsExt as _, path::Path};

use nix::libc;

/// Open a file for reading and refuse everything that is not a regular file: a device might never end.
pub fn open_regular(path: &Path) -> io::Result<File> {
    // Opening a fifo would block without O_NONBLOCK. For a regular file it has no effect.
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    let wrong = || io::Error::new(io::ErrorKind::InvalidData, "not a regular file");
    if file.metadata()?.is_file() { Ok(file) } else { Err(wrong()) }
}
