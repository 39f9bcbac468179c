//! The boot loaders: those on a disk, and those that the installer ships.

use super::{
    boot_chain,
    error::{ProbeError, read},
    system::slot_volume,
};
use crate::{
    bootloader::{BiosAssets, Loaders, info},
    device::BlockIo,
    fat::{FatVolume, ReadError},
    transfer::read_back_digest,
};
use slipway_core::{
    boot::{
        efi_loader::EfiLoader,
        slot::{PerSlot, Slot},
    },
    digest::Sha256,
    disk::{
        bios,
        chain::{CHAIN, Chain},
        fat::map::{FatMap, MapError},
        gpt::BOOT_CODE_BYTES,
        layout::{BIOS_BYTES, BIOS_OFFSET, Part},
    },
    efi::{boot_image::BootImage, sbat::Sbat},
    kernel::{arch::Arch, efi_stub::StubLack},
    payload::{
        manifest::{KERNEL, UKI},
        whole::HEAD_BYTES,
    },
    plan::{
        BiosFacts, GptFacts,
        bootloader::{
            BiosFound, BiosOffered, BootloaderFacts, EfiFound, EfiOffered, FirmwareSays, Offered, RenewalRequest,
            boots_under_bios,
        },
    },
    report::{BiosImage, Bootloaders},
    units::{Extent, MIB, SectorSize},
};

// Of a UEFI image: more is none of ours, nor anybody's.
const MAX_IMAGE_BYTES: u64 = 16 * MIB;

/// Which clusters of the ESP files have.
pub fn fat_map(disk: &dyn BlockIo, esp: Extent, paths: &[&str]) -> Result<FatMap, MapError> {
    let mut read = |offset: u64, buf: &mut [u8]| disk.read_back(esp.offset + offset, buf).is_ok();
    FatMap::look(esp.len, disk.sector_size().bytes(), paths, &mut read)
}

/// What starts a disk, as far as `request` asks.
pub fn bootloader(disk: &dyn BlockIo, gpt: &GptFacts, request: &RenewalRequest) -> BootloaderFacts {
    let (esp, path) = (gpt.part(Part::Esp), request.path());
    let volume = FatVolume::open(disk, esp);
    let small = |path: &str| -> Result<Option<Vec<u8>>, String> {
        let volume = volume.as_ref().map_err(ToString::to_string)?;
        volume.read_small(path, MAX_IMAGE_BYTES).map_err(|e: ReadError| e.to_string())
    };
    let efi = match small(&path) {
        Ok(found) => found.map(|bytes| EfiFound { sha256: Some(Sha256::of(&bytes)), image: BootImage::of(&bytes) }),
        Err(_) => Some(EfiFound { sha256: None, image: BootImage::default() }),
    };
    let list =
        small(CHAIN).and_then(|found| found.map(|bytes| Chain::parse(&bytes).map_err(|e| e.to_string())).transpose());
    let core_bytes = request.offered.bios.as_ref().map(|offered| offered.halves[0].core.size);
    let bios = core_bytes
        .and_then(|bytes| bios_found(disk, gpt.part(Part::Bios), bytes, list.as_ref().ok().and_then(Option::as_ref)));
    let mut damage = boot_chain(disk, gpt).problems();
    damage.iter_mut().for_each(|problem| *problem = problem.trim_start_matches("boot chain: ").to_owned());
    let esp = fat_map(disk, esp, &[&path, CHAIN]).map_err(|e| e.to_string());
    BootloaderFacts { esp, efi, list, bios, kernels: PerSlot::new(|slot| stub_lack(disk, gpt, slot)), damage }
}

// None of a slot without a kernel, or that starts by a unified kernel image.
fn stub_lack(disk: &dyn BlockIo, gpt: &GptFacts, slot: Slot) -> Option<StubLack> {
    let volume = slot_volume(disk, gpt, slot).ok()?;
    if volume.find(UKI).ok()?.is_some() {
        return None;
    }
    let first = *volume.find(KERNEL).ok()??.extents.first()?;
    let mut head = vec![0; first.len.min(HEAD_BYTES) as usize];
    read(disk, first.offset, &mut head).ok()?;
    StubLack::of(&head)
}

/// What starts a disk, whatever is shipped.
pub fn bootloaders(disk: &dyn BlockIo, gpt: &GptFacts) -> Bootloaders {
    let volume = FatVolume::open(disk, gpt.part(Part::Esp)).ok();
    let small = |path: &str| volume.as_ref()?.read_small(path, MAX_IMAGE_BYTES).ok()?;
    let uefi = Arch::ALL.iter().find_map(|arch| small(&arch.efi_path()));
    let list = small(CHAIN).and_then(|bytes| Chain::parse(&bytes).ok());
    let bios = boot_code(disk, gpt.part(Part::Bios), list.as_ref());
    Bootloaders {
        uefi: uefi.map(|bytes| BootImage::of(&bytes)),
        bios: bios.map(|found| BiosImage { epoch: found.epoch, half: found.half.map(|half| half as u8 + 1) }),
    }
}

struct BootCode {
    sha256: Sha256,
    half: Option<usize>,
    epoch: u32,
}

// None of a disk that no BIOS starts, and where that cannot be read.
fn boot_code(disk: &dyn BlockIo, part: Extent, list: Option<&Chain>) -> Option<BootCode> {
    if disk.sector_size() != SectorSize::S512 {
        return None;
    }
    let mut lba0 = vec![0; bios::SECTOR as usize];
    read(disk, 0, &mut lba0).ok()?;
    let half = bios::started(&lba0, part);
    boots_under_bios(list, half).then(|| BootCode {
        sha256: Sha256::of(&lba0[..BOOT_CODE_BYTES]),
        half,
        epoch: half.and_then(|half| core_epoch(disk, bios::halves(part)[half]).ok().flatten()).unwrap_or(0),
    })
}

fn bios_found(disk: &dyn BlockIo, part: Extent, core_bytes: u64, list: Option<&Chain>) -> Option<BiosFound> {
    let BootCode { sha256, half, epoch } = boot_code(disk, part, list)?;
    let core = |half: Extent| read_back_digest(disk, &[Extent { len: core_bytes, ..half }], &mut |_| ()).ok();
    Some(BiosFound { boot_code: sha256, half, cores: bios::halves(part).map(core), epoch })
}

fn core_epoch(disk: &dyn BlockIo, half: Extent) -> Result<Option<u32>, ProbeError> {
    let mut sector = vec![0; bios::SECTOR as usize];
    read(disk, half.offset, &mut sector)?;
    let Some(at) = bios::sbat_at(&sector).filter(|at| at + bios::SECTOR <= half.len) else { return Ok(None) };
    read(disk, half.offset + at, &mut sector)?;
    Ok(Sbat::parse(&sector).map(|sbat| sbat.epoch()))
}

/// What is shipped; `firmware` is what that of the running machine would say to an image.
pub fn offered(loaders: &Loaders, arch: Arch, firmware: &dyn Fn(&[u8]) -> FirmwareSays) -> Offered {
    let efi = |bytes: &[u8]| EfiOffered {
        file: info(arch.efi_image(), bytes),
        image: BootImage::of(bytes),
        firmware: firmware(bytes),
    };
    let own = |bytes: &Vec<u8>| {
        let offered = efi(bytes);
        // An image that was made before there were epochs does not say what it is.
        EfiOffered { image: BootImage { loader: Some(EfiLoader::Slipway), ..offered.image }, ..offered }
    };
    Offered {
        arch,
        grub: efi(&loaders.grub),
        slipway: loaders.slipway.as_ref().map(own),
        bios: loaders.bios.as_ref().map(bios_offered),
    }
}

fn bios_offered(bios: &BiosAssets) -> BiosOffered {
    let halves = bios::halves(Extent { offset: BIOS_OFFSET, len: BIOS_BYTES });
    let at = halves.map(|half| half.first_lba(SectorSize::S512));
    BiosOffered {
        halves: at.map(|at| BiosFacts {
            boot_code: Sha256::of(&bios.boot_code(at)),
            core: info("core.img", &bios.core_image(at)),
        }),
        epoch: bios.epoch(),
    }
}
