//! A disk image that `installer image` has made boots as it is, in the format it is in.
//!
//! Subject: src/media src/ops/image.rs core/src/media/format.rs
//! Needs: root boot-assets payloads qemu

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
};

use tempfile::TempDir;

use crate::{
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

fn a_raw_image_for_large_sectors(firmware: Firmware) {
    let arch = format!("--arch={}", firmware.arch());
    let payload = World::get().payload_for(firmware.arch());
    let (_dir, image) = made_of(payload, "raw", &[arch.as_str(), "--sector-size=4096"]);
    boots(firmware, &Drive::new(&image).boot_index(1).block_bytes(4096));
}

stories! {
    /// QEMU itself reads the qcow2 image that `installer image` has made, and the system on it boots.
    a_qcow2_image_boots: campaign Bios, campaign Uefi => a_qcow2_image;
    /// QEMU itself reads the VHD image that `installer image` has made, and the system on it boots.
    a_vhd_image_boots: campaign Bios, campaign Uefi => a_vhd_image;
    /// A raw image that `installer image --sector-size=4096` has made is a disk with sectors of 4096 bytes. The system
    /// on it boots.
    a_raw_image_for_sectors_of_4096_bytes_boots: campaign Uefi, campaign UefiArm64 => a_raw_image_for_large_sectors;
}
