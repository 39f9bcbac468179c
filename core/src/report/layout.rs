//! The answer of `inspect DISK`: the layout of a disk, as data and as a picture.

use crate::prelude::*;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{bootloader::Bootloaders, status::SlotStatus, style::Style, writer::Writer};
use crate::{
    boot::{rule::NextBoot, running::Running, slot::PerSlot},
    disk::{
        identity::DiskIdentity,
        region::{Region, TableKind},
    },
};

/// The layout of a disk. Sizes and offsets are bytes.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[expect(missing_docs, reason = "the other fields are what their names say")]
pub struct LayoutReport {
    pub disk: DiskIdentity,
    /// Size of the disk.
    pub bytes: u64,
    /// Logical block size.
    pub sector_bytes: u64,
    pub table: TableKind,
    /// Disk GUID in the GPT.
    pub disk_guid: Option<Uuid>,
    /// The whole disk from front to back, free space included.
    pub regions: Vec<Region>,
    /// The installed system, if this is one of our disks.
    pub system: Option<InstalledSystem>,
    /// Why this is not one of our disks.
    pub not_ours: Option<String>,
    pub problems: Vec<String>,
    /// Who writes to the disk meanwhile. What it writes is not reported as damage.
    #[serde(default)]
    pub writer: Option<Writer>,
    /// Width and characters of the picture.
    #[serde(skip)]
    pub style: Style,
}

/// The installed system, a part of what `status` reports.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[expect(missing_docs, reason = "the other fields are what their names say")]
pub struct InstalledSystem {
    pub next_boot: NextBoot,
    pub running: Running,
    pub slots: PerSlot<SlotStatus>,
    /// The boot loaders that start the disk.
    #[serde(default)]
    pub bootloaders: Bootloaders,
}

impl InstalledSystem {
    /// Whether of a slot in use only what the boot loader loads was compared with its digests.
    pub(super) fn is_unread(&self) -> bool {
        [&self.slots.a, &self.slots.b].into_iter().any(|slot| slot.is_used() && slot.whole.is_none())
    }
}
