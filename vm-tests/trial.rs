//! A new system that is no good. Whatever is wrong with it, the machine comes back to the old one by itself,
//! and `status` says what happened.

use crate::{
    boot_rule::refusal,
    campaign,
    console::Console,
    image::Image,
    qemu::{Drive, Firmware, Machine},
    world::{VERSION, VERSION_2, VERSION_WATCHDOG},
};

under_both_firmwares! {
    a_kernel_that_is_missing => |firmware| never_starts(firmware, |image| image.remove_file('B', "vmlinuz"));
    a_kernel_of_zeros => |firmware| never_starts(firmware, |image| {
        let (offset, size) = image.file_of_slot('B', "vmlinuz");
        image.zero(offset, size);
    }), mostly Uefi;
    a_kernel_that_is_cut_short => |firmware| never_starts(firmware, |image| image.truncate_file('B', "vmlinuz")), mostly Bios;
    a_kernel_with_one_flipped_bit => |firmware| never_starts(firmware, |image| image.flip_bit_of('B', "vmlinuz"));
    an_initramfs_that_is_missing => |firmware| never_starts(firmware, |image| image.remove_file('B', "initramfs.xz")), mostly Bios;
    an_initramfs_that_is_cut_short => |firmware| {
        never_starts(firmware, |image| image.truncate_file('B', "initramfs.xz"));
    }, mostly Uefi;
    an_initramfs_with_one_flipped_bit => |firmware| {
        never_starts(firmware, |image| image.flip_bit_of('B', "initramfs.xz"));
    };
    a_slot_of_zeros => |firmware| never_starts(firmware, |image| image.zero_slot('B'));
    a_squashfs_with_one_flipped_bit => |firmware| {
        let image = Image::upgraded(VERSION_2, &[]);
        image.flip_bit_of('B', "rootfs.squashfs");
        let reason = "SLIPWAY-FAIL reason=rootfs.squashfs of slot B is not the one in SHA256SUMS";
        comes_back(machine(firmware, &image), &image, &[reason]);
    }, mostly Uefi;
    a_panic_before_the_userland => |firmware| fails(firmware, "panic-initramfs", &["Kernel panic"]), mostly Uefi;
    // With a word of its own about when to reboot, which takes the place of the boot rule's.
    a_panic_of_the_userland => |firmware| {
        let args = ["slipway.scenario=panic", "panic=1"].map(|arg| ["--extra-kernel-arg", arg]);
        let image = Image::upgraded(VERSION_2, args.as_flattened());
        comes_back(machine(firmware, &image), &image, &["Kernel panic", "Rebooting in 1 seconds"]);
    }, mostly Bios;
    a_system_that_is_not_well => |firmware| fails(firmware, "unhealthy", &["SLIPWAY-UNHEALTHY"]), mostly Uefi;
    // Nothing in the system reboots it: the guard does, at its deadline.
    a_check_that_fails_until_the_deadline => |firmware| {
        let args = ["slipway.scenario=check-fails", "slipway.deadline=90s"].map(|arg| ["--extra-kernel-arg", arg]);
        let image = Image::upgraded(VERSION_2, args.as_flattened());
        let mut console = machine(firmware, &image).start();
        console.expect_os(VERSION_2, 'B', 1);
        console.wait_for("SLIPWAY-CONFIRM exit=5");
        is_back_and_says(console, &image, "was not confirmed: check 20-network failed: ping: 10.0.2.9 unreachable");
    }, mostly Uefi;
    a_hang_that_the_watchdog_ends => |firmware| {
        let image = upgraded_to(VERSION_WATCHDOG, "hang");
        comes_back(machine(firmware, &image).watchdog(), &image, &["SLIPWAY-SCENARIO hang"]);
    }, mostly Uefi;
    a_kernel_that_hangs_until_the_watchdog_ends_it => |firmware| {
        let image = upgraded_to(VERSION_WATCHDOG, "unconfirmed");
        let mut console = machine(firmware, &image).watchdog().debugger().start();
        console.expect_os(VERSION_WATCHDOG, 'B', 1);
        console.hang();
        is_back(console, &image);
    }, mostly Bios;
    a_system_that_switches_itself_off => |firmware| {
        let image = upgraded_to(VERSION_2, "poweroff");
        let mut console = machine(firmware, &image).start();
        console.wait_for("SLIPWAY-SCENARIO poweroff");
        console.expect_power_off();
        comes_back(machine(firmware, &image), &image, &[]);
    }, mostly Uefi;
    a_power_cut_in_the_middle_of_the_boot => |firmware| {
        // Without `quiet` the kernel says what it does.
        let image = Image::upgraded(VERSION_2, &["--extra-kernel-arg", "-quiet"]);
        let mut console = machine(firmware, &image).start();
        console.wait_for("slipway: slot B try=1: booting");
        console.wait_for("Run /init as init process");
        console.switch_off();
        comes_back(machine(firmware, &image), &image, &[]);
    }, mostly Uefi;
}

/// The guard feeds the watchdog, and the watchdog sees to the guard.
#[test]
fn a_guard_that_hangs_is_ended_by_the_watchdog_under_bios() {
    let image = upgraded_to(VERSION_WATCHDOG, "guard-hangs");
    comes_back(machine(Firmware::Bios, &image).watchdog(), &image, &["SLIPWAY-SCENARIO guard-hangs"]);
}

/// How a machine of another architecture starts anew is its own.
#[test]
fn a_panic_of_the_userland_on_arm64() {
    campaign("a_panic_of_the_userland", Firmware::UefiArm64, |firmware| {
        let image = Image::upgraded_for(firmware, &["--extra-kernel-arg", "slipway.scenario=panic"]);
        comes_back(machine(firmware, &image), &image, &["Kernel panic", "Rebooting in 10 seconds"]);
    });
}

/// The bootloader finds out.
fn never_starts(firmware: Firmware, damage: impl Fn(&Image)) {
    let image = Image::upgraded(VERSION_2, &[]);
    damage(&image);
    assert_eq!(image.next_boot(), ('A', false), "status knows it, too");
    let mut console = machine(firmware, &image).start();
    console.wait_for("slipway: slot B try=1: ");
    console.wait_for(&format!("slipway: slot B {}", refusal(firmware)));
    console.wait_for("slipway: trial of slot B failed");
    is_back_and_says(console, &image, "the boot loader refused slot B, ");
}

/// The new system starts and fails as a scenario of the reference OS has it, saying this.
fn fails(firmware: Firmware, name: &str, seen: &[&str]) {
    let image = upgraded_to(VERSION_2, name);
    comes_back(machine(firmware, &image), &image, seen);
}

/// Version 1, and another version in which a scenario of the reference OS is to be played.
fn upgraded_to(version: &str, scenario: &str) -> Image {
    Image::upgraded(version, &["--extra-kernel-arg", &format!("slipway.scenario={scenario}")])
}

fn machine(firmware: Firmware, image: &Image) -> Machine {
    Machine::new(firmware).drive(&Drive::new(image.path()).boot_index(1).kept()).may_reset()
}

/// One run of a machine: these lines appear, one after the other, and then the old system.
fn comes_back(machine: Machine, image: &Image, seen: &[&str]) {
    let mut console = machine.start();
    for text in seen {
        console.wait_for(text);
    }
    is_back(console, image);
}

/// The old system boots, and `status` says that nobody confirmed the new one.
fn is_back(console: Console, image: &Image) {
    is_back_and_says(console, image, "was tried and never confirmed");
}

/// The old system boots, and `status` says what happened.
fn is_back_and_says(mut console: Console, image: &Image, what: &str) {
    console.wait_for("slipway: slot A try=0: booting");
    console.expect_os(VERSION, 'A', 0);
    let console = console.switch_off();
    let status = image.report("status");
    assert_eq!(status["slots"]["B"]["state"], "tried", "{status:#}\n{console}");
    let trial = status["last_trial"].as_str().unwrap_or_default();
    assert!(trial.contains(what), "{status:#}\n{console}");
    assert_eq!(image.next_boot(), ('A', false), "{status:#}\n{console}");
}
