//! An ESP with our boot state, spoiled: the installer, the map that it writes by and the loader agree about its files.

use std::sync::LazyLock;

use slipway::{device::BlockIo as _, fat::FatVolume};
use slipway_core::{
    boot::{env::PATHS, env_block::SECTOR_BLOCK_BYTES, esp},
    disk::{
        fat::{FatTime, FileSpec, VolumeLayout, VolumeSpec, copies, map::FatMap},
        layout::ESP_BYTES,
    },
    units::{Extent, MIB, SectorSize},
    zeros::are_zeros,
};

use super::sparse::Sparse;

const ESP: Extent = Extent { offset: MIB, len: ESP_BYTES };
const LOADER: &str = "EFI/BOOT/BOOTX64.EFI";

/// The input: a byte of flags, then edits of four bytes (region, offset, value) to a good volume.
pub fn fat(mut bytes: &[u8]) -> bool {
    let flags = super::take(&mut bytes);
    let sector = if flags & 1 == 0 { SectorSize::S512 } else { SectorSize::S4096 };
    let good = &GOOD[usize::from(flags & 1)];
    let mut disk = Sparse { size: ESP.end(), sector, ranges: good.clone() };
    for edit in bytes.chunks_exact(4) {
        let count = disk.ranges.len();
        let place = &mut disk.ranges[usize::from(edit[0]) % count].1;
        let at = usize::from(u16::from_le_bytes([edit[1], edit[2]])) % place.len();
        place[at] = edit[3];
    }
    let mut read = |offset: u64, buffer: &mut [u8]| {
        let is_inside = offset.checked_add(buffer.len() as u64).is_some_and(|end| end <= ESP.len);
        is_inside && disk.read_back(ESP.offset + offset, buffer).is_ok()
    };
    let by_loader = esp::copies(&mut read);
    let volume = FatVolume::open(&disk, ESP).ok();
    if let Some(volume) = &volume {
        looks_no_further(volume);
        for (path, at) in PATHS.into_iter().zip(by_loader) {
            agree(volume, path, at);
        }
    }
    let _ = copies::differ(ESP.len, sector.bytes(), &mut read);
    let _ = copies::boot_sector_copy(ESP.len, sector.bytes(), &mut read);
    let _ = copies::lost_sectors(ESP.len, sector.bytes(), &mut read);
    let map = FatMap::look(ESP.len, sector.bytes(), &[PATHS[0], PATHS[1], LOADER], &mut read).ok();
    if let Some(map) = &map {
        writes_to_nobodys(map, volume.as_ref().expect("what can be written to can be read"));
    }
    map.is_some() && by_loader.iter().all(Option::is_some)
}

/// Good volumes: with sectors of 512 and of 4096 bytes.
static GOOD: LazyLock<[Regions; 2]> = LazyLock::new(|| [SectorSize::S512, SectorSize::S4096].map(esp_with_boot_state));

/// The boot sector, then the rest that is not zeros, each with its place on the disk.
type Regions = Vec<(u64, Vec<u8>)>;

fn esp_with_boot_state(sector: SectorSize) -> Regions {
    let file = |path: &str, size: u64| FileSpec { path: path.to_owned(), size };
    let state = SECTOR_BLOCK_BYTES as u64;
    let files =
        vec![file(LOADER, 9000), file(PATHS[0], state), file(PATHS[1], state), file("slipway/a long name.txt", 5000)];
    let spec = VolumeSpec { label: "EFI".to_owned(), serial: 0x1234_5678, time: FatTime(0), files };
    let layout = VolumeLayout::new(ESP, sector, &spec).expect("an ESP of ours");
    let mut ranges = vec![(ESP.offset, layout.boot_sector)];
    for (at, bytes) in &layout.metadata {
        // With zeros behind it: where a directory ends is changed, too.
        let blocks = bytes.chunks(512).rposition(|block| !are_zeros(block)).map_or(1, |last| last + 1);
        ranges.push((ESP.offset + at, bytes[..bytes.len().min(blocks * 512)].to_vec()));
    }
    ranges
}

/// What is read of a file lies in the volume, and is as much as the file has.
fn looks_no_further(volume: &FatVolume<'_>) {
    let _ = volume.is_read_by_all();
    let _ = volume.names_in("");
    for path in [PATHS[0], PATHS[1], LOADER] {
        let Ok(Some(file)) = volume.find(path) else { continue };
        assert!(file.extents.iter().all(|extent| extent.offset > ESP.offset && extent.end() <= ESP.end()), "{file:?}");
        assert_eq!(file.extents.iter().map(|extent| extent.len).sum::<u64>(), file.size);
    }
}

/// The loader finds a copy of the boot state where the installer does: what one writes, the other reads.
fn agree(volume: &FatVolume<'_>, path: &str, by_loader: Option<u64>) {
    let found = volume.find_by_name(path).ok().flatten().filter(|file| file.size == SECTOR_BLOCK_BYTES as u64);
    match (found, by_loader) {
        (Some(file), Some(at)) => {
            assert_eq!(file.extents[0].offset, ESP.offset + at, "{path}: the loader has another sector")
        }
        (Some(_), None) if volume.is_read_by_all().is_ok() => panic!("{path}: the loader does not find it"),
        _ => {}
    }
}

/// Room for a new file is nobody's, and the map finds a file where the reader does.
fn writes_to_nobodys(map: &FatMap, volume: &FatVolume<'_>) {
    for path in [PATHS[0], PATHS[1], LOADER] {
        let Some(found) = map.file(path).filter(|file| !file.runs.is_empty() && file.at.bytes > 0) else { continue };
        if let Ok(Some(file)) = volume.find_by_name(path) {
            assert_eq!(file.extents[0].offset, ESP.offset + map.extent(found.runs[0]).offset, "{path}");
        }
    }
    let Some(room) = map.place(&[1, 40]) else { return };
    assert!(map.are_unowned(&room), "{room:?}");
    for run in room {
        let Extent { offset, len } = map.extent(run);
        assert!(offset + len <= ESP.len, "{run:?}");
    }
}
