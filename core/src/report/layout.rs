//! What `inspect DISK` says: the layout of a disk, as data and as a picture.

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

/// How a disk is laid out. Sizes and offsets are bytes.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
pub struct LayoutReport {
    /// Which disk.
    pub disk: DiskIdentity,
    /// Size in bytes.
    pub bytes: u64,
    /// Logical block size in bytes.
    pub sector_bytes: u64,
    /// Its partition table.
    pub table: TableKind,
    /// GUID in the GPT.
    pub disk_guid: Option<Uuid>,
    /// The whole disk, in order of place, free space included.
    pub regions: Vec<Region>,
    /// What is installed, where the disk is one of ours.
    pub system: Option<InstalledSystem>,
    /// Why it is not one of ours.
    pub not_ours: Option<String>,
    /// What is not as it should be.
    pub problems: Vec<String>,
    /// How the picture is drawn.
    #[serde(skip)]
    pub style: Style,
}

/// What is installed on a disk: part of what `status` says.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
pub struct InstalledSystem {
    /// What the next boot starts, and why.
    pub next_boot: NextBoot,
    /// The system that runs, seen from this disk.
    pub running: Running,
    /// The slots: BOOT-A and BOOT-B.
    pub slots: PerSlot<SlotStatus>,
}
