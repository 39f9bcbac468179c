//! The boot loaders: those on a disk, and those that the installer ships.

use super::{
    chain::{Digests, boot_chain_by},
    error::ProbeError,
    read,
};
use crate::{
    bootloader::{Assets, BiosAssets, Loaders, info},
    device::BlockIo,
    fat::{FatVolume, ReadError},
};
use slipway_core::{
    boot::{
        EfiLoader,
        env::PATHS,
        slot::{PerSlot, Slot},
    },
    digest::Sha256,
    disk::{
        bios,
        chain::{CHAIN, Chain, Link},
        fat::{
            copies::{self, FatsDiffer, LostSector},
            map::{FatMap, MapError},
        },
        gpt::BOOT_CODE_BYTES,
        layout::{BIOS_BYTES, BIOS_OFFSET, Part},
    },
    efi::{boot_image::BootImage, pe::Pe, sbat::Sbat},
    kernel::{arch::Arch, efi_stub::StubLack},
    payload::{
        format_checks::HEAD_BYTES,
        manifest::{KERNEL, UKI},
    },
    plan::{
        AssetFacts, BiosFacts, GptFacts,
        bootloader::{
            BiosFound, BiosOffered, BootloaderFacts, EfiFound, EfiOffered, FirmwareSays, KernelLook, Offered,
            RenewalRequest, boots_under_bios,
        },
    },
    report::{BiosImage, Bootloaders, ChainCheck},
    units::{Extent, Lba, MIB, SectorSize},
};

// Limit of a UEFI image: no known boot loader is larger.
const MAX_IMAGE_BYTES: u64 = 16 * MIB;

/// The clusters of the ESP that files have.
pub fn fat_map(disk: &dyn BlockIo, esp: Extent, paths: &[&str]) -> Result<FatMap, MapError> {
    let mut read = |offset: u64, buf: &mut [u8]| disk.read_back(esp.offset + offset, buf).is_ok();
    FatMap::look(esp.len, disk.sector_size().bytes(), paths, &mut read)
}

/// The two FATs of the ESP, if they are not the same. A volume that is none has none.
pub fn fats_differ(disk: &dyn BlockIo, esp: Extent) -> Option<FatsDiffer> {
    let mut read = |offset: u64, buf: &mut [u8]| disk.read_back(esp.offset + offset, buf).is_ok();
    copies::differ(esp.len, disk.sector_size().bytes(), &mut read).ok()?
}

/// The copy of the boot sector of an ESP that has lost that sector alone.
pub fn boot_sector_copy(disk: &dyn BlockIo, esp: Extent) -> Option<(Extent, Sha256)> {
    let mut read = |offset: u64, buf: &mut [u8]| disk.read_back(esp.offset + offset, buf).is_ok();
    let (from, sha256) = copies::boot_sector_copy(esp.len, disk.sector_size().bytes(), &mut read)?;
    Some((Extent { offset: esp.offset + from.offset, ..from }, sha256))
}

/// The sectors at the beginning of the ESP that are lost, and can be written again.
pub fn lost_sectors(disk: &dyn BlockIo, esp: Extent) -> Vec<LostSector> {
    let mut read = |offset: u64, buf: &mut [u8]| disk.read_back(esp.offset + offset, buf).is_ok();
    let mut lost = copies::lost_sectors(esp.len, disk.sector_size().bytes(), &mut read);
    let places = lost
        .iter_mut()
        .flat_map(|lost| [Some(&mut lost.extent), lost.from.as_mut().map(|(from, _)| from)].into_iter().flatten());
    places.for_each(|place| place.offset += esp.offset);
    lost
}

/// A sector of the ESP as one that does not say yet how many clusters are free. None if no such one belongs there.
pub fn empty_info(disk: &dyn BlockIo, esp: Extent, at: Extent) -> Option<Vec<u8>> {
    let mut read = |offset: u64, buf: &mut [u8]| disk.read_back(esp.offset + offset, buf).is_ok();
    copies::empty_info(at.offset.checked_sub(esp.offset)?, disk.sector_size().bytes(), &mut read)
}

/// The boot loaders of a disk, as far as `request` asks.
pub fn bootloader(disk: &dyn BlockIo, gpt: &GptFacts, request: &RenewalRequest) -> BootloaderFacts {
    let (esp, path) = (gpt.part(Part::Esp), request.path());
    let mut digests = Digests::default();
    let volume = FatVolume::open(disk, esp).map_err(|e| e.to_string());
    let efi = match volume.as_ref().map(|volume| image(volume, &path, &mut digests)) {
        Ok(Ok(found)) => found.map(|(sha256, image)| EfiFound { sha256: Some(sha256), image }),
        Ok(Err(_)) | Err(_) => Some(EfiFound { sha256: None, image: BootImage::default() }),
    };
    let is_there =
        |arch: &Arch| volume.as_ref().is_ok_and(|volume| volume.find(&arch.efi_path()).is_ok_and(|f| f.is_some()));
    let other = if efi.is_none() { Arch::ALL.into_iter().find(is_there) } else { None };
    let list = volume.and_then(|volume| {
        let found = volume.read_small(CHAIN, MAX_IMAGE_BYTES).map_err(|e| e.to_string())?;
        found.map(|bytes| Chain::parse(&bytes).map_err(|e| e.to_string())).transpose()
    });
    let core_bytes = request.offered.bios.as_ref().map(|offered| offered.halves[0].core.size);
    let listed = list.as_ref().ok().and_then(Option::as_ref);
    let bios = core_bytes.and_then(|bytes| bios_found(disk, gpt.part(Part::Bios), bytes, listed, &mut digests));
    let damage = boot_chain_by(disk, gpt, &mut digests).damage();
    let esp = fat_map(disk, esp, &[&path, CHAIN, PATHS[0], PATHS[1]]).map_err(|e| e.to_string());
    BootloaderFacts { esp, efi, other, list, bios, kernels: PerSlot::new(|slot| kernel(disk, gpt, slot)), damage }
}

fn image(volume: &FatVolume, path: &str, digests: &mut Digests) -> Result<Option<(Sha256, BootImage)>, ReadError> {
    let Some((file, bytes)) = volume.read_found(path, MAX_IMAGE_BYTES)? else { return Ok(None) };
    let digest = Sha256::of(&bytes);
    digests.know(file.extents, digest);
    Ok(Some((digest, BootImage::from_bytes(&bytes))))
}

/// Whether firmware finds a boot loader on the ESP. Where the rest of the ESP is in use, it may be a damaged one, which a renewal
/// replaces.
pub fn may_be_started(disk: &dyn BlockIo, gpt: &GptFacts, may_be_damaged: bool) -> bool {
    let Ok(volume) = FatVolume::open(disk, gpt.part(Part::Esp)) else { return false };
    let is_there = |arch: &Arch| volume.find(&arch.efi_path()).is_ok_and(|file| file.is_some());
    if may_be_damaged {
        return Arch::ALL.iter().any(is_there);
    }
    let listed = volume.read_small(CHAIN, MAX_IMAGE_BYTES).ok().flatten().and_then(|bytes| Chain::parse(&bytes).ok());
    let is_program = |arch: &Arch| {
        let path = arch.efi_path();
        let bytes = volume.read_small(&path, MAX_IMAGE_BYTES).ok().flatten().filter(|bytes| Pe::parse(bytes).is_ok());
        let digests = |list: &Chain| -> Vec<Sha256> {
            let of_it = list.0.iter().filter(|(link, _)| matches!(link, Link::File(file) if *file == path));
            of_it.map(|(_, digest)| *digest).collect()
        };
        let digests = listed.as_ref().map(digests).unwrap_or_default();
        bytes.is_some_and(|bytes| digests.is_empty() || digests.contains(&Sha256::of(&bytes)))
    };
    Arch::ALL.iter().any(is_program)
}

// Nothing keeps it from a slot without a file system or a kernel, which nothing starts, nor from a unified kernel image.
fn kernel(disk: &dyn BlockIo, gpt: &GptFacts, slot: Slot) -> KernelLook {
    let volume = match FatVolume::open(disk, gpt.part(slot.into())) {
        Ok(volume) => volume,
        Err(ReadError::NotFat32 { .. }) => return Ok(None),
        Err(e) => return Err(e.to_string()),
    };
    let find = |name| volume.find(name).map_err(|e| format!("{name}: {e}"));
    if find(UKI)?.is_some() {
        return Ok(None);
    }
    let Some(first) = find(KERNEL)?.and_then(|file| file.extents.first().copied()) else { return Ok(None) };
    let mut head = vec![0; first.len.min(HEAD_BYTES) as usize];
    read(disk, first.offset, &mut head).map_err(|e| format!("{KERNEL}: {e}"))?;
    Ok(StubLack::find(&head))
}

/// The boot loaders of a disk, whichever ones are shipped.
pub fn bootloaders(disk: &dyn BlockIo, gpt: &GptFacts) -> Bootloaders {
    bootloaders_by(disk, gpt, &mut Digests::default())
}

fn bootloaders_by(disk: &dyn BlockIo, gpt: &GptFacts, digests: &mut Digests) -> Bootloaders {
    let volume = FatVolume::open(disk, gpt.part(Part::Esp)).ok();
    let mut find = |arch: &Arch| image(volume.as_ref()?, &arch.efi_path(), digests).ok()?;
    let uefi = Arch::ALL.iter().find_map(&mut find);
    let list = volume.as_ref().and_then(|volume| volume.read_small(CHAIN, MAX_IMAGE_BYTES).ok()?);
    let list = list.and_then(|bytes| Chain::parse(&bytes).ok());
    let bios = boot_code(disk, gpt.part(Part::Bios), list.as_ref());
    Bootloaders {
        uefi: uefi.map(|(_, image)| image),
        bios: bios.map(|found| BiosImage { epoch: found.epoch, half: found.half.map(|half| half as u8 + 1) }),
    }
}

/// Both in one look: the comparison of the boot chain with the list, and the loaders of the disk.
pub fn boot_chain_and_loaders(disk: &dyn BlockIo, gpt: &GptFacts) -> (ChainCheck, Bootloaders) {
    let mut digests = Digests::default();
    let bootloaders = bootloaders_by(disk, gpt, &mut digests);
    (boot_chain_by(disk, gpt, &mut digests), bootloaders)
}

struct BootCode {
    sha256: Sha256,
    half: Option<usize>,
    epoch: u32,
}

// None if no BIOS starts the disk, or if it cannot be read.
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

fn bios_found(
    disk: &dyn BlockIo,
    part: Extent,
    core_bytes: u64,
    list: Option<&Chain>,
    digests: &mut Digests,
) -> Option<BiosFound> {
    let BootCode { sha256, half, epoch } = boot_code(disk, part, list)?;
    let core = |half: Extent| digests.digest(disk, &[Extent { len: core_bytes, ..half }]).ok();
    Some(BiosFound { boot_code: sha256, half, cores: bios::halves(part).map(core), epoch })
}

fn core_epoch(disk: &dyn BlockIo, half: Extent) -> Result<Option<u32>, ProbeError> {
    let mut sector = vec![0; bios::SECTOR as usize];
    read(disk, half.offset, &mut sector)?;
    let Some(at) = bios::sbat_at(&sector).filter(|at| at + bios::SECTOR <= half.len) else { return Ok(None) };
    read(disk, half.offset + at, &mut sector)?;
    Ok(Sbat::parse(&sector).map(|sbat| sbat.epoch()))
}

/// The shipped loaders; `firmware` gives the answer of the running machine's firmware to an image.
pub fn offered(loaders: &Loaders, arch: Arch, firmware: &dyn Fn(&[u8]) -> FirmwareSays) -> Offered {
    let efi = |bytes: &[u8]| EfiOffered {
        file: info(arch.efi_image(), bytes),
        image: BootImage::from_bytes(bytes),
        firmware: firmware(bytes),
    };
    let own = |bytes: &Vec<u8>| {
        let offered = efi(bytes);
        // An image that was made before there were epochs does not name its loader.
        EfiOffered { image: BootImage { loader: Some(EfiLoader::Slipway), ..offered.image }, ..offered }
    };
    Offered {
        arch,
        grub: efi(&loaders.grub),
        slipway: loaders.slipway.as_ref().map(own),
        bios: loaders.bios.as_ref().map(bios_offered),
    }
}

/// The shipped loaders of a new disk, which has its core image in the first half.
pub fn asset_facts(assets: &Assets, arch: Arch) -> AssetFacts {
    AssetFacts {
        efi: info(arch.efi_image(), &assets.efi),
        loader: BootImage::from_bytes(&assets.efi).loader,
        bios: assets.bios.as_ref().map(|bios| bios_facts(bios, halves()[0])),
    }
}

fn bios_offered(bios: &BiosAssets) -> BiosOffered {
    BiosOffered { halves: halves().map(|at| bios_facts(bios, at)), epoch: bios.epoch() }
}

// A BIOS reads 512-byte sectors only.
fn halves() -> [Lba; 2] {
    bios::halves(Extent { offset: BIOS_OFFSET, len: BIOS_BYTES }).map(|half| half.first_lba(SectorSize::S512))
}

fn bios_facts(bios: &BiosAssets, at: Lba) -> BiosFacts {
    BiosFacts { boot_code: Sha256::of(&bios.boot_code(at)), core: info("core.img", &bios.core_image(at)) }
}
