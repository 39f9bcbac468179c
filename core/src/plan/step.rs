//! One step of a plan.

use crate::prelude::*;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{
    boot::{
        env::{BootEnv, Marker},
        env_block::SECTOR_BLOCK_BYTES,
        slot::Slot,
    },
    disk::{layout::Part, meta::ADV_BYTES},
    units::{Extent, MIB},
};

/// One step. What it wrote is flushed to the medium and read back before the next starts (FAT32 volumes by
/// [`Step::Verify`]; [`Step::Erase`] is flushed only).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
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
    /// Read back every byte written to a partition, past the page cache, and compare with its digest. What was flushed
    /// in the middle of the write is read while that goes on.
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
    /// Write one copy of boot.env: one sector, replaced whole or not at all.
    WriteBootEnv {
        /// 1 or 2.
        copy: u8,
        /// Byte offset on the disk.
        offset: u64,
        /// What it says from then on.
        env: BootEnv,
        /// Whether this write is what the whole plan is for: it is in force with it, and was not before.
        commit: bool,
    },
    /// Write a slot's own marker: one sector.
    WriteMarker {
        /// Whose.
        slot: Slot,
        /// Byte offset on the disk.
        offset: u64,
        /// What it says from then on.
        marker: Marker,
    },
    /// Tell the device that nothing in a partition is needed any more. Never fails the plan: not every device
    /// can be told.
    Discard {
        /// This partition.
        part: Part,
        /// Its bytes.
        extent: Extent,
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
        /// UUID of the file system.
        uuid: Uuid,
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
    /// Whether what the plan is for is in force after this step, and was not before.
    pub const fn is_commit(&self) -> bool {
        matches!(self, Step::WriteLba0 { .. } | Step::WriteBootEnv { commit: true, .. })
    }

    /// The ranges this step writes to.
    pub fn writes(&self) -> Vec<Extent> {
        let at = |offset: &u64, len: usize| vec![Extent { offset: *offset, len: len as u64 }];
        match self {
            Step::ClearLba0 { extent }
            | Step::Erase { extent }
            | Step::WriteVolume { extent, .. }
            | Step::WriteCore { extent }
            | Step::WriteXfs { extent, .. }
            | Step::Discard { extent, .. }
            | Step::WriteBackupGpt { extent }
            | Step::WritePrimaryGpt { extent }
            | Step::WriteMetaLegacy { extent }
            | Step::WriteLba0 { extent } => vec![*extent],
            Step::ClearLabels { head, tail } | Step::Blank { head, tail, .. } => vec![*head, *tail],
            Step::WriteMetaCopy { offset, .. } => at(offset, ADV_BYTES),
            Step::WriteBootEnv { offset, .. } | Step::WriteMarker { offset, .. } => at(offset, SECTOR_BLOCK_BYTES),
            Step::Reserve { .. }
            | Step::PrepareXfs { .. }
            | Step::Verify { .. }
            | Step::ForgetCached { .. }
            | Step::RereadTable => vec![],
        }
    }
}

/// First and last MiB of a range; the second is empty where the first is all of it.
pub(super) fn ends(extent: Extent) -> (Extent, Extent) {
    let head = extent.len.min(MIB);
    let tail = (extent.len - head).min(MIB);
    (Extent { offset: extent.offset, len: head }, Extent { offset: extent.end() - tail, len: tail })
}
