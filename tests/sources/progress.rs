//! What is told of the progress of a check.

use std::fs;

use slipway::payload::{ChecksumPolicy, Source, image::Inspection, registry::Options};
use slipway_core::kernel::arch::Arch;
use slipway_test_support::{
    files::squashfs,
    images::{Layout, Pack, built},
    world::World,
};

/// The bytes that a check of this source says it has, and those that it tells of as it goes on.
fn told(source: &str) -> (u64, u64) {
    let mut source = Source::open(&source.parse().unwrap(), Arch::Amd64, &Options::default()).unwrap();
    let mut sum = 0;
    source.facts(ChecksumPolicy::Compared, Inspection::Everything, &mut |bytes| sum += bytes).unwrap();
    (source.bytes(Inspection::Everything), sum)
}

/// A layer that was compressed has fewer bytes than its files, and a link fewer than what it names.
#[test]
fn a_check_tells_of_all_bytes_and_no_more() {
    let world = World::new();
    fs::write(world.payload.dir().join("rootfs.squashfs"), squashfs(vec![7; 3 << 20])).unwrap();
    world.payload.checksum().succeeds();
    for pack in Pack::ALL {
        let layout = Layout::new(&world.path(&format!("{pack:?}")));
        built(world.payload.dir(), pack).write(&layout, "1");
        let (all, sum) = told(&layout.source());
        assert_eq!(sum, all, "{pack:?}");
    }
    let links = world.path("links");
    fs::create_dir(&links).unwrap();
    for entry in fs::read_dir(world.payload.dir()).unwrap() {
        let path = entry.unwrap().path();
        std::os::unix::fs::symlink(&path, links.join(path.file_name().unwrap())).unwrap();
    }
    for dir in [world.payload.dir(), &links] {
        let (all, sum) = told(&format!("dir:{}", dir.display()));
        assert!(sum <= all && sum > all * 9 / 10, "{}: {sum} of {all}", dir.display());
    }
}
