//! Disks, payloads and arguments that must be refused: with the exit code of the public table, with a text
//! that names what is wrong, by how much and what helps, and without a byte written.
//!
//! Not exercised, for want of a kernel that has them: disks held by device mapper or md.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    missing_docs,
    reason = "tests"
)]

mod world;

use std::{
    ffi::OsStr,
    fs::{self, OpenOptions},
    io::Write as _,
    os::unix::ffi::OsStrExt as _,
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    time::Duration,
};

use assert_cmd::Command;
use flate2::{Compression, write::GzEncoder};
use nix::{
    fcntl::{Flock, FlockArg},
    libc,
};
use slipway::{
    bootloader::Assets,
    device::{Access, Disk},
    payload::{DirSource, Sums, image::Inspection},
    probe,
};
use slipway_core::{
    payload::manifest::{Arch, KernelArgs},
    plan::{self, Ids, InstallRequest},
    report::FailureKind,
    units::MIB,
};
use uuid::Uuid;
use world::{
    Content, DISK_BYTES, IMAGE_BYTES, IMAGE_BYTES_4096, Loop, Mount, Outcome, Payload, SLOT, SLOT_4096, SmallFs, Swap,
    World, assert_clean_fat, assets, extract, finished, flip, installer, installer_in, json_of, noise, on_disk,
    partition, program, real_kernel, tool, wait_until_unclaimed, write_at,
};

/// Exit codes of the public table.
const OTHER: i32 = 1;
const INPUT: i32 = 2;
const ENVIRONMENT: i32 = 4;
const DEPENDENCY: i32 = 5;
const INSTALL: i32 = 7;

/// The promise of every test here: refused with this exit code and these words, and not a byte written.
#[track_caller]
fn refused(disk: &Path, code: i32, texts: &[&str], attempt: impl FnOnce() -> Outcome) {
    let before = Content::of(disk);
    attempt().exits(code).says(texts);
    assert!(Content::of(disk) == before, "{} was written to", disk.display());
}

/// The same for a block device.
#[track_caller]
fn refused_on(disk: &Loop, code: i32, texts: &[&str], attempt: impl FnOnce() -> Outcome) {
    let before = disk.content();
    attempt().exits(code).says(texts);
    assert!(disk.content() == before, "{} was written to", disk.node.display());
}

// ---------------------------------------------------------------------------------------------------
// What is no disk, or none to write to.

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
}

// ---------------------------------------------------------------------------------------------------
// Too small, by one sector; and the smallest that will do.

/// Gpt, ESP, BIOS, two slots, META, STATE and the smallest EPHEMERAL, MiB, and a backup label in bytes.
fn needed(slot: u64, ephemeral: u64, sector: u64) -> u64 {
    (1 + 300 + 1 + 2 * slot + 1 + 100 + ephemeral) * MIB + sector + 128 * 128
}

#[test]
fn one_sector_too_small() {
    let world = World::new();
    for (sector, slot) in [(512, 64), (4096, 260)] {
        let need = needed(slot, 64, sector);
        let (slot, sector_flag) = (format!("--slot-size={slot}MiB"), format!("--sector-size={sector}"));
        let flags = [slot.as_str(), sector_flag.as_str()];

        let image = world.sparse("short.img", need - sector);
        let numbers = format!("it has {} bytes ({sector} short)", need - sector);
        let texts = ["too small", &format!("{need} bytes are needed"), &numbers, "1 MiB META", "64 MiB EPHEMERAL"];
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
    refused(&image, INSTALL, &["too small", "it has 0 bytes"], || world.install(&image, &[]));
}

/// A real disk needs 2 GiB of EPHEMERAL: nobody grows it later.
#[test]
fn one_sector_too_small_for_a_real_disk() {
    let world = World::new();
    let need = needed(64, 2048, 512);
    let disk = Loop::attach(&world.sparse("short.img", need - 512), &[]);
    let texts = [&need.to_string(), &(need - 512).to_string(), "2 GiB EPHEMERAL"];
    refused_on(&disk, INSTALL, &texts, || world.install(&disk.node, &[]));

    let disk = Loop::attach(&world.sparse("enough.img", need), &[]);
    world.install(&disk.node, &[]).succeeds();
    on_disk(&disk.node, &["verify"]).succeeds();
}

// ---------------------------------------------------------------------------------------------------
// In use: refused whatever the flags say.

/// A disk with a system on it and a node for its STATE.
fn disk_with_state(world: &World) -> (Loop, world::Range) {
    let file = world.sparse("disk.img", DISK_BYTES);
    let disk = Loop::attach(&file, &[]);
    world.install(&disk.node, &["--format-data=true"]).succeeds();
    let state = partition(&disk.node, "STATE");
    (disk, state)
}

#[test]
fn a_mounted_partition() {
    let world = World::new();
    let (disk, state) = disk_with_state(&world);
    let node = disk.partition(6, state);
    let mount = Mount::new(&node.node, world.path("state"));
    for flag in ["--force", "--zero", "--force=false", "--dry-run"] {
        let texts = [node.node.to_str().unwrap(), "mounted on", mount.point.to_str().unwrap()];
        refused_on(&disk, INSTALL, &texts, || world.install(&disk.node, &[flag]));
    }
}

/// The image file of a disk is the disk.
#[test]
fn an_image_with_a_mounted_partition() {
    let world = World::new();
    let (disk, state) = disk_with_state(&world);
    let node = disk.partition(6, state);
    let mount = Mount::new(&node.node, world.path("state"));
    let texts = ["in use", disk.node.to_str().unwrap(), "mounted on", mount.point.to_str().unwrap()];
    refused_on(&disk, INSTALL, &texts, || world.install(&world.path("disk.img"), &["--force"]));
}

/// What neither moves nor rewrites what is in use goes on working beside it.
#[test]
fn a_disk_in_use_can_be_looked_at() {
    let world = World::new();
    let (disk, state) = disk_with_state(&world);
    let node = disk.partition(6, state);
    let mount = Mount::new(&node.node, world.path("state"));
    fs::write(mount.point.join("file"), "content").unwrap();
    for verb in [&["status"][..], &["verify"], &["meta", "set", "10=x"], &["meta", "get", "10"], &["meta", "list"]] {
        on_disk(&disk.node, verb).succeeds();
    }
}

#[test]
fn a_partition_used_as_swap() {
    let world = World::new();
    let (disk, state) = disk_with_state(&world);
    let node = disk.partition(6, state);
    let swap = Swap::on(&node.node);
    // The kernel may write to its swap at any time.
    let before = disk.content().without(state);
    world.install(&disk.node, &["--force"]).exits(INSTALL).says(&[node.node.to_str().unwrap(), "swap"]);
    assert!(disk.content().without(state) == before, "{} was written to", disk.node.display());
    drop(swap);
    world.install(&disk.node, &["--force"]).succeeds();
}

#[test]
fn a_partition_attached_to_a_loop_device() {
    let world = World::new();
    let (disk, state) = disk_with_state(&world);
    let node = disk.partition(6, state);
    let other = Loop::attach(&node.node, &[]);
    let texts = ["in use", node.node.to_str().unwrap(), "attached to", other.node.to_str().unwrap(), "detach it first"];
    refused_on(&disk, INSTALL, &texts, || world.install(&disk.node, &["--force"]));
    drop(other);
    world.install(&disk.node, &["--force"]).succeeds();
}

#[test]
fn an_image_attached_to_a_loop_device() {
    let world = World::new();
    let image = world.image();
    let other = Loop::attach(&image, &[]);
    let texts = ["in use", image.to_str().unwrap(), "attached to", other.node.to_str().unwrap()];
    refused(&image, INSTALL, &texts, || world.install(&image, &["--force"]));
    drop(other);
    world.install(&image, &[]).succeeds();
}

/// The same file by another name: a hard link here, a bind mount in a container.
#[test]
fn an_image_attached_by_another_name() {
    let world = World::new();
    let image = world.image();
    let other_name = world.path("other-name.img");
    fs::hard_link(&image, &other_name).unwrap();
    let other = Loop::attach(&other_name, &[]);
    let texts = ["in use", other.node.to_str().unwrap()];
    refused(&image, INSTALL, &texts, || world.install(&image, &["--force"]));
}

// ---------------------------------------------------------------------------------------------------
// Locked by another installer.

/// The lock the installer takes, held by this process.
fn lock(disk: &Path, flags: libc::c_int) -> Flock<fs::File> {
    let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(disk).unwrap();
    Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, e)| e).unwrap()
}

const IMPATIENT: &str = "--lock-timeout=0.2";

#[test]
fn an_image_locked_by_another_process() {
    let world = World::new();
    let image = world.installed(&[]);
    let lock = lock(&image, 0);
    let who = format!("process {}", std::process::id());
    let texts = [image.to_str().unwrap(), "locked by", &who];
    refused(&image, INSTALL, &texts, || world.install(&image, &["--force", IMPATIENT]));
    for verb in [&["status"][..], &["verify"], &["meta", "list"], &["meta", "set", "10=x"]] {
        refused(&image, INSTALL, &texts, || on_disk(&image, &[verb, &[IMPATIENT]].concat()));
    }
    drop(lock);
    world.install(&image, &["--force", IMPATIENT]).succeeds();
}

/// What another installer holds on a block device: the lock, and the kernel's claim.
#[test]
fn a_device_locked_by_another_installer() {
    let world = World::new();
    let disk = Loop::attach(&world.sparse("disk.img", DISK_BYTES), &[]);
    let claim = lock(&disk.node, libc::O_EXCL);
    let who = format!("process {}", std::process::id());
    let texts = [disk.node.to_str().unwrap(), "locked by", &who];
    refused_on(&disk, INSTALL, &texts, || world.install(&disk.node, &["--force", IMPATIENT]));
    drop(claim);
    // Programs that other tests are just starting inherit it for a moment.
    wait_until_unclaimed(&disk.node);
    world.install(&disk.node, &[IMPATIENT]).succeeds();
}

#[test]
fn a_lock_is_waited_for() {
    let world = World::new();
    let image = world.image();
    let lock = lock(&image, 0);
    let release = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        drop(lock);
    });
    world.install(&image, &["--lock-timeout=30"]).succeeds();
    release.join().unwrap();
}

// ---------------------------------------------------------------------------------------------------
// Not empty: refused without --force, installed with it.

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
    for ((_, old), (sector, new)) in [(SIZES[0], SIZES[1]), (SIZES[1], SIZES[0])] {
        let world = World::new();
        let image = world.sparse("disk.img", IMAGE_BYTES_4096);
        world.install(&image, &[old, SLOT_4096]).succeeds();
        let texts = ["not empty", "a protective MBR without a GPT behind it"];
        refused(&image, INSTALL, &texts, || world.install(&image, &[new, SLOT_4096]));
        world.install(&image, &[new, SLOT_4096, "--force"]).succeeds();
        let status = json_of(&image, &["status"]);
        assert_eq!((&status["sector_bytes"], &status["problems"]), (&sector.into(), &serde_json::json!([])));
        on_disk(&image, &["verify"]).succeeds();
    }
}

#[test]
fn a_backup_table_without_a_primary() {
    let first = IMAGE_BYTES - 512 - 128 * 128;
    needs_force(&format!("data at byte {first}"), |world, image| {
        world.install(image, &[]).succeeds();
        write_at(image, 0, &vec![0; MIB as usize]);
    });
}

#[test]
fn a_gpt_with_a_damaged_header() {
    needs_force("a damaged partition table (GPT header CRC is wrong", |world, image| {
        world.install(image, &[]).succeeds();
        for header in [512, IMAGE_BYTES - 512] {
            flip(image, header + 16);
        }
        no_status(image, "GPT header CRC is wrong");
    });
}

#[test]
fn a_gpt_with_damaged_entries() {
    needs_force("a damaged partition table (GPT partition entry array CRC is wrong", |world, image| {
        world.install(image, &[]).succeeds();
        for entries in [1024, IMAGE_BYTES - 512 - 128 * 128] {
            flip(image, entries + 60);
        }
        no_status(image, "GPT partition entry array CRC is wrong");
    });
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
        assert!(on_disk(&image, &["status"]).succeeds().stdout.contains(problem));
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

/// An older label left behind an MBR counts for nobody: without a protective MBR the MBR's partitions are
/// the disk's.
#[test]
fn an_mbr_in_front_of_a_stale_empty_gpt() {
    needs_force("an MBR partition table", |_, image| {
        tool!("sgdisk", "--clear", image);
        dos_label(image);
    });
}

#[test]
fn disks_that_are_not_ours() {
    let world = World::new();
    let image = world.image();
    let verbs = [&["status"][..], &["verify"], &["meta", "list"], &["meta", "set", "10=x"], &["meta", "delete", "10"]];
    for verb in verbs {
        refused(&image, INSTALL, &["no partition table", "protective MBR"], || on_disk(&image, verb));
    }
    tool!("sgdisk", "--new=1:2048:+1M", "--change-name=1:EFI", &image);
    for verb in verbs {
        refused(&image, INSTALL, &["not a Slipway disk"], || on_disk(&image, verb));
    }
}

// ---------------------------------------------------------------------------------------------------
// Payloads.

/// Install a payload that was spoilt: wrong input, whatever the disk.
#[track_caller]
fn bad_payload(flags: &[&str], texts: &[&str], spoil: impl FnOnce(&Payload)) {
    let world = World::new();
    let image = world.image();
    spoil(&world.payload);
    refused(&image, INPUT, texts, || world.install(&image, flags));
    if flags.iter().all(|flag| *flag == "--strict") {
        let inspect = ["inspect", &world.payload.source()].map(str::to_owned);
        Outcome::of(installer(inspect).args(flags)).exits(INPUT).says(texts);
    }
}

#[test]
fn no_payload_directory() {
    let world = World::new();
    let image = world.image();
    let nosuch = world.path("nosuch");
    let source = format!("--source=dir:{}", nosuch.display());
    refused(&image, INPUT, &[nosuch.to_str().unwrap(), "missing"], || world.install(&image, &[&source]));
}

#[test]
fn a_missing_file() {
    for name in [Payload::KERNEL, Payload::INITRAMFS] {
        bad_payload(&[], &[&format!("payload/{name}: missing"), "a payload has vmlinuz"], |p| p.remove(name));
    }
}

/// Some systems carry their root file system in the initramfs.
#[test]
fn a_payload_needs_no_rootfs() {
    let world = World::new();
    world.payload.remove(Payload::ROOTFS);
    let image = world.installed(&[]);
    on_disk(&image, &["verify"]).succeeds();
}

#[test]
fn an_empty_payload_file() {
    for (name, text) in [
        // Of these two, that they are not what their names say is found first, and as good.
        (Payload::KERNEL, "vmlinuz: "),
        (Payload::ROOTFS, "rootfs.squashfs: "),
        (Payload::INITRAMFS, "initramfs.xz: empty (0 bytes)"),
    ] {
        bad_payload(&[], &[text], |p| p.resize(name, 0));
    }
}

#[test]
fn a_kernel_that_is_none() {
    let with = |at: usize, magic: &[u8]| {
        let mut file = noise(9, 40_000);
        file[at..at + magic.len()].copy_from_slice(magic);
        file
    };
    // A boot sector; half of the header; a file that ends before it.
    let (boot_sector, half) = (with(0x1fe, &[0x55, 0xaa]), with(0x202, b"HdrS"));
    for kernel in [noise(9, 40_000), boot_sector, half, b"HdrS".to_vec(), vec![0; 0x202]] {
        bad_payload(&[], &["vmlinuz", "not a Linux kernel", "`HdrS` at byte 514"], |p| {
            p.write(Payload::KERNEL, kernel)
        });
    }
}

/// GRUB starts arm64's `Image` only.
#[test]
fn a_kernel_that_is_compressed_as_a_whole() {
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(&real_kernel("payload-arm64")).unwrap();
    let packed = packed.finish().unwrap();
    // CONFIG_EFI_ZBOOT: a program for UEFI that unpacks (drivers/firmware/efi/libstub/zboot-header.S).
    let zboot = [b"MZ\0\0zimg".as_slice(), &noise(9, 40_000)].concat();
    for kernel in [packed, zboot] {
        bad_payload(&["--arch=arm64"], &["vmlinuz", "not a Linux kernel", "has to be unpacked"], |p| {
            p.write(Payload::KERNEL, kernel);
        });
    }
}

#[test]
fn a_rootfs_that_is_none() {
    let texts = ["rootfs.squashfs", "not a squashfs", "`hsqs` at byte 0"];
    bad_payload(&[], &texts, |p| p.write(Payload::ROOTFS, noise(9, 1000)));
}

#[test]
fn a_kernel_for_arm64_on_amd64() {
    let texts = ["kernel is for arm64, not for amd64", "--arch arm64"];
    bad_payload(&["--arch=amd64"], &texts, |p| p.write(Payload::KERNEL, real_kernel("payload-arm64")));
}

#[test]
fn a_kernel_for_amd64_on_arm64() {
    let texts = ["kernel is for amd64, not for arm64", "--arch amd64"];
    bad_payload(&["--arch=arm64"], &texts, |p| p.write(Payload::KERNEL, real_kernel("payload")));
}

#[test]
fn a_digest_that_differs() {
    for name in Payload::FILES {
        bad_payload(&[], &[name, "SHA-256 is ", "SHA256SUMS says "], |p| {
            p.write_sums(&Payload::SEALED);
            flip(&p.path(name), 5000);
        });
    }
}

/// Files that are not installed are still what the list says, or the payload is not the one that was sealed.
#[test]
fn a_digest_of_another_file_that_differs() {
    bad_payload(&[], &["os-release", "SHA256SUMS says "], |p| {
        p.write_sums(&Payload::SEALED);
        p.write("os-release", "VERSION_ID=9\n");
    });
}

#[test]
fn digests_that_are_malformed() {
    let digest = "0".repeat(64);
    for (line, text) in [
        ("hello".to_owned(), "line 1: not of the form"),
        (format!("{digest} vmlinuz"), "line 1: not of the form"),
        (format!("{}  vmlinuz", &digest[1..]), "line 1: not of the form"),
        (format!("{digest}  ../x"), "line 1: \"../x\" is not a plain file name"),
        (format!("{digest}  /etc/passwd"), "line 1: \"/etc/passwd\" is not a plain file name"),
        (format!("{digest}  sub/x"), "line 1: \"sub/x\" is not a plain file name"),
        (format!("{digest}  vmlinuz\n{digest}  vmlinuz"), "line 2: \"vmlinuz\" is listed twice"),
    ] {
        bad_payload(&[], &["SHA256SUMS", text], |p| p.write("SHA256SUMS", line + "\n"));
    }
    bad_payload(&[], &["SHA256SUMS", "not UTF-8"], |p| p.write("SHA256SUMS", [0xff, 0xfe]));
    bad_payload(&[], &["SHA256SUMS", "larger than 64 KiB"], |p| p.write("SHA256SUMS", vec![b'0'; (64 << 10) + 1]));
}

#[test]
fn digests_of_a_file_that_is_not_there() {
    bad_payload(&[], &["SHA256SUMS", "lists a file that is not there: ghost", "installer seal"], |p| {
        p.write("ghost", "boo");
        p.write_sums(&[&Payload::SEALED[..], &["ghost"]].concat());
        p.remove("ghost");
    });
}

#[test]
fn digests_that_leave_a_file_out() {
    for name in Payload::SEALED {
        bad_payload(&[], &["SHA256SUMS", &format!("does not list {name}"), "installer seal"], |p| {
            let others: Vec<&str> = Payload::SEALED.into_iter().filter(|other| *other != name).collect();
            p.write_sums(&others);
        });
    }
}

#[test]
fn strict_without_digests() {
    bad_payload(&["--strict"], &["SHA256SUMS: missing", "--strict requires it", "installer seal"], |_| ());
    let world = World::new();
    world.payload.write_sums(&Payload::SEALED);
    world.installed(&["--strict"]);
}

/// Reading one would wait for ever for somebody to write.
#[test]
fn a_fifo_instead_of_a_file() {
    for name in [Payload::KERNEL, Payload::INITRAMFS, Payload::ROOTFS, "SHA256SUMS", "cmdline", "os-release"] {
        let world = World::new();
        let image = world.image();
        let path = world.payload.path(name);
        if path.exists() {
            world.payload.remove(name);
        }
        tool!("mkfifo", &path);
        refused(&image, INPUT, &[name, "not a regular file"], || {
            Outcome::of(world.install_command(&image, &[]).timeout(Duration::from_secs(5)))
        });
    }
}

#[test]
fn a_directory_or_a_device_instead_of_a_file() {
    bad_payload(&[], &["initramfs.xz", "not a regular file"], |p| {
        p.remove(Payload::INITRAMFS);
        fs::create_dir(p.path(Payload::INITRAMFS)).unwrap();
    });
    bad_payload(&[], &["rootfs.squashfs", "not a regular file"], |p| {
        p.remove(Payload::ROOTFS);
        // Without end, were it read.
        tool!("mknod", p.path(Payload::ROOTFS), "c", "1", "5");
    });
}

#[test]
fn a_cmdline_that_is_no_text() {
    bad_payload(&[], &["cmdline", "not UTF-8 text"], |p| p.write("cmdline", [b'a', 0xff]));
}

/// FAT's limit of a file. A larger slot is no remedy, so it is none to advise. (Planned only: 4 GiB take a while to
/// hash.)
#[test]
fn a_file_too_large_for_fat() {
    let world = World::new();
    let mut payload =
        DirSource::new(world.payload.dir()).facts(Sums::wanted(false), Inspection::Everything, |_| ()).unwrap();
    payload.files[2].size = 1 << 32;
    let disk = world.sparse("disk.img", 20 << 30);
    let disk = Disk::open(&disk, Access::Whole, None, Duration::ZERO).unwrap();
    let request = InstallRequest {
        force: false,
        zero: false,
        format_data: false,
        encrypted: vec![],
        bootable_mbr: false,
        slot_bytes: 8 << 30,
        ids: Ids { disk: Uuid::nil(), parts: [Uuid::nil(); 7], time: 0 },
        args: KernelArgs::default(),
        meta: vec![],
        arch: Arch::Amd64,
        medium: None,
    };
    let boot = Assets::load_from(&assets().join("amd64"), Arch::Amd64).unwrap();
    let facts = probe::disk_facts(&disk).unwrap();
    let refusals = plan::install(&request, &facts, &payload, &probe::asset_facts(&boot, Arch::Amd64)).unwrap_err();
    let text = refusals.to_string();
    assert!(text.contains("rootfs.squashfs") && text.contains("4294967296 bytes"), "{text}");
    assert!(!text.contains("--slot-size"), "{text}");
    assert_eq!(refusals.kind(), FailureKind::Input);
}

/// By the numbers of the refusal: with as many bytes less it fits, and fills the slot to its last cluster.
#[test]
fn one_byte_too_large_for_a_slot() {
    const CLUSTER: u64 = 512;
    const ROOTFS: &str = Payload::ROOTFS;
    let flags = ["--slot-size=36MiB", "--force"];
    let world = World::new();
    let image = world.image();

    let much = 40 * MIB;
    world.payload.resize(ROOTFS, much);
    let numbers = refused_with_numbers(&world, &image, &flags);
    let [need, have, short] = numbers;
    assert_eq!(need - have, short);
    let most = much - short;

    world.payload.resize(ROOTFS, most + 1);
    assert_eq!(refused_with_numbers(&world, &image, &flags), [have + CLUSTER, have, CLUSTER]);

    world.payload.resize(ROOTFS, most);
    world.install(&image, &flags).succeeds();
    on_disk(&image, &["verify"]).succeeds();
    let volume = world.path("volume");
    extract(&image, partition(&image, "BOOT-A"), &volume);
    assert_clean_fat(&volume);
    let counts = tool!("fsck.vfat", "-n", &volume);
    let clusters = have / CLUSTER;
    assert!(counts.contains(&format!("{clusters}/{clusters} clusters")), "not full: {counts}");
}

/// Refuse a payload that is too large; bytes needed, there, and short.
#[track_caller]
fn refused_with_numbers(world: &World, image: &Path, flags: &[&str]) -> [u64; 3] {
    let mut text = String::new();
    let texts = ["does not fit into a slot of 36.0 MiB", "use a larger --slot-size"];
    refused(image, INPUT, &texts, || {
        let outcome = world.install(image, flags);
        text.clone_from(&outcome.stderr);
        outcome
    });
    ["the files need ", "has room for ", " bytes ("].map(|before| {
        let (_, after) = text.split_once(before).unwrap_or_else(|| panic!("{before:?} is not in {text}"));
        let digits: String = after.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().unwrap()
    })
}

// ---------------------------------------------------------------------------------------------------
// Arguments.

/// Install with a wrong argument onto an empty image.
#[track_caller]
fn bad_argument(code: i32, flags: &[&str], texts: &[&str]) {
    let world = World::new();
    let image = world.image();
    refused(&image, code, texts, || world.install(&image, flags));
}

#[test]
fn unknown_flags_and_verbs() {
    bad_argument(OTHER, &["--nosuch"], &["--nosuch"]);
    bad_argument(OTHER, &["extra"], &["extra"]);
    Outcome::of(&mut installer(["nosuch"])).exits(OTHER).says(&["nosuch"]);
    Outcome::of(&mut installer(["meta", "nosuch"])).exits(OTHER).says(&["nosuch"]);
    Outcome::of(&mut installer::<&str>([])).exits(OTHER).says(&["Usage: installer"]);
}

#[test]
fn a_disk_is_required() {
    // A machine config could name that of an install.
    Outcome::of(&mut installer(["install"])).exits(INPUT).says(&["no disk", "--disk", "machine config"]);
    for verb in [&["upgrade"][..], &["status"], &["verify"], &["meta", "list"], &["meta", "set", "10=x"]] {
        Outcome::of(&mut installer(verb)).exits(OTHER).says(&["required", "--disk <PATH>"]);
    }
}

#[test]
fn values_that_are_none() {
    bad_argument(INPUT, &["--platform=nosuch"], &["platform \"nosuch\" is not known", "metal", "aws"]);
    bad_argument(INPUT, &["--arch=vax"], &["vax", "amd64", "arm64"]);
    bad_argument(INPUT, &["--force=perhaps"], &["perhaps", "--force"]);
    bad_argument(INPUT, &["--sector-size=1024"], &["1024", "512 or 4096"]);
    bad_argument(INPUT, &["--sector-size=x"], &["--sector-size"]);
    bad_argument(INPUT, &["--lock-timeout=soon"], &["\"soon\" is not a number of seconds"]);
    bad_argument(INPUT, &["--lock-timeout=-1"], &["--lock-timeout"]);
    bad_argument(INPUT, &["--output=xml"], &["xml", "json"]);
    for source in ["tar:x", "nosuch", "dir:"] {
        bad_argument(
            INPUT,
            &[&format!("--source={source}")],
            &[&format!("{source:?} is not a source: write dir:PATH")],
        );
    }
}

#[test]
fn slot_sizes() {
    for size in ["x", "1.5GiB", "-1", "", "99999999TiB"] {
        bad_argument(INPUT, &[&format!("--slot-size={size}")], &["--slot-size"]);
    }
    for (size, text) in [("35MiB", "35 MiB"), ("67108865", "67108865 bytes"), ("33GiB", "33 GiB"), ("0", "0 bytes")] {
        let text = &format!("a slot of {text}");
        bad_argument(INPUT, &[&format!("--slot-size={size}")], &[text, "a multiple of 1 MiB, at least 36 MiB"]);
    }
    let texts = ["a slot of 259 MiB", "at least 260 MiB on a disk with 4096-byte sectors"];
    bad_argument(INPUT, &["--sector-size=4096", "--slot-size=259MiB"], &texts);
}

#[test]
fn meta_tags() {
    for key in ["0", "256", "x", "-1", "0x100", ""] {
        let texts = [&format!("META key {key:?}"), "from 1 to 255"];
        bad_argument(INPUT, &[&format!("--meta={key}=value")], &texts);
    }
    bad_argument(INPUT, &["--meta=10"], &["META tag \"10\"", "write KEY=VALUE"]);
}

/// A single argument is at most 128 KiB, so it takes a few to fill META.
#[test]
fn meta_values_that_do_not_fit() {
    let tags: Vec<String> = (1..=3).map(|key| format!("--meta={key}={}", "v".repeat(100_000))).collect();
    let tags: Vec<&str> = tags.iter().map(String::as_str).collect();
    let need = 3 * (8 + 100_000);
    bad_argument(INPUT, &tags, &["META is full", &need.to_string(), "262104 fit"]);

    let world = World::new();
    let image = world.installed(&tags[..2]);
    let value = &tags[2]["--meta=".len()..];
    refused(&image, INPUT, &["META is full", &need.to_string()], || on_disk(&image, &["meta", "set", value]));
}

#[test]
fn kernel_arguments_grub_cannot_pass_on() {
    for arg in ["a=b'c", "a=b\\c", "a=b\"c\"d", "a=b\x07"] {
        let texts = ["kernel command line", &format!("{arg:?}"), "do not reach the kernel through GRUB"];
        bad_argument(INPUT, &["--extra-kernel-arg", arg], &texts);
    }
}

/// One byte more than the kernel takes is refused; exactly as many are not.
#[test]
fn kernel_arguments_that_are_too_long() {
    const MOST: usize = 1920;
    let world = World::new();
    let image = world.image();
    let cmdline = |flags: &[&str]| {
        let flags = [&["--dry-run", "--output=json"][..], flags].concat();
        let report = world.install(&image, &flags).succeeds().json();
        report["plan"]["system"]["cmdline"].as_str().unwrap().len()
    };
    let word = |len: usize| format!("x={}", "y".repeat(len - 2));
    let room = MOST - cmdline(&[]) - " ".len();
    assert_eq!(cmdline(&["--extra-kernel-arg", &word(room)]), MOST);
    let texts = ["kernel command line", &format!("{} bytes, at most {MOST}", MOST + 1)];
    refused(&image, INPUT, &texts, || world.install(&image, &["--extra-kernel-arg", &word(room + 1)]));
}

/// All that is wrong is told at once, and what can be put right on the command line decides the exit code.
#[test]
fn several_reasons_at_once() {
    let world = World::new();
    let image = world.image();
    write_at(&image, IMAGE_BYTES - 1, &[1]);
    world.payload.resize(Payload::ROOTFS, 70 * MIB);
    let texts = ["nothing was written", "not empty", "does not fit into a slot", "META is full"];
    let tags: Vec<String> = (1..=3).map(|key| format!("--meta={key}={}", "v".repeat(100_000))).collect();
    let tags: Vec<&str> = tags.iter().map(String::as_str).collect();
    refused(&image, INPUT, &texts, || world.install(&image, &tags));
}

// ---------------------------------------------------------------------------------------------------
// The environment: no room, no assets, no programs, nowhere to speak.

/// Install onto an image on a file system with so many bytes of room. Whether it found enough; if not, nothing was
/// written.
#[track_caller]
fn fits_into(free: u64) -> bool {
    let world = World::new();
    let small = SmallFs::new(&world);
    let image = small.path("disk.img");
    fs::File::create(&image).unwrap().set_len(IMAGE_BYTES).unwrap();
    // Something to lose.
    write_at(&image, 0, &noise(4, 4096));
    small.leave_free(free);
    let before = Content::of(&image);
    let outcome = world.install(&image, &["--force", "--format-data=true"]);
    if outcome.code == 0 {
        return true;
    }
    outcome.exits(INSTALL).says(&["no room", "No space left on device", "nothing was written"]);
    assert!(Content::of(&image) == before, "written to with {free} bytes of room");
    false
}

#[test]
fn no_room_at_all() {
    assert!(!fits_into(0));
}

/// With room for some of what is written, whatever it is: what comes too late finds the old system gone.
#[test]
fn no_room_for_all_of_it() {
    const STEP: u64 = 384 << 10;
    let enough = (1..40).find(|steps| fits_into(steps * STEP)).unwrap();
    assert!(enough > 2, "boot images and payload alone have more bytes");
}

#[test]
fn missing_boot_assets() {
    let world = World::new();
    let image = world.image();
    let nowhere = world.path("nowhere");
    let texts = ["no boot assets for amd64", nowhere.to_str().unwrap(), "hack/build"];
    refused(&image, ENVIRONMENT, &texts, || {
        Outcome::of(world.install_command(&image, &[]).env("SLIPWAY_ASSETS", &nowhere))
    });
}

#[test]
fn damaged_boot_assets() {
    let world = World::new();
    let image = world.image();
    let copy = world.path("assets");
    tool!("cp", "-r", assets(), &copy);
    let with_copy = || Outcome::of(world.install_command(&image, &[]).env("SLIPWAY_ASSETS", &copy));
    for name in ["BOOTX64.EFI", "core.img", "boot.img"] {
        let path = copy.join("amd64").join(name);
        flip(&path, 300);
        let texts = [path.to_str().unwrap(), "its SHA-256 is not the one in SHA256SUMS"];
        refused(&image, ENVIRONMENT, &texts, with_copy);
        flip(&path, 300);
    }
    let list = copy.join("amd64/SHA256SUMS");
    let text = fs::read_to_string(&list).unwrap();
    fs::write(&list, text.replace("core.img", "core.bak")).unwrap();
    refused(&image, ENVIRONMENT, &[list.to_str().unwrap(), "does not list core.img"], with_copy);
    fs::remove_file(&list).unwrap();
    refused(&image, ENVIRONMENT, &[list.to_str().unwrap(), "No such file"], with_copy);
    // The refusals were not for the copy being one.
    fs::write(&list, text).unwrap();
    with_copy().succeeds();
}

/// It is looked for outside of PATH, too, so an empty directory is mounted over that place.
#[test]
fn mkfs_xfs_is_missing() {
    let world = World::new();
    let image = world.image();
    let empty = world.path("empty");
    fs::create_dir(&empty).unwrap();
    let script = r#"mount --bind "$EMPTY" /usr/sbin && PATH=$EMPTY exec "$@""#;
    let without = |flag: &str| {
        let args = world.install_args(&image, &[flag]);
        Outcome::of(installer_in(script, args).env("EMPTY", &empty))
    };
    let texts = ["mkfs.xfs is not installed", "package xfsprogs"];
    refused(&image, DEPENDENCY, &texts, || without("--format-data=true"));
    // Who wants no file systems needs no program for them.
    without("--format-data=false").succeeds();
}

/// It is run before anything is written.
#[test]
fn mkfs_xfs_fails() {
    let world = World::new();
    let image = world.image();
    let fake = world.path("mkfs.xfs");
    fs::write(&fake, "#!/bin/sh\necho 'out of luck' >&2\nexit 3\n").unwrap();
    fs::set_permissions(&fake, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", fake.parent().unwrap().display(), std::env::var("PATH").unwrap());
    refused(&image, DEPENDENCY, &["STATE", "mkfs.xfs failed", "out of luck", "nothing was written"], || {
        Outcome::of(world.install_command(&image, &["--format-data=true"]).env("PATH", path))
    });
}

/// What is on the disk then is told, and the same command again works. (A limit of the file size stands in for a
/// disk whose end fails.)
#[test]
fn a_disk_that_fails_half_way() {
    let world = World::new();
    let image = world.image();
    let args = world.install_args(&image, &[]);
    let script = format!("trap '' XFSZ; exec prlimit --fsize={} \"$@\"", 400 * MIB);
    let texts = ["File too large", "the disk has no partition table", "run the same command again"];
    Outcome::of(&mut installer_in(&script, args)).exits(INSTALL).says(&texts);
    on_disk(&image, &["status"]).exits(INSTALL).says(&["no partition table"]);
    world.install(&image, &[]).succeeds();
    on_disk(&image, &["verify"]).succeeds();
}

/// mkfs.xfs works on a temporary file. That there is no place for one is known before anything is written.
#[test]
fn nowhere_for_temporary_files() {
    let world = World::new();
    let image = world.image();
    let nowhere = world.path("nowhere");
    refused(&image, ENVIRONMENT, &["temporary file", nowhere.to_str().unwrap()], || {
        Outcome::of(world.install_command(&image, &["--format-data=true"]).env("TMPDIR", &nowhere))
    });
}

/// JSON is UTF-8, paths need not be. Either that is found in time, or it is no matter.
#[test]
fn a_path_that_is_not_utf8() {
    let world = World::new();
    let mut name = world.image().into_os_string();
    name.push(OsStr::from_bytes(b"\xff"));
    let image = PathBuf::from(name);
    fs::File::create(&image).unwrap().set_len(IMAGE_BYTES).unwrap();
    let before = Content::of(&image);
    let args = ["--output=json", "--progress=none", "--format-data=false", SLOT, "--source", &world.payload.source()];
    let outcome = Outcome::of(installer(["install"]).args(args).arg("--disk").arg(&image));
    if outcome.code == 0 {
        assert_eq!(outcome.json()["changed"], true);
    } else {
        assert!(Content::of(&image) == before, "{}", outcome.stderr);
    }
}

/// Run with its output somewhere else.
fn redirected(args: impl IntoIterator<Item = String>, redirection: &str) -> Command {
    installer_in(&format!("exec \"$@\" {redirection}"), args)
}

/// The report is what callers go by: where it cannot be written that is an error, and no panic.
#[test]
fn a_full_stdout() {
    let world = World::new();
    let image = world.image();
    let install = world.install_args(&image, &[]);
    Outcome::of(&mut redirected(install, ">/dev/full")).exits(OTHER).says(&["report cannot be written to stdout"]);
    on_disk(&image, &["verify"]).succeeds();
    let status = ["status".to_owned(), format!("--disk={}", image.display())];
    Outcome::of(&mut redirected(status, ">/dev/full")).exits(OTHER).says(&["report cannot be written to stdout"]);
}

/// Nobody has to listen to progress: stderr may be closed, full, or a pipe whose reader has gone.
#[test]
fn nowhere_for_progress_to_go() {
    let world = World::new();
    let image = world.image();
    for redirection in ["2>&-", "2>/dev/full", "2> >(:); sleep 0.1", "<&- 2>&-"] {
        for mode in ["plain", "json", "bars"] {
            let args = world.install_args(&image, &["--force", &format!("--progress={mode}")]);
            // Only bash has >(…).
            let script = format!("exec bash -c 'exec {redirection}; exec \"$@\"' bash \"$@\"");
            let outcome = Outcome::of(&mut installer_in(&script, args)).succeeds();
            assert!(outcome.stdout.starts_with("installed: 1.2.3"), "{}", outcome.stdout);
        }
    }
}

/// Errors are chains of causes; none of them says twice what the next one says.
#[test]
fn no_cause_is_told_twice() {
    let world = World::new();
    let image = world.image();
    world.payload.write("SHA256SUMS", "hello\n");
    let malformed = world.install(&image, &[]);
    world.payload.remove("SHA256SUMS");
    world.payload.remove(Payload::ROOTFS);
    fs::create_dir(world.payload.path(Payload::ROOTFS)).unwrap();
    let not_a_file = world.install(&image, &[]);
    for outcome in [malformed, not_a_file] {
        let error = outcome.exits(INPUT).stderr;
        let causes: Vec<&str> = error.trim().split(": ").collect();
        let twice = (1..=causes.len() / 2).any(|n| causes.ends_with(&[&causes[causes.len() - n..]; 2].concat()));
        assert!(!twice, "{error}");
    }
}
