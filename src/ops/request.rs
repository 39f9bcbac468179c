//! Parts that several requests share.

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

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskRequest {
    /// Whole disk or image file.
    pub path: PathBuf,
    /// How long to wait for another program's lock on it.
    pub lock_timeout: Duration,
}

impl DiskRequest {
    pub fn open(&self, access: Access) -> Result<Disk, Failure> {
        self.open_with(access, None)
    }

    /// `sector` is the logical sector size of an image file.
    pub fn open_with(&self, access: Access, sector: Option<SectorSize>) -> Result<Disk, Failure> {
        Disk::open(&self.path, access, sector, self.lock_timeout).or_fail(FailureKind::Install)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChangeOptions {
    /// Stop after the plan.
    pub dry_run: bool,
    /// Carry out only the plan with this hash.
    pub plan_hash: Option<Sha256>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceRequest {
    /// None: the payload in the installer's own container image.
    pub source: Option<SourceRef>,
    /// Refuse a payload without SHA256SUMS.
    pub strict: bool,
    pub registry: Options,
}

/// The system that an install or a live medium is made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SystemRequest {
    pub source: SourceRequest,
    /// Stop after the plan.
    pub dry_run: bool,
    /// Size of each slot. None: the default.
    pub slot_bytes: Option<u64>,
    /// Logical sector size of an image file. None: that of its GPT, else 512 bytes.
    pub sector: Option<SectorSize>,
    /// Make file systems on STATE and EPHEMERAL. None: not requested.
    pub format_data: Option<bool>,
    /// Volumes that the OS encrypts. They are left blank, unless `format_data` is set.
    pub encrypted: Vec<Part>,
    /// Mark the protective MBR bootable, for old BIOSes that insist on it.
    pub bootable_mbr: bool,
    pub kernel_args: KernelArgsRequest,
    pub meta: Vec<(u8, Vec<u8>)>,
    pub arch: Arch,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageRequest {
    pub kind: ImageKind,
    pub out: PathBuf,
    /// Replace a file that already exists.
    pub force: bool,
    /// Size of the disk. None: the default.
    pub disk_bytes: Option<u64>,
    /// GUIDs and medium IDs are made from this. None: from everything that goes into the image.
    pub seed: Option<String>,
    /// The installer's container image, for a live medium.
    pub container: Option<SourceRef>,
    /// The time in the image, in seconds since 1970 UTC. The formats have 32 bits for it, which end in 2106.
    pub time: u32,
    pub system: SystemRequest,
}
