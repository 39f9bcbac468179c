//! A slot whose kernel and initramfs are in its unified kernel image alone boots under BIOS and under UEFI. GRUB takes
//! them out of it; Slipway's loader starts it.
//!
//! Subject: assets/grub/grub.cfg core/src/efi/uki.rs
//! Needs: root boot-assets payloads qemu

use std::{
    fs,
    path::{Path, PathBuf},
};

use tempfile::TempDir;

use crate::{
    boot_rule::assert_try_is_spent,
    image::{BOOT_ENVS, Image},
    qemu::{Drive, Firmware, Machine},
    world::{VERSION, VERSION_2, World, run, scratch_dir},
};

/// The payload of a version in a directory of this name: its squashfs, and all else in one program. It is not confirmed.
pub fn payload(dir: &TempDir, version: &str) -> PathBuf {
    payload_of(World::get().payload(version), dir.path().join(version))
}

/// The same of another payload.
pub fn payload_of(from: &Path, to: PathBuf) -> PathBuf {
    fs::create_dir(&to).expect("a directory can be made");
    for name in ["rootfs.squashfs", "os-release"] {
        fs::copy(from.join(name), to.join(name)).expect("a file can be copied");
    }
    let installer = |args: &[&str]| run(&World::get().installer, [&["--progress=none"], args].concat());
    let (source, out) = (format!("--source=dir:{}", from.display()), format!("--out={}", to.join("uki.efi").display()));
    let words = ["slipway.scenario=unconfirmed", "slipway.rootfs=@squashfs-sha256@"];
    let [scenario, rootfs] = words.map(|word| format!("--extra-kernel-arg={word}"));
    installer(&["uki", &source, &out, &scenario, &rootfs]);
    installer(&["checksum", &to.display().to_string()]);
    to
}

pub fn source(payload: &Path) -> String {
    format!("dir:{}", payload.display())
}

/// A system in slot A, and another one in slot B that is to be tried.
fn upgraded() -> Image {
    let dir = scratch_dir();
    let image = Image::make(&payload(&dir, VERSION), &[]);
    image.installer_from('A', 0, "upgrade", &["--source", &source(&payload(&dir, VERSION_2))]);
    image
}

/// First start: GRUB boots the UKI in slot B, as a trial, and both copies of `boot.env` say that the trial is spent.
/// Second: the trial was not confirmed, so the UKI in slot A, the default, boots. `status` has said both before.
#[test]
#[ignore = "campaign"]
fn a_unified_kernel_image_is_tried_once_under_bios() {
    let image = upgraded();
    let armed = image.boot_env_lines(BOOT_ENVS[0]);
    for (version, slot, tries) in [(VERSION_2, 'B', 1), (VERSION, 'A', 0)] {
        assert_eq!(image.next_boot(), (slot, tries == 1));
        let drive = Drive::new(image.path()).boot_index(1).kept();
        let mut console = Machine::new(Firmware::Bios).memory(1024).drive(&drive).start();
        console.expect_os(version, slot, tries);
        assert_try_is_spent(&image, &armed, &console.switch_off());
    }
}

/// First start: one bit of the trial's UKI is flipped, so GRUB says that slot B does not verify, and reboots. Second:
/// slot A, the default, boots; both copies of `boot.env` say that the trial is spent and why. Third: the same disk
/// boots slot A under UEFI.
#[test]
#[ignore = "campaign"]
fn a_damaged_unified_kernel_image_gives_way_under_bios() {
    let image = upgraded();
    image.flip_bit_of('B', "uki.efi");
    let armed = image.boot_env_lines(BOOT_ENVS[0]);
    let drive = Drive::new(image.path()).boot_index(1).kept();
    let mut console = Machine::new(Firmware::Bios).memory(1024).drive(&drive).may_reset().start();
    console.wait_for("slipway: slot B does not verify");
    console.wait_for("trial of slot B failed, rebooting into the default");
    console.expect_os(VERSION, 'A', 0);
    let armed = [&armed[..], &["refused=B:digest".to_owned()]].concat();
    assert_try_is_spent(&image, &armed, &console.switch_off());
    // The same disk in another machine.
    let drive = Drive::new(image.path()).boot_index(1);
    Machine::new(Firmware::Uefi).memory(1024).drive(&drive).start().expect_os(VERSION, 'A', 0);
}
