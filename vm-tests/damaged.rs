//! When something is damaged on a disk with two good slots, the machine boots the best that is left. Slot B, the later
//! version, is the default.
//!
//! Subject: loader/src core/boot/src assets/grub/grub.cfg
//! Needs: root boot-assets payloads qemu

use serde_json::json;

use crate::{
    boot_rule::refusal,
    console::Console,
    image::{BOOT_ENVS, Image},
    qemu::{Drive, Firmware, Machine},
    world::{VERSION, VERSION_2},
};

stories! {
    /// One bit of the kernel in the default slot is flipped. The boot loader refuses that slot and falls back to the
    /// other one, which boots, as `status` has said. Afterwards `status` names the refused slot, and its digest as the
    /// reason.
    a_kernel_of_the_default_slot: campaign Bios, gate Uefi => |firmware| {
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
    /// One bit of the squashfs in the default slot is flipped. First start: the initramfs finds it, makes the other
    /// slot the default with `rollback`, and reboots. Second: the other slot boots, and is the default.
    a_squashfs_of_the_default_slot: campaign Bios, campaign Uefi => |firmware| {
        let image = Image::confirmed();
        image.flip_bit_of('B', "rootfs.squashfs");
        rolls_back(start(firmware, &image), &image);
    };
    /// One bit of the squashfs in the default slot is flipped, and every read of five sectors fails: a copy of
    /// `boot.env`, the backup GPT, the heads of META, STATE and EPHEMERAL. First start: the initramfs makes the other
    /// slot the default all the same, and reboots. Second: the other slot boots, and is the default.
    a_squashfs_beside_dead_sectors: campaign Bios, campaign Uefi => |firmware| {
        let image = Image::confirmed();
        image.flip_bit_of('B', "rootfs.squashfs");
        let [_, second] = image.boot_env_offsets();
        let begin = |name| image.place(name).0;
        let end = std::fs::metadata(image.path()).expect("the image is there").len();
        let dead = [second, begin("META"), begin("STATE"), begin("EPHEMERAL"), end - 512];
        let drive = Drive::new(image.path()).boot_index(1).unreadable(&dead);
        rolls_back(Machine::new(firmware).drive(&drive).may_reset().start(), &image);
    };
    /// The first copy of `boot.env` is missing. The boot loader uses the other one: the confirmed slot B boots, as
    /// `status` has said, and the console does not say that both copies are lost.
    a_boot_env_that_is_missing: campaign Bios, campaign Uefi => |firmware| {
        let image = Image::confirmed();
        image.remove_boot_env(BOOT_ENVS[0]);
        default_boots(firmware, &image, false);
    };
    /// Both copies of `boot.env` are missing. The console says so, and by what the slots say of themselves slot B
    /// boots, the later one, as `status` has said.
    both_boot_envs_missing: campaign Bios, gate Uefi => |firmware| {
        let image = Image::confirmed();
        for name in BOOT_ENVS {
            image.remove_boot_env(name);
        }
        default_boots(firmware, &image, true);
    };
    /// Both copies of `boot.env` are zeros. The console says that they are lost, and by what the slots say of
    /// themselves slot B boots, the later one, as `status` has said.
    both_boot_envs_zeros: campaign Bios, campaign Uefi => |firmware| {
        let image = Image::confirmed();
        for offset in image.boot_env_offsets() {
            image.write_boot_env(offset, &[0; 512]);
        }
        default_boots(firmware, &image, true);
    };
    /// Half of the first copy of `boot.env` is noise. The boot loader uses the other copy: the confirmed slot B boots,
    /// as `status` has said, and the console does not say that both copies are lost.
    a_boot_env_that_is_torn: campaign Bios, campaign Uefi => |firmware| {
        let image = Image::confirmed();
        let [first, _] = image.boot_env_offsets();
        let mut torn = image.boot_env(BOOT_ENVS[0]);
        // The first half of the sector is as it was, the second is noise.
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
