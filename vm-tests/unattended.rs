//! A live medium installs by itself, and leaves alone what it must not touch. It is a CD or a USB stick, which stays in
//! and stays first in the firmware's boot order; what comes up afterwards is the disk, by itself.
//!
//! Subject: src/ops/unattended.rs core/src/plan/unattended.rs core/src/config/unattended.rs core/src/config/selector.rs
//! Needs: root boot-assets payloads qemu container-image

use std::{fs, os::unix::fs::MetadataExt as _, path::Path};

use crate::{
    console::Console,
    image::{GIB, Image},
    live::Live,
    medium::Medium,
    oci,
    qemu::{Drive, Firmware, Machine},
    world::{VERSION, VERSION_2, World, run, scratch_dir},
};

/// Room for two slots of 1 GiB and the smallest EPHEMERAL of a disk.
const DISK_BYTES: u64 = 8 * GIB;
/// The disk that the media are made for, by its serial number.
const TARGET: &str = "slipway.install=serial:target";
/// Machine configs that name the target.
const MACHINE_CONFIG: &str = "machine:\n  install:\n    diskSelector:\n      serial: targ*\n";
const UNATTENDED_CONFIG: &str = "apiVersion: v1alpha1\nkind: UnattendedInstallConfig\nreboot: false\nprovisioning:\n  \
    diskSelector:\n    match: disk.serial == \"target\" && disk.size > 1u * GB\n";

/// An ISO with these words on its kernel command line.
fn iso(words: &[&str], args: &[&str]) -> Live {
    iso_of(VERSION, words, args)
}

fn iso_of(version: &str, words: &[&str], args: &[&str]) -> Live {
    let words = words.iter().flat_map(|word| ["--extra-kernel-arg", *word]);
    Live::made_of(World::get().payload(version), "iso", &words.chain(args.iter().copied()).collect::<Vec<_>>())
}

/// The disk that the media are made for. It comes after the medium in the boot order.
fn target(disk: &Image) -> Drive<'_> {
    Drive::new(disk.path()).serial("target").boot_index(1).kept()
}

/// Up in memory, and then the agent's word.
#[track_caller]
fn ends(mut console: Console, version: &str, live: &Live, code: i32, then: &str) -> Console {
    console.expect_live(version, &live.medium);
    console.expect_unattended(code, then);
    console
}

/// Refused with this exit code and these words; the machine stays, so that a person can read them.
#[track_caller]
fn refused(machine: Machine, live: &Live, code: i32, texts: &[&str]) {
    let console = ends(machine.start(), VERSION, live, code, "stay");
    for text in texts {
        assert!(console.shows(text), "it does not say `{text}`\n{}", console.switch_off());
    }
}

/// Nothing was ever written to it.
#[track_caller]
fn is_blank(disk: &Image) {
    let blocks = fs::metadata(disk.path()).expect("the image is there").blocks();
    assert_eq!(blocks, 0, "{} was written to", disk.path().display());
}

// ---------------------------------------------------------------------------------------------------
// A disk that is empty.

fn installs(machine: Machine, disk: &Image, live: &Live) {
    let console = machine.drive(&target(disk)).may_reset().start();
    let mut console = ends(console, VERSION, live, 0, "reboot");
    // The medium is started again, sees its work, and starts that.
    console.wait_for(&format!("slipway: medium {} has installed", live.medium));
    console.wait_for("slipway: slot A try=0: booting");
    console.expect_os(VERSION, 'A', 0);
    console.expect_agent("CONFIRM", 0);
    let console = console.switch_off();
    assert_eq!(disk.next_boot(), ('A', false), "{console}");
    assert_eq!(disk.report("status")["boot_env"]["medium"], live.medium.as_str());
}

fn from_a_cd(firmware: Firmware) {
    let (live, disk) = (iso(&[TARGET], &[]), Image::blank(DISK_BYTES));
    installs(Machine::new(firmware).cd(&live.file), &disk, &live);
}

fn from_a_usb_stick(firmware: Firmware) {
    let (live, disk) = (iso(&[TARGET], &[]), Image::blank(DISK_BYTES));
    installs(Machine::new(firmware).stick(&live.file), &disk, &live);
}

stories! {
    /// First start: a CD, whose command line names the disk by its serial number, installs onto it and reboots. Second:
    /// the medium is still first in the boot order, and starts the disk that it has installed. The system confirms
    /// itself, and the disk's `status` names the medium.
    a_cd_installs: campaign Bios, campaign Uefi => from_a_cd;
    /// First start: a USB stick, whose command line names the disk by its serial number, installs onto it and reboots.
    /// Second: the medium is still first in the boot order, and starts the disk that it has installed. The system
    /// confirms itself, and the disk's `status` names the medium.
    a_usb_stick_installs: campaign Bios, gate Uefi => from_a_usb_stick;
}

/// First machine: the power is cut in an installation, while the disk has no partition table. Second machine: the same
/// medium installs again, to the end, and reboots. Then it starts the disk, and the system confirms itself.
#[test]
#[ignore = "campaign"]
fn an_installation_that_was_cut_short_begins_again() {
    let (live, disk) = (iso(&[TARGET], &[]), Image::blank(DISK_BYTES));
    let mut console = Machine::new(Firmware::Uefi).cd(&live.file).drive(&target(&disk)).start();
    console.expect_live(VERSION, &live.medium);
    console.wait_for("verify     BOOT-A");
    console.switch_off();
    let ended = disk.installer("status", &[]);
    assert!(ended.code == 7 && ended.stderr.contains("no partition table"), "{}", ended.stderr);
    installs(Machine::new(Firmware::Uefi).cd(&live.file), &disk, &live);
}

/// First machine: the medium carries the installer's container image. The installer that the live system runs takes the
/// payload from `/usr/install`, which only a container has. It installs, and powers off, as the command line says.
/// Second machine: the disk boots without the medium.
#[test]
#[ignore = "campaign"]
fn the_container_image_of_the_medium_installs() {
    let container = format!("--container=oci:{}", oci::layout().display());
    let live = iso(&[TARGET, "slipway.install.then=poweroff"], &[&container]);
    let disk = Image::blank(DISK_BYTES);
    let console = Machine::new(Firmware::Bios).cd(&live.file).drive(&target(&disk)).start();
    let mut console = ends(console, VERSION, &live, 0, "poweroff");
    // The live system's own installer would be told to take the payload from /run/slipway.
    if !console.shows("check      payload dir:/usr/install/amd64") {
        console.fail("the installer that ran is not that of the container image");
    }
    console.expect_power_off();
    // Without the medium.
    Machine::new(Firmware::Bios).drive(&target(&disk)).start().expect_os(VERSION, 'A', 0);
}

// ---------------------------------------------------------------------------------------------------
// A machine config on a second volume.

/// A volume with a machine config, labelled as Talos has it: FAT, or ISO 9660.
fn config_volume(dir: &Path, iso9660: bool, config: &str) -> std::path::PathBuf {
    let (text, volume) = (dir.join("config.yaml"), dir.join("config.img"));
    fs::write(&text, config).expect("a temporary file can be written");
    let [file, image] = [&text, &volume].map(|path| path.to_str().expect("paths of tests are UTF-8"));
    if iso9660 {
        run("xorriso", ["-as", "mkisofs", "-quiet", "-V", "metal-iso", "-o", image, file]);
    } else {
        fs::File::create(&volume).and_then(|f| f.set_len(16 << 20)).expect("a temporary file can be made");
        run("mformat", ["-i", image, "-v", "METAL-ISO", "::"]);
        run("mcopy", ["-i", image, file, "::/config.yaml"]);
    }
    volume
}

/// First start: the medium itself names no disk; a machine config on a FAT volume chooses one by its serial number, and
/// it is installed. Second: the medium is still first in the boot order, and starts the disk that it has installed. The
/// system confirms itself, and the disk's `status` names the medium.
#[test]
#[ignore = "campaign"]
fn a_machine_config_on_a_fat_volume_is_obeyed() {
    let (live, disk, dir) = (iso(&[], &[]), Image::blank(DISK_BYTES), scratch_dir());
    let volume = config_volume(dir.path(), false, MACHINE_CONFIG);
    let machine = Machine::new(Firmware::Bios).cd(&live.file).drive(&Drive::new(&volume));
    installs(machine, &disk, &live);
}

/// First machine: an `UnattendedInstallConfig` on an ISO 9660 volume chooses the disk by an expression. The medium
/// installs, and stays, because of `reboot: false`. Second machine: the disk boots without the medium.
#[test]
#[ignore = "campaign"]
fn a_machine_config_on_an_iso_volume_is_obeyed() {
    let (live, disk, dir) = (iso(&[], &[]), Image::blank(DISK_BYTES), scratch_dir());
    let volume = config_volume(dir.path(), true, UNATTENDED_CONFIG);
    let machine = Machine::new(Firmware::Uefi).stick(&live.file).drive(&Drive::new(&volume)).drive(&target(&disk));
    // `reboot: false`
    ends(machine.start(), VERSION, &live, 0, "stay");
    Machine::new(Firmware::Uefi).drive(&target(&disk)).start().expect_os(VERSION, 'A', 0);
}

/// A volume is labelled for a machine config, and has none. Although the command line names a disk, nothing is
/// installed: the live system stays, says why, and the disk is not written.
#[test]
#[ignore = "campaign"]
fn a_config_volume_without_a_config() {
    // The maker of the volume has meant a config.
    let (live, disk, dir) = (iso(&[TARGET], &[]), Image::blank(DISK_BYTES), scratch_dir());
    let volume = config_volume(dir.path(), false, MACHINE_CONFIG);
    run("mdel", ["-i", volume.to_str().expect("paths of tests are UTF-8"), "::/config.yaml"]);
    let machine = Machine::new(Firmware::Bios).cd(&live.file).drive(&Drive::new(&volume)).drive(&target(&disk));
    refused(machine, &live, 2, &["is labelled metal-iso, and has no config.yaml that can be read"]);
    is_blank(&disk);
}

// ---------------------------------------------------------------------------------------------------
// What is left alone.

/// Nothing tells the medium to install. The live system starts and stays, and the disk is not written.
#[test]
#[ignore = "campaign"]
fn a_medium_that_is_told_nothing_does_nothing() {
    let (live, disk) = (iso(&[], &[]), Image::blank(DISK_BYTES));
    let machine = Machine::new(Firmware::Bios).cd(&live.file).drive(&target(&disk));
    ends(machine.start(), VERSION, &live, 0, "stay").switch_off();
    is_blank(&disk);
}

/// The command line of the medium names a disk, and the machine has none. The live system stays, and says that no disk
/// matches.
#[test]
#[ignore = "campaign"]
fn no_disk_at_all() {
    let live = iso(&[TARGET], &[]);
    refused(Machine::new(Firmware::Uefi).cd(&live.file), &live, 2, &["no disk matches what slipway.install"]);
}

/// The command line of the medium names a serial number that the only disk does not have. The live system stays, says
/// both serial numbers, and the disk is not written.
#[test]
#[ignore = "campaign"]
fn a_selector_that_means_no_disk() {
    let (live, disk) = (iso(&["slipway.install=serial:another"], &[]), Image::blank(DISK_BYTES));
    let machine = Machine::new(Firmware::Bios).stick(&live.file).drive(&target(&disk));
    refused(machine, &live, 2, &["no disk matches what slipway.install", "serial is \"target\", not like \"another\""]);
    is_blank(&disk);
}

/// The medium is told to install onto a disk of more than 10 MB. The machine has two equal disks, and the medium itself
/// is larger than that, too. The live system stays, names both disks, and neither is written.
#[test]
#[ignore = "campaign"]
fn two_equal_disks_are_both_left_alone() {
    let live = iso(&["slipway.install=size:>10MB"], &[]);
    let (one, two) = (Image::blank(DISK_BYTES), Image::blank(DISK_BYTES));
    let machine = Machine::new(Firmware::Bios).cd(&live.file).drive(&Drive::new(one.path()).kept());
    let machine = machine.drive(&Drive::new(two.path()).kept());
    refused(machine, &live, 2, &["more than one disk", "/dev/vda", "/dev/vdb"]);
    is_blank(&one);
    is_blank(&two);
}

// ---------------------------------------------------------------------------------------------------
// A disk that holds an installation.

/// The content of EPHEMERAL before and after.
const KEPT: &str = "it was here before";

/// Version 1, with a file on EPHEMERAL.
fn lived_in() -> Image {
    let disk = Image::installed(VERSION, &[]);
    let (dir, at) = (scratch_dir(), disk.place("EPHEMERAL"));
    let [file, proto, volume] = ["kept", "proto", "volume"].map(|name| dir.path().join(name));
    fs::write(&file, KEPT).expect("a temporary file can be written");
    // mkfs.xfs(8), -p: the root directory, and in it one file.
    let text = format!("/\n0 0\nd--755 0 0\nkept ---644 0 0 {}\n$\n", file.display());
    fs::write(&proto, text).expect("a temporary file can be written");
    fs::File::create(&volume).and_then(|f| f.set_len(at.1)).expect("a temporary file can be made");
    run("mkfs.xfs", ["-q".as_ref(), "-p".as_ref(), proto.as_os_str(), volume.as_os_str()]);
    let (from, to) = (format!("if={}", volume.display()), format!("of={}", disk.path().display()));
    let seek = format!("seek={}", at.0);
    run("dd", [&from, &to, &seek, "oflag=seek_bytes", "conv=sparse,notrunc", "bs=1M", "status=none"]);
    disk
}

/// First machine: the disk has an installation, so the medium refuses it and names the word that would allow it; not a
/// byte of the disk has changed. Second: with `slipway.install.preserve=true` the medium makes an upgrade, and the
/// trial in slot B boots and confirms itself. Third: the medium is still in, and starts slot B; the file on EPHEMERAL
/// is there.
#[test]
#[ignore = "campaign"]
fn an_installation_is_left_alone_and_then_upgraded() {
    let firmware = Firmware::Uefi;
    let disk = lived_in();
    let before = disk.copy();
    let live = iso_of(VERSION_2, &[TARGET], &[]);
    let machine = Machine::new(firmware).cd(&live.file).drive(&target(&disk));
    let console = ends(machine.start(), VERSION_2, &live, 7, "stay");
    assert!(console.shows("slipway.install.preserve=true"), "{}", console.switch_off());
    drop(console);
    run("cmp", [disk.path(), before.path()]);

    let live = iso_of(VERSION_2, &[TARGET, "slipway.install.preserve=true"], &[]);
    let machine = Machine::new(firmware).cd(&live.file).drive(&target(&disk)).may_reset();
    let mut console = ends(machine.start(), VERSION_2, &live, 0, "reboot");
    console.wait_for("slipway: slot B try=1: booting");
    console.expect_os(VERSION_2, 'B', 1);
    console.expect_agent("CONFIRM", 0);
    let console = console.switch_off();
    assert_eq!(disk.next_boot(), ('B', false), "{console}");

    // The medium is still in, still first, and leads to the disk.
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("vm-tests/guest/kept.sh");
    let job = Medium::job(scratch_dir(), &script, &[]);
    Machine::new(firmware).cd(&live.file).drive(&target(&disk)).drive(&job.drive()).start().expect_job();
}
