//! What is no disk, or none to write to, or too small: by one sector, and the smallest that will do.

use std::{fs, os::unix::fs::PermissionsExt as _};

use slipway_core::units::MIB;
use slipway_test_support::{
    exit_code::INSTALL,
    world::{DISK_BYTES, Loop, SLOT_4096, World, json_of, on_disk, partition, refused, refused_on, tool},
};

#[test]
fn a_disk_that_is_not_there() {
    let world = World::new();
    let path = world.path("nosuch");
    world.install(&path, &["--force"]).exits(INSTALL).says(&[path.to_str().unwrap(), "no such file or device"]);
    assert!(!path.exists(), "it was created");
}

#[test]
fn a_directory() {
    let world = World::new();
    let path = world.path("directory");
    fs::create_dir(&path).unwrap();
    let texts = [path.to_str().unwrap(), "it is a directory", "whole disk or an image file"];
    world.install(&path, &["--force"]).exits(INSTALL).says(&texts);
}

#[test]
fn a_partition() {
    let world = World::new();
    let image = world.installed(&[]);
    let state = partition(&image, "STATE");
    let disk = Loop::attach(&image, &[]);
    let node = disk.partition(6, state);
    let whole = disk.node.display();
    let texts = [&format!("it is partition 6 of {whole}"), &format!("name the whole disk, {whole}")];
    refused_on(&disk, INSTALL, &texts.map(String::as_str), || world.install(&node.node, &["--force"]));
}

#[test]
fn a_character_device() {
    let world = World::new();
    let node = world.path("null");
    tool!("mknod", &node, "c", "1", "3");
    let texts = [node.to_str().unwrap(), "neither a block device nor a regular file"];
    world.install(&node, &["--force"]).exits(INSTALL).says(&texts);
}

#[test]
fn a_fifo() {
    let world = World::new();
    let fifo = world.path("fifo");
    tool!("mkfifo", &fifo);
    world.install(&fifo, &["--force"]).exits(INSTALL).says(&["neither a block device nor a regular file"]);
}

/// Root may write to it all the same, so the kernel does not say no.
#[test]
fn a_read_only_image() {
    let world = World::new();
    let image = world.image();
    fs::set_permissions(&image, fs::Permissions::from_mode(0o444)).unwrap();
    refused(&image, INSTALL, &[image.to_str().unwrap(), "read-only"], || world.install(&image, &["--force"]));
}

#[test]
fn a_read_only_device() {
    let world = World::new();
    let disk = Loop::attach(&world.sparse("disk.img", DISK_BYTES), &["--read-only"]);
    let texts = [disk.node.to_str().unwrap(), "read-only"];
    refused_on(&disk, INSTALL, &texts, || world.install(&disk.node, &["--force"]));
}

#[test]
fn a_sector_size_that_is_not_the_disks() {
    let world = World::new();
    let disk = Loop::attach(&world.sparse("disk.img", DISK_BYTES), &[]);
    let texts = ["512 bytes", "4096 of --sector-size"];
    refused_on(&disk, INSTALL, &texts, || world.install(&disk.node, &["--sector-size=4096", SLOT_4096]));
    let disk = Loop::attach(&world.sparse("other.img", DISK_BYTES), &["--sector-size=2048"]);
    let texts = ["2048 bytes, and only 512 and 4096 are supported", "next step: take a disk that has"];
    refused_on(&disk, INSTALL, &texts, || world.install(&disk.node, &[]));
}

/// GPT, ESP, BIOS, two slots, META, STATE and the smallest EPHEMERAL, MiB, and a backup GPT in bytes.
fn needed(slot: u64, ephemeral: u64, sector: u64) -> u64 {
    (1 + 300 + 1 + 2 * slot + 1 + 100 + ephemeral) * MIB + sector + 128 * 128
}

/// What is needed is rounded up: it is enough.
fn short(need: u64, have: u64) -> String {
    let (need, have) = (need.div_ceil(MIB), have / MIB);
    format!("{need} MiB are needed, it has {have} MiB ({} MiB short)", need - have)
}

#[test]
fn one_sector_too_small() {
    let world = World::new();
    for (sector, slot) in [(512, 64), (4096, 260)] {
        let need = needed(slot, 64, sector);
        let (slot, sector_flag) = (format!("--slot-size={slot}MiB"), format!("--sector-size={sector}"));
        let flags = [slot.as_str(), sector_flag.as_str()];

        let image = world.sparse("short.img", need - sector);
        let numbers = short(need, need - sector);
        let texts = ["too small", &numbers, "1 MiB META", "64 MiB EPHEMERAL"];
        refused(&image, INSTALL, &texts, || world.install(&image, &flags));
        // What does not make a sector does not count.
        fs::OpenOptions::new().write(true).open(&image).unwrap().set_len(need - 1).unwrap();
        refused(&image, INSTALL, &texts, || world.install(&image, &flags));

        for enough in [need, need + sector - 1] {
            let image = world.sparse("enough.img", enough);
            world.install(&image, &flags).succeeds();
            on_disk(&image, &["verify"]).succeeds();
            assert_eq!(json_of(&image, &["status"])["problems"], serde_json::json!([]));
        }
    }
}

#[test]
fn an_empty_file() {
    let world = World::new();
    let image = world.sparse("empty.img", 0);
    refused(&image, INSTALL, &["too small", "it has 0 MiB"], || world.install(&image, &[]));
}

/// A real disk needs 2 GiB of EPHEMERAL: it does not grow later.
#[test]
fn one_sector_too_small_for_a_real_disk() {
    let world = World::new();
    let need = needed(64, 2048, 512);
    let disk = Loop::attach(&world.sparse("short.img", need - 512), &[]);
    let texts = [&short(need, need - 512), "2 GiB EPHEMERAL"];
    refused_on(&disk, INSTALL, &texts, || world.install(&disk.node, &[]));

    let disk = Loop::attach(&world.sparse("enough.img", need), &[]);
    world.install(&disk.node, &[]).succeeds();
    on_disk(&disk.node, &["verify"]).succeeds();
}
