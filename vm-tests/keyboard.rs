//! A key pressed while the boot loader runs can boot the other slot once, and changes nothing on the disk. GRUB: Esc or
//! F4 offers the other slot, all other keys nothing. Slipway's own loader: any key offers both.
//!
//! Subject: assets/grub/grub.cfg loader/src
//! Needs: root boot-assets payloads qemu

use crate::{
    console::Console,
    image::{BOOT_ENVS, Image},
    qemu::{Drive, Firmware, Machine},
    world::{VERSION, VERSION_2},
};

/// What the boot loader of a firmware says, and the keys that it wants. UEFI's own setup takes Esc.
struct Menu {
    key: &'static str,
    release: &'static str,
    offer: &'static str,
    choice: &'static str,
}

const GRUB: Menu = Menu {
    key: "esc",
    release: "slipway: this time only. Release the key.",
    offer: "slipway: press Esc within 30 s to boot slot A",
    choice: "esc",
};
const GRUB_UNDER_UEFI: Menu = Menu { key: "f4", choice: "f4", ..GRUB };
const SLIPWAY: Menu = Menu {
    key: "f4",
    release: "slipway: release the key",
    offer: "slipway: slot A (good): press A within 30 s to boot it, this time only",
    choice: "a",
};

stories! {
    /// A user presses keys ten times a second while the boot loader runs: GRUB under BIOS, Slipway's own under UEFI.
    /// The slot that would not boot now is offered, is chosen, and boots. Both copies of `boot.env` are the same
    /// afterwards, and slot B is still what boots next.
    the_other_slot_boots_one_time: campaign Bios, gate Uefi => |firmware| {
        let image = Image::confirmed();
        let before = BOOT_ENVS.map(|name| image.boot_env(name));
        let menu = if firmware == Firmware::Bios { GRUB } else { SLIPWAY };
        let mut console = start(firmware, &image);
        console.press_until(&[menu.key], menu.release);
        console.wait_for(menu.offer);
        console.press_until(&[menu.choice], "slipway: slot A try=0: booting");
        console.expect_os(VERSION, 'A', 0);
        let console = console.switch_off();
        assert_eq!(BOOT_ENVS.map(|name| image.boot_env(name)), before, "{console}");
        assert_eq!(image.next_boot(), ('B', false), "{console}");
    };
}

/// A user presses keys that mean nothing to GRUB until the default boots. GRUB offers nothing, and slot B boots.
#[test]
#[ignore = "campaign"]
fn other_keys_change_nothing_under_bios() {
    let image = Image::confirmed();
    let mut console = start(Firmware::Bios, &image);
    console.press_until(&["e", "c", "x", "ret", "down", "a"], "slipway: slot B try=0: booting");
    console.expect_os(VERSION_2, 'B', 0);
    if console.shows(GRUB.release) {
        console.fail("a key that means nothing was taken for one that does");
    }
}

/// The disk was installed with `--boot-menu=false`. A user presses keys until the default boots: Slipway's loader
/// offers nothing, and slot A boots.
#[test]
#[ignore = "campaign"]
fn without_a_menu_no_key_does_anything_under_uefi() {
    let image = Image::installed(VERSION, &["--boot-menu=false"]);
    image.copy_slot_a_to_slot_b();
    image.set_boot_env(&["seq=2", "b=good"]);
    let mut console = start(Firmware::Uefi, &image);
    console.press_until(&[SLIPWAY.key, "b", "spc"], "slipway: slot A try=0: booting");
    console.expect_os(VERSION, 'A', 0);
    if console.shows(SLIPWAY.release) {
        console.fail("a key has done something");
    }
}

/// A trial of slot B is due, and a key makes GRUB offer slot A for 30 s. There is no answer, so the trial is made: slot
/// B boots, as a trial.
#[test]
#[ignore = "campaign"]
fn without_an_answer_the_trial_goes_on_by_grub_under_uefi() {
    let image = Image::installed(VERSION, &["--efi-loader", "grub"]);
    image.copy_slot_a_to_slot_b();
    image.set_boot_env(&["seq=2", "once=B", "b=trial"]);
    let mut console = start(Firmware::Uefi, &image);
    console.press_until(&[GRUB_UNDER_UEFI.key], GRUB_UNDER_UEFI.release);
    console.wait_for(GRUB_UNDER_UEFI.offer);
    console.wait_for("slipway: slot B try=1: booting");
    console.expect_os(VERSION, 'B', 1);
}

fn start(firmware: Firmware, image: &Image) -> Console {
    Machine::new(firmware).drive(&Drive::new(image.path()).boot_index(1).kept()).keyboard().start()
}
