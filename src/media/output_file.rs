//! The file that is made: it appears under its name when it is complete and on the medium, never before.

use std::{
    fs::{self, File, Permissions},
    io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use tempfile::{NamedTempFile, TempDir};

use crate::atomic_file;
use slipway_core::media::format::Compression;

/// Why there is no file to make.
#[derive(Debug, thiserror::Error)]
pub enum OutputFileError {
    /// It is there already.
    #[error("{path} exists; --force replaces it", path = .0.display())]
    Exists(PathBuf),
    /// It is there and no plain file: a disk, a directory, a link.
    #[error("{path} is there and is no regular file: `image` makes a file; `install` writes to a disk", path = .0.display())]
    NotAFile(PathBuf),
    /// No name for a file.
    #[error("{path:?} names no file", path = .0.display().to_string())]
    NoName(PathBuf),
    /// Its directory is not there, or takes no new file.
    #[error("{path}: no file can be made in {dir}, name another directory or make that one: {source}", path = path.display(), dir = dir.display())]
    Dir {
        /// The file that is made.
        path: PathBuf,
        /// Its directory.
        dir: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// Anything else the kernel says.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// The file that is made.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
}

/// The file that is made.
pub struct OutputFile {
    path: PathBuf,
    /// Its directory, absolute.
    dir: PathBuf,
    replace: bool,
}

impl OutputFile {
    /// A file that is not there, or with `replace` may be; its directory has to be.
    pub fn new(path: &Path, replace: bool) -> Result<Self, OutputFileError> {
        let name = path.file_name().ok_or_else(|| OutputFileError::NoName(path.to_owned()))?;
        let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let no_dir = |source| OutputFileError::Dir { path: path.to_owned(), dir: parent.to_owned(), source };
        let dir = parent.canonicalize().map_err(no_dir)?;
        let target = OutputFile { path: dir.join(name), dir, replace };
        match fs::symlink_metadata(&target.path) {
            Ok(meta) if !meta.is_file() => Err(OutputFileError::NotAFile(target.path)),
            Ok(_) if !replace => Err(OutputFileError::Exists(target.path)),
            Ok(_) => Ok(target),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(target),
            Err(e) => Err(target.error(e)),
        }
    }

    /// Its name, with an absolute directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The name of the image in it: its own without what says that it is compressed.
    pub fn name(&self) -> String {
        let compressed = Compression::of(&self.path.to_string_lossy()).is_some();
        let name = if compressed { self.path.file_stem() } else { self.path.file_name() };
        let text = name.unwrap_or_default().to_string_lossy();
        text.chars().map(|c| if c.is_control() { '_' } else { c }).collect()
    }

    /// A new directory beside it, which goes away.
    pub fn side_dir(&self) -> Result<TempDir, OutputFileError> {
        let dir = tempfile::Builder::new().prefix(".slipway-").tempdir_in(&self.dir);
        dir.map_err(|e| self.no_file(e))
    }

    /// Make a file of such a directory one like those of [`OutputFile::side`].
    pub fn adopt(&self, file: &Path) -> Result<NamedTempFile, OutputFileError> {
        let (_, path) = self.side()?.into_parts();
        let renamed = fs::rename(file, &path).and_then(|()| File::options().read(true).write(true).open(&path));
        Ok(NamedTempFile::from_parts(renamed.map_err(|e| self.error(e))?, path))
    }

    /// A new file beside it, which goes away unless it is published. What may be done with it is up to the umask.
    pub fn side(&self) -> Result<NamedTempFile, OutputFileError> {
        let mut builder = tempfile::Builder::new();
        let file = builder.prefix(".slipway-").permissions(Permissions::from_mode(0o666)).tempfile_in(&self.dir);
        file.map_err(|e| self.no_file(e))
    }

    /// Flush a file to the medium, and only then give it the name; the name is on the medium on return. Its size in
    /// bytes.
    pub fn publish(&self, file: NamedTempFile) -> Result<u64, OutputFileError> {
        let size = file.as_file().metadata().map_err(|e| self.error(e))?.len();
        match atomic_file::publish(file, &self.path, self.replace) {
            Ok(()) => Ok(size),
            // It has come meanwhile.
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Err(OutputFileError::Exists(self.path.clone())),
            Err(e) => Err(self.error(e)),
        }
    }

    /// Without the temporary name that was tried.
    fn no_file(&self, e: io::Error) -> OutputFileError {
        let inner = e.get_ref().and_then(|path_error| path_error.source()?.downcast_ref::<io::Error>()?.raw_os_error());
        let source = inner.map_or(e, io::Error::from_raw_os_error);
        OutputFileError::Dir { path: self.path.clone(), dir: self.dir.clone(), source }
    }

    /// What the kernel said of it.
    pub(super) fn error(&self, source: io::Error) -> OutputFileError {
        OutputFileError::Io { path: self.path.clone(), source }
    }
}
