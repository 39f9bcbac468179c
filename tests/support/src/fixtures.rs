//! What tests of the library share: small payloads and plans for them.

use std::{
    fs,
    path::{Path, PathBuf},
};

use slipway::{
    bootloader::Assets,
    device::Disk,
    payload::{ChecksumPolicy, DirSource, image::Inspection},
    probe,
};
use slipway_core::{
    boot::EfiLoader,
    kernel::arch::Arch,
    payload::manifest::KernelArgs,
    plan::{self, Ids, InstallRequest, Plan},
    report::Observer,
    units::MIB,
};
use uuid::Uuid;

use crate::{files, world::noise};

/// Just enough for the smallest slots, bytes.
pub const DISK_BYTES: u64 = 600 * MIB;

/// An observer that says nothing.
pub struct Silent;

impl Observer for Silent {
    fn phase(&mut self, _: &str, _: u64) {}
    fn step(&mut self, _: usize, _: usize, _: &str, _: u64) {}
    fn advance(&mut self, _: u64) {}
    fn note(&mut self, _: &str) {}
}

/// Where the boot assets are that hack/build made.
pub fn assets_dir() -> PathBuf {
    crate::project().join("out/assets/amd64")
}

/// The boot assets that hack/build made.
pub fn assets() -> Assets {
    Assets::load_from(&assets_dir(), Arch::Amd64, EfiLoader::default())
        .expect("boot assets: run hack/test, which builds them")
}

/// A payload of a few ten KiB with the right headers; its content depends on `n`.
pub fn payload(dir: &Path, n: u8) -> DirSource {
    fs::create_dir(dir).unwrap();
    fs::write(dir.join("vmlinuz"), files::kernel(vec![n ^ 0x5a; 40_000])).unwrap();
    fs::write(dir.join("initramfs.xz"), files::initramfs_of(9_000, &noise(n.into(), 9_000))).unwrap();
    fs::write(dir.join("rootfs.squashfs"), files::squashfs(vec![n ^ 0x77; 70_004])).unwrap();
    fs::write(dir.join("os-release"), format!("VERSION_ID={n}.0\n")).unwrap();
    DirSource::new(dir)
}

/// A request with everything settled; GUIDs depend on `n`.
pub fn request(n: u8) -> InstallRequest {
    InstallRequest {
        force: true,
        zero: false,
        format_data: true,
        encrypted: vec![],
        bootable_mbr: false,
        no_menu: false,
        slot_bytes: 36 * MIB,
        ids: Ids {
            disk: Uuid::from_u128(u128::from(n) + 1),
            parts: std::array::from_fn(|i| Uuid::from_u128(0x100 * (u128::from(n) + 1) + i as u128)),
            time: 1_800_000_000,
        },
        args: KernelArgs::default(),
        meta: vec![(0x0a, vec![n; 5])],
        arch: Arch::Amd64,
        by: "somebody".to_owned(),
        medium: None,
        allow_unsigned: false,
    }
}

/// The plan to install a payload onto a disk.
pub fn plan(request: &InstallRequest, disk: &Disk, source: &DirSource, assets: &Assets) -> Plan {
    let payload = source.clone().facts(ChecksumPolicy::Compared, Inspection::Everything, |_| ()).unwrap();
    let facts = probe::disk_facts(disk).unwrap();
    plan::install(request, &facts, &payload, &probe::asset_facts(assets, request.arch)).unwrap()
}

/// A profile of `imager` with every key that means something.
pub const FULL_PROFILE: &str = "\
arch: arm64
platform: azure
secureboot: false
customization:
  extraKernelArgs: [console=ttyS1, -quiet]
  metaContents:
    - {key: 0x0a, value: \"one\\ntwo\"}
    - {key: 12, value: a=b}
input:
  kernel: {path: /files/vmlinuz}
  initramfs:
    path: /files/initramfs.xz
output:
  kind: image
  imageOptions:
    diskSize: 5368709120
    diskFormat: vhd
    diskFormatOptions: subformat=fixed,force_size
    diskSectorSize: 512
    bootloader: grub
  outFormat: .xz
";
