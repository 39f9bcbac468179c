//! A disk with two good slots, of which something is damaged later on: the machine boots the best that is left.

use serde_json::json;

use crate::{
    boot_rule::refusal,
    console::Console,
    image::{BOOT_ENVS, Image},
    qemu::{Drive, Firmware, Machine},
    world::{VERSION, VERSION_2},
};

under_both_firmwares! {
    a_kernel_of_the_default_slot => |firmware| {
        let image = Image::confirmed();
        image.flip_bit_of('B', "vmlinuz");
        assert_eq!(image.next_boot(), ('A', false));
        let mut console = start(firmware, &image);
        console.wait_for(&format!("slipway: slot B {}", refusal(firmware)));
        console.wait_for("slipway: falling back to slot A");
        console.expect_os(VERSION, 'A', 0);
        console.switch_off();
        let status = image.report("status");
        assert_eq!(status["boot_env"]["refused"], json!({"slot": "B", "fault": "digest"}), "{status:#}");
    };
    // Only the initramfs finds out; it makes the other slot the default.
    a_squashfs_of_the_default_slot => |firmware| {
        let image = Image::confirmed();
        image.flip_bit_of('B', "rootfs.squashfs");
        rolls_back(start(firmware, &image), &image);
    }, mostly Uefi;
    // The same beside sectors that cannot be read and that nobody needs: the way back is not barred by them.
    a_squashfs_beside_dead_sectors => |firmware| {
        let image = Image::confirmed();
        image.flip_bit_of('B', "rootfs.squashfs");
        let [_, second] = image.boot_env_offsets();
        let begin = |name| image.place(name).0;
        let end = std::fs::metadata(image.path()).expect("the image is there").len();
        let dead = [second, begin("META"), begin("STATE"), begin("EPHEMERAL"), end - 512];
        let drive = Drive::new(image.path()).boot_index(1).unreadable(&dead);
        rolls_back(Machine::new(firmware).drive(&drive).may_reset().start(), &image);
    }, mostly Bios;
    a_boot_env_that_is_missing => |firmware| {
        let image = Image::confirmed();
        image.remove_boot_env(BOOT_ENVS[0]);
        default_boots(firmware, &image, false);
    }, mostly Uefi;
    both_boot_envs_missing => |firmware| {
        let image = Image::confirmed();
        for name in BOOT_ENVS {
            image.remove_boot_env(name);
        }
        default_boots(firmware, &image, true);
    };
    both_boot_envs_zeros => |firmware| {
        let image = Image::confirmed();
        for offset in image.boot_env_offsets() {
            image.write_boot_env(offset, &[0; 512]);
        }
        default_boots(firmware, &image, true);
    }, mostly Bios;
    a_boot_env_that_is_torn => |firmware| {
        let image = Image::confirmed();
        let [first, _] = image.boot_env_offsets();
        let mut torn = image.boot_env(BOOT_ENVS[0]);
        // Half of the sector is of a later state, half is noise.
        torn[256..].fill(0xa5);
        image.write_boot_env(first, &torn);
        default_boots(firmware, &image, false);
    };
}

/// The initramfs of slot B finds its squashfs damaged, and makes slot A the default.
fn rolls_back(mut console: Console, image: &Image) {
    console.wait_for("SLIPWAY-FAIL reason=rootfs.squashfs of slot B is not the one in SHA256SUMS");
    let line = console.wait_for("SLIPWAY-ROLLBACK");
    if line != "SLIPWAY-ROLLBACK exit=0" {
        console.fail(&line);
    }
    console.expect_os(VERSION, 'A', 0);
    let console = console.switch_off();
    assert_eq!(image.next_boot(), ('A', false), "{console}");
}

/// Slot B boots; `lost`: by what the slots say of themselves.
fn default_boots(firmware: Firmware, image: &Image, lost: bool) {
    assert_eq!(image.next_boot(), ('B', false));
    let mut console = start(firmware, image);
    console.expect_os(VERSION_2, 'B', 0);
    if console.shows("both copies of boot.env are lost") != lost {
        console.fail("the wrong source was used");
    }
}

fn start(firmware: Firmware, image: &Image) -> Console {
    Machine::new(firmware).drive(&Drive::new(image.path()).boot_index(1).kept()).may_reset().start()
}
