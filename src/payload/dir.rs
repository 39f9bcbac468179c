//! A payload in a directory: `dir:/usr/install/amd64` in the container image, or any other.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use nix::libc;

use super::{
    Facts, PayloadFiles, SourceRef, Take,
    check::{Found, PayloadError, Seen, Sums, TEXTS},
};
use crate::model::manifest::{INITRAMFS, KERNEL, ROOTFS, SHA256SUMS};

/// Whether a name is there, be it a link to nowhere: that is an error when it is opened, not an absent file.
fn present(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

/// A directory with a payload.
#[derive(Clone, Debug)]
pub struct DirSource {
    dir: PathBuf,
}

impl DirSource {
    /// The payload in `dir`.
    pub fn new(dir: &Path) -> Self {
        DirSource { dir: dir.to_owned() }
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// Open one of its files for reading.
    fn open(&self, name: &str) -> io::Result<File> {
        // A fifo would block in open without O_NONBLOCK (which means nothing to a file), a device never end.
        let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(self.dir.join(name))?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::other("not a regular file"));
        }
        Ok(file)
    }

    /// Read and hash everything, and compare with SHA256SUMS. `progress` gets bytes as they are read.
    pub fn facts(&self, wanted: Sums, mut progress: impl FnMut(u64)) -> Result<Facts, PayloadError> {
        if !self.dir.is_dir() {
            return Err(PayloadError::Missing { path: self.dir.clone() });
        }
        let mut found = Found { place: self.dir.clone(), files: BTreeMap::new() };
        // Of several initramfs only the one that is used counts.
        let initramfs = INITRAMFS.into_iter().find(|name| present(&self.dir.join(name)));
        let mut names: BTreeSet<String> =
            [KERNEL, ROOTFS].into_iter().chain(initramfs).chain(TEXTS).map(str::to_owned).collect();
        if wanted != Sums::Ignored && present(&self.dir.join(SHA256SUMS)) {
            self.see(&mut found, SHA256SUMS, &mut |_| ())?;
            names.extend(found.sums()?.unwrap_or_default().0.into_keys());
        }
        for name in names.iter().filter(|name| present(&self.dir.join(name))) {
            self.see(&mut found, name, &mut progress)?;
        }
        found.facts(wanted, SourceRef::Dir(self.dir.clone()))
    }

    fn see(&self, found: &mut Found, name: &str, progress: &mut dyn FnMut(u64)) -> Result<(), PayloadError> {
        let seen = self.open(name).and_then(|file| Seen::read(name, file, progress));
        let seen = seen.map_err(|source| PayloadError::Io { path: self.dir.join(name), source })?;
        found.files.insert(name.to_owned(), seen);
        Ok(())
    }
}

impl PayloadFiles for DirSource {
    fn each(&self, names: &[&str], take: &mut Take) -> anyhow::Result<()> {
        let there = |name: &&&str| !TEXTS.contains(*name) || present(&self.dir.join(name));
        names.iter().filter(there).try_for_each(|name| {
            let mut file = self.open(name).map_err(|source| PayloadError::Io { path: self.dir.join(name), source })?;
            take(name, &mut file)
        })
    }
}
