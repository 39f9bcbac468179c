//! Claims: a range that is written belongs to no other program meanwhile.

use std::{
    fs::OpenOptions,
    io,
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    slice,
    sync::PoisonError,
    thread,
    time::Duration,
};

use nix::libc;

use super::{Access, Disk, OpenError};
use crate::device::{
    busy::{self, ALL, Device, Devices, Kind, NoSysfs},
    identity::DiskNode,
    ioctl,
};
use slipway_core::{
    disk::identity::{DiskKind, DiskUse},
    units::Extent,
};

impl Disk {
    /// Claim the partitions on these ranges with `O_EXCL`, as a mount does, until this disk is closed, so that no
    /// program can mount them. Writes out and drops the page cache of their nodes. The rest of a disk may be in use,
    /// but an image file must not be in use at all, nor a device that was opened as a whole.
    pub(super) fn claim_parts(&self, extents: &[Extent]) -> Result<(), OpenError> {
        let ways_back = self.access == Access::BootState;
        let all = [ALL];
        let entire = self.access == Access::Whole || self.node.disk.kind == DiskKind::Image;
        let extents = if entire { &all } else { extents };
        let looked = uses_of(&self.node, extents).and_then(|users| Ok((users, parts_on(&self.node, extents)?)));
        let (users, parts) = match looked {
            // Only a file system in use that caches this very sector could undo a write to it.
            Err(OpenError::Blind { .. }) if ways_back => return Ok(()),
            other => other?,
        };
        if !users.is_empty() {
            return Err(self.claimed(users));
        }
        let whole = self.access == Access::Whole;
        let mut held = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        for part in &parts {
            // A second claim of ours would be refused like any other.
            if held.iter().any(|file| file.metadata().is_ok_and(|meta| meta.rdev() == part.rdev)) {
                continue;
            }
            let io = |source| OpenError::Io { path: part.node.display().to_string(), source };
            // A claim on the whole disk already covers its partitions, and would refuse ours.
            let flags = if self.access == Access::Whole { 0 } else { libc::O_EXCL };
            let file = OpenOptions::new().read(true).custom_flags(flags).open(&part.node);
            // Without a node, as in a container that was started earlier, the claim on the whole disk is enough.
            if whole && file.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::NotFound) {
                continue;
            }
            let file = file.map_err(|source| match source.raw_os_error() {
                Some(libc::EBUSY) => {
                    let users = busy::opener_of(slice::from_ref(part)).into_iter().collect();
                    OpenError::Claimed { path: part.node.display().to_string(), users }
                }
                _ => io(source),
            })?;
            ioctl::flush_buffers(&file).map_err(io)?;
            held.push(file);
        }
        if ways_back {
            return Ok(());
        }
        // Its dirty pages would be written when it closes, over the verified writes.
        match busy::writer_of(&parts) {
            Some(user) => Err(self.claimed(vec![user])),
            None => Ok(()),
        }
    }

    fn claimed(&self, users: Vec<DiskUse>) -> OpenError {
        OpenError::Claimed { path: self.node.path.display().to_string(), users }
    }

    /// Have the kernel forget all partitions of the disk: a program that has one open would write its dirty pages over
    /// the writes here, as late as when it closes it. A program that came since the disk was looked at is found, too.
    pub(super) fn drop_parts(&self) -> Result<(), OpenError> {
        self.claim_parts(&[ALL])?;
        self.parts.lock().unwrap_or_else(PoisonError::into_inner).clear();
        let mut dropped = Vec::new();
        for part in parts_on(&self.node, &[ALL])? {
            let (Kind::Partition { number: Some(number) }, Some(extent)) = (&part.kind, part.extent()) else {
                continue;
            };
            let deleted = patiently(|| ioctl::delete_partition(&self.lock, *number));
            match deleted.as_ref().map_err(io::Error::raw_os_error) {
                Ok(()) => dropped.push((*number, extent)),
                // It went away by itself.
                Err(Some(libc::ENXIO)) => {}
                Err(code) => {
                    // The disk stays as it was, so the kernel's idea of it does, too.
                    for (number, extent) in dropped {
                        let _ = ioctl::add_partition(&self.lock, number, extent);
                    }
                    let path = part.node.display().to_string();
                    return Err(match deleted {
                        Err(source) if code != Some(libc::EBUSY) => OpenError::Io { path, source },
                        _ => {
                            let unseen = || DiskUse { device: path, by: "open in another program".to_owned() };
                            self.claimed(vec![busy::opener_of(slice::from_ref(&part)).unwrap_or_else(unseen)])
                        }
                    });
                }
            }
        }
        Ok(())
    }
}

/// Users of these ranges.
pub fn uses_of(node: &DiskNode, extents: &[Extent]) -> Result<Vec<DiskUse>, OpenError> {
    busy::uses_of(node, extents).map_err(|NoSysfs| no_sysfs(node))
}

fn parts_on(node: &DiskNode, extents: &[Extent]) -> Result<Vec<Device>, OpenError> {
    busy::partitions(node, extents).map_err(|NoSysfs| no_sysfs(node))
}

pub fn need_sysfs(node: &DiskNode) -> Result<(), OpenError> {
    Devices::of_this_machine().map(drop).map_err(|NoSysfs| no_sysfs(node))
}

fn no_sysfs(node: &DiskNode) -> OpenError {
    blind(node, "/sys", "mount -t sysfs sysfs /sys")
}

pub fn blind(node: &DiskNode, missing: &'static str, remedy: &'static str) -> OpenError {
    OpenError::Blind { path: node.path.display().to_string(), missing, remedy }
}

/// Try again while it is busy: udev and others open nodes for a moment.
pub fn patiently(mut attempt: impl FnMut() -> io::Result<()>) -> io::Result<()> {
    for _ in 1..50 {
        match attempt() {
            Err(e) if e.raw_os_error() == Some(libc::EBUSY) => thread::sleep(Duration::from_millis(100)),
            other => return other,
        }
    }
    attempt()
}
