//! Detects another program that writes to a disk, for readers without a lock.

use std::{fs::File, os::unix::fs::MetadataExt as _};

use nix::{
    fcntl::{FcntlArg, Flock, FlockArg, fcntl},
    libc,
    sys::stat::{major, minor},
};
use slipway_core::{disk::identity::DiskKind, report::Writer};

use super::{Disk, Opened, lock, one_writer};
use crate::device::{busy::processes, progress_file};

impl Disk {
    /// The program that has it locked for writing right now. The question is asked with a shared lock that is given
    /// up at once: a writer that comes in this very moment tries again after 50 ms.
    pub fn writer(&self) -> Option<Writer> {
        // A program with a lock keeps writers out, and would lose it by asking.
        let Opened::Unlocked(file) = &self.lock else { return None };
        let file = file.try_clone().ok()?;
        let pid = match Flock::lock(file, FlockArg::LockSharedNonblock) {
            Err((_, nix::Error::EWOULDBLOCK)) => lock::holder(&self.lock, &["FLOCK"]),
            Ok(lock) if has_write_lock(&lock) => lock::holder(&self.lock, &["OFDLCK", "POSIX"]),
            // It may have the disk by another node.
            _ => one_writer::holder(&self.node)?,
        };
        let progress = pid.and_then(|pid| progress_file::read(&self.key(), pid));
        Some(Writer { pid, name: pid.map(processes::comm), progress })
    }

    /// Tells it apart from all other disks of this machine: `8:0`, or `8:1:4711` for a file on 8:1.
    pub fn key(&self) -> String {
        let number = |device| format!("{}:{}", major(device), minor(device));
        match (self.node.disk.kind, self.lock.metadata()) {
            (DiskKind::Disk, Ok(meta)) => number(meta.rdev()),
            (DiskKind::Image, Ok(meta)) => format!("{}:{}", number(meta.dev()), meta.ino()),
            (_, Err(_)) => "unknown".to_owned(),
        }
    }
}

/// An exclusive lock on any byte; or a shared one on byte 101, by which QEMU says that it writes (`RAW_PERM_LOCK_BASE`
/// and `BLK_PERM_WRITE` in its block/file-posix.c).
fn has_write_lock(file: &File) -> bool {
    let conflicts = |kind, start, len| {
        let (l_type, l_whence) = (kind as libc::c_short, libc::SEEK_SET as libc::c_short);
        let mut asked = libc::flock { l_type, l_whence, l_start: start, l_len: len, l_pid: 0 };
        // If a file system knows no such locks, no program has one.
        fcntl(file, FcntlArg::F_OFD_GETLK(&mut asked)).is_ok() && asked.l_type != libc::F_UNLCK as libc::c_short
    };
    conflicts(libc::F_RDLCK, 0, 0) || conflicts(libc::F_WRLCK, 101, 1)
}
