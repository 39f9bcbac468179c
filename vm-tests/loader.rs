//! Slipway's own loader, by which a disk boots under UEFI. The rule is the one of the model and of `installer
//! status`: what that foresees is what boots.

use std::time::Instant;

use crate::{
    boot_rule::assert_try_is_spent,
    campaign,
    console::Console,
    image::{BOOT_ENVS, Image},
    is_campaign,
    qemu::{Drive, Firmware, Machine},
    world::VERSION,
};

fn installed(firmware: Firmware) -> Image {
    Image::installed_for(firmware, &["--extra-kernel-arg", "slipway.scenario=unconfirmed"])
}

fn start(firmware: Firmware, image: &Image) -> Console {
    Machine::new(firmware).drive(&Drive::new(image.path()).boot_index(1).kept()).start()
}

/// A good trial, and the boot after it, which nobody has confirmed.
#[test]
fn the_loader_tries_a_slot_once() {
    tries_once(Firmware::Uefi);
}

#[test]
fn the_loader_tries_a_slot_once_on_arm64() {
    campaign("the_loader_tries_a_slot_once_on_arm64", Firmware::UefiArm64, tries_once);
}

fn tries_once(firmware: Firmware) {
    let image = installed(firmware);
    image.copy_slot_a_to_slot_b();
    image.set_boot_env(&["seq=2", "once=B", "b=trial"]);
    let armed = image.boot_env_lines(BOOT_ENVS[0]);
    for (slot, tries) in [('B', 1), ('A', 0)] {
        assert_eq!(image.next_boot(), (slot, tries == 1));
        let mut console = start(firmware, &image);
        console.wait_for(&format!("slipway: slot {slot} try={tries}: booting"));
        console.expect_os(VERSION, slot, tries);
        assert_try_is_spent(&image, &armed, &console.switch_off());
    }
}

/// The slot that is to be tried has one flipped bit: the default comes in the same run, without a reset.
#[test]
fn the_loader_passes_over_a_damaged_trial_in_the_same_run() {
    let image = installed(Firmware::Uefi);
    image.copy_slot_a_to_slot_b();
    image.set_boot_env(&["seq=2", "once=B", "b=trial"]);
    image.flip_bit_of('B', "initramfs.xz");
    let armed = image.boot_env_lines(BOOT_ENVS[0]);
    assert_eq!(image.next_boot(), ('A', false));
    // A machine that may not reset.
    let mut console = start(Firmware::Uefi, &image);
    console.wait_for("slipway: slot B does not start: initramfs.xz does not match its digest");
    console.wait_for("slipway: trial of slot B failed, booting the default");
    console.expect_os(VERSION, 'A', 0);
    let armed = [&armed[..], &["refused=B:digest".to_owned()]].concat();
    assert_try_is_spent(&image, &armed, &console.switch_off());
}

/// Both copies of the boot state are lost, and slot A, which its marker calls good, is no kernel: slot B boots if it is good.
#[test]
fn the_loader_boots_by_the_markers() {
    campaign("the_loader_boots_by_the_markers", Firmware::Uefi, boots_by_the_markers);
}

fn boots_by_the_markers(firmware: Firmware) {
    let image = installed(firmware);
    image.copy_slot_a_to_slot_b();
    image.truncate_file('A', "vmlinuz");
    for offset in image.boot_env_offsets() {
        image.write_boot_env(offset, &[0; 512]);
    }
    assert_eq!(image.next_boot(), ('B', false));
    let mut console = start(firmware, &image);
    console.wait_for("slipway: both copies of boot.env are lost");
    console.wait_for("slipway: slot A does not start: vmlinuz");
    console.expect_os(VERSION, 'B', 0);
    for name in BOOT_ENVS {
        assert_eq!(image.boot_env(name), [0; 512], "nothing is written where nothing is known");
    }
}

/// A disk with larger sectors: a copy of the boot state is part of one.
#[test]
fn the_loader_spends_a_try_on_a_disk_with_sectors_of_4096_bytes() {
    campaign("the_loader_spends_a_try_on_a_disk_with_sectors_of_4096_bytes", Firmware::Uefi, tries_with_large_sectors);
}

fn tries_with_large_sectors(firmware: Firmware) {
    let image = Image::installed_for(
        firmware,
        &["--sector-size", "4096", "--extra-kernel-arg", "slipway.scenario=unconfirmed"],
    );
    image.copy_slot_a_to_slot_b();
    image.set_boot_env(&["seq=2", "once=B", "b=trial"]);
    let armed = image.boot_env_lines(BOOT_ENVS[0]);
    let drive = Drive::new(image.path()).boot_index(1).block_bytes(4096).kept();
    let mut console = Machine::new(firmware).drive(&drive).start();
    console.expect_os(VERSION, 'B', 1);
    assert_try_is_spent(&image, &armed, &console.switch_off());
}

/// What is no kernel never starts, even if nothing is checked; and the loader does not give up.
#[test]
fn the_loader_does_not_start_what_is_no_kernel() {
    campaign("the_loader_does_not_start_what_is_no_kernel", Firmware::Uefi, no_kernel_never_starts);
}

fn no_kernel_never_starts(firmware: Firmware) {
    let image = installed(firmware);
    let (offset, size) = image.file_of_slot('A', "vmlinuz");
    image.zero(offset, size);
    image.set_boot_env(&["check=off"]);
    let mut console = start(firmware, &image);
    console.wait_for("slipway: slot A does not start: the firmware does not load vmlinuz");
    console.wait_for("slipway: no slot can be booted");
}

/// How long it takes from the firmware's last word to the kernel's first one, by either loader, in turns on the same machine
/// with the same system. It prints that, and judges nothing: a busy machine is no fault of a loader.
#[test]
fn the_time_to_the_kernel_is_told() {
    if !is_campaign("the_time_to_the_kernel_is_told") {
        return;
    }
    const LOADERS: [&str; 2] = ["slipway", "grub"];
    let args = |loader| ["--efi-loader", loader, "--extra-kernel-arg=-quiet", "--extra-kernel-arg=earlyprintk=serial"];
    let images = LOADERS.map(|loader| Image::installed_for(Firmware::Uefi, &args(loader)));
    let mut seconds = [vec![], vec![]];
    for _ in 0..5 {
        for (image, seconds) in images.iter().zip(&mut seconds) {
            let mut console = start(Firmware::Uefi, image);
            console.wait_for("BdsDxe: starting Boot");
            let began = Instant::now();
            console.wait_for("Linux version ");
            seconds.push(began.elapsed().as_secs_f64());
            console.expect_os(VERSION, 'A', 0);
        }
    }
    let medians = seconds.map(|mut seconds| {
        seconds.sort_by(f64::total_cmp);
        eprintln!("{seconds:.2?}");
        seconds[seconds.len() / 2]
    });
    let ratio = medians[0] / medians[1];
    eprintln!(
        "to the kernel: {:.2} s by {}, {:.2} s by {}: {ratio:.2}",
        medians[0], LOADERS[0], medians[1], LOADERS[1]
    );
}
