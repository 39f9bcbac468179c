//! The answer of `inspect DISK`: the layout of a disk, as data and as a picture.

use crate::prelude::*;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{status::SlotStatus, style::Style};
use crate::{
    boot::{rule::NextBoot, running::Running, slot::PerSlot},
    disk::{
        identity::DiskIdentity,
        region::{Region, TableKind},
    },
};

/// The layout of a disk. Sizes and offsets are bytes.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
pub struct LayoutReport {
    /// The disk.
    pub disk: DiskIdentity,
    /// Size of the disk.
    pub bytes: u64,
    /// Logical block size.
    pub sector_bytes: u64,
    /// Kind of partition table.
    pub table: TableKind,
    /// Disk GUID in the GPT.
    pub disk_guid: Option<Uuid>,
    /// The whole disk from front to back, free space included.
    pub regions: Vec<Region>,
    /// The installed system, if this is one of our disks.
    pub system: Option<InstalledSystem>,
    /// Why this is not one of our disks.
    pub not_ours: Option<String>,
    /// Defects that were found.
    pub problems: Vec<String>,
    /// Width and characters of the picture.
    #[serde(skip)]
    pub style: Style,
}

/// The installed system, a part of what `status` reports.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
pub struct InstalledSystem {
    /// What the next boot starts, and why.
    pub next_boot: NextBoot,
    /// The system that runs, seen from this disk.
    pub running: Running,
    /// Both slots.
    pub slots: PerSlot<SlotStatus>,
}
