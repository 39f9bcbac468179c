//! A machine comes back by itself from a new system that is no good, whatever is wrong with it, and `status` says what
//! happened.
//!
//! Subject: loader/src core/boot/src assets/grub/grub.cfg src/ops/guard.rs hack/reference-os
//! Needs: root boot-assets payloads qemu

use crate::{
    boot_rule::refusal,
    console::Console,
    image::Image,
    qemu::{Drive, Firmware, Machine},
    world::{VERSION, VERSION_2, VERSION_WATCHDOG},
};

stories! {
    /// The trial's kernel is missing. The boot loader refuses the trial, and the old system boots, as `status` has
    /// said. Afterwards `status` says that the boot loader refused slot B.
    a_kernel_that_is_missing: campaign Bios, campaign Uefi => |firmware| {
        never_starts(firmware, |image| image.remove_file('B', "vmlinuz"));
    };
    /// The trial's kernel is zeros, of the right size. The boot loader refuses the trial, and the old system boots, as
    /// `status` has said. Afterwards `status` says that the boot loader refused slot B.
    a_kernel_of_zeros: campaign Bios, campaign Uefi => |firmware| {
        never_starts(firmware, |image| {
            let (offset, size) = image.file_of_slot('B', "vmlinuz");
            image.zero(offset, size);
        });
    };
    /// The trial's kernel is cut to half its size. The boot loader refuses the trial, and the old system boots, as
    /// `status` has said. Afterwards `status` says that the boot loader refused slot B.
    a_kernel_that_is_cut_short: campaign Bios, campaign Uefi => |firmware| {
        never_starts(firmware, |image| image.truncate_file('B', "vmlinuz"));
    };
    /// One bit of the trial's kernel is flipped. The boot loader refuses the trial, and the old system boots, as
    /// `status` has said. Afterwards `status` says that the boot loader refused slot B.
    a_kernel_with_one_flipped_bit: campaign Bios, campaign Uefi => |firmware| {
        never_starts(firmware, |image| image.flip_bit_of('B', "vmlinuz"));
    };
    /// The trial's initramfs is missing. The boot loader refuses the trial, and the old system boots, as `status` has
    /// said. Afterwards `status` says that the boot loader refused slot B.
    an_initramfs_that_is_missing: campaign Bios, campaign Uefi => |firmware| {
        never_starts(firmware, |image| image.remove_file('B', "initramfs.xz"));
    };
    /// The trial's initramfs is cut to half its size. The boot loader refuses the trial, and the old system boots, as
    /// `status` has said. Afterwards `status` says that the boot loader refused slot B.
    an_initramfs_that_is_cut_short: campaign Bios, campaign Uefi => |firmware| {
        never_starts(firmware, |image| image.truncate_file('B', "initramfs.xz"));
    };
    /// One bit of the trial's initramfs is flipped. The boot loader refuses the trial, and the old system boots, as
    /// `status` has said. Afterwards `status` says that the boot loader refused slot B.
    an_initramfs_with_one_flipped_bit: campaign Bios, campaign Uefi => |firmware| {
        never_starts(firmware, |image| image.flip_bit_of('B', "initramfs.xz"));
    };
    /// The whole slot of the trial is zeros. The boot loader refuses the trial, and the old system boots, as `status`
    /// has said. Afterwards `status` says that the boot loader refused slot B.
    a_slot_of_zeros: campaign Bios, campaign Uefi => |firmware| {
        never_starts(firmware, |image| image.zero_slot('B'));
    };
    /// First start: one bit of the trial's squashfs is flipped; the trial's initramfs finds it and reboots. Second: the
    /// old system boots and is the default; `status` says that the trial was tried and never confirmed.
    a_squashfs_with_one_flipped_bit: campaign Bios, gate Uefi => |firmware| {
        let image = Image::upgraded(VERSION_2, &[]);
        image.flip_bit_of('B', "rootfs.squashfs");
        let reason = "SLIPWAY-FAIL reason=rootfs.squashfs of slot B is not the one in SHA256SUMS";
        comes_back(machine(firmware, &image), &image, &[reason]);
    };
    /// First start: the trial's kernel panics in the initramfs, and reboots. Second: the old system boots and is the
    /// default; `status` says that the trial was tried and never confirmed.
    a_panic_before_the_userland: campaign Bios, campaign Uefi => |firmware| {
        fails(firmware, "panic-initramfs", &["Kernel panic"]);
    };
    /// First start: the trial's kernel panics once its userland runs. The user has given `panic=1`, which takes the
    /// place of the boot rule's own word: it reboots after one second. Second: the old system boots and is the default;
    /// `status` says that the trial was tried and never confirmed.
    a_panic_of_the_userland: campaign Bios, campaign Uefi => |firmware| {
        let args = ["slipway.scenario=panic", "panic=1"].map(|arg| ["--extra-kernel-arg", arg]);
        let image = Image::upgraded(VERSION_2, args.as_flattened());
        comes_back(machine(firmware, &image), &image, &["Kernel panic", "Rebooting in 1 seconds"]);
    };
    /// First start: the agent of the trial finds the system unwell and reboots it. Second: the old system boots and is
    /// the default; `status` says that the trial was tried and never confirmed.
    a_system_that_is_not_well: campaign Bios, campaign Uefi => |firmware| {
        fails(firmware, "unhealthy", &["SLIPWAY-UNHEALTHY"]);
    };
    /// First start: the trial is up, but a health check fails, so `confirm --checks` does not confirm it. Nothing in
    /// the system reboots it: `installer guard` does, at its deadline of 90 s. Second: the old system boots and is the
    /// default; `status` names the check and what it said.
    a_check_that_fails_until_the_deadline: campaign Bios, gate Uefi => |firmware| {
        let args = ["slipway.scenario=check-fails", "slipway.deadline=90s"].map(|arg| ["--extra-kernel-arg", arg]);
        let image = Image::upgraded(VERSION_2, args.as_flattened());
        let mut console = machine(firmware, &image).start();
        console.expect_os(VERSION_2, 'B', 1);
        console.wait_for("SLIPWAY-CONFIRM exit=5");
        is_back_and_says(console, &image, "was not confirmed: check 20-network failed: ping: 10.0.2.9 unreachable");
    };
    /// First start: the trial's userland hangs and does not feed the watchdog, which resets the machine. Second: the
    /// old system boots and is the default; `status` says that the trial was tried and never confirmed.
    a_hang_that_the_watchdog_ends: campaign Bios, gate Uefi => |firmware| {
        let image = upgraded_to(VERSION_WATCHDOG, "hang");
        comes_back(machine(firmware, &image).watchdog(), &image, &["SLIPWAY-SCENARIO hang"]);
    };
    /// First start: the trial is up, and its kernel is hung from outside. The watchdog resets the machine. Second: the
    /// old system boots and is the default; `status` says that the trial was tried and never confirmed.
    a_kernel_that_hangs_until_the_watchdog_ends_it: campaign Bios, campaign Uefi => |firmware| {
        let image = upgraded_to(VERSION_WATCHDOG, "unconfirmed");
        let mut console = machine(firmware, &image).watchdog().debugger().start();
        console.expect_os(VERSION_WATCHDOG, 'B', 1);
        console.hang();
        is_back(console, &image);
    };
    /// First machine: the trial powers off. Second machine: the old system boots, not the trial again, and is the
    /// default; `status` says that the trial was tried and never confirmed.
    a_system_that_switches_itself_off: campaign Bios, campaign Uefi => |firmware| {
        let image = upgraded_to(VERSION_2, "poweroff");
        let mut console = machine(firmware, &image).start();
        console.wait_for("SLIPWAY-SCENARIO poweroff");
        console.expect_power_off();
        comes_back(machine(firmware, &image), &image, &[]);
    };
    /// First machine: the power is cut once the trial's kernel has started its init. Second machine: the old system
    /// boots and is the default; `status` says that the trial was tried and never confirmed.
    a_power_cut_in_the_middle_of_the_boot: campaign Bios, gate Uefi => |firmware| {
        // Without `quiet` the kernel says what it does.
        let image = Image::upgraded(VERSION_2, &["--extra-kernel-arg", "-quiet"]);
        let mut console = machine(firmware, &image).start();
        console.wait_for("slipway: slot B try=1: booting");
        console.wait_for("Run /init as init process");
        console.switch_off();
        comes_back(machine(firmware, &image), &image, &[]);
    };
}

/// First start: in the trial only `installer guard --watchdog` feeds the watchdog, for a minute, twice as long as the
/// watchdog waits. Then the guard is stopped, and the watchdog resets the machine. Second: the old system boots and is
/// the default; `status` says that the trial was tried and never confirmed.
#[test]
#[ignore = "campaign"]
fn a_guard_that_hangs_is_ended_by_the_watchdog_under_bios() {
    let image = upgraded_to(VERSION_WATCHDOG, "guard-hangs");
    comes_back(machine(Firmware::Bios, &image).watchdog(), &image, &["SLIPWAY-SCENARIO guard-hangs"]);
}

/// First start: on arm64, which has its own way to reset, the trial's kernel panics. By the boot rule's own `panic=10`
/// it reboots after ten seconds. Second: the old system boots and is the default; `status` says that the trial was
/// tried and never confirmed.
#[test]
#[ignore = "campaign"]
fn a_panic_of_the_userland_on_arm64() {
    let firmware = Firmware::UefiArm64;
    let image = Image::upgraded_for(firmware, &["--extra-kernel-arg", "slipway.scenario=panic"]);
    comes_back(machine(firmware, &image), &image, &["Kernel panic", "Rebooting in 10 seconds"]);
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

/// The old system boots, and `status` says that the new one was not confirmed.
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
