//! An image file the installer has written boots, whatever the firmware and the size of the sectors.

use crate::{
    image::Image,
    qemu::{Drive, Firmware, Machine},
    world::VERSION,
};

#[test]
fn an_installed_image_boots_under_bios() {
    let image = Image::installed(VERSION, &[]);
    let mut console = Machine::new(Firmware::Bios).drive(&Drive::new(image.path()).boot_index(1)).start();
    console.expect_os(VERSION, 'A', 0);
}

#[test]
fn an_installed_image_boots_under_uefi() {
    let image = Image::installed(VERSION, &[]);
    let mut console = Machine::new(Firmware::Uefi).drive(&Drive::new(image.path()).boot_index(1)).start();
    console.expect_os(VERSION, 'A', 0);
}

#[test]
fn an_installed_image_boots_under_uefi_on_arm64() {
    let image = Image::installed_for(Firmware::UefiArm64, &[]);
    let mut console = Machine::new(Firmware::UefiArm64).drive(&Drive::new(image.path()).boot_index(1)).start();
    console.expect_os(VERSION, 'A', 0);
}

#[test]
fn a_disk_with_sectors_of_4096_bytes_boots_under_uefi() {
    let image = Image::installed(VERSION, &["--sector-size", "4096"]);
    let drive = Drive::new(image.path()).boot_index(1).block_bytes(4096);
    Machine::new(Firmware::Uefi).drive(&drive).start().expect_os(VERSION, 'A', 0);
}

/// The boot loader checks neither the squashfs nor whether somebody reads the console: the same boot would fail for ever.
#[test]
fn a_disk_whose_only_system_is_damaged_says_so() {
    let image = Image::installed(VERSION, &[]);
    image.flip_bit_of('A', "rootfs.squashfs");
    let mut console = Machine::new(Firmware::Bios).drive(&Drive::new(image.path()).boot_index(1)).start();
    console.wait_for("SLIPWAY-FAIL reason=rootfs.squashfs of slot A is not the one in SHA256SUMS");
    console.wait_for("SLIPWAY-ROLLBACK exit=7");
    console.wait_for("slipway: nothing else is known to boot");
}
