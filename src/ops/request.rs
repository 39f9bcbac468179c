//! What requests have in common.

use std::{path::PathBuf, time::Duration};

use slipway_core::{
    digest::Sha256, disk::layout::Part, kernel::arch::Arch, media::format::ImageKind, report::FailureKind,
    units::SectorSize,
};

use super::KernelArgsRequest;
use crate::{
    device::{Access, Disk},
    error::{Failure, OrFail as _},
    payload::{SourceRef, registry::Options},
};

/// A disk to work on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskRequest {
    /// Whole disk or image file.
    pub path: PathBuf,
    /// How long to wait for another program's lock on it.
    pub lock_timeout: Duration,
}

impl DiskRequest {
    /// Open it; an installed disk knows its sector size.
    pub fn open(&self, access: Access) -> Result<Disk, Failure> {
        self.open_with(access, None)
    }

    /// Open it. `sector` is that of an image file.
    pub fn open_with(&self, access: Access, sector: Option<SectorSize>) -> Result<Disk, Failure> {
        Disk::open(&self.path, access, sector, self.lock_timeout).or_fail(FailureKind::Install)
    }
}

/// How far a change goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChangeOptions {
    /// Stop after the plan.
    pub dry_run: bool,
    /// Carry out the plan of this hash and no other.
    pub plan_hash: Option<Sha256>,
}

/// Where a payload comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceRequest {
    /// The source; none for the payload that the container image carries.
    pub source: Option<SourceRef>,
    /// Refuse a payload without SHA256SUMS.
    pub strict: bool,
    /// How a registry is reached.
    pub registry: Options,
}

/// A system to be laid out on an empty disk, or on a live medium.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SystemRequest {
    /// The payload.
    pub source: SourceRequest,
    /// Stop after the plan.
    pub dry_run: bool,
    /// Bytes of each slot; none for the default.
    pub slot_bytes: Option<u64>,
    /// Logical sector size of an image file; none for its own, else 512 bytes.
    pub sector: Option<SectorSize>,
    /// Make file systems on STATE and EPHEMERAL; none where nobody said so.
    pub format_data: Option<bool>,
    /// Volumes that the OS encrypts: left blank unless `format_data` says otherwise.
    pub encrypted: Vec<Part>,
    /// Mark the protective MBR bootable.
    pub bootable_mbr: bool,
    /// For the kernel command line.
    pub kernel_args: KernelArgsRequest,
    /// META tags, in order.
    pub meta: Vec<(u8, Vec<u8>)>,
    /// Architecture of the machine.
    pub arch: Arch,
}

/// An image to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageRequest {
    /// Format of the image.
    pub kind: ImageKind,
    /// The file to make.
    pub out: PathBuf,
    /// Take the place of a file that is there.
    pub force: bool,
    /// Bytes of the disk; none for the default.
    pub disk_bytes: Option<u64>,
    /// What GUIDs and the names of live media are made from; none: everything that goes into the image.
    pub seed: Option<String>,
    /// The installer's container image that a live medium carries.
    pub container: Option<SourceRef>,
    /// The time in the image, seconds since 1970 UTC. Up to 2106: FAT and others have room for 32 bits.
    pub time: u32,
    /// What is installed.
    pub system: SystemRequest,
}
