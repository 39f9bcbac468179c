//! A partition that becomes larger while it is in use, and the XFS file system on it.

use std::{fs::File, io, os::unix::fs::MetadataExt as _, path::PathBuf};

use super::{Disk, claim::patiently};
use crate::device::{
    busy::{self, ALL, Device, Kind, out_of_reach, xfs_mounts},
    ioctl,
};
use slipway_core::{plan::Known, units::Extent};

impl Disk {
    /// The partition that begins there, in the kernel.
    fn partition_at(&self, offset: u64) -> Option<Device> {
        let parts = busy::partitions(&self.node, &[ALL]).unwrap_or_default();
        parts.into_iter().find(|part| part.extent().is_some_and(|extent| extent.offset == offset))
    }

    pub(super) fn known_partition(&self, offset: u64) -> io::Result<Option<Known>> {
        let Some(part) = self.partition_at(offset) else { return Ok(None) };
        let Some(Extent { len: bytes, .. }) = part.extent() else { return Ok(None) };
        let Some((place, opened)) = mounted_xfs(part.rdev) else {
            return Ok(Some(Known { bytes, mounted: None, elsewhere: out_of_reach(part.rdev) }));
        };
        let (size, _) = ioctl::xfs_size(&opened)?;
        Ok(Some(Known { bytes, mounted: Some((place.display().to_string(), size)), elsewhere: None }))
    }

    pub(super) fn resize_known(&self, extent: Extent) -> io::Result<()> {
        let unknown = || io::Error::other("the kernel does not know it any more");
        let part = self.partition_at(extent.offset).ok_or_else(unknown)?;
        match part.kind {
            Kind::Partition { number: Some(number) } => {
                patiently(|| ioctl::resize_partition(&self.lock, number, extent))
            }
            _ => Err(io::Error::other("it is made by device mapper: run kpartx -u, or reboot")),
        }
    }

    pub(super) fn grow_mounted(&self, extent: Extent) -> io::Result<()> {
        let gone = || io::Error::other("it is not mounted any more");
        let part = self.partition_at(extent.offset).ok_or_else(gone)?;
        let (_, opened) = mounted_xfs(part.rdev).ok_or_else(gone)?;
        let (size, most_inodes) = ioctl::xfs_size(&opened)?;
        let blocks = size.within(extent.len);
        ioctl::grow_xfs(&opened, blocks, most_inodes)?;
        let (size, _) = ioctl::xfs_size(&opened)?;
        if size.blocks < blocks {
            return Err(io::Error::other(format!("it has {} blocks afterwards, not {blocks}", size.blocks)));
        }
        Ok(())
    }
}

/// Mount point where a device's XFS is mounted for writing, opened. Another mount may lie over the place.
fn mounted_xfs(rdev: u64) -> Option<(PathBuf, File)> {
    xfs_mounts(rdev).into_iter().find_map(|place| {
        let opened = File::open(&place).ok()?;
        (opened.metadata().ok()?.dev() == rdev).then_some((place, opened))
    })
}
