//! Places of the files that are written in place (boot.env, the slots' markers, the history), and the proof that a
//! place is theirs.
//!
//! These places are found through directory entries, and one wrong bit of an entry leads into another file. So a place counts
//! only if it holds the block that is expected there, or if the map of the whole volume shows that no other file has it.

use slipway_core::{
    boot::{
        env::{BootEnv, PATHS},
        env_block::SECTOR_BLOCK_BYTES,
        history::{HISTORY, RECORDS},
    },
    units::Extent,
};

use super::{fat_map, twice};
use crate::{device::BlockIo, fat::FatVolume};

/// Byte offset on the disk of a file that is exactly one GRUB environment block within one sector: such a file can be
/// rewritten atomically, and no other is. `None` if it is not found, is another kind of file, or is not known to lie there.
pub fn sector(disk: &dyn BlockIo, volume: &FatVolume, path: &str, is_block: fn(&[u8]) -> bool) -> Option<u64> {
    let file = volume.find_by_name(path).ok()??;
    let (sector, [one]) = (disk.sector_size().bytes(), file.extents.as_slice()) else { return None };
    if one.len != SECTOR_BLOCK_BYTES as u64 || !one.offset.is_multiple_of(sector) {
        return None;
    }
    let mut bytes = vec![0; SECTOR_BLOCK_BYTES];
    let is_read = twice(|| disk.read_back(one.offset, &mut bytes), Result::is_err).is_ok();
    let holds = is_read && is_block(&bytes);
    (holds || is_its_own(disk, volume, path, *one)).then_some(one.offset)
}

/// Byte offset on the disk of a copy of boot.env ([`sector`]).
pub fn boot_env(disk: &dyn BlockIo, volume: &FatVolume, path: &str) -> Option<u64> {
    sector(disk, volume, path, |bytes| BootEnv::parse(bytes).is_some())
}

/// Byte offsets of both copies. If two lead to one sector, the second is lost.
pub fn boot_envs(disk: &dyn BlockIo, volume: &FatVolume) -> [Option<u64>; 2] {
    let [first, second] = PATHS.map(|path| boot_env(disk, volume, path));
    [first, second.filter(|_| first != second)]
}

/// Byte offset of one copy, on the ESP at `esp`.
pub fn boot_env_place(disk: &dyn BlockIo, esp: Extent, path: &str) -> Option<u64> {
    boot_env(disk, &FatVolume::open(disk, esp).ok()?.by_either_fat(), path)
}

/// Place of the history on the disk: whole sectors, one behind the other.
pub fn history(disk: &dyn BlockIo, volume: &FatVolume) -> Option<Extent> {
    let (file, sector) = (volume.find(HISTORY).ok()??, disk.sector_size().bytes());
    let records = u64::from(RECORDS);
    match file.extents.as_slice() {
        [one] if one.len == records * sector && one.offset.is_multiple_of(sector) => Some(*one),
        _ => None,
    }
}

/// Place of the history, if it may be written: no other file has any of it.
pub fn history_place(disk: &dyn BlockIo, esp: Extent) -> Option<Extent> {
    let volume = FatVolume::open(disk, esp).ok()?;
    history(disk, &volume).filter(|place| is_its_own(disk, &volume, HISTORY, *place))
}

/// Whether the map of the volume shows that this file lies there, and that no other one has any of it. An unreadable or
/// contradictory map proves nothing.
pub fn is_its_own(disk: &dyn BlockIo, volume: &FatVolume, path: &str, place: Extent) -> bool {
    let base = volume.extent();
    let Ok(map) = fat_map(disk, base, &[path]) else { return false };
    let Some(found) = map.file(path).filter(|found| u64::from(found.at.bytes) == place.len) else { return false };
    let clusters: u32 = found.runs.iter().map(|run| run.count).sum();
    let begins = found.runs.first().map(|run| base.offset + map.extent(*run).offset);
    clusters == map.clusters(place.len) && begins == Some(place.offset)
}
