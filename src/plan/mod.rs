//! LAYER 3, decide: from what was asked and what was found to a list of steps. Pure: no file, no clock,
//! no randomness; the same inputs always give the same plan. What a dry run prints is what a run does.

mod install;
mod meta;
mod step;

pub use install::{InstallRequest, install};
pub use meta::meta;
pub use step::{Content, Plan, Step, System, Volume, VolumeFile};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{
    device::{Busy, Identity},
    error::Kind,
    fat::FatError,
    model::{
        cmdline::QuoteError,
        layout::LayoutError,
        manifest::{Arch, FileInfo},
        units::{SectorSize, approx},
    },
};

/// Everything that would otherwise be random or the time of day.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Ids {
    /// GUID of the disk.
    pub disk: Uuid,
    /// PARTUUIDs in order of partition number; also the UUIDs of the file systems.
    pub parts: [Uuid; 7],
    /// Time stamp of files, seconds since 1970 UTC.
    pub time: u64,
}

/// What a disk holds before an install.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// First and last MiB are zero, or a GPT without partitions.
    Nothing,
    /// Something, described for people.
    Something(String),
}

/// The target disk as it was found.
#[derive(Clone, Debug)]
pub struct DiskFacts {
    /// Which disk it is.
    pub identity: Identity,
    /// Size in bytes, whole sectors.
    pub bytes: u64,
    /// Logical block size.
    pub sector: SectorSize,
    /// Who uses it.
    pub busy: Vec<Busy>,
    /// What is on it.
    pub found: Found,
}

/// The boot assets as a plan knows them.
#[derive(Clone, Debug)]
pub struct AssetFacts {
    /// UEFI boot image.
    pub efi: FileInfo,
    /// BIOS core image; only x86 has one.
    pub core: Option<FileInfo>,
}

/// Why a request is not carried out. Nothing has been written.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// Somebody uses the disk.
    #[error("in use: {0}; unmount, swapoff or detach it first")]
    Busy(Busy),
    /// The disk is not empty.
    #[error("not empty: it holds {0}; --force overwrites it, --zero also erases all of it")]
    NotEmpty(String),
    /// No layout fits.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The payload does not fit into a slot.
    #[error("the payload does not fit into a slot of {}: {source}{}", approx(*slot), remedy(source))]
    SlotFull {
        /// Bytes of a slot.
        slot: u64,
        /// By how much.
        source: FatError,
    },
    /// The ESP cannot hold the boot image.
    #[error("the EFI system partition: {0}")]
    Esp(FatError),
    /// BIOS core image larger than its partition.
    #[error("the BIOS core image has {size} bytes, its partition {room}")]
    CoreTooLarge {
        /// Bytes.
        size: u64,
        /// Bytes of the partition.
        room: u64,
    },
    /// A payload for another machine.
    #[error("the payload's kernel is for {have}, not for {want}; --arch {have} installs it all the same")]
    Arch {
        /// Asked for.
        want: Arch,
        /// Found in the kernel.
        have: Arch,
    },
    /// A kernel argument that cannot be handed over.
    #[error("kernel command line: {0}")]
    Cmdline(#[from] QuoteError),
    /// META values that do not fit.
    #[error(transparent)]
    Meta(#[from] crate::model::meta::MetaError),
}

/// All reasons against a request, so that one run tells them all.
#[derive(Debug)]
pub struct Refusals(pub Vec<Refusal>);

impl Refusals {
    /// The most specific kind, lowest exit code, of all.
    pub fn kind(&self) -> Kind {
        self.0.iter().map(Refusal::kind).min().unwrap_or(Kind::Install)
    }
}

impl std::fmt::Display for Refusals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("refused, nothing was written:")?;
        self.0.iter().try_for_each(|reason| write!(f, "\n  - {reason}"))
    }
}

impl std::error::Error for Refusals {}

/// A larger slot helps against too many bytes, not against a file that FAT32 cannot hold.
const fn remedy(error: &FatError) -> &'static str {
    match error {
        FatError::Full { .. } => "; use a larger --slot-size",
        _ => "",
    }
}

impl Refusal {
    /// Whose fault: the disk's, or what was asked for.
    const fn kind(&self) -> Kind {
        match self {
            Refusal::Busy(_)
            | Refusal::NotEmpty(_)
            | Refusal::Layout(LayoutError::TooSmall { .. })
            | Refusal::Esp(_)
            | Refusal::CoreTooLarge { .. } => Kind::Install,
            Refusal::Layout(LayoutError::SlotSize { .. })
            | Refusal::SlotFull { .. }
            | Refusal::Arch { .. }
            | Refusal::Cmdline(_)
            | Refusal::Meta(_) => Kind::Input,
        }
    }
}
