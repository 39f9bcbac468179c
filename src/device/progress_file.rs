//! The progress of a verb that writes to a disk, in a file that others read: `/run/slipway/MAJOR:MINOR` for a block
//! device, `/run/slipway/MAJOR:MINOR:INODE` for an image file (of its file system, as in /proc/locks). For other users
//! than root it is in `$XDG_RUNTIME_DIR/slipway`.
//!
//! It is for people who look. No write depends on it, so its errors are ignored, and it is never flushed.

use std::{
    env,
    fs::{self, DirBuilder, File, Permissions},
    io::{self, Read as _, Write as _},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use nix::{libc, unistd::geteuid};
use slipway_core::report::WriterProgress;

const MAX_BYTES: u64 = 64 << 10;

/// The file of this process for one disk. It is removed on drop.
pub struct ProgressFile {
    path: PathBuf,
    written: bool,
}

impl ProgressFile {
    /// None where there is no directory for it.
    pub fn new(key: &str) -> Option<Self> {
        let base = if geteuid().is_root() { PathBuf::from("/run") } else { own_runtime_dir()? };
        let dir = base.join("slipway");
        // Exists already, most often.
        let _ = DirBuilder::new().mode(0o755).create(&dir);
        is_ours(&dir).then(|| ProgressFile { path: dir.join(key), written: false })
    }

    /// Replaces what it said before, as a whole.
    pub fn write(&mut self, progress: &WriterProgress) {
        self.written |= self.replace(progress).is_ok();
    }

    fn replace(&self, progress: &WriterProgress) -> io::Result<()> {
        let dir = self.path.parent().ok_or(io::ErrorKind::InvalidInput)?;
        let public = Permissions::from_mode(0o644);
        // A new file under a random name: never one that somebody has put there.
        let mut file = tempfile::Builder::new().prefix(".new-").permissions(public).tempfile_in(dir)?;
        file.write_all(&serde_json::to_vec(progress)?)?;
        file.persist(&self.path)?;
        Ok(())
    }
}

impl Drop for ProgressFile {
    fn drop(&mut self) {
        if self.written {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// What the process `pid` left about a disk. Anything else in its place is ignored.
pub fn read(key: &str, pid: u32) -> Option<WriterProgress> {
    let bases = [Some(PathBuf::from("/run")), own_runtime_dir()];
    bases.into_iter().flatten().find_map(|base| {
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let file = File::options().read(true).custom_flags(flags).open(base.join("slipway").join(key)).ok()?;
        if !file.metadata().ok()?.is_file() {
            return None;
        }
        let mut bytes = Vec::new();
        file.take(MAX_BYTES).read_to_end(&mut bytes).ok()?;
        serde_json::from_slice(&bytes).ok().filter(|progress: &WriterProgress| progress.pid == pid)
    })
}

fn own_runtime_dir() -> Option<PathBuf> {
    env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|dir| dir.is_absolute())
}

// A directory that another user owns or may write to could lead our files anywhere.
fn is_ours(dir: &Path) -> bool {
    let ours = |meta: fs::Metadata| meta.is_dir() && meta.uid() == geteuid().as_raw() && meta.mode() & 0o022 == 0;
    fs::symlink_metadata(dir).is_ok_and(ours)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_directory_of_our_own_is_used() {
        let world = tempfile::tempdir().unwrap();
        let (dir, link) = (world.path().join("dir"), world.path().join("link"));
        assert!(!is_ours(&dir), "it does not exist");
        fs::create_dir(&dir).unwrap();
        fs::set_permissions(&dir, Permissions::from_mode(0o755)).unwrap();
        assert!(is_ours(&dir));
        std::os::unix::fs::symlink(&dir, &link).unwrap();
        assert!(!is_ours(&link), "a link");
        for open_to in [0o775, 0o757] {
            fs::set_permissions(&dir, Permissions::from_mode(open_to)).unwrap();
            assert!(!is_ours(&dir), "{open_to:o}");
        }
    }
}
