//! Files that get their name only once they are complete and flushed to the disk.

use std::{
    fs::File,
    io::{Error, ErrorKind, Result},
    path::Path,
};

use tempfile::NamedTempFile;

/// Flush `file`, then rename it to `path` in the same directory, then flush the directory: after a power loss `path`
/// holds either the old content or all of the new. Without `replace` an existing `path` is
/// [`ErrorKind::AlreadyExists`].
pub fn publish(file: NamedTempFile, path: &Path, replace: bool) -> Result<()> {
    let dir = path.parent().ok_or(ErrorKind::InvalidInput)?;
    file.as_file().sync_all()?;
    let named = if replace { file.persist(path) } else { file.persist_noclobber(path) };
    named.map_err(Error::from)?;
    File::open(dir)?.sync_all()
}
