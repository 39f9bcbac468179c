//! A disk with the boot loaders of an earlier version boots before they are renewed, after that, and if the power fails
//! meanwhile.
//!
//! Subject: core/src/plan/renewal.rs core/src/disk/fat src/execute/bootloader.rs
//! Needs: root boot-assets payloads qemu

use std::{fs, path::Path, time::Instant};

use serde_json::Value;
use slipway_core::digest::Sha256;

use crate::{
    console::Console,
    image::Image,
    in_guest::run_on,
    qemu::{Drive, Firmware, Machine},
    world::{VERSION, World, run, scratch_dir},
    write_log::{Random, WriteLog},
};

/// What Slipway's own loader does not say.
pub const GRUB: &str = "slipway: slot A try=0: checking";

/// The boot assets of an earlier version, taken from a disk that it has made (tests/fixtures/disks/README.md).
fn earlier_assets(dir: &Path) {
    let packed = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/disks/grub-under-uefi.img.xz");
    let (disk, assets) = (dir.join("earlier.img"), dir.join("amd64"));
    fs::create_dir(&assets).unwrap();
    fs::write(&disk, run("xz", ["--decompress".as_ref(), "--stdout".as_ref(), packed.as_os_str()])).unwrap();
    let esp = format!("{}@@1M", disk.display());
    run("mcopy", ["-i", &esp, "::/EFI/BOOT/BOOTX64.EFI", assets.to_str().unwrap()]);
    let image = fs::read(&disk).unwrap();
    let core = &image[301 << 20..][..512 << 10];
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("out/assets/amd64/boot.img");
    fs::copy(shipped, assets.join("boot.img")).unwrap();
    fs::write(assets.join("core.img"), core).unwrap();
    let sum = |name: &str| format!("{}  {name}\n", Sha256::of(&fs::read(assets.join(name)).unwrap()));
    fs::write(assets.join("SHA256SUMS"), ["BOOTX64.EFI", "boot.img", "core.img"].map(sum).concat()).unwrap();
}

/// First and second start: a disk with the boot loaders of an earlier version boots under UEFI, by GRUB, and under
/// BIOS, from the first half of the BIOS partition. Then `installer bootloader update` renews both. Third and fourth:
/// the disk boots under UEFI, no longer by GRUB, and under BIOS, from the other half.
#[test]
#[ignore = "campaign"]
fn a_disk_of_an_earlier_version_boots_before_and_after_its_loaders_are_renewed() {
    moves();
}

/// A disk as an earlier version has installed it.
fn earlier() -> Image {
    let dir = scratch_dir();
    earlier_assets(dir.path());
    let assets = format!("SLIPWAY_ASSETS={}", dir.path().display());
    let (image, world) = (Image::blank(4 << 30), World::get());
    let installer = world.installer.to_str().unwrap();
    let source = format!("dir:{}", world.payload(VERSION).display());
    let disk = image.path().to_str().unwrap();
    let install = ["install", "--efi-loader", "grub", "--source", &source, "--disk", disk];
    run("env", [&[assets.as_str(), installer][..], &install].concat());
    image
}

fn boots(image: &Image, firmware: Firmware) -> Console {
    let drive = Drive::new(image.path()).boot_index(1);
    let mut console = Machine::new(firmware).drive(&drive).start();
    console.expect_os(VERSION, 'A', 0);
    console
}

fn moves() {
    let image = earlier();
    assert!(boots(&image, Firmware::Uefi).shows(GRUB));
    boots(&image, Firmware::Bios);
    assert_eq!(half_of_bios(&image), 1);
    run(&World::get().installer, ["bootloader", "update", "--offline", "--disk", image.path().to_str().unwrap()]);
    assert_eq!(half_of_bios(&image), 2, "the new core image is the one that BIOS starts");
    assert!(!boots(&image, Firmware::Uefi).shows(GRUB));
    boots(&image, Firmware::Bios);
}

/// In which half of its partition the core image lies that the boot code starts.
fn half_of_bios(image: &Image) -> Value {
    image.report("status")["bootloaders"]["bios"]["half"].clone()
}

/// First start: `bootloader update` works on a kernel's block device, and every write is logged. Then come disks that a
/// power cut may have left: beside each write of the loader's entry in the ESP, beside each write of LBA 0, and
/// anywhere. Each boots the system. Under UEFI that is by the earlier GRUB if nothing was written yet, and no longer by
/// GRUB if all was.
#[test]
#[ignore = "campaign"]
fn a_cut_at_any_write_of_a_renewal_leaves_a_disk_that_boots() {
    cuts();
}

fn cuts() {
    let (before, dir) = (earlier(), scratch_dir());
    let (disk, log) = (before.copy(), dir.path().join("log"));
    fs::write(&log, []).unwrap();
    run_on("renew.sh", &Drive::new(disk.path()).logged(&log), &[]);
    let log = WriteLog::read(&log);
    let (all, mut random) = (log.len(), Random(0x5eed));

    // Beside the commit points, under the firmware that they are for; and anywhere.
    let names_loader = |n: &usize| log.written(*n).windows(11).any(|name| name == b"BOOTX64 EFI");
    let in_esp: Vec<usize> = (0..all).filter(names_loader).collect();
    let in_lba_0: Vec<usize> = (0..all).filter(|n| log.sector(*n, 0).is_some()).collect();
    assert!(!in_esp.is_empty() && !in_lba_0.is_empty(), "both loaders are renewed");
    let mut chosen = vec![(0, Firmware::Uefi), (all, Firmware::Uefi), (all, Firmware::Bios)];
    for (entries, firmware) in [(in_esp, Firmware::Uefi), (in_lba_0, Firmware::Bios)] {
        chosen.extend(entries.iter().flat_map(|n| [(*n, firmware), (n + 1, firmware)]));
        chosen.extend((0..3).map(|_| (random.below(all as u64) as usize, firmware)));
    }
    for (cut, firmware) in chosen {
        let began = Instant::now();
        let by_grub = boots(&log.disk_at(cut, &before, &mut random), firmware).shows(GRUB);
        let (loader, seconds) = (if by_grub { "GRUB" } else { "ours" }, began.elapsed().as_secs_f32());
        eprintln!("cut {cut} of {all}: {firmware:?} boots by {loader}, {seconds:.1} s");
        match (firmware, cut) {
            (Firmware::Uefi, 0) => assert!(by_grub, "nothing was written"),
            (Firmware::Uefi, cut) if cut == all => assert!(!by_grub, "all was written"),
            _ => {}
        }
    }
}
