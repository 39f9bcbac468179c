//! What `inspect DISK` says: the layout of a disk, as data and as a picture.

use std::fmt;

use serde::Serialize;
use uuid::Uuid;

use super::{
    picture::{self, Style},
    status::{SlotStatus, next_boot},
};
use crate::{
    device::{Identity, Kind},
    model::{
        bootrule::NextBoot,
        region::{Region, TableKind},
        running::Running,
        slot::PerSlot,
        units::{ByteSize, approx},
    },
};

/// How a disk is laid out. Sizes and offsets are bytes.
#[derive(Clone, Debug, Serialize, schemars::JsonSchema)]
pub struct LayoutReport {
    /// Which disk.
    pub disk: Identity,
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
#[derive(Clone, Debug, Serialize, schemars::JsonSchema)]
pub struct InstalledSystem {
    /// What the next boot starts, and why.
    pub next_boot: NextBoot,
    /// The system that runs, seen from this disk.
    pub running: Running,
    /// The slots: BOOT-A and BOOT-B.
    pub slots: PerSlot<SlotStatus>,
}

impl fmt::Display for LayoutReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.disk.kind {
            Kind::Image => "image",
            Kind::Disk => "disk",
        };
        let table = match self.table {
            TableKind::Gpt => "GPT",
            TableKind::Mbr => "MBR",
        };
        let (path, sector) = (self.disk.path.display(), self.sector_bytes);
        let mut lines = vec![(kind, format!("{path} ({}, {sector}-byte sectors, {table})", size(self.bytes)))];
        if let Some(guid) = self.disk_guid {
            lines.push(("disk GUID", guid.to_string()));
        }
        if let Some(system) = &self.system {
            lines.push(("next boot", next_boot(&system.next_boot)));
            if system.running != Running::Unknown {
                lines.push(("running", system.running.to_string()));
            }
        }
        if let Some(why) = &self.not_ours {
            lines.push(("not ours", why.clone()));
        }
        for line in picture::paragraphs(&lines, self.style) {
            writeln!(f, "{line}")?;
        }
        write!(f, "\n{}", picture::draw(self))?;
        let problems: Vec<_> = self.problems.iter().map(|problem| ("problem", problem.clone())).collect();
        if !problems.is_empty() {
            writeln!(f)?;
        }
        picture::paragraphs(&problems, self.style).iter().try_for_each(|line| write!(f, "\n{line}"))
    }
}

/// A byte count for people: exact where that is short, else to one decimal place.
pub(super) fn size(bytes: u64) -> String {
    let exact = ByteSize(bytes).to_string();
    match bytes {
        0 => "0".to_owned(),
        _ if exact.len() <= 8 => exact,
        _ => approx(bytes),
    }
}
