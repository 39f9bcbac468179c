//! The steps a plan is made of, and the ranges of the disk each one writes.

use crate::prelude::*;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::VolumeFile;
use crate::snapshot::head::HeadChange;
use crate::{
    boot::{
        env::{BootEnv, Marker},
        env_block::SECTOR_BLOCK_BYTES,
        history::{Entry, RECORD_BYTES},
        slot::Slot,
    },
    digest::Sha256,
    disk::{
        fat::{entry::FileAt, map::Run},
        gpt_grow::Place,
        layout::Part,
        meta::ADV_BYTES,
    },
    units::{Extent, MIB},
};

/// One step. Its writes are flushed and read back from the disk before the next step starts; FAT32 volumes are read back
/// by [`Step::Verify`], and [`Step::Erase`] is only flushed. Extents and offsets are bytes on the disk. Copies are
/// numbered 1 and 2.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(tag = "step", rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the fields name the place of the write; the enum says the units")]
pub enum Step {
    /// Reserve room in an image file, so that a full file system shows before anything is changed.
    Reserve { extent: Extent },
    /// Have the kernel forget the old partitions: what a program with one of them open still writes would land on the new
    /// ones. Fails, before anything is written, while any program has one open. Block devices only.
    DropPartitions,
    /// Zero LBA 0. From here on the disk has no partition table for any reader, because a GPT needs a protective MBR.
    ClearLba0 { extent: Extent },
    /// Zero the rest of the first and the last MiB, where old tables and signatures are.
    ClearLabels { head: Extent, tail: Extent },
    /// Zero everything between these two (`--zero`).
    Erase { extent: Extent },
    /// Write a FAT32 file system with its files.
    WriteVolume { part: Part, extent: Extent },
    /// Write GRUB's core image to the BIOS boot partition.
    WriteCore { extent: Extent },
    /// Read back every byte written to a partition, past the page cache, and compare digests. Data that was flushed
    /// early is read while the write goes on.
    Verify { part: Part, extent: Extent },
    /// Zero the first and the last MiB of a partition, so that nothing on it is recognised.
    Blank { part: Part, head: Extent, tail: Extent },
    /// Write one copy of boot.env: one sector, replaced whole or not at all.
    WriteBootEnv {
        copy: u8,
        offset: u64,
        env: BootEnv,
        /// What this copy holds before, as far as it is known. Anything else there means that another program has
        /// changed the disk, and nothing is written.
        over: Option<BootEnv>,
        /// Whether this write is the plan's commit point.
        commit: bool,
    },
    /// Write a slot's own marker: one sector. `over` is what it holds before, as far as that is known.
    WriteMarker { slot: Slot, offset: u64, marker: Marker, over: Option<Marker> },
    /// Write one record of the history: one sector. `over` is the entry that it takes the place of, if any.
    WriteHistory { offset: u64, entry: Entry, over: Option<Entry> },
    /// Tell the device that a partition's content is not needed any more. Never fails the plan, because not every device
    /// supports it.
    Discard { part: Part, extent: Extent },
    /// Drop tags from the legacy area of META.
    WriteMetaLegacy { extent: Extent },
    /// Write one copy of the ADV. META is read again before the first copy is written, and only the plan's own tags
    /// change: machined may have written others meanwhile.
    WriteMetaCopy { copy: u8, offset: u64 },
    /// Have the kernel drop its cache of a partition that was written through the disk's device node.
    ForgetCached { part: Part, extent: Extent },
    /// Make an XFS file system in a sparse side file, so that mkfs.xfs fails before the disk is touched.
    PrepareXfs { part: Part, extent: Extent, uuid: Uuid },
    /// Copy the prepared XFS file system into its partition.
    WriteXfs { part: Part, extent: Extent },
    /// Write the backup GPT, entries and header, at the end of the disk.
    WriteBackupGpt { extent: Extent },
    /// Write the primary GPT, header and entries. No reader sees it yet, because LBA 0 is zero; or becomes so, if it is in this
    /// range.
    WritePrimaryGpt { extent: Extent },
    /// Write LBA 0, boot code and protective MBR: the commit point. One sector turns no partition table into a complete
    /// and verified one.
    WriteLba0 { extent: Extent },
    /// Write LBA 0 of a disk that has lost it: the protective MBR of the table that stands behind it, and the boot code that the
    /// ESP lists. `sha256` is the digest of the sector, and `over` that of what it holds before.
    MendLba0 { extent: Extent, sha256: Sha256, over: Sha256 },
    /// Have the kernel read the new table. Never fails the install, because the table is on the disk.
    RereadTable,
    /// Zero the new end of a partition that grows, and the free room behind it: an old label there would count.
    ClearEnd { part: Part, extent: Extent },
    /// Write the entries of a grown table, to the one of two places that the primary header does not name.
    WriteEntries { extent: Extent },
    /// Write LBA 1, which names the new entries and the new backup: with `commit` one sector turns the old table into the
    /// new one.
    WritePrimaryHeader { extent: Extent, entries: Place, commit: bool },
    /// Tell the kernel that a partition is larger. It may be in use.
    ResizePartition { part: Part, extent: Extent },
    /// Write a file of the boot chain into clusters of the ESP that no file has.
    WriteFile { extent: Extent, file: VolumeFile },
    /// Make a chain of each of these runs of clusters, in sectors of one copy of the FAT in which no file has an entry, one
    /// range of them for each run. `over` is the digest of what they all hold before.
    LinkClusters { copy: u8, extents: Vec<Extent>, runs: Vec<Run>, over: Sha256 },
    /// Have the directory entry at byte `at` of a sector name a new file: one sector, replaced whole or not at all. `data` and
    /// `run` are where the file lies, and `over` is what the entry says before.
    WriteEntry { offset: u64, at: u64, over: FileAt, file: VolumeFile, data: Extent, run: Run },
    /// Have the boot code start the core image at `core`: one sector, LBA 0, whose partition table stays as it is. `over` is
    /// the digest of the boot code before, and `sha256` that of the core image.
    WriteBootCode { extent: Extent, core: Extent, sha256: Sha256, over: Sha256 },
    /// Make one copy of the FAT of the ESP what the other one is, which is at `from` and has this digest.
    CopyFat { copy: u8, from: Extent, extent: Extent, sha256: Sha256 },
    /// Write a sector at the beginning of the ESP, as the boot sector, from the copy at `from`, which has this digest.
    CopyBootSector { from: Extent, extent: Extent, sha256: Sha256 },
    /// Have an unused directory entry, at byte `at` of a sector, name a new file: one sector, replaced whole or not at all.
    /// `data` and `run` are where the file lies, and `time` is its time stamp, seconds since 1970 UTC.
    AddEntry { offset: u64, at: u64, file: VolumeFile, data: Extent, run: Run, time: u64 },
    /// Free those of these clusters that no file has, in sectors of one copy of the FAT.
    FreeClusters { copy: u8, extents: Vec<Extent>, runs: Vec<Run> },
    /// Write how many clusters of the ESP are free, also where the sector that says it is lost.
    CountFree { extent: Extent },
    /// Write the content of a snapshot into the end of this range of a slot, where no file has a cluster. How much of it
    /// there is, is known once it is taken: right before the write.
    WriteSnapshot { slot: Slot, extent: Extent },
    /// Write the head of a snapshot: one sector, by which it counts.
    WriteSnapshotHead { slot: Slot, extent: Extent, head: HeadChange },
    /// Grow a mounted XFS file system to all of its partition, which is `extent`.
    GrowXfs { part: Part, extent: Extent, mounted_on: String },
}

impl Step {
    /// Whether this step puts the plan's goal in force.
    pub const fn is_commit(&self) -> bool {
        matches!(
            self,
            Step::WriteLba0 { .. }
                | Step::MendLba0 { .. }
                | Step::WritePrimaryHeader { commit: true, .. }
                | Step::WriteBootEnv { commit: true, .. }
        )
    }

    /// Whether this step writes the first sector of the ESP: only with that the ESP tells what else it has. Partitions begin at
    /// whole MiB.
    pub const fn is_boot_sector(&self) -> bool {
        matches!(self, Step::CopyBootSector { extent, .. } if extent.offset.is_multiple_of(MIB))
    }

    /// The byte ranges of the disk that this step writes; none of them is empty.
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
            | Step::ClearEnd { extent, .. }
            | Step::WriteEntries { extent }
            | Step::WritePrimaryHeader { extent, .. }
            | Step::WriteFile { extent, .. }
            | Step::WriteBootCode { extent, .. }
            | Step::CountFree { extent }
            | Step::CopyFat { extent, .. }
            | Step::CopyBootSector { extent, .. }
            | Step::MendLba0 { extent, .. }
            | Step::WriteSnapshot { extent, .. }
            | Step::WriteSnapshotHead { extent, .. }
            | Step::WriteLba0 { extent } => vec![*extent],
            Step::LinkClusters { extents, .. } | Step::FreeClusters { extents, .. } => extents.clone(),
            Step::ClearLabels { head, tail } | Step::Blank { head, tail, .. } => {
                // An empty one at the end of a slot would lie in the slot behind it, too.
                [*head, *tail].into_iter().filter(|extent| extent.len > 0).collect()
            }
            Step::WriteMetaCopy { offset, .. } => at(offset, ADV_BYTES),
            Step::WriteHistory { offset, .. } => at(offset, RECORD_BYTES),
            Step::WriteBootEnv { offset, .. }
            | Step::WriteMarker { offset, .. }
            | Step::WriteEntry { offset, .. }
            | Step::AddEntry { offset, .. } => at(offset, SECTOR_BLOCK_BYTES),
            Step::Reserve { .. }
            | Step::PrepareXfs { .. }
            | Step::Verify { .. }
            | Step::ForgetCached { .. }
            | Step::DropPartitions
            | Step::ResizePartition { .. }
            | Step::GrowXfs { .. }
            | Step::RereadTable => vec![],
        }
    }
}

/// Traces of an older use of a range count up to here: the second header of LUKS2, of 4 KiB, begins 4 MiB behind it at
/// most, and VMFS 2 MiB (util-linux, libblkid/src/superblocks).
const HEAD_BYTES: u64 = 5 * MIB;
/// And from here before its end: Promise's RAID has a mark 3087 sectors before it.
pub(super) const TAIL_BYTES: u64 = 2 * MIB;

/// The beginning and the end of a range, as far as old labels are looked for there. They never overlap; in a small range the end
/// may be short or empty.
pub(super) fn ends(extent: Extent) -> (Extent, Extent) {
    let head = extent.len.min(HEAD_BYTES);
    let tail = (extent.len - head).min(TAIL_BYTES);
    (Extent { offset: extent.offset, len: head }, Extent { offset: extent.end() - tail, len: tail })
}

/// Zero the first MiB of a slot, so that neither the boot loader nor the installer finds anything of its old content, and its
/// end, where an old label would count beside the new file system. Files of the payload lie between the two, and what the disk
/// has of them already is not to be lost.
pub(super) fn blank_slot(slot: Slot, extent: Extent) -> Step {
    let head = Extent { offset: extent.offset, len: MIB.min(extent.len) };
    Step::Blank { part: slot.into(), head, tail: ends(extent).1 }
}
