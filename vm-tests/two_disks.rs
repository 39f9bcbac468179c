//! Each of two installed disks in one machine boots its own system, and a clone is not taken for the original. Two
//! installations have the same labels, partition numbers and file names. A clone has the same disk GUID: the original
//! comes up, or the machine says which disks collide and stays.
//!
//! Subject: src/ops/clones.rs hack/reference-os/initramfs-init
//! Needs: root boot-assets payloads qemu

use crate::{
    console::Console,
    image::Image,
    qemu::{Drive, Firmware, Machine},
    world::{VERSION, VERSION_2, VERSION_WATCHDOG},
};

stories! {
    /// Two disks with different versions are in one machine. Whichever of them the firmware starts, the kernel's
    /// command line names that disk, and the version that comes up is the one on it.
    of_two_installed_disks_each_boots_its_own_system: campaign Bios, campaign Uefi => each_boots_its_own;
    /// Two disks have one GUID, and the record on both names the original's drive, which is the first disk under BIOS
    /// and the second under UEFI. The original comes up, and the console names it. `confirm` without `--disk` takes it,
    /// too.
    beside_a_clone_the_original_comes_up: campaign Bios, gate Uefi => |firmware| {
        beside_a_clone(firmware, if firmware == Firmware::Bios { 0 } else { 1 });
    };
}

fn each_boots_its_own(firmware: Firmware) {
    // Without `quiet` the kernel prints its command line, in which the bootloader names the disk.
    let images = [VERSION, VERSION_2].map(|version| Image::installed(version, &["--extra-kernel-arg", "-quiet"]));
    for (booted, version) in [VERSION, VERSION_2].into_iter().enumerate() {
        let mut machine = Machine::new(firmware);
        for (n, image) in images.iter().enumerate() {
            let drive = Drive::new(image.path());
            machine = machine.drive(&if n == booted { drive.boot_index(1) } else { drive });
        }
        let mut console = machine.start();
        let cmdline = console.wait_for("Command line: ");
        let status = images[booted].report("status");
        let disk = format!("slipway.disk={}", status["disk_guid"].as_str().expect("status names the disk"));
        if !cmdline.split(' ').any(|word| word == disk) {
            console.fail(&format!("`{disk}` is not in `{cmdline}`"));
        }
        console.expect_os(version, 'A', 0);
    }
}

/// The record on both names the drive of the original, whichever comes first.
fn beside_a_clone(firmware: Firmware, original: usize) {
    let image = Image::installed(VERSION, &[]);
    image.record_drive("original");
    let clone = image.copy();
    let mut machine = Machine::new(firmware);
    for n in 0..2 {
        machine = machine.drive(&if n == original {
            Drive::new(image.path()).serial("original").boot_index(1)
        } else {
            Drive::new(clone.path()).serial("clone")
        });
    }
    let mut console = machine.start();
    let line = console.wait_for("slipway: disks with the GUID ");
    let name = ["vda", "vdb"][original];
    if !line.ends_with(&format!("; {name} is the one that was installed")) {
        console.fail(&format!("`{line}` does not name {name}"));
    }
    console.expect_os(VERSION, 'A', 0);
    // Its agent names no disk either.
    console.wait_for(&format!("note: of the disks with this disk GUID, /dev/{name} "));
    console.expect_agent("CONFIRM", 0);
}

/// Two disks have one GUID and equal serial numbers, so the record fits both. The console names both disks three times,
/// half a minute apart. Meanwhile nothing resets the machine, neither the initramfs nor its watchdog of half a minute:
/// a reset would end this machine, and fail the test.
#[test]
#[ignore = "campaign"]
fn of_two_disks_that_cannot_be_told_apart_none_is_started() {
    let image = Image::installed(VERSION_WATCHDOG, &[]);
    image.record_drive("same");
    let clone = image.copy();
    let mut console = Machine::new(Firmware::Bios)
        .watchdog()
        .drive(&Drive::new(image.path()).serial("same").boot_index(1))
        .drive(&Drive::new(clone.path()).serial("same"))
        .start();
    // Each time half a minute after the one before. The watchdog would wait half a minute in all.
    for _ in 0..3 {
        names_both(&mut console, "SLIPWAY-STAY", "serial=same");
    }
}

/// A disk with a trial, and its clone, have one GUID, and no record tells them apart. First start: the trial fails,
/// names both disks, and reboots. Second: slot A, the default, names both disks, and says that it stays and what to
/// detach.
#[test]
#[ignore = "campaign"]
fn a_trial_that_finds_two_disks_is_ended() {
    let image = Image::upgraded(VERSION_2, &[]);
    let clone = image.copy();
    let mut console = Machine::new(Firmware::Bios)
        .drive(&Drive::new(image.path()).boot_index(1))
        .drive(&Drive::new(clone.path()))
        .may_reset()
        .start();
    console.wait_for("slipway: slot B try=1: booting");
    names_both(&mut console, "SLIPWAY-FAIL reason=more than one disk has the GUID", "no serial");
    console.wait_for("slipway: slot A try=0: booting");
    names_both(&mut console, "SLIPWAY-STAY reason=more than one disk has the GUID", "no serial");
    console.wait_for("slipway: detach all of them but the one to boot");
}

/// A line of the initramfs ends with both disks, which say this of themselves.
#[track_caller]
fn names_both(console: &mut Console, line: &str, each: &str) {
    let line = console.wait_for(line);
    if !line.ends_with(&format!(": vda ({each}), vdb ({each})")) {
        console.fail(&format!("`{line}` does not name the disks"));
    }
}

/// Two SCSI disks have one world-wide name: it is one drive, seen twice, and no clone. The system comes up, and
/// `confirm` without `--disk` works.
#[test]
#[ignore = "campaign"]
fn two_paths_to_one_drive_are_one_disk() {
    let image = Image::installed(VERSION, &[]);
    let path = || Drive::new(image.path()).world_wide_name(0x5000_c500_0000_0001);
    let mut console = Machine::new(Firmware::Bios).drive(&path().boot_index(1)).drive(&path()).start();
    console.expect_os(VERSION, 'A', 0);
    console.expect_agent("CONFIRM", 0);
}
