//! Checks that it is still the same disk, also if its path means another one by now.

use std::{
    fs, io,
    os::{
        fd::AsRawFd as _,
        unix::fs::{FileTypeExt as _, MetadataExt as _},
    },
    path::{Path, PathBuf},
    time::Duration,
};

use nix::libc;
use slipway_core::{disk::identity::DiskKind, units::SectorSize};

use super::{Access, Disk, OpenError, Opened, lock::lock, one_writer, open_node, same_file};
use crate::device::identity::sysfs;

impl Disk {
    /// Open this disk again with another access: through its descriptor, because the path may mean another disk by now.
    /// The lock is given up for a moment, so check the earlier findings again.
    pub fn reopen(
        self,
        access: Access,
        sector: Option<SectorSize>,
        patience: Duration,
        says: &mut dyn FnMut(&str),
    ) -> Result<Self, OpenError> {
        let Disk { node, lock: old, size, sequence, parts, claim, _below, .. } = self;
        // A second claim of ours would be refused like any other.
        drop((parts, claim, _below));
        let name = node.path.display().to_string();
        let io = |source| OpenError::Io { path: name.clone(), source };
        let write = access.writes();
        let file = open_node(&node, &PathBuf::from(format!("/proc/self/fd/{}", old.as_raw_fd())), write, 0)?;
        // Two descriptors of one process exclude each other, too. The old one stays open, so that no other file gets its
        // number.
        let _old = match old {
            Opened::Locked(old) => old.unlock().map_err(|(_, e)| io(e.into()))?,
            Opened::Unlocked(old) => old,
        };
        let lock = Opened::Locked(lock(file, &name, write, patience, says)?);
        let claims = one_writer::claim(&node, access, patience, says)?;
        let same_path = same_file(&lock, &node.path).is_ok_and(|same| same);
        let disk = Self::of_locked(node, lock, claims, access, sector)?;
        if same_path && (disk.size, disk.sequence) == (size, sequence) {
            return Ok(disk);
        }
        Err(io(io::Error::other("it means another disk now than when it was looked at: nothing was written")))
    }

    /// Whether a path means this disk, or one that this disk is made of: a path of a multipath disk, a member of an array.
    pub fn covers(&self, path: &Path) -> bool {
        let (Ok(own), Ok(other)) = (self.lock.metadata(), fs::metadata(path)) else { return false };
        match self.node.disk.kind {
            DiskKind::Image => (own.dev(), own.ino()) == (other.dev(), other.ino()),
            DiskKind::Disk if !other.file_type().is_block_device() => false,
            DiskKind::Disk => own.rdev() == other.rdev() || is_below(own.rdev(), other.rdev()),
        }
    }
}

fn is_below(upper: u64, lower: u64) -> bool {
    let name = fs::canonicalize(sysfs(lower)).ok().and_then(|path| Some(path.file_name()?.to_owned()));
    name.is_some_and(|name| sysfs(upper).join("slaves").join(name).exists())
}

impl OpenError {
    /// A card reader or the like, and nothing in it.
    pub fn is_no_medium(&self) -> bool {
        matches!(self, OpenError::Io { source, .. } if source.raw_os_error() == Some(libc::ENOMEDIUM))
    }
}
