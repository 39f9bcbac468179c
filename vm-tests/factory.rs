//! What `installer image` makes boots as it is, in the format it is in.

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
};

use tempfile::TempDir;

use crate::{
    campaign,
    qemu::{Drive, Firmware, Machine},
    world::{VERSION, World, run, scratch_dir},
};

/// A disk image of the first payload. It is gone with the directory.
fn made(kind: &str, args: &[&str]) -> (TempDir, PathBuf) {
    made_of(World::get().payload(VERSION), kind, args)
}

fn made_of(payload: &Path, kind: &str, args: &[&str]) -> (TempDir, PathBuf) {
    let dir = scratch_dir();
    let out = dir.path().join("disk.img");
    let source = format!("--source=dir:{}", payload.display());
    let first = ["image", "--progress=none", "--kind", kind, source.as_str(), "--out"].map(OsStr::new);
    run(&World::get().installer, first.into_iter().chain([out.as_os_str()]).chain(args.iter().map(OsStr::new)));
    (dir, out)
}

fn boots(firmware: Firmware, drive: &Drive) {
    Machine::new(firmware).drive(drive).start().expect_os(VERSION, 'A', 0);
}

fn a_qcow2_image(firmware: Firmware) {
    let (_dir, image) = made("qcow2", &[]);
    boots(firmware, &Drive::new(&image).format("qcow2").boot_index(1));
}

fn a_vhd_image(firmware: Firmware) {
    let (_dir, image) = made("vhd", &[]);
    boots(firmware, &Drive::new(&image).format("vpc").boot_index(1));
}

under_both_firmwares! {
    a_qcow2_image_boots => a_qcow2_image, mostly Uefi;
    a_vhd_image_boots => a_vhd_image, mostly Bios;
}

#[test]
fn a_raw_image_for_sectors_of_4096_bytes_boots_under_uefi() {
    let (_dir, image) = made("raw", &["--sector-size=4096"]);
    boots(Firmware::Uefi, &Drive::new(&image).boot_index(1).block_bytes(4096));
}

#[test]
fn a_raw_image_for_sectors_of_4096_bytes_boots_on_arm64() {
    campaign("a_raw_image_for_sectors_of_4096_bytes", Firmware::UefiArm64, |firmware| {
        let args = ["--arch=arm64", "--sector-size=4096"];
        let (_dir, image) = made_of(World::get().payload_for("arm64"), "raw", &args);
        boots(firmware, &Drive::new(&image).boot_index(1).block_bytes(4096));
    });
}
