//! The file that `image` makes. It gets its name only once it is complete and flushed to the disk.

use std::{
    fs::{self, File, Permissions},
    io,
    os::unix::{ffi::OsStrExt as _, fs::PermissionsExt as _},
    path::{Path, PathBuf},
};

use tempfile::{NamedTempFile, TempDir};

use crate::payload::side_file::{publish, side};
use slipway_core::media::format::Compression;

#[derive(Debug, thiserror::Error)]
pub enum OutputFileError {
    #[error("{path} exists; {FORCE}", path = .0.display())]
    Exists(PathBuf),
    #[error("{path} is not a regular file: {INSTALL}", path = .0.display())]
    NotAFile(PathBuf),
    #[error("{path:?} is not a file name: {NAME_ONE}", path = .0.display().to_string())]
    NoName(PathBuf),
    #[error("{path}: cannot create a file in {dir} ({source}): {}", another(source), path = path.display(), dir = dir.display())]
    Dir { path: PathBuf, dir: PathBuf, source: io::Error },
    #[error("{path}: {source}", path = path.display())]
    Io { path: PathBuf, source: io::Error },
}

// A file of the name `-` is `./-`. What is made is read back, so it is never a stream.
const NAME_ONE: &str = "name a file; none is written to standard output";
const FORCE: &str = "--force replaces it";
const INSTALL: &str = "`image` makes a file, use `install` to write to a disk";

fn another(why: &io::Error) -> &'static str {
    match why.kind() {
        io::ErrorKind::NotFound => "create that directory or choose another one",
        _ => "choose another directory",
    }
}

impl OutputFileError {
    /// The remedy, as the message ends with it.
    pub fn remedy(&self) -> Option<&'static str> {
        match self {
            OutputFileError::Exists(_) => Some(FORCE),
            OutputFileError::NotAFile(_) => Some(INSTALL),
            OutputFileError::Dir { source, .. } => Some(another(source)),
            OutputFileError::NoName(_) => Some(NAME_ONE),
            OutputFileError::Io { .. } => None,
        }
    }
}

pub struct OutputFile {
    path: PathBuf,
    dir: PathBuf,
    replace: bool,
}

impl OutputFile {
    /// The file must not exist, unless `replace` is set. Its directory must exist.
    pub fn new(path: &Path, replace: bool) -> Result<Self, OutputFileError> {
        let is_name = path.as_os_str() != "-" && !path.as_os_str().as_bytes().ends_with(b"/");
        let name = path.file_name().filter(|_| is_name).ok_or_else(|| OutputFileError::NoName(path.to_owned()))?;
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

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its file name without a compression suffix.
    pub fn name(&self) -> String {
        let compressed = Compression::from_path(&self.path.to_string_lossy()).is_some();
        let name = if compressed { self.path.file_stem() } else { self.path.file_name() };
        let text = name.unwrap_or_default().to_string_lossy();
        text.chars().map(|c| if c.is_control() { '_' } else { c }).collect()
    }

    /// A temporary directory beside it, removed on drop.
    pub fn side_dir(&self) -> Result<TempDir, OutputFileError> {
        let make = || tempfile::Builder::new().prefix(".slipway-").tempdir_in(&self.dir);
        let dir = side(make, |dir| dir.path().to_owned());
        dir.map_err(|source| self.no_file(source))
    }

    /// Turn a file in a [`OutputFile::side_dir`] into one as [`OutputFile::side`] makes.
    pub fn adopt(&self, file: &Path) -> Result<NamedTempFile, OutputFileError> {
        let (_, path) = self.side()?.into_parts();
        let renamed = fs::rename(file, &path).and_then(|()| File::options().read(true).write(true).open(&path));
        Ok(NamedTempFile::from_parts(renamed.map_err(|e| self.error(e))?, path))
    }

    /// A temporary file beside it, removed on drop unless it is published. Its mode follows the umask.
    pub fn side(&self) -> Result<NamedTempFile, OutputFileError> {
        self.side_with(0o666)
    }

    /// The same, and nobody but its owner ever opens it.
    pub fn private_side(&self) -> Result<NamedTempFile, OutputFileError> {
        self.side_with(0o600)
    }

    fn side_with(&self, mode: u32) -> Result<NamedTempFile, OutputFileError> {
        let mut builder = tempfile::Builder::new();
        let builder = builder.prefix(".slipway-").permissions(Permissions::from_mode(mode));
        let file = side(|| builder.tempfile_in(&self.dir), |file| file.path().to_owned());
        file.map_err(|source| self.no_file(source))
    }

    /// Flush a temporary file, give it the name and flush that. Returns the size in bytes. After a power loss the name
    /// is either the old file or all of the new one.
    pub fn publish(&self, file: NamedTempFile) -> Result<u64, OutputFileError> {
        let size = file.as_file().metadata().map_err(|e| self.error(e))?.len();
        match publish(file, &self.path, self.replace) {
            Ok(()) => Ok(size),
            // Another program created it meanwhile.
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Err(OutputFileError::Exists(self.path.clone())),
            Err(e) => Err(self.error(e)),
        }
    }

    fn no_file(&self, source: io::Error) -> OutputFileError {
        OutputFileError::Dir { path: self.path.clone(), dir: self.dir.clone(), source }
    }

    pub(super) fn error(&self, source: io::Error) -> OutputFileError {
        OutputFileError::Io { path: self.path.clone(), source }
    }
}
