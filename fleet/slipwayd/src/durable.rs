//! A file is replaced: a reader, now or after a power cut, finds the old one or the new one, whole.
//!
//! The new one is written in another directory of the same file system: the kubelet takes each file of its directory for a
//! manifest, also one that is half written.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

/// Calls of the file system, one by one.
pub trait Calls {
    /// Make a file anew, with these bytes. Root alone may read it: kubeadm makes manifests so, and benchmarks ask for it.
    fn write(&mut self, path: &Path, bytes: &[u8]) -> io::Result<()>;
    /// Its bytes are on the medium.
    fn sync(&mut self, path: &Path) -> io::Result<()>;
    /// Give it another name, in place of what has that name.
    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()>;
    /// The names in a directory are on the medium.
    fn sync_dir(&mut self, dir: &Path) -> io::Result<()>;
}

/// The file system of this machine.
#[derive(Clone, Copy, Debug)]
pub struct Disk;

impl Calls for Disk {
    fn write(&mut self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        File::options().write(true).create(true).truncate(true).mode(0o600).open(path)?.write_all(bytes)
    }

    fn sync(&mut self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn sync_dir(&mut self, dir: &Path) -> io::Result<()> {
        File::open(dir)?.sync_all()
    }
}

/// Put `bytes` in place of `path`, by way of the file `beside`.
pub fn replace(calls: &mut dyn Calls, path: &Path, beside: &Path, bytes: &[u8]) -> io::Result<()> {
    calls.write(beside, bytes)?;
    calls.sync(beside)?;
    calls.rename(beside, path)?;
    path.parent().map_or(Ok(()), |dir| calls.sync_dir(dir))
}
