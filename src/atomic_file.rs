//! LAYER 2: files that appear under their names when they are complete and on the medium, never before.

use std::{
    fs::File,
    io::{Error, ErrorKind, Result},
    path::Path,
};

use tempfile::NamedTempFile;

/// Flush a file, and only then give it this name in its own directory; the name is on the medium on return. Without
/// `replace` a name that is taken is an error ([`ErrorKind::AlreadyExists`]).
pub fn publish(file: NamedTempFile, path: &Path, replace: bool) -> Result<()> {
    let dir = path.parent().ok_or(ErrorKind::InvalidInput)?;
    file.as_file().sync_all()?;
    let named = if replace { file.persist(path) } else { file.persist_noclobber(path) };
    named.map_err(Error::from)?;
    File::open(dir)?.sync_all()
}
