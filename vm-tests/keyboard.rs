//! Somebody at the keyboard while GRUB runs: Esc or F4 offers the other slot, all other keys nothing. What the disk says
//! is not changed by it.

use crate::{
    console::Console,
    image::{BOOT_ENVS, Image},
    qemu::{Drive, Firmware, Machine},
    world::{VERSION, VERSION_2},
};

const OFFER: &str = "press Esc within 30 s to boot slot A";

/// The key to press. UEFI's own setup takes Esc.
fn key(firmware: Firmware) -> &'static str {
    if firmware == Firmware::Bios { "esc" } else { "f4" }
}

under_both_firmwares! {
    the_other_slot_boots_one_time => |firmware| {
        let image = Image::confirmed();
        let before = BOOT_ENVS.map(|name| image.boot_env(name));
        let mut console = start(firmware, &image);
        console.press_until(&[key(firmware)], "Release the key");
        console.wait_for(OFFER);
        console.press_until(&[key(firmware)], "slipway: slot A try=0: booting");
        console.expect_os(VERSION, 'A', 0);
        let console = console.switch_off();
        assert_eq!(BOOT_ENVS.map(|name| image.boot_env(name)), before, "{console}");
        assert_eq!(image.next_boot(), ('B', false), "{console}");
    };
}

#[test]
fn other_keys_change_nothing_under_bios() {
    let image = Image::confirmed();
    let mut console = start(Firmware::Bios, &image);
    console.press_until(&["e", "c", "x", "ret", "down", "a"], "slipway: slot B try=0: booting");
    console.expect_os(VERSION_2, 'B', 0);
    if console.shows("Release the key") {
        console.fail("a key that means nothing was taken for one that does");
    }
}

/// A trial stays due while somebody is asked, and is made when nobody answers.
#[test]
fn without_an_answer_the_trial_goes_on_under_uefi() {
    let image = Image::upgraded(VERSION_2, &[]);
    let mut console = start(Firmware::Uefi, &image);
    console.press_until(&["f4"], "Release the key");
    console.wait_for(OFFER);
    console.wait_for("slipway: slot B try=1: booting");
    console.expect_os(VERSION_2, 'B', 1);
}

fn start(firmware: Firmware, image: &Image) -> Console {
    Machine::new(firmware).drive(&Drive::new(image.path()).boot_index(1).kept()).keyboard().start()
}
