//! Refuses an `--out` that is one of the files that the result is made from. `--force` only replaces an older result.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::{input, trust::identity};
use crate::{
    error::Failure,
    payload::{DirSource, SourceRef},
};

/// A flag, and the file that it gives.
pub type InputFile<'a> = (&'static str, &'a Path);

/// `flag` gave the source. A file of the name `addition` is made to become a part of it.
pub fn spare(out: &Path, flag: &str, source: &SourceRef, addition: Option<&str>) -> Result<(), Failure> {
    // What does not exist is not replaced.
    let Some(replaced) = identity(out) else { return Ok(()) };
    let is_added = |file: &Path| addition.is_some_and(|name| file.file_name().is_some_and(|of_file| of_file == name));
    if files(source).iter().any(|file| !is_added(file) && identity(file) == Some(replaced)) {
        return input(Err(format!("--out {} is a part of {flag} {source}: name another file", out.display())));
    }
    Ok(())
}

/// The same for files that are read, with the flags that gave them.
pub fn spare_files<'a>(out: &Path, mut files: impl Iterator<Item = InputFile<'a>>) -> Result<(), Failure> {
    let Some(replaced) = identity(out) else { return Ok(()) };
    match files.find(|(_, file)| identity(file) == Some(replaced)) {
        Some((flag, _)) => input(Err(format!("--out {} is the file of {flag}: name another file", out.display()))),
        None => Ok(()),
    }
}

/// Files of a source on this machine, as far as they are there.
fn files(source: &SourceRef) -> Vec<PathBuf> {
    match source {
        SourceRef::Dir(dir) => DirSource::new(dir).parts(),
        SourceRef::Oci(dir, _) => {
            let blobs = within(&dir.join("blobs")).iter().flat_map(|kind| within(kind)).collect::<Vec<_>>();
            [vec![dir.join("oci-layout"), dir.join("index.json")], blobs].concat()
        }
        SourceRef::OciArchive(file, _) => vec![file.clone()],
        SourceRef::Docker(_) => vec![],
    }
}

fn within(dir: &Path) -> Vec<PathBuf> {
    fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}
