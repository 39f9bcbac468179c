//! Finds out the content of a disk. Nothing here writes.

mod at_end;
mod bootloader;
mod chain;
mod clones;
mod disk_holds;
mod error;
mod esp;
mod files;
mod gpt;
mod grow;
mod lba0;
mod mend_table;
mod own_lists;
mod part_content;
mod partitions;
mod place;
mod slot_files;
mod snapshot;
mod system;
mod table_guids;
mod target_disk;
mod volumes;

pub use bootloader::{asset_facts, boot_chain_and_loaders, bootloader, bootloaders, empty_info, fat_map, offered};
pub use chain::{boot_chain, drive_record};
pub use clones::{DisksWith, clones, disks_with};
pub use disk_holds::{holding, is_medium};
pub use error::ProbeError;
pub use files::check_files;
pub use gpt::lba1;
pub use grow::grow_facts;
pub use lba0::{MendedLba0, gpt, mended_lba0};
pub use mend_table::{MendedTable, mended_table};
pub use partitions::{TableFacts, partitions};
pub use place::{boot_env_place, history_place};
pub use slot_files::slot_files;
pub use snapshot::{snapshot_content, snapshot_room};
pub use system::{
    boot_env, check_slot, look_again, meta_of, slot_bytes, slot_is_whole, slot_volume, system, written_first,
};
pub use target_disk::{BRINGS_BACK, disk_facts};

use crate::device::BlockIo;
use slipway_core::{
    disk::magic::{HEAD_BYTES, VHD_FOOTER_BYTES, is_fixed_vhd},
    units::{Extent, SectorSize},
};

/// The bytes that a partition table is about: all, but for the footer of a fixed VHD image.
pub fn table_bytes(disk: &dyn BlockIo) -> u64 {
    if has_vhd_footer(disk) { disk.size() - VHD_FOOTER_BYTES as u64 } else { disk.size() }
}

/// Whether the disk is a fixed VHD image.
fn has_vhd_footer(disk: &dyn BlockIo) -> bool {
    let mut footer = [0; VHD_FOOTER_BYTES];
    // The format knows no other sectors.
    let at = disk.size().checked_sub(footer.len() as u64).filter(|_| disk.sector_size() == SectorSize::S512);
    at.is_some_and(|at| disk.read_back(at, &mut footer).is_ok()) && is_fixed_vhd(&footer)
}

/// Read past the page cache.
fn read(disk: &dyn BlockIo, offset: u64, buf: &mut [u8]) -> Result<(), ProbeError> {
    disk.read_back(offset, buf).map_err(|source| ProbeError::Io { offset, source })
}

/// Asks the disk, and asks once more where the answer is a failure: a read that fails once need not fail again.
fn twice<T>(mut ask: impl FnMut() -> T, is_failure: impl FnOnce(&T) -> bool) -> T {
    let answer = ask();
    if is_failure(&answer) { ask() } else { answer }
}

/// LBA 0, and whether it can be read. If not, it is as lost as one that was overwritten, and counts as zeros: a drive
/// takes another sector for it once it is written.
pub fn read_lba0(disk: &dyn BlockIo) -> (Vec<u8>, Result<(), ProbeError>) {
    let mut bytes = vec![0; disk.sector_size().bytes() as usize];
    let is_read = read(disk, 0, &mut bytes).inspect_err(|_| bytes.fill(0));
    (bytes, is_read)
}

/// The first bytes of a range, cut at the end of the range and of the disk. `None` if they cannot be read, so that one
/// bad sector does not hide the rest of the table.
fn head(disk: &dyn BlockIo, extent: Extent) -> Option<Vec<u8>> {
    let inside = disk.size().saturating_sub(extent.offset).min(extent.len);
    let mut head = vec![0; usize::try_from(inside).unwrap_or(HEAD_BYTES).min(HEAD_BYTES)];
    disk.read_back(extent.offset, &mut head).is_ok().then_some(head)
}
