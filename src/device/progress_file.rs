//! The progress of a verb that writes to a disk, in a file that others read: `/run/slipway/MAJOR:MINOR` for a block
//! device, `/run/slipway/MAJOR:MINOR:INODE` for an image file (of its file system, as in /proc/locks). For other users
//! than root it is in `$XDG_RUNTIME_DIR/slipway`.
//!
//! It is for observers. No write depends on it, so its errors are ignored, and it is never flushed.

use std::{
    env,
    fs::{self, DirBuilder, File, Permissions},
    io::{self, Read as _, Write as _},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    process,
};

use nix::{
    errno::Errno,
    libc,
    sys::signal::kill,
    unistd::{Pid, geteuid},
};
use slipway_core::report::WriterProgress;

const MAX_BYTES: u64 = 64 << 10;
/// Begins the name of a file that is not complete yet; the process ID follows.
const NEW: &str = ".new-";

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
        if !is_ours(&dir) {
            return None;
        }
        clear(&dir);
        Some(ProgressFile { path: dir.join(key), written: false })
    }

    /// Replaces its earlier content, as a whole.
    pub fn write(&mut self, progress: &WriterProgress) {
        self.written |= self.replace(progress).is_ok();
    }

    fn replace(&self, progress: &WriterProgress) -> io::Result<()> {
        let dir = self.path.parent().ok_or(io::ErrorKind::InvalidInput)?;
        let public = Permissions::from_mode(0o644);
        // A new file under a random name: never an existing one.
        let prefix = format!("{NEW}{}-", process::id());
        let mut file = tempfile::Builder::new().prefix(&prefix).permissions(public).tempfile_in(dir)?;
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

/// Progress that the process `pid` left about a disk. Anything else in its place is ignored.
pub fn read(key: &str, pid: u32) -> Option<WriterProgress> {
    let bases = [Some(PathBuf::from("/run")), own_runtime_dir()];
    let files = bases.into_iter().flatten().map(|base| base.join("slipway").join(key));
    files.filter_map(|file| parse(&file)).find(|progress| progress.pid == pid)
}

fn parse(file: &Path) -> Option<WriterProgress> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = File::options().read(true).custom_flags(flags).open(file).ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(MAX_BYTES).read_to_end(&mut bytes).ok()?;
    serde_json::from_slice(&bytes).ok()
}

/// Removes the files of killed runs.
fn clear(dir: &Path) {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    for (n, path) in entries.map(|entry| entry.path()).enumerate() {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        match name.strip_prefix(NEW).and_then(|rest| rest.split('-').next()?.parse().ok()) {
            Some(pid) if is_gone(pid) => drop(fs::remove_file(&path)),
            Some(_) => {}
            None => remove_if_gone(&path, &dir.join(format!("{NEW}{}-old{n}", process::id()))),
        }
    }
}

// A run may put its own file there at any instant: so it is moved away first, and put back if it is that.
fn remove_if_gone(path: &Path, aside: &Path) {
    let is_left = |file: &Path| parse(file).is_some_and(|progress| is_gone(progress.pid));
    if is_left(path) && fs::rename(path, aside).is_ok() {
        if !is_left(aside) {
            let _ = fs::hard_link(aside, path);
        }
        let _ = fs::remove_file(aside);
    }
}

// In another PID namespace a live one can look gone. Its next write makes the file again.
fn is_gone(pid: u32) -> bool {
    i32::try_from(pid).is_ok_and(|pid| kill(Pid::from_raw(pid), None) == Err(Errno::ESRCH))
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
    fn what_killed_runs_left_is_removed_and_nothing_else() {
        let world = tempfile::tempdir().unwrap();
        // No PID is that large (proc_sys_kernel(5), pid_max).
        let (gone, live) = (i32::MAX.cast_unsigned(), process::id());
        let progress = |pid| WriterProgress {
            pid,
            verb: "upgrade".to_owned(),
            disk: "/dev/sda".to_owned(),
            started: String::new(),
            step: Some(1),
            of: Some(2),
            text: String::new(),
            done_bytes: 0,
            total_bytes: 0,
            percent: None,
            left: String::new(),
        };
        let write = |key: &str, pid| {
            fs::write(world.path().join(key), serde_json::to_vec(&progress(pid)).unwrap()).unwrap();
        };
        for (key, pid) in [("8:0", gone), ("8:16", live), ("8:32", 1)] {
            write(key, pid);
        }
        let [old, new] = [gone, live].map(|pid| format!("{NEW}{pid}-a"));
        write(&old, gone);
        write(&new, live);
        fs::write(world.path().join("other"), "by another program").unwrap();
        clear(world.path());
        let entries = fs::read_dir(world.path()).unwrap();
        let mut left: Vec<String> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        left.sort();
        assert_eq!(left, [&*new, "8:16", "8:32", "other"]);
    }

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
