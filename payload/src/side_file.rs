//! Files that get their name only once they are complete and flushed to the disk. Until then they are side files, which go with
//! the program.

use std::{
    fs::{self, File},
    io::{Error, ErrorKind, Result},
    mem,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use tempfile::NamedTempFile;

static SIDE_FILES: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Make a side file or directory that removes itself on drop. `path` is where it is.
pub fn side<T>(make: impl FnOnce() -> Result<T>, path: impl FnOnce(&T) -> PathBuf) -> Result<T> {
    // Under the lock: nothing comes to be after `remove_all`.
    let mut all = SIDE_FILES.lock().unwrap_or_else(PoisonError::into_inner);
    let made = make().map_err(without_name)?;
    all.push(path(&made));
    Ok(made)
}

// The error without the random temporary name that tempfile puts behind it. Its cause is nowhere but in its text.
fn without_name(e: Error) -> Error {
    match e.to_string().split_once(" at path ") {
        Some((why, _)) => Error::new(e.kind(), why),
        None => e,
    }
}

/// Make files that are of use only together, under their own names: a signal ends the program before the first or after the
/// last.
pub fn together<T>(make: impl FnOnce() -> T) -> T {
    let _all = SIDE_FILES.lock().unwrap_or_else(PoisonError::into_inner);
    make()
}

/// Remove all side files, right before a signal ends the program. From here on no others can be made.
pub fn remove_all() {
    let all = SIDE_FILES.lock().unwrap_or_else(PoisonError::into_inner);
    for path in all.iter().rev() {
        // It may be gone.
        let _ = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    }
    mem::forget(all);
}

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
