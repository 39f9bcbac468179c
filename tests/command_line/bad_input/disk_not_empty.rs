//! Not empty: refused without --force, installed with it.

use std::{fs, path::Path};

use slipway_core::units::MIB;
use slipway_test_support::{
    exit_code::{INPUT, INSTALL},
    world::{
        Content, IMAGE_BYTES, IMAGE_BYTES_4096, Loop, Mount, Outcome, Payload, SLOT_4096, World, finished, flip,
        installer, json_of, on_disk, partition, program, refused, tool, write_at,
    },
};

#[track_caller]
fn needs_force(what: &str, put: impl FnOnce(&World, &Path)) {
    let world = World::new();
    let image = world.image();
    put(&world, &image);
    refused(&image, INSTALL, &["not empty", what, "--force overwrites it"], || world.install(&image, &[]));
    let report = world.install(&image, &["--force", "--output=json"]).succeeds().json();
    let warnings = report["plan"]["warnings"].to_string();
    assert!(warnings.contains(&format!("overwrites {what}")), "{warnings}");
    on_disk(&image, &["verify"]).succeeds();
}

#[test]
fn an_mbr() {
    needs_force("an MBR partition table", |_, image| dos_label(image));
}

fn dos_label(image: &Path) {
    let script = "label: dos\nstart=2048, size=204800, type=83\n";
    finished(program("sfdisk").args(["--quiet", "--wipe", "never"]).arg(image).write_stdin(script));
}

#[test]
fn an_ext4() {
    needs_force("an ext2/3/4 file system", |_, image| drop(tool!("mkfs.ext4", "-q", "-F", image)));
}

#[test]
fn an_xfs() {
    needs_force("an XFS file system", |_, image| drop(tool!("mkfs.xfs", "-q", image)));
}

#[test]
fn a_fat() {
    needs_force("a FAT file system", |_, image| drop(tool!("mkfs.vfat", "-F", "32", image)));
}

#[test]
fn swap_space() {
    needs_force("swap space", |_, image| drop(tool!("mkswap", "--quiet", image)));
}

#[test]
fn a_squashfs() {
    needs_force("a squashfs", |world, image| {
        let squashfs = world.path("x.squashfs");
        tool!("mksquashfs", world.payload.dir(), &squashfs, "-quiet", "-no-progress");
        write_at(image, 0, &fs::read(squashfs).unwrap());
    });
}

#[test]
fn a_byte_at_the_very_end() {
    let last = IMAGE_BYTES - 1;
    needs_force(&format!("data at byte {last}"), |_, image| write_at(image, last, &[1]));
}

#[test]
fn a_byte_in_the_first_mebibyte() {
    let last = MIB - 1;
    needs_force(&format!("data at byte {last}"), |_, image| write_at(image, last, &[1]));
}

#[test]
fn a_slipway_disk() {
    let what = "a GPT with 7 partitions: EFI, BIOS, BOOT-A, BOOT-B, META, STATE, EPHEMERAL";
    needs_force(what, |world, image| drop(world.install(image, &[]).succeeds()));
}

/// The label of the other sector size lies elsewhere. It counts as well, and none of it stays behind.
#[test]
fn a_slipway_disk_with_other_sectors() {
    const SIZES: [(u64, &str); 2] = [(512, "--sector-size=512"), (4096, "--sector-size=4096")];
    for ((other, old), (sector, new)) in [(SIZES[0], SIZES[1]), (SIZES[1], SIZES[0])] {
        let world = World::new();
        let image = world.sparse("disk.img", IMAGE_BYTES_4096);
        world.install(&image, &[old, SLOT_4096]).succeeds();
        let sizes = format!("for sectors of {other} bytes, and here the disk has sectors of {sector} bytes");
        refused(&image, INSTALL, &["not empty", "a partition table", &sizes], || {
            world.install(&image, &[new, SLOT_4096])
        });
        write_at(&image, other, &[0; 512]);
        refused(&image, INSTALL, &["not empty", "the second copy of a partition table", &sizes], || {
            world.install(&image, &[new, SLOT_4096])
        });
        world.install(&image, &[new, SLOT_4096, "--force"]).succeeds();
        let status = json_of(&image, &["status"]);
        assert_eq!((&status["sector_bytes"], &status["problems"]), (&sector.into(), &serde_json::json!([])));
        on_disk(&image, &["verify"]).succeeds();
    }
}

#[test]
fn a_backup_table_without_a_primary() {
    needs_force("a Slipway system: LBA 0 is lost", |world, image| {
        world.install(image, &[]).succeeds();
        write_at(image, 0, &vec![0; MIB as usize]);
    });
}

#[test]
fn a_gpt_with_a_damaged_header() {
    needs_force(
        "a Slipway system: the partition table is damaged (both copies of it are lost: primary: GPT header CRC is wrong",
        |world, image| {
            world.install(image, &[]).succeeds();
            for header in [512, IMAGE_BYTES - 512] {
                flip(image, header + 16);
            }
            no_status(image, "GPT header CRC is wrong");
        },
    );
}

#[test]
fn a_gpt_with_damaged_entries() {
    needs_force(
        "a Slipway system: the partition table is damaged (both copies of it are lost: primary: GPT partition entry array CRC is wrong",
        |world, image| {
            world.install(image, &[]).succeeds();
            for entries in [1024, IMAGE_BYTES - 512 - 128 * 128] {
                flip(image, entries + 60);
            }
            no_status(image, "GPT partition entry array CRC is wrong");
        },
    );
}

/// With the primary and the backup damaged, there is no table to go by.
#[track_caller]
fn no_status(image: &Path, why: &str) {
    let texts = [image.to_str().unwrap(), &format!("primary: {why}"), &format!("backup: {why}")];
    for verb in [&["status"][..], &["verify"], &["meta", "list"], &["meta", "set", "10=x"]] {
        refused(image, INSTALL, &texts, || on_disk(image, verb));
    }
}

/// One damaged table is a problem to report; the other one will do.
#[test]
fn one_damaged_gpt_is_reported_by_status() {
    let world = World::new();
    let image = world.installed(&[]);
    for (at, problem) in [
        (512 + 16, "the primary GPT is damaged (GPT header CRC is wrong"),
        (1024 + 60, "the primary GPT is damaged (GPT partition entry array CRC is wrong"),
        (IMAGE_BYTES - 512 + 16, "the backup GPT is damaged: GPT header CRC is wrong"),
        (IMAGE_BYTES - 512 - 128 * 128 + 60, "the backup GPT is damaged: GPT partition entry array CRC is wrong"),
    ] {
        flip(&image, at);
        let problems = json_of(&image, &["status"])["problems"].to_string();
        assert!(problems.contains(problem), "{problems}");
        assert!(on_disk(&image, &["status"]).exits(INSTALL).stdout.contains(problem));
        flip(&image, at);
    }
    assert_eq!(json_of(&image, &["status"])["problems"], serde_json::json!([]));
}

/// A GPT without partitions is nothing to lose.
#[test]
fn an_empty_gpt_is_empty() {
    let world = World::new();
    let image = world.image();
    tool!("sgdisk", "--clear", &image);
    world.install(&image, &[]).succeeds();
}

/// An older label left behind an MBR does not count: without a protective MBR the MBR's partitions are
/// the disk's.
#[test]
fn an_mbr_in_front_of_a_stale_empty_gpt() {
    needs_force("an MBR partition table", |_, image| {
        tool!("sgdisk", "--clear", image);
        dos_label(image);
    });
}

/// --force does not make a disk larger, so it is not advised.
#[test]
fn one_that_is_too_small_is_told_its_size() {
    let world = World::new();
    let image = world.sparse("small.img", 300 * MIB);
    dos_label(&image);
    let before = Content::of(&image);
    let said = world.install(&image, &[]).exits(INSTALL).says(&["the disk is too small", "take a larger one"]).stderr;
    assert!(!said.contains("--force") && !said.contains("not empty"), "{said}");
    assert!(Content::of(&image) == before);
}

/// A payload is not read for a refusal that is certain without it.
#[test]
fn the_payload_is_not_read_before_that_is_said() {
    let world = World::new();
    let image = world.image();
    dos_label(&image);
    world.payload.checksum().succeeds();
    // Only reading all of it finds that.
    flip(&world.payload.dir().join(Payload::ROOTFS), 30_000);
    world.install(&image, &["--force"]).exits(INPUT).says(&[Payload::ROOTFS]);
    world.install(&image, &[]).exits(INSTALL).says(&["not empty"]);
}

#[test]
fn disks_that_are_not_ours() {
    let world = World::new();
    let image = world.image();
    let verbs = [&["status"][..], &["verify"], &["meta", "list"], &["meta", "set", "10=x"], &["meta", "delete", "10"]];
    for verb in verbs {
        let texts =
            ["no Slipway system is found on it (`lsblk` lists the disks)", "no partition table", "protective MBR"];
        let before = Content::of(&image);
        let said = on_disk(&image, verb).exits(INSTALL).says(&texts).stderr;
        assert!(!said.contains("installer inspect"), "it cannot draw that: {said}");
        assert!(Content::of(&image) == before);
    }
    // That has partitions.
    dos_label(&image);
    let hint = format!("`installer inspect {}` shows what is there, `lsblk` lists the disks", image.display());
    for verb in verbs {
        refused(&image, INSTALL, &[&hint, "not a Slipway disk", "an MBR partition table"], || on_disk(&image, verb));
    }
    Outcome::of(installer(["inspect"]).arg(&image)).succeeds();
    write_at(&image, 0, &[0; 512]);
    tool!("sgdisk", "--new=1:2048:+1M", "--change-name=1:EFI", &image);
    for verb in verbs {
        refused(&image, INSTALL, &["`installer inspect ", "not a Slipway disk"], || on_disk(&image, verb));
    }
}

/// What begins where a first partition usually does.
#[test]
fn an_ext4_whose_table_was_erased() {
    needs_force("an ext2/3/4 file system at byte 1048576, without a partition table", |_, image| {
        dos_label(image);
        tool!("mkfs.ext4", "-q", "-F", "-E", "offset=1048576", image, "100M");
        write_at(image, 0, &[0; 512]);
    });
}

const ERASED: &str = "a Slipway system: the partition table is damaged (both copies of it are lost: primary: no GPT \
                      signature; backup: no GPT signature); what it held is known";

/// Both tables and LBA 0 are gone, as `sgdisk --zap-all` leaves a disk.
fn erase_tables(image: &Path) {
    tool!("sgdisk", "--zap-all", image);
}

#[test]
fn a_slipway_disk_whose_table_was_erased() {
    needs_force(ERASED, |world, image| {
        world.install(image, &[]).succeeds();
        on_disk(image, &["bootloader", "menu", "off"]).succeeds();
        erase_tables(image);
        on_disk(image, &["status"]).exits(INSTALL).says(&["both copies of it are lost"]);
    });
}

#[test]
fn a_slipway_disk_with_data_whose_table_was_erased() {
    needs_force(ERASED, |world, image| {
        world.install(image, &["--format-data=true"]).succeeds();
        let state = partition(image, "STATE");
        let disk = Loop::attach(image, &[]);
        drop(Mount::new(&disk.partition(6, state).node, world.path("state")));
        drop(disk);
        erase_tables(image);
    });
}

/// As an installation leaves it that was cut off before its first slot was whole: that begins anew. What is whole may be a disk
/// that was handed out and not booted yet.
#[test]
fn an_install_that_has_not_ended_begins_anew() {
    for data in ["--format-data=true", "--format-data=false"] {
        needs_force(ERASED, |world, image| {
            world.install(image, &[data]).succeeds();
            erase_tables(image);
        });
        let world = World::new();
        let image = world.installed(&[data]);
        let slot = partition(&image, "BOOT-A").offset;
        erase_tables(&image);
        write_at(&image, slot, &[0; 4096]);
        on_disk(&image, &["status"]).exits(INSTALL).says(&["an installation on it has not ended"]);
        world.install(&image, &[data]).succeeds();
    }
}
