//! Under UEFI Slipway's own loader boots what `installer status` says boots next. Both follow the rule of the model.
//!
//! Subject: loader/src core/boot/src
//! Needs: root boot-assets payloads qemu

use std::time::Instant;

use crate::{
    boot_rule::assert_try_is_spent,
    console::Console,
    image::{BOOT_ENVS, Image},
    qemu::{Drive, Firmware, Machine},
    world::{VERSION, VERSION_2, World, run, scratch_dir},
};

fn installed(firmware: Firmware) -> Image {
    Image::installed_for(firmware, &["--extra-kernel-arg", "slipway.scenario=unconfirmed"])
}

fn start(firmware: Firmware, image: &Image) -> Console {
    Machine::new(firmware).drive(&Drive::new(image.path()).boot_index(1).kept()).start()
}

stories! {
    /// First start: slot B boots, as a trial, and both copies of `boot.env` say that the trial is spent. Second: the
    /// trial was not confirmed, so slot A, the default, boots. `status` has said both before.
    the_loader_tries_a_slot_once: campaign Uefi, campaign UefiArm64 => tries_once;
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

/// One bit of the trial's initramfs is flipped. The loader refuses the trial and boots the default in the same run,
/// without a reset, as `status` has said. Both copies of `boot.env` say that the trial is spent and why.
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

/// The root directory of the default never ends, and the firmware hangs while the loader looks for a file that is not there. First
/// start: its watchdog resets the machine. Second: the loader takes slot A, which is good, and says why; so does `status`. Slot B
/// stays the default.
#[test]
#[ignore = "campaign"]
fn a_default_that_hangs_the_firmware_gives_way() {
    let image = Image::confirmed();
    image.endless_root('B');
    let mut console =
        Machine::new(Firmware::Uefi).drive(&Drive::new(image.path()).boot_index(1).kept()).may_reset().start();
    console.wait_for("slipway: slot B try=0: booting");
    console.wait_for("slipway: the last start of slot B did not get through: booting slot A");
    console.expect_os(VERSION, 'A', 0);
    console.switch_off();
    let lines = image.boot_env_lines(BOOT_ENVS[0]);
    assert!(lines.contains(&"refused=B:hung".to_owned()) && lines.contains(&"default=B".to_owned()), "{lines:?}");
    let status = String::from_utf8(image.installer("status", &[]).stdout).expect("it is text");
    assert!(status.contains("it hung"), "{status}");
}

/// The default has an initramfs of 150 MiB more, and the machine so little memory that the kernel could not take a second copy of
/// it: a firmware hangs there without a reset. The loader says so, and takes the other slot.
#[test]
#[ignore = "campaign"]
fn a_default_that_the_memory_has_no_room_for_gives_way() {
    let large = scratch_dir();
    let payload = large.path().join("payload");
    run("cp", ["-r".as_ref(), World::get().payload(VERSION_2).as_os_str(), payload.as_os_str()]);
    let script = "cd \"$1\" && rm SHA256SUMS manifest.json && truncate -s %4 initramfs.xz && mkdir ../files && \
        truncate -s 150M ../files/zeros && (cd ../files && echo zeros | cpio --quiet -o -H newc) >>initramfs.xz";
    run("sh", ["-c".as_ref(), script.as_ref(), "sh".as_ref(), payload.as_os_str()]);
    run(&World::get().installer, ["checksum".as_ref(), payload.as_os_str()]);
    let image = Image::installed(VERSION, &[]);
    image.installer_from('A', 0, "upgrade", &["--source", &format!("dir:{}", payload.display())]);
    image.set_boot_env(&["once=", "b=tried"]);
    image.installer_from('B', 1, "confirm", &[]);
    let drive = Drive::new(image.path()).boot_index(1).kept();
    let mut console = Machine::new(Firmware::Uefi).memory(288).drive(&drive).start();
    console.wait_for("slipway: slot B try=0: booting");
    console.wait_for("slipway: slot B does not start: the machine has too little memory");
    console.expect_os(VERSION, 'A', 0);
}

/// Both copies of `boot.env` are lost, and slot A, which its marker calls good, has half a kernel. Slot B boots, as
/// `status` has said, and the loader writes nothing into the lost copies.
#[test]
#[ignore = "campaign"]
fn the_loader_boots_by_the_markers() {
    let image = installed(Firmware::Uefi);
    image.copy_slot_a_to_slot_b();
    image.truncate_file('A', "vmlinuz");
    for offset in image.boot_env_offsets() {
        image.write_boot_env(offset, &[0; 512]);
    }
    assert_eq!(image.next_boot(), ('B', false));
    let mut console = start(Firmware::Uefi, &image);
    console.wait_for("slipway: both copies of boot.env are lost");
    console.wait_for("slipway: slot A does not start: vmlinuz");
    console.expect_os(VERSION, 'B', 0);
    for name in BOOT_ENVS {
        assert_eq!(image.boot_env(name), [0; 512], "nothing is written where nothing is known");
    }
}

/// On a disk with sectors of 4096 bytes a copy of `boot.env` is a part of a sector. The trial boots, and both copies
/// say that it is spent.
#[test]
#[ignore = "campaign"]
fn the_loader_spends_a_try_on_a_disk_with_sectors_of_4096_bytes() {
    let image = Image::installed_for(
        Firmware::Uefi,
        &["--sector-size", "4096", "--extra-kernel-arg", "slipway.scenario=unconfirmed"],
    );
    image.copy_slot_a_to_slot_b();
    image.set_boot_env(&["seq=2", "once=B", "b=trial"]);
    let armed = image.boot_env_lines(BOOT_ENVS[0]);
    let drive = Drive::new(image.path()).boot_index(1).block_bytes(4096).kept();
    let mut console = Machine::new(Firmware::Uefi).drive(&drive).start();
    console.expect_os(VERSION, 'B', 1);
    assert_try_is_spent(&image, &armed, &console.switch_off());
}

/// The kernel in the only slot is zeros, and `check=off` turns the digests off. The firmware does not load it, and the
/// loader says that no slot can be booted.
#[test]
#[ignore = "campaign"]
fn the_loader_does_not_start_what_is_no_kernel() {
    let image = installed(Firmware::Uefi);
    let (offset, size) = image.file_of_slot('A', "vmlinuz");
    image.zero(offset, size);
    image.set_boot_env(&["check=off"]);
    let mut console = start(Firmware::Uefi, &image);
    console.wait_for("slipway: slot A does not start: the firmware does not load vmlinuz");
    console.wait_for("slipway: no slot can be booted");
}

/// Slipway's loader and GRUB boot the same system five times each, in turns, and every boot succeeds. The test prints
/// the seconds from the firmware's last word to the kernel's first one, and judges nothing: a busy machine is no fault
/// of a loader.
#[test]
#[ignore = "campaign"]
fn the_time_to_the_kernel_is_told() {
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
