//! Two disks in one machine. Each has an installation of its own: same labels, same partition numbers, same file names.
//! Each boots itself. Or one is a clone of the other, with the same disk GUID: the original comes up, or the machine says
//! which disks collide and stays.

use crate::{
    image::Image,
    qemu::{Drive, Firmware, Machine},
    world::{VERSION, VERSION_2, VERSION_WATCHDOG},
};

under_both_firmwares! {
    of_two_installed_disks_each_boots_its_own_system => each_boots_its_own, mostly Bios;
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

#[test]
fn beside_a_clone_the_original_comes_up_under_bios() {
    beside_a_clone(Firmware::Bios, 0);
}

#[test]
fn beside_a_clone_the_original_comes_up_under_uefi() {
    beside_a_clone(Firmware::Uefi, 1);
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

/// Without a record, or where it fits both, nobody can tell. A reboot comes to the same, so there is none: not by the
/// initramfs, and not by a watchdog that nobody feeds, which would end this machine.
#[test]
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
        let line = console.wait_for("SLIPWAY-STAY");
        if !line.ends_with(": vda (serial=same), vdb (serial=same)") {
            console.fail(&format!("`{line}` does not name the disks"));
        }
    }
}

/// A trial must not hang. The reboot ends it, and the default stays.
#[test]
fn a_trial_that_finds_two_disks_is_ended() {
    let image = Image::upgraded(VERSION_2, &[]);
    let clone = image.copy();
    let mut console = Machine::new(Firmware::Bios)
        .drive(&Drive::new(image.path()).boot_index(1))
        .drive(&Drive::new(clone.path()))
        .may_reset()
        .start();
    console.wait_for("slipway: slot B try=1: booting");
    console.wait_for("SLIPWAY-FAIL reason=more than one disk has the GUID");
    console.wait_for("slipway: slot A try=0: booting");
    console.wait_for(": vda (no serial), vdb (no serial)");
}

/// Not a clone: the same drive, seen twice.
#[test]
fn two_paths_to_one_drive_are_one_disk() {
    let image = Image::installed(VERSION, &[]);
    let path = || Drive::new(image.path()).world_wide_name(0x5000_c500_0000_0001);
    let mut console = Machine::new(Firmware::Bios).drive(&path().boot_index(1)).drive(&path()).start();
    console.expect_os(VERSION, 'A', 0);
    console.expect_agent("CONFIRM", 0);
}
