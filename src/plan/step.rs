//! A plan: what goes where, and the steps in their order.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

use super::Ids;
use crate::{
    fat::{FatError, FatTime, FileSpec, VolumeLayout, VolumeSpec},
    model::{
        digest::Sha256,
        layout::{Layout, Part},
        manifest::FileInfo,
        slot::Slot,
        units::{Extent, MIB, SectorSize, approx},
    },
};

/// Where the bytes of a file come from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Content {
    /// Stands in the plan.
    Text(String),
    /// The payload's file of the same name.
    Payload,
    /// The UEFI boot image.
    EfiImage,
}

/// One file of a file system to be written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct VolumeFile {
    /// Path from the root.
    pub path: String,
    /// Size in bytes.
    pub size: u64,
    /// SHA-256 of its content.
    pub sha256: Sha256,
    /// Where the content comes from.
    pub from: Content,
}

impl VolumeFile {
    /// A file whose content stands in the plan.
    pub fn text(path: &str, text: String) -> Self {
        VolumeFile {
            path: path.to_owned(),
            size: text.len() as u64,
            sha256: Sha256::of(text.as_bytes()),
            from: Content::Text(text),
        }
    }

    /// A file that is copied.
    pub fn copied(path: &str, info: &FileInfo, from: Content) -> Self {
        VolumeFile { path: path.to_owned(), size: info.size, sha256: info.sha256, from }
    }
}

/// A FAT32 file system to be written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Volume {
    /// Serial number.
    pub serial: u32,
    /// Time stamp of its files, seconds since 1970 UTC.
    pub time: u64,
    /// Its files, in the order in which their data lies.
    pub files: Vec<VolumeFile>,
}

impl Volume {
    /// Where everything in it lies. The same for the plan's check, the write and the read-back.
    pub fn lay_out(&self, part: Part, extent: Extent, sector: SectorSize) -> Result<VolumeLayout, FatError> {
        let files = self.files.iter().map(|f| FileSpec { path: f.path.clone(), size: f.size });
        let spec = VolumeSpec {
            label: part.name().to_owned(),
            serial: self.serial,
            time: FatTime(self.time),
            files: files.collect(),
        };
        VolumeLayout::new(extent, sector, &spec)
    }

    fn bytes(&self) -> u64 {
        self.files.iter().map(|f| f.size).sum()
    }
}

/// One step. What it wrote is flushed to the medium and read back before the next starts (FAT32 volumes by
/// [`Step::Verify`]; [`Step::Erase`] is flushed only).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(tag = "step", rename_all = "kebab-case")]
pub enum Step {
    /// Reserve room in an image file, so that a full file system is found before anything is changed.
    Reserve {
        /// What is going to be written.
        extent: Extent,
    },
    /// Zero LBA 0. From here on no reader finds a partition table: without a protective MBR neither Linux
    /// nor UEFI nor GRUB looks for a GPT.
    ClearLba0 {
        /// One logical block.
        extent: Extent,
    },
    /// Zero the rest of the areas where a label or the signature of a file system can stand.
    ClearLabels {
        /// From LBA 1 to 1 MiB.
        head: Extent,
        /// The last MiB.
        tail: Extent,
    },
    /// Zero everything between (`--zero`).
    Erase {
        /// The disk without its label areas.
        extent: Extent,
    },
    /// Write a FAT32 file system with its files.
    WriteVolume {
        /// Into this partition.
        part: Part,
        /// Its bytes.
        extent: Extent,
    },
    /// Write GRUB's core image.
    WriteCore {
        /// The BIOS boot partition.
        extent: Extent,
    },
    /// Read back every byte written to a partition, past the page cache, and compare with its digest.
    Verify {
        /// This partition.
        part: Part,
        /// Its bytes.
        extent: Extent,
    },
    /// Zero both ends of a partition, so that nothing on it is recognised.
    Blank {
        /// This partition.
        part: Part,
        /// Its first MiB.
        head: Extent,
        /// Its last MiB.
        tail: Extent,
    },
    /// Write the legacy area of META.
    WriteMetaLegacy {
        /// Its bytes.
        extent: Extent,
    },
    /// Write one copy of the ADV.
    WriteMetaCopy {
        /// 1 or 2.
        copy: u8,
        /// Byte offset on the disk.
        offset: u64,
    },
    /// Have the kernel forget what it cached of a partition that was written behind its own node.
    ForgetCached {
        /// This partition.
        part: Part,
        /// Its bytes.
        extent: Extent,
    },
    /// Make an XFS file system in a sparse side file: everything that can go wrong with it goes wrong before
    /// the disk is touched.
    PrepareXfs {
        /// For this partition.
        part: Part,
        /// Its bytes.
        extent: Extent,
    },
    /// Copy the prepared XFS file system into its partition.
    WriteXfs {
        /// In this partition.
        part: Part,
        /// Its bytes.
        extent: Extent,
    },
    /// Write the backup GPT, entries and header, at the end of the disk.
    WriteBackupGpt {
        /// Its bytes.
        extent: Extent,
    },
    /// Write the primary GPT, header and entries. Still no table: LBA 0 is zero.
    WritePrimaryGpt {
        /// Its bytes.
        extent: Extent,
    },
    /// Write LBA 0: boot code and protective MBR. One sector, and the commit point: before it the disk has
    /// no partition table for any reader, after it a complete and verified one for all.
    WriteLba0 {
        /// One logical block.
        extent: Extent,
    },
    /// Tell the kernel. Never fails the install: the table is on the disk.
    RereadTable,
}

impl Step {
    /// Whether the new system boots after this step, and not before.
    pub const fn is_commit(self) -> bool {
        matches!(self, Step::WriteLba0 { .. })
    }

    /// The ranges this step writes to.
    pub fn writes(self) -> Vec<Extent> {
        match self {
            Step::ClearLba0 { extent }
            | Step::Erase { extent }
            | Step::WriteVolume { extent, .. }
            | Step::WriteCore { extent }
            | Step::WriteXfs { extent, .. }
            | Step::WriteBackupGpt { extent }
            | Step::WritePrimaryGpt { extent }
            | Step::WriteMetaLegacy { extent }
            | Step::WriteLba0 { extent } => vec![extent],
            Step::ClearLabels { head, tail } | Step::Blank { head, tail, .. } => vec![head, tail],
            Step::WriteMetaCopy { offset, .. } => {
                vec![Extent { offset, len: crate::model::meta::ADV_BYTES as u64 }]
            }
            Step::Reserve { .. }
            | Step::PrepareXfs { .. }
            | Step::Verify { .. }
            | Step::ForgetCached { .. }
            | Step::RereadTable => vec![],
        }
    }
}

/// A complete plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Plan {
    /// `install` or `meta`.
    pub verb: String,
    /// The disk, for people.
    pub disk: String,
    /// What is installed; none where only META changes.
    pub system: Option<System>,
    /// Tags for META.
    pub meta: BTreeMap<u8, Vec<u8>>,
    /// New content of META's legacy area, where it changes.
    pub meta_legacy: Option<Vec<u8>>,
    /// What the user should know.
    pub warnings: Vec<String>,
    /// The steps in order.
    pub steps: Vec<Step>,
}

/// A system to be installed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct System {
    /// Version of the payload.
    pub version: Option<String>,
    /// The slot it goes to.
    pub slot: Slot,
    /// The kernel command line of the slot, without what the boot rule adds.
    pub cmdline: String,
    /// Where the partitions lie.
    pub layout: Layout,
    /// GUIDs and time.
    pub ids: Ids,
    /// What goes into the FAT32 file systems.
    pub volumes: BTreeMap<Part, Volume>,
    /// GRUB's core image for BIOS.
    pub core: Option<FileInfo>,
}

impl Plan {
    /// Bytes of payload and boot image that a step moves, or bytes it erases; what a progress bar counts.
    pub fn step_bytes(&self, step: Step) -> u64 {
        match step {
            Step::WriteVolume { part, .. } | Step::Verify { part, .. } => self.volume(part).map_or(0, Volume::bytes),
            Step::Erase { extent } => extent.len,
            _ => 0,
        }
    }

    fn volume(&self, part: Part) -> Option<&Volume> {
        self.system.as_ref()?.volumes.get(&part)
    }

    /// One step as a sentence.
    pub fn describe(&self, step: Step) -> String {
        let at = |e: Extent| format!("{} at byte {}", approx(e.len), e.offset);
        let core = self.system.as_ref().and_then(|s| s.core.as_ref());
        let files = |part| match self.volume(part) {
            Some(v) => format!("{} files, {}", v.files.len(), approx(v.bytes())),
            None => core.map_or_else(String::new, |c| approx(c.size)),
        };
        match step {
            Step::Reserve { extent } => format!("reserve    {}", at(extent)),
            Step::ClearLba0 { .. } => "clear      LBA 0: from here on the disk has no partition table".into(),
            Step::ClearLabels { head, tail } => format!("clear      old labels: {}, {}", at(head), at(tail)),
            Step::Erase { extent } => format!("erase      {} (flushed, not read back)", at(extent)),
            Step::WriteVolume { part, extent } => {
                format!("write      {part}: FAT32, {} (partition {}, {})", files(part), part.number(), at(extent))
            }
            Step::WriteCore { extent } => format!("write      BIOS: GRUB core image (partition 2, {})", at(extent)),
            Step::Verify { part, .. } => {
                format!("verify     {part}: read back past the page cache, {}", files(part))
            }
            Step::Blank { part, .. } => format!("blank      {part}: both ends zeroed"),
            Step::WriteMetaCopy { copy, .. } => {
                format!("write      META: ADV copy {copy} of 2, {} tags", self.meta.len())
            }
            Step::WriteMetaLegacy { .. } => "write      META: legacy area".into(),
            Step::ForgetCached { part, .. } => format!("tell       the kernel to forget what it cached of {part}"),
            Step::PrepareXfs { part, extent } => {
                format!("prepare    {part}: XFS of {} in a side file", approx(extent.len))
            }
            Step::WriteXfs { part, extent } => {
                format!("format     {part}: XFS (partition {}, {})", part.number(), at(extent))
            }
            Step::WriteBackupGpt { extent } => format!("write      backup GPT: {}", at(extent)),
            Step::WritePrimaryGpt { extent } => format!("write      primary GPT: {}", at(extent)),
            Step::WriteLba0 { .. } => "write      LBA 0: boot code and protective MBR   <- commit point".into(),
            Step::RereadTable => "tell       the kernel about the new partition table".into(),
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {}", self.verb, self.disk)?;
        if let Some(system) = &self.system {
            write!(f, ": {} into slot {}", system.version.as_deref().unwrap_or("(no version)"), system.slot)?;
        }
        writeln!(f)?;
        for (n, step) in (1..).zip(&self.steps) {
            writeln!(f, "  {n:>2}. {}", self.describe(*step))?;
        }
        if let Some(system) = &self.system {
            writeln!(f, "  kernel command line: {}", system.cmdline)?;
        }
        self.warnings.iter().try_for_each(|w| writeln!(f, "  note: {w}"))
    }
}

/// First and last MiB of a range; the second is empty where the first is all of it.
pub(super) fn ends(extent: Extent) -> (Extent, Extent) {
    let head = extent.len.min(MIB);
    let tail = (extent.len - head).min(MIB);
    (Extent { offset: extent.offset, len: head }, Extent { offset: extent.end() - tail, len: tail })
}
