use proptest::prelude::*;

use super::*;
use crate::{
    disk::fat::{
        copies,
        layout::{FatTime, FileSpec, VolumeLayout, VolumeSpec},
        name::checksum,
        new_file::Kind,
    },
    units::{MIB, SectorSize},
};

const LEN: u64 = 40 * MIB;
const LOADER: &str = "EFI/BOOT/BOOTX64.EFI";
const LIST: &str = "slipway/chain.sha256";

/// A volume with these files. Their content does not matter.
fn volume() -> Vec<u8> {
    let files = [(LOADER, 300_000), ("slipway/boot.env", 512), (LIST, 700), ("empty", 0)];
    let files = files.map(|(path, size)| FileSpec { path: path.to_owned(), size });
    let spec = VolumeSpec { label: "EFI".to_owned(), serial: 1, time: FatTime(0), files: files.to_vec() };
    let layout = VolumeLayout::new(Extent { offset: MIB, len: LEN }, SectorSize::S512, &spec).unwrap();
    let mut bytes = vec![0; LEN as usize];
    bytes[..512].copy_from_slice(&layout.boot_sector);
    for (offset, metadata) in &layout.metadata {
        bytes[*offset as usize..][..metadata.len()].copy_from_slice(metadata);
    }
    bytes
}

fn look(volume: &[u8]) -> Result<FatMap, MapError> {
    FatMap::look(LEN, 512, &[LOADER, LIST], &mut |offset, buffer| {
        let bytes = usize::try_from(offset).ok().and_then(|at| volume.get(at..)?.get(..buffer.len()));
        bytes.map(|bytes| buffer.copy_from_slice(bytes)).is_some()
    })
}

/// Write a chain for a new file into both copies of the FAT.
fn link(volume: &mut [u8], map: &FatMap, run: Run) {
    for copy in 0..map.copies() {
        let sectors = map.sectors(copy, run);
        volume[sectors.offset as usize..][..sectors.len as usize].copy_from_slice(&map.linked(copy, sectors, run));
    }
}

#[test]
fn our_own_volume_is_understood() {
    let map = look(&volume()).unwrap();
    assert_eq!((map.copies(), map.lost(), map.free_count().1), (2, vec![], true));
    let file = map.file(LOADER).unwrap();
    assert_eq!((file.at.bytes, file.runs.len()), (300_000, 1));
    assert_eq!(file.runs[0].count, map.clusters(300_000));
    assert!(map.is_chain(file.runs[0]) && !map.are_unowned(&file.runs));
    assert_eq!(map.file("slipway/boot.env"), None, "it was not asked for");
}

#[test]
fn each_new_file_has_sectors_of_the_fat_of_its_own() {
    let map = look(&volume()).unwrap();
    let runs = map.place(&[200, 1, 1]).unwrap();
    let sectors: Vec<Extent> = runs.iter().map(|run| map.sectors(0, *run)).collect();
    for (n, one) in sectors.iter().enumerate() {
        assert!(map.held(0, *one).iter().all(|byte| *byte == 0), "a file has an entry there");
        assert!(sectors[n + 1..].iter().all(|other| one.end() <= other.offset), "{sectors:?}");
    }
    assert_eq!(map.place(&[map.clusters(LEN)]), None);
}

#[test]
fn what_nothing_refers_to_is_lost_and_can_be_freed() {
    let mut bytes = volume();
    let map = look(&bytes).unwrap();
    let run = map.place(&[300]).unwrap()[0];
    link(&mut bytes, &map, run);
    let linked = look(&bytes).unwrap();
    assert!(linked.is_chain(run) && linked.are_unowned(&[run]));
    assert_eq!((linked.lost(), linked.free_count().1), (vec![run], false));
    assert_eq!(linked.place(&[300]), Some(vec![run]), "it is used again");
    // In one copy only, as a power cut leaves it.
    for copy in 0..2 {
        let sectors = linked.sectors(copy, run);
        let freed = linked.freed(copy, sectors, &[run]);
        bytes[sectors.offset as usize..][..freed.len()].copy_from_slice(&freed);
        let lost = look(&bytes).unwrap().lost();
        assert_eq!(lost, if copy == 0 { vec![run] } else { vec![] });
    }
    // Clusters of a file are never freed.
    let live = look(&bytes).unwrap();
    let all = Run { first: 2, count: 700 };
    let sectors = live.sectors(0, all);
    assert_eq!(live.freed(0, sectors, &[all]), live.held(0, sectors));
    // The number that is written is the right one.
    let (at, _) = linked.free_count();
    let sector = &mut bytes[at as usize..][..512];
    put_le32(sector, 488, 7);
    assert!(live.count_free(sector));
    assert!(look(&bytes).unwrap().free_count().1);
}

#[test]
fn a_new_entry_is_where_nothing_is_and_in_one_sector() {
    let good = volume();
    let map = look(&good).unwrap();
    assert_eq!(map.missing_directories("slipway/history"), [""; 0]);
    assert_eq!(map.missing_directories("keys/more/file"), ["keys", "keys/more"]);
    assert!(map.has_room("keys/more/file") && !map.has_room("empty/file"), "a file has that name");
    let at = FileAt { cluster: 9, bytes: 700 };
    let entry = |path: &str| map.new_entry(path, Kind::File, at, FatTime(0)).unwrap();
    // A name of 8.3 needs no other; its case does not count.
    assert_eq!((entry("slipway/boot2.env").len(), entry("slipway/other.sha256").len()), (32, 64));
    // And people read it as it is written here.
    let small =
        [("slipway/boot2.env", 0x18), ("slipway/history", 8), ("EFI/BOOT/BOOTAA64.EFI", 0), ("EFI/B.efi", 0x10)];
    small.into_iter().for_each(|(path, bits)| assert_eq!(entry(path)[12], bits, "{path}"));
    let first = map.room("slipway/other.sha256", &[]).unwrap();
    assert_eq!(map.room("slipway/other.sha256", &[first + 32]).unwrap(), first + 64);
    assert!(map.is_room("slipway/other.sha256", first) && !map.is_room("slipway/other.sha256", first - 32));
    // What was written is found, under the whole name.
    let mut bytes = good.clone();
    let mut raw = entry("slipway/other.sha256");
    FileAt { cluster: 0, bytes: 0 }.put_into(&mut raw[32..]);
    bytes[first as usize..][..64].copy_from_slice(&raw);
    assert!(look(&bytes).unwrap().is_there("slipway/other.sha256"));
    // Another file with our short name.
    raw[32..43].copy_from_slice(b"BOOT2   ENV");
    raw[13] = checksum(b"BOOT2   ENV");
    bytes[first as usize..][..64].copy_from_slice(&raw);
    let other = look(&bytes).unwrap();
    assert!(!other.is_there("slipway/boot2.env") && !other.has_room("slipway/boot2.env"));
    // A directory that was zeroed has no entry for itself: nothing is added to it.
    let slipway = map.extent(Run { first: map.directory_at("slipway").unwrap(), count: 1 });
    bytes[slipway.offset as usize..][..64].fill(0);
    let zeroed = look(&bytes).unwrap();
    assert!(!zeroed.has_room("slipway/boot.env") && zeroed.has_room("EFI/more"));
}

#[test]
fn the_first_entry_of_the_root_is_for_the_label() {
    let good = volume();
    let map = look(&good).unwrap();
    let root = map.extent(Run { first: 2, count: 1 }).offset;
    let label = |map: &FatMap, sector: u64| map.label(sector, "EFI", FatTime(0));
    assert_eq!(label(&map, root), None, "it is there");
    let mut bytes = good.clone();
    bytes[root as usize..][..512].fill(0);
    let blank = look(&bytes).unwrap();
    assert_eq!(blank.room("EFI", &[]), Some(root + 32));
    assert!(blank.is_room("EFI", root + 32) && !blank.is_room("EFI", root));
    assert_eq!(label(&blank, root).unwrap(), good[root as usize..][..32]);
    assert_eq!(label(&blank, root + 512), None);
}

#[test]
fn contradictions_are_refused() {
    let good = volume();
    let map = look(&good).unwrap();
    let (first, fats) = (map.file(LOADER).unwrap().runs[0].first as usize, map.fats.clone());
    let damaged = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = good.clone();
        change(&mut bytes);
        look(&bytes).unwrap_err()
    };
    let both = |value: u32| {
        let fats = fats.clone();
        move |bytes: &mut Vec<u8>| fats.iter().for_each(|fat| put_le32(bytes, *fat as usize + (first + 1) * 4, value))
    };
    assert_eq!(
        damaged(&|b| b[fats[1] as usize + first * 4] ^= 1),
        MapError::Damaged("its copies of the FAT differ about a file")
    );
    assert!(matches!(damaged(&both(first as u32)), MapError::Damaged(why) if why.contains("a loop")));
    assert!(matches!(damaged(&both(0)), MapError::Damaged(why) if why.contains("lead out")));
    assert!(matches!(damaged(&both(END_OF_CHAIN)), MapError::Damaged(why) if why.contains("fewer clusters")));
    for (at, value) in [(510, 0), (82, 0), (11, 1), (13, 0), (16, 0), (16, 9), (40, 0x80), (48, 0), (32, 1)] {
        assert!(matches!(damaged(&|b| b[at] = value), MapError::Other(_)), "byte {at} {value}");
    }
    // GRUB and firmware refuse these.
    for at in [17, 19, 21, 22, 42] {
        assert!(matches!(damaged(&|b| b[at] ^= 1), MapError::Damaged(why) if why.contains("boot sector")), "byte {at}");
    }
    let directory = map.directory_at("EFI").unwrap();
    assert_eq!(damaged(&|b| put_le32(b, 44, directory)), MapError::Damaged("its root is another directory"));
    let unread = FatMap::look(LEN, 512, &[], &mut |_, _| false).unwrap_err();
    assert_eq!(unread, MapError::Unreadable(0));
}

/// A read that failed once, or came while another one wrote, is no damage.
#[test]
fn a_boot_sector_that_is_as_its_copy_is_not_lost() {
    let (whole, mut noted, mut damaged) = (volume(), volume(), volume());
    (noted[65], damaged[13]) = (1, 3);
    // For the first so many times, reading the first sector fails, or gives zeros.
    let copy = |volume: &[u8], mut times: u32, is_error: bool| {
        let found = copies::boot_sector_copy(LEN, 512, &mut |offset, buffer| {
            buffer.copy_from_slice(&volume[offset as usize..][..buffer.len()]);
            if offset > 0 || times == 0 {
                return true;
            }
            times -= 1;
            buffer.fill(0);
            !is_error
        });
        found.map(|(from, _)| from.offset)
    };
    for is_error in [true, false] {
        for volume in [&whole, &noted] {
            assert_eq!([0, 1].map(|times| copy(volume, times, is_error)), [None, None], "{is_error}");
        }
        assert_eq!([0, 1, 2].map(|times| copy(&damaged, times, is_error)), [Some(6 * 512); 3], "{is_error}");
        assert_eq!(copy(&whole, 9, is_error), Some(6 * 512), "it stays so");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// For any content of a volume, nothing panics, and clusters for a new file belong to no other file.
    #[test]
    fn damage_never_gives_away_what_a_file_has(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12),
    ) {
        let mut bytes = volume();
        let data = look(&bytes).unwrap().data as usize;
        for (at, value) in changes {
            // The tables and the directories.
            let at = at.index(data + 8192);
            bytes[at] = value;
        }
        if let Ok(map) = look(&bytes)
            && let Some(runs) = map.place(&[100, 1])
        {
            prop_assert!(map.are_unowned(&runs));
            let _ = (map.lost(), map.free_count());
        }
    }
}

/// Which copy of the FAT is damaged, and where: in a volume of which these bytes cannot be read.
#[test]
fn a_fat_that_cannot_be_read_is_a_damaged_one() {
    let bytes = volume();
    let fats = FatMap::places(LEN, 512, &mut |offset, buffer| {
        buffer.copy_from_slice(&bytes[offset as usize..][..buffer.len()]);
        true
    });
    let [first, second] = fats.unwrap()[..] else { panic!("there are two") };
    let damaged = |bad: &[u64]| {
        let differ = copies::differ(LEN, 512, &mut |offset, buffer| {
            let read = offset..offset + buffer.len() as u64;
            buffer.copy_from_slice(&bytes[offset as usize..][..buffer.len()]);
            !bad.iter().any(|at| read.contains(at))
        });
        differ.unwrap().map(|fats| (fats.at, fats.whole.map(|(copy, _)| copy)))
    };
    assert_eq!(damaged(&[]), None);
    for at in [0, 512, first.len - 512] {
        assert_eq!(damaged(&[first.offset + at]), Some((at, Some(1))));
        assert_eq!(damaged(&[second.offset + at]), Some((at, Some(0))));
    }
    assert_eq!(damaged(&[first.offset + 1024, second.offset]), Some((1024, None)));
}
