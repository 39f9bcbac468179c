//! A machine upgrades itself: the reference OS finds a payload on a medium, calls the installer, boots the new system
//! and confirms it. The medium stays in.
//!
//! Subject: src/ops/upgrade.rs core/src/plan/upgrade.rs core/boot/src/run.rs assets/grub/grub.cfg
//! Needs: root boot-assets payloads qemu

use crate::{
    image::Image,
    medium::Medium,
    qemu::{Drive, Firmware, Machine},
    world::{VERSION, VERSION_2},
};

stories! {
    /// First start: the installed system confirms itself, and upgrades from the medium. Second: the trial in slot B
    /// boots and confirms itself; another upgrade has nothing to do, and slot B is the default. Third: after `rollback`
    /// slot A, the old system, boots.
    a_machine_upgrades_itself_and_can_go_back: gate Bios, campaign Uefi => upgrades_itself;
    /// First start: the installed system confirms itself, and upgrades from the medium. Second: the trial panics.
    /// Third: the old system is back and is the default; `confirm`, and a second upgrade to the same payload, are
    /// refused with exit code 7.
    a_machine_tries_a_bad_system_one_time: campaign Bios, gate Uefi => tries_one_time;
}

fn upgrades_itself(firmware: Firmware) {
    let (image, medium) = (Image::installed(VERSION, &[]), Medium::with_upgrade(VERSION_2, &[]));
    let mut console = machine(firmware, &image).drive(&medium.drive()).start();
    console.expect_os(VERSION, 'A', 0);
    console.expect_agent("CONFIRM", 0);
    console.expect_agent("UPGRADE", 0);
    console.wait_for("slipway: slot B try=1: booting");
    console.expect_os(VERSION_2, 'B', 1);
    console.expect_agent("CONFIRM", 0);
    console.wait_for("nothing to do");
    console.expect_agent("UPGRADE", 0);
    let console = console.switch_off();
    assert_eq!(image.next_boot(), ('B', false), "{console}");

    image.installer_from('B', 0, "rollback", &[]);
    assert_eq!(image.next_boot(), ('A', false));
    machine(firmware, &image).start().expect_os(VERSION, 'A', 0);
}

fn tries_one_time(firmware: Firmware) {
    let image = Image::installed(VERSION, &[]);
    let medium = Medium::with_upgrade(VERSION_2, &["--extra-kernel-arg", "slipway.scenario=panic"]);
    let mut console = machine(firmware, &image).drive(&medium.drive()).start();
    console.expect_os(VERSION, 'A', 0);
    console.expect_agent("CONFIRM", 0);
    console.expect_agent("UPGRADE", 0);
    console.wait_for("slipway: slot B try=1: booting");
    console.wait_for("Kernel panic");
    console.expect_os(VERSION, 'A', 0);
    // It runs, but not as the trial that is to be confirmed; and the payload is known to be bad.
    console.expect_agent("CONFIRM", 7);
    console.expect_agent("UPGRADE", 7);
    let console = console.switch_off();
    assert_eq!(image.next_boot(), ('A', false), "{console}");
}

fn machine(firmware: Firmware, image: &Image) -> Machine {
    Machine::new(firmware).drive(&Drive::new(image.path()).boot_index(1).kept()).may_reset()
}
