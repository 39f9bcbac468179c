//! An image file that the installer has written boots, whatever the firmware and the size of the sectors.
//!
//! Subject: core/src/disk/gpt.rs src/ops/install.rs assets/grub/grub.cfg loader/src
//! Needs: root boot-assets payloads qemu

use crate::{
    image::Image,
    qemu::{Drive, Firmware, Machine},
    world::VERSION,
};

stories! {
    /// A payload was installed onto an image file. A machine with that disk boots it: the system of this version comes
    /// up in slot A, and not as a trial.
    an_installed_image_boots: campaign Bios, campaign Uefi, gate UefiArm64 => |firmware| {
        let image = Image::installed_for(firmware, &[]);
        let mut console = Machine::new(firmware).drive(&Drive::new(image.path()).boot_index(1)).start();
        console.expect_os(VERSION, 'A', 0);
    };
}

/// A payload was installed onto an image file for sectors of 4096 bytes. A machine whose disk has such sectors boots it
/// from slot A.
#[test]
#[ignore = "campaign"]
fn a_disk_with_sectors_of_4096_bytes_boots_under_uefi() {
    let image = Image::installed(VERSION, &["--sector-size", "4096"]);
    let drive = Drive::new(image.path()).boot_index(1).block_bytes(4096);
    Machine::new(Firmware::Uefi).drive(&drive).start().expect_os(VERSION, 'A', 0);
}

/// One bit of the squashfs in the only slot is flipped, which the boot loader does not check. The initramfs finds it,
/// `rollback` is refused with exit code 7, and the console says that nothing else is known to boot and that the same is
/// tried again after 30 s.
#[test]
#[ignore = "campaign"]
fn a_disk_whose_only_system_is_damaged_says_so() {
    let image = Image::installed(VERSION, &[]);
    image.flip_bit_of('A', "rootfs.squashfs");
    let mut console = Machine::new(Firmware::Bios).drive(&Drive::new(image.path()).boot_index(1)).start();
    console.wait_for("SLIPWAY-FAIL reason=rootfs.squashfs of slot A is not the one in SHA256SUMS");
    console.wait_for("SLIPWAY-ROLLBACK exit=7");
    console.wait_for("slipway: nothing else is known to boot: the same is tried again in 30 s");
}
