//! The two copies of the FAT of a volume. Firmware, GRUB and Linux read the first; fsck and Windows may take the second.

use crate::prelude::*;

use super::{
    boot_sector::{BootSector, COPY, INFO, INFO_COPY},
    layout::fs_info,
    map::{FatMap, MapError, Read, free_count},
};
use crate::{digest::Sha256, units::Extent};

/// Copies of the FAT that are not the same. Offsets are bytes in the volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FatsDiffer {
    /// The first byte that differs, or cannot be read, as an offset in each copy.
    pub at: u64,
    /// Where the copies lie.
    pub copies: [Extent; 2],
    /// The copy by which every file is whole, 0 or 1, and its digest. The first one if both are: all readers go by it.
    pub whole: Option<(usize, Sha256)>,
}

/// Compares the copies of the FAT of a volume of `len` bytes on a disk with sectors of `sector` bytes. None if they are the
/// same, or if there is one only. One that cannot be read is damaged.
pub fn differ(len: u64, sector: u64, read: &mut Read) -> Result<Option<FatsDiffer>, MapError> {
    let places = FatMap::places(len, sector, read)?;
    let [first, second] = places[..] else { return Ok(None) };
    let copies = [first, second];
    let tables = copies.map(|place| table(place, sector, read));
    let at = match &tables {
        // On nearly every disk. One comparison of memory is faster than a search for the place.
        [Ok(one), Ok(other)] if one == other => return Ok(None),
        [Ok(one), Ok(other)] => one.iter().zip(other).position(|(one, other)| one != other).unwrap_or_default() as u64,
        [Err(at), _] | [_, Err(at)] => *at,
    };
    let mut by_copy = copies.into_iter().zip(&tables).enumerate();
    let whole = by_copy.find_map(|(n, (place, table))| {
        let table = table.as_ref().ok()?;
        is_whole(len, sector, copies, place, read).then(|| (n, Sha256::of(table)))
    });
    Ok(Some(FatsDiffer { at, copies, whole }))
}

/// A copy, or the first byte of it that cannot be read.
fn table(place: Extent, sector: u64, read: &mut Read) -> Result<Vec<u8>, u64> {
    let (mut table, mut one) = (vec![0; place.len as usize], vec![0; sector as usize]);
    if read(place.offset, &mut table) {
        return Ok(table);
    }
    let mut sectors = (0..place.len).step_by(one.len());
    Err(sectors.find(|at| !read(place.offset + at, &mut one)).unwrap_or_default())
}

/// Whether every file is whole by one copy alone.
fn is_whole(len: u64, sector: u64, copies: [Extent; 2], one: Extent, read: &mut Read) -> bool {
    let mut by_one = |offset: u64, bytes: &mut [u8]| {
        let copy = copies.iter().find(|copy| (copy.offset..copy.end()).contains(&offset));
        read(copy.map_or(offset, |copy| one.offset + (offset - copy.offset)), bytes)
    };
    FatMap::look(len, sector, &[], &mut by_one).is_ok()
}

/// The copy of a boot sector that is damaged, and its digest, if by it every file of the volume is whole. The place is in bytes
/// of the volume.
pub fn boot_sector_copy(len: u64, sector: u64, read: &mut Read) -> Option<(Extent, Sha256)> {
    let from = Extent { offset: COPY * sector, len: sector };
    let (mut copy, mut now) = (vec![0; sector as usize], vec![0; sector as usize]);
    if !read(from.offset, &mut copy) {
        return None;
    }
    // A sector that says the same is no cause, so nearly every volume is looked at no further. Linux notes in byte 65 that the
    // volume is mounted.
    let is_read = read(0, &mut now);
    now[65] = copy[65];
    if (is_read && now == copy) || FatMap::look(len, sector, &[], read).is_ok() {
        return None;
    }
    let mut by_copy = |offset: u64, bytes: &mut [u8]| {
        let of_copy = usize::try_from(offset).ok().and_then(|at| copy.get(at..)?.get(..bytes.len()));
        of_copy.map(|found| bytes.copy_from_slice(found)).is_some() || read(offset, bytes)
    };
    FatMap::look(len, sector, &[], &mut by_copy).ok()?;
    Some((from, Sha256::of(&copy)))
}

/// A sector that is lost, of two that say the same, or of which both are lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostSector {
    /// For people.
    pub what: &'static str,
    /// Its place, in bytes of the volume.
    pub extent: Extent,
    /// Place and digest of the other one. None: that is lost, too, and the FAT says what both hold.
    pub from: Option<(Extent, Sha256)>,
}

/// The sectors at the beginning of a volume that are lost and can be written from the other one, or from the FAT, where we put
/// them, as mkfs.fat does. The boot sector is none of them: without it nothing of this is known.
pub fn lost_sectors(len: u64, sector: u64, read: &mut Read) -> Vec<LostSector> {
    let at = |number: u64| Extent { offset: number * sector, len: sector };
    let is_volume = FatMap::places(len, sector, read).is_ok();
    let mut get = |number: u64| {
        let mut bytes = vec![0; sector as usize];
        read(at(number).offset, &mut bytes).then_some(bytes)
    };
    // It says where FSInfo and its own copy are.
    let Some(boot) = get(0).filter(|boot| is_volume && says_where(boot)) else { return vec![] };
    // Of two that differ, nothing tells the right one.
    let is_boot = |copy: &Vec<u8>| BootSector::decode(copy).is_some();
    let is_info = |info: &Vec<u8>| free_count(info).is_some();
    let (copy, [info, info_copy]) = (get(COPY).filter(is_boot), [INFO, INFO_COPY].map(|at| get(at).filter(is_info)));
    let pairs = [
        ("the copy of the first sector", COPY, copy, 0, Some(&boot)),
        (INFOS[0].1, INFO, info.clone(), INFO_COPY, info_copy.as_ref()),
        (INFOS[1].1, INFO_COPY, info_copy.clone(), INFO, info.as_ref()),
    ];
    let lost = pairs.into_iter().filter_map(|(what, number, found, from, whole)| {
        let whole = whole.filter(|_| found.is_none())?;
        Some(LostSector { what, extent: at(number), from: Some((at(from), Sha256::of(whole))) })
    });
    let mut lost: Vec<LostSector> = lost.collect();
    if info.is_none() && info_copy.is_none() && FatMap::look(len, sector, &[], read).is_ok() {
        lost.extend(INFOS.map(|(number, what)| LostSector { what, extent: at(number), from: None }));
    }
    lost
}

/// The sectors with the number of free clusters.
const INFOS: [(u64, &str); 2] = [
    (INFO, "the sector with the number of free clusters"),
    (INFO_COPY, "the copy of the sector with the number of free clusters"),
];

/// The sector at this byte of a volume as one that does not say yet how many clusters are free. None if no such one belongs
/// there.
pub fn empty_info(offset: u64, sector: u64, read: &mut Read) -> Option<Vec<u8>> {
    let mut boot = vec![0; sector as usize];
    let is_place = read(0, &mut boot) && says_where(&boot) && INFOS.iter().any(|(number, _)| number * sector == offset);
    is_place.then(|| fs_info(sector as usize, u32::MAX, u32::MAX))
}

/// Whether a boot sector says that FSInfo and its own copy are where we put them.
fn says_where(boot: &[u8]) -> bool {
    // With fewer sectors the FAT begins where the copy of FSInfo would be.
    BootSector::decode(boot).is_some_and(|boot| (boot.info, boot.copy) == (INFO, COPY) && boot.reserved > INFO_COPY)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `mkfs.fat -R 7` puts no copy of FSInfo in the first FAT.
    #[test]
    fn the_copy_of_fsinfo_lies_before_the_fat() {
        for (reserved, is_there) in [(7, false), (8, true), (32, true)] {
            let mut boot = [0; 512];
            boot[14] = reserved;
            boot[82..87].copy_from_slice(b"FAT32");
            boot[510..].copy_from_slice(&[0x55, 0xaa]);
            boot[48..52].copy_from_slice(&[1, 0, 6, 0]);
            assert_eq!(says_where(&boot), is_there, "{reserved}");
        }
    }
}
