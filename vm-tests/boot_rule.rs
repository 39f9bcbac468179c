//! GRUB boots what `installer status` says boots next. It follows the boot rule of `assets/grub/grub.cfg`, started by
//! real firmware from an installed disk. Under UEFI these disks are installed with GRUB for it. (Slipway's own loader:
//! `loader`.)
//!
//! Subject: assets/grub/grub.cfg core/boot/src/rule.rs
//! Needs: root boot-assets payloads qemu

use crate::{
    console::Console,
    image::{BOOT_ENVS, Image},
    qemu::{Drive, Firmware, Machine},
    world::VERSION,
};

stories! {
    /// Both copies of `boot.env` are zeros. The console says that both are lost, and slot A boots all the same, as
    /// `status` has said.
    a_disk_that_lost_both_boot_envs_boots: gate Bios, campaign Uefi, campaign UefiArm64 => boots_without_any_boot_env;
    /// The first copy of `boot.env` has the head of a newer state, and then noise. GRUB uses the second copy: slot A
    /// boots, as `status` has said, and the console does not say that both copies are lost.
    a_disk_with_a_torn_boot_env_boots_by_the_other_copy: campaign Bios, campaign Uefi, campaign UefiArm64 =>
        boots_by_the_other_boot_env;
    /// A trial of slot B is armed, and slot B is empty. First start: GRUB looks at slot B, says that its trial failed,
    /// and reboots. Second: slot A boots, as `status` has said before. Both copies of `boot.env` say that the trial is
    /// spent and why; nothing else in them has changed.
    a_trial_of_an_empty_slot_comes_back_to_the_default: campaign Bios, campaign Uefi, campaign UefiArm64 =>
        empty_trial_comes_back;
    /// First start: slot B boots, as a trial, and both copies of `boot.env` say that the trial is spent. Second: the
    /// trial was not confirmed, so slot A, the default, boots. `status` has said both before.
    a_trial_is_booted_one_time_and_unconfirmed_never_again: campaign Bios, campaign Uefi, campaign UefiArm64 =>
        trial_is_booted_once;
    /// One bit of the kernel in the only slot is flipped. GRUB says that slot A does not verify and that no slot can be
    /// booted, and it starts no kernel. `status` has said that nothing boots.
    a_kernel_with_one_flipped_bit_never_starts: gate Bios, gate Uefi, campaign UefiArm64 => flipped_kernel_never_starts;
    /// The kernel in the only slot is zeros, and `check=off` turns the digests off. GRUB itself refuses this kernel,
    /// says that no slot can be booted, and does not hang.
    what_is_no_kernel_never_starts_even_unchecked: gate Bios, campaign Uefi, campaign UefiArm64 =>
        no_kernel_never_starts;
}

fn boots_without_any_boot_env(firmware: Firmware) {
    let image = installed(firmware, &[]);
    for offset in image.boot_env_offsets() {
        image.write_boot_env(offset, &[0; 512]);
    }
    assert_eq!(image.next_boot(), ('A', false));
    let mut console = start(firmware, &image);
    console.wait_for("both copies of boot.env are lost");
    console.expect_os(VERSION, 'A', 0);
}

fn boots_by_the_other_boot_env(firmware: Firmware) {
    let image = installed(firmware, &[]);
    let [first, _] = image.boot_env_offsets();
    // The head of a newer state, then noise: what a disk may leave that does not write a sector whole.
    let mut torn = b"# GRUB Environment Block\nseq=2\ndef".to_vec();
    torn.extend((torn.len()..512).map(|n| (n * 151 % 251) as u8));
    image.write_boot_env(first, &torn);
    assert_eq!(image.boot_env(BOOT_ENVS[0]), torn, "the first copy is the one that was torn");
    assert_eq!(image.next_boot(), ('A', false));
    let mut console = start(firmware, &image);
    console.expect_os(VERSION, 'A', 0);
    if console.shows("both copies of boot.env are lost") {
        console.fail("the second copy was not used");
    }
}

fn empty_trial_comes_back(firmware: Firmware) {
    let image = installed(firmware, &[]);
    image.set_boot_env(&["seq=2", "once=B", "b=trial"]);
    assert_eq!(image.next_boot(), ('A', false));
    let armed = image.boot_env_lines(BOOT_ENVS[0]);
    let drive = Drive::new(image.path()).boot_index(1).kept();
    let mut console = Machine::new(firmware).drive(&drive).may_reset().start();
    console.wait_for("slipway: slot B try=1: checking");
    console.wait_for("trial of slot B failed, rebooting into the default");
    console.expect_os(VERSION, 'A', 0);
    // It says why, too.
    let armed = [&armed[..], &["refused=B:digest".to_owned()]].concat();
    assert_try_is_spent(&image, &armed, &console.switch_off());
}

fn trial_is_booted_once(firmware: Firmware) {
    let image = installed(firmware, &["--extra-kernel-arg", "slipway.scenario=unconfirmed"]);
    image.copy_slot_a_to_slot_b();
    image.set_boot_env(&["seq=2", "once=B", "b=trial"]);
    let armed = image.boot_env_lines(BOOT_ENVS[0]);
    for (slot, tries) in [('B', 1), ('A', 0)] {
        assert_eq!(image.next_boot(), (slot, tries == 1));
        let drive = Drive::new(image.path()).boot_index(1).kept();
        let mut console = Machine::new(firmware).drive(&drive).start();
        console.expect_os(VERSION, slot, tries);
        // The trial was not confirmed.
        assert_try_is_spent(&image, &armed, &console.switch_off());
    }
}

fn flipped_kernel_never_starts(firmware: Firmware) {
    let image = installed(firmware, &[]);
    image.flip_bit_of('A', "vmlinuz");
    assert_eq!(image.next_boot(), ('-', false), "there is no other slot");
    let mut console = start(firmware, &image);
    console.wait_for("slipway: slot A does not verify");
    console.wait_for("slipway: no slot can be booted");
    if console.shows("try=0: booting") {
        console.fail("GRUB has started a kernel that does not verify");
    }
}

/// GRUB looks at the header of a kernel itself.
fn no_kernel_never_starts(firmware: Firmware) {
    let image = installed(firmware, &[]);
    let (offset, size) = image.file_of_slot('A', "vmlinuz");
    image.zero(offset, size);
    image.set_boot_env(&["check=off"]);
    let mut console = start(firmware, &image);
    console.wait_for("slipway: slot A: kernel does not load");
    console.wait_for("slipway: no slot can be booted");
}

/// A disk that boots by GRUB under any firmware.
fn installed(firmware: Firmware, args: &[&str]) -> Image {
    Image::installed_for(firmware, &[&["--efi-loader", "grub"], args].concat())
}

/// A machine whose writes are thrown away.
fn start(firmware: Firmware, image: &Image) -> Console {
    Machine::new(firmware).drive(&Drive::new(image.path()).boot_index(1)).start()
}

/// How the boot loader of this firmware says that a file of a slot is not what it should be.
pub const fn refusal(firmware: Firmware) -> &'static str {
    match firmware {
        Firmware::Bios => "does not verify",
        Firmware::Uefi | Firmware::UefiArm64 => "does not start: ",
    }
}

/// Both copies of the boot state say that slot B was tried and is not to be tried again; all else is as
/// it was set.
pub fn assert_try_is_spent(image: &Image, armed: &[String], console: &str) {
    let spent = armed.iter().map(|line| match line.as_str() {
        "once=B" => "once=",
        "b=trial" => "b=tried",
        other => other,
    });
    let spent: Vec<&str> = spent.collect();
    assert!(spent.contains(&"once=") && spent.contains(&"b=tried"), "{spent:?}");
    for name in BOOT_ENVS {
        assert_eq!(image.boot_env_lines(name), spent, "{name}\n{console}");
        assert_eq!(image.boot_env(name).len(), 512, "{name} keeps its size\n{console}");
    }
}
