//! A disk that starts by the boot loaders of an earlier version, before and after they are renewed.

use std::{fs, path::Path};

use slipway_core::digest::Sha256;

use crate::{
    campaign,
    image::Image,
    qemu::{Drive, Firmware, Machine},
    world::{VERSION, World, run, scratch_dir},
};

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

/// Under UEFI GRUB gives way to Slipway's loader, under BIOS to another GRUB in the other half of its partition.
#[test]
fn a_disk_of_an_earlier_version_boots_before_and_after_its_loaders_are_renewed() {
    let name = "a_disk_of_an_earlier_version_boots_before_and_after_its_loaders_are_renewed";
    campaign(name, Firmware::Uefi, |_| moves());
}

fn moves() {
    let dir = scratch_dir();
    earlier_assets(dir.path());
    let assets = format!("SLIPWAY_ASSETS={}", dir.path().display());
    let (image, world) = (Image::blank(4 << 30), World::get());
    let installer = world.installer.to_str().unwrap();
    let source = format!("dir:{}", world.payload(VERSION).display());
    let disk = image.path().to_str().unwrap();
    let install = ["install", "--efi-loader", "grub", "--source", &source, "--disk", disk];
    run("env", [&[assets.as_str(), installer][..], &install].concat());
    let boots = |firmware: Firmware, loader: Option<&str>| {
        let drive = Drive::new(image.path()).boot_index(1);
        let mut console = Machine::new(firmware).drive(&drive).start();
        if let Some(text) = loader {
            console.wait_for(text);
        }
        console.expect_os(VERSION, 'A', 0);
    };
    boots(Firmware::Uefi, None);
    boots(Firmware::Bios, None);
    run(installer, ["bootloader", "update", "--offline", "--disk", disk]);
    boots(Firmware::Uefi, Some("slipway: slot A try=0: booting"));
    boots(Firmware::Bios, None);
}
