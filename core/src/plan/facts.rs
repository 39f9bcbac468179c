//! What probing finds and plans are made from.

use crate::prelude::*;

use alloc::collections::BTreeMap;

use uuid::Uuid;

use crate::{
    boot::{
        env::{BootEnv, Marker},
        rule::NextBoot,
        running::Running,
        slot::PerSlot,
    },
    digest::Sha256,
    disk::{
        gpt::GptError,
        identity::{DiskIdentity, DiskUse},
        layout::Part,
        meta::Meta,
    },
    payload::manifest::{FileInfo, Manifest},
    units::{Extent, SectorSize},
};

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
    pub identity: DiskIdentity,
    /// Size in bytes, whole sectors.
    pub bytes: u64,
    /// Logical block size.
    pub sector: SectorSize,
    /// Who uses it.
    pub busy: Vec<DiskUse>,
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

/// The partition table as found.
#[derive(Clone, Debug)]
pub struct GptFacts {
    /// GUID of the disk.
    pub disk_guid: Uuid,
    /// Byte ranges of our seven partitions, in order.
    pub parts: [Extent; 7],
    /// Their PARTUUIDs.
    pub guids: [Uuid; 7],
    /// Its two copies.
    pub copies: GptCopies,
}

/// The two copies of a GPT.
#[derive(Clone, Debug)]
pub struct GptCopies {
    /// Whether the primary header and entries are valid, else why not.
    pub primary: Result<(), GptError>,
    /// The same for the backup.
    pub backup: Result<(), GptError>,
    /// Byte offset of the backup header, if there is a valid one.
    pub backup_offset: Option<u64>,
    /// Whether the last block holds the backup header of another table.
    pub foreign_backup: bool,
}

impl GptFacts {
    /// The bytes of a partition.
    pub const fn part(&self, part: Part) -> Extent {
        self.parts[part as usize - 1]
    }

    /// The PARTUUID of a partition.
    pub const fn guid(&self, part: Part) -> Uuid {
        self.guids[part as usize - 1]
    }
}

/// One slot as found.
#[derive(Clone, Debug, Default)]
pub struct SlotFacts {
    /// Its manifest.
    pub manifest: Option<Manifest>,
    /// Its own marker.
    pub marker: Option<Marker>,
    /// Whether what GRUB loads is what `boot.sha256` says, else why not.
    pub boot_problem: Option<String>,
    /// Whether GRUB would load it: `boots` is empty.
    pub verifies: bool,
    /// Byte offset on the disk of its marker, where that is one sector as it should be.
    pub marker_at: Option<u64>,
    /// Whether every file, the squashfs too, is what `SHA256SUMS` says, else why not; none where nobody looked.
    pub whole: Option<Result<(), String>>,
}

impl SlotFacts {
    /// Digest that names its payload.
    pub fn payload(&self) -> Option<Sha256> {
        self.manifest.as_ref().map(Manifest::payload_digest)
    }

    /// Version of its payload, for people.
    pub fn version(&self) -> &str {
        self.manifest.as_ref().and_then(|m| m.version.as_deref()).unwrap_or("(no version)")
    }

    /// What is wrong with it, by the best that is known: every file where they were looked at, else what GRUB loads.
    pub fn damage(&self) -> Option<&str> {
        match &self.whole {
            Some(Err(why)) => Some(why),
            _ => self.boot_problem.as_deref(),
        }
    }
}

/// An installed disk.
#[derive(Clone, Debug)]
pub struct SystemFacts {
    /// Partition table.
    pub gpt: GptFacts,
    /// Logical block size.
    pub sector: SectorSize,
    /// The running system, seen from this disk.
    pub running: Running,
    /// Byte offsets on the disk of both copies of boot.env, where they are one sector each as they should be.
    pub env_at: [Option<u64>; 2],
    /// Both copies of boot.env, where valid.
    pub env_copies: [Option<BootEnv>; 2],
    /// The one that counts.
    pub env: Option<BootEnv>,
    /// The slots.
    pub slots: PerSlot<SlotFacts>,
    /// What the next boot starts.
    pub next: NextBoot,
    /// META.
    pub meta: Meta,
    /// What STATE and EPHEMERAL hold.
    pub data: BTreeMap<Part, VolumeHolds>,
}

/// What a volume of the OS holds, by its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VolumeHolds {
    /// An XFS file system.
    Xfs,
    /// An encrypted volume (LUKS).
    Luks,
    /// Zeros, or something else.
    Other,
}

impl SystemFacts {
    /// What a volume of the OS holds.
    pub fn held(&self, part: Part) -> VolumeHolds {
        self.data.get(&part).copied().unwrap_or(VolumeHolds::Other)
    }
}
