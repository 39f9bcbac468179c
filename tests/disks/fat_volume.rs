//! Any set of files becomes a FAT file system that others read.

use std::{collections::BTreeMap, path::Path, time::Duration};

use proptest::{prelude::*, sample::Index};
use slipway::{
    device::{Access, BlockIo as _, Disk as OpenDisk},
    fat::FatVolume,
};
use slipway_core::{
    disk::fat::{FatTime, FileSpec, VolumeLayout, VolumeSpec},
    units::{Extent, MIB, SectorSize},
};
use slipway_test_support::world::{Range, World, assert_clean_fat, extract, noise, write_at};

use crate::fat_reader::{Window, all_files};

/// Sizes around the borders of clusters, and others.
#[derive(Clone, Debug)]
enum Size {
    Bytes(u64),
    Clusters { count: u64, plus: i64 },
}

impl Size {
    fn bytes(&self, cluster: u64) -> u64 {
        match self {
            Size::Bytes(bytes) => *bytes,
            Size::Clusters { count, plus } => (count * cluster).saturating_add_signed(*plus),
        }
    }
}

fn size() -> impl Strategy<Value = Size> {
    prop_oneof![
        Just(Size::Bytes(0)),
        Just(Size::Bytes(1)),
        (1..4_u64, -1..=1_i64).prop_map(|(count, plus)| Size::Clusters { count, plus }),
        (0..300_000_u64).prop_map(Size::Bytes),
    ]
}

/// Names in the 8.3 form and out of it, that share a beginning, with characters of one to three bytes. None has a
/// `~`: the layout refuses a name that another's alias has taken already.
fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        "[A-Z0-9_]{1,8}(\\.[A-Z0-9]{1,3})?",
        "[a-z0-9]{1,8}(\\.[a-z]{1,3})?",
        "initramfs[a-z]{0,3}\\.(xz|zst|img)",
        "[a-zA-Z0-9äößé漢字 ._+,;=\\[\\]-]{1,60}",
        "[a-z]{13}([a-z]{13})?",
        "[a-z.]{200,240}",
    ]
    .prop_filter("FAT knows no such name", |name| !name.ends_with(['.', ' ']) && !name.starts_with(' '))
}

/// Paths of files in directories up to three deep; some share a directory.
fn paths() -> impl Strategy<Value = Vec<(String, Size)>> {
    let dirs = prop::collection::vec(prop::collection::vec(name(), 1..=3), 1..5);
    let files = prop::collection::vec((name(), size(), any::<Index>(), any::<bool>()), 0..50);
    (dirs, files).prop_map(|(dirs, files)| {
        let place = |(name, size, dir, in_root): (String, Size, Index, bool)| {
            let dir = if in_root { String::new() } else { dir.get(&dirs).join("/") + "/" };
            (dir + &name, size)
        };
        without_clashes(files.into_iter().map(place))
    })
}

/// Drop what FAT cannot hold side by side: names that differ in case only, and a file with a directory's name.
fn without_clashes(files: impl Iterator<Item = (String, Size)>) -> Vec<(String, Size)> {
    let mut taken: BTreeMap<String, (String, bool)> = BTreeMap::new();
    let mut kept = Vec::new();
    for (path, size) in files {
        let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
        let nodes: Vec<_> = ends.map(|end| (path[..end].to_owned(), end < path.len())).collect();
        let free = nodes.iter().all(|(node, is_dir)| match taken.get(&node.to_lowercase()) {
            Some(same) => *is_dir && *same == (node.clone(), true),
            None => true,
        });
        if free {
            taken.extend(nodes.into_iter().map(|(node, is_dir)| (node.to_lowercase(), (node, is_dir))));
            kept.push((path, size));
        }
    }
    kept
}

/// Size of a volume in MiB that is legal FAT32 with these sectors.
fn volume() -> impl Strategy<Value = (SectorSize, u64)> {
    prop_oneof![
        3 => (36..=80_u64).prop_map(|mib| (SectorSize::S512, mib)),
        1 => (260..=300_u64).prop_map(|mib| (SectorSize::S4096, mib)),
    ]
}

/// Write a volume the way the executor does, over what was there before.
fn write_volume(
    image: &Path,
    extent: Extent,
    sector: SectorSize,
    files: &[(String, Size)],
) -> BTreeMap<String, Vec<u8>> {
    let specs = |files: Vec<FileSpec>| VolumeSpec {
        label: "TEST".to_owned(),
        serial: 0x1234_5678,
        time: FatTime(1_800_000_000),
        files,
    };
    let probe = specs(vec![FileSpec { path: "x".to_owned(), size: 1 }]);
    let cluster = VolumeLayout::new(extent, sector, &probe).unwrap().files[0].padded;
    let sized = files.iter().map(|(path, size)| FileSpec { path: path.clone(), size: size.bytes(cluster) });
    let layout = VolumeLayout::new(extent, sector, &specs(sized.collect())).unwrap();

    let disk = OpenDisk::open(image, Access::Whole, Some(sector), Duration::ZERO).unwrap();
    let mut contents = BTreeMap::new();
    for (seed, file) in (1..).zip(&layout.files) {
        let content = noise(seed, file.size as usize);
        let mut padded = content.clone();
        padded.resize(file.padded as usize, 0);
        disk.write_at(extent.offset + file.offset, &padded).unwrap();
        contents.insert(file.path.clone(), content);
    }
    for (offset, bytes) in &layout.metadata {
        disk.write_at(extent.offset + offset, bytes).unwrap();
    }
    disk.write_at(extent.offset, &layout.boot_sector).unwrap();
    disk.sync().unwrap();
    contents
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_files_are_read_back_by_all((sector, mib) in volume(), files in paths()) {
        let world = World::new();
        let extent = Extent { offset: MIB, len: mib * MIB };
        let image = world.sparse("volume.img", extent.end() + MIB);
        // FAT, directories and the first clusters lie where something else lay before.
        write_at(&image, extent.offset, &noise(mib, 3 * MIB as usize));
        let written = write_volume(&image, extent, sector, &files);

        let range = Range { offset: extent.offset, len: extent.len };
        let volume = fatfs::FileSystem::new(Window::open(&image, range), fatfs::FsOptions::new()).unwrap();
        prop_assert!(all_files(&volume) == written, "the fatfs crate reads other files");

        let disk = OpenDisk::open(&image, Access::Read, Some(sector), Duration::ZERO).unwrap();
        let volume = FatVolume::open(&disk, extent).unwrap();
        for (path, content) in &written {
            let found = volume.read_small(path, 1 << 20).unwrap();
            prop_assert!(found.as_ref() == Some(content), "{path} differs");
            let file = volume.find(path).unwrap().unwrap();
            prop_assert!(file.extents.len() <= 1, "{path} is not in one piece");
        }
        let in_root = volume.root_files().unwrap().into_iter().map(|(name, _)| name);
        let mut in_root: Vec<String> = in_root.collect();
        in_root.sort_unstable();
        prop_assert_eq!(in_root, written.keys().filter(|p| !p.contains('/')).cloned().collect::<Vec<_>>());

        let alone = world.path("volume");
        extract(&image, range, &alone);
        assert_clean_fat(&alone);
    }
}
