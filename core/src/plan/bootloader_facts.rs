//! Facts about boot loaders: those on a disk, and those that the installer ships.

use crate::prelude::*;

use crate::{
    boot::{
        env::BootEnv,
        slot::{PerSlot, Slot, SlotState},
    },
    digest::Sha256,
    disk::{chain::Chain, fat::map::FatMap},
    efi::boot_image::BootImage,
    kernel::{arch::Arch, efi_stub::StubLack},
    payload::manifest::FileInfo,
};

/// The boot assets for BIOS, as they are on a disk: each contains where the other one or its own rest begins.
#[derive(Clone, Debug)]
pub struct BiosFacts {
    /// The boot code in LBA 0.
    pub boot_code: Sha256,
    /// The core image.
    pub core: FileInfo,
}

/// The installer's boot loaders.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the other fields are what their names say")]
pub struct Offered {
    pub arch: Arch,
    pub grub: EfiOffered,
    /// None in a build without it.
    pub slipway: Option<EfiOffered>,
    /// None for an architecture without BIOS.
    pub bios: Option<BiosOffered>,
}

/// A UEFI image that is shipped.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the other fields are what their names say")]
pub struct EfiOffered {
    pub file: FileInfo,
    pub image: BootImage,
    /// The answer of the running machine's firmware to it.
    pub firmware: FirmwareSays,
}

/// The answer of a firmware to a UEFI image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FirmwareSays {
    /// Secure Boot is off: it starts anything.
    AnythingStarts,
    /// Secure Boot is on, and it starts this one.
    Starts,
    /// Secure Boot is on, and it does not, for this reason.
    Refuses(String),
    /// It is unknown, for this reason.
    NotKnown(String),
}

/// Boot code and core image that are shipped, for each half of the BIOS partition.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the fields are what their names say")]
pub struct BiosOffered {
    pub halves: [BiosFacts; 2],
    pub epoch: u32,
}

/// The boot loaders on a disk.
#[derive(Clone, Debug)]
pub struct BootloaderFacts {
    /// The clusters of the ESP, or why no file there can be replaced.
    pub esp: Result<FatMap, String>,
    /// The UEFI image, if there is one.
    pub efi: Option<EfiFound>,
    /// The architecture of another loader, if the disk has none of the shipped one.
    pub other: Option<Arch>,
    /// The list of the boot chain. None on a disk of an installer that made none.
    pub list: Result<Option<Chain>, String>,
    /// None on a disk that no BIOS starts.
    pub bios: Option<BiosFound>,
    /// The kernel of each slot.
    pub kernels: PerSlot<KernelLook>,
    /// Parts of the boot chain that differ from the list.
    pub damage: Vec<String>,
}

/// The reason that keeps Slipway's loader from starting a kernel, or why it could not be looked at.
pub type KernelLook = Result<Option<StubLack>, String>;

impl BootloaderFacts {
    /// The kernels of the slots that may boot. Nothing starts an empty slot, so that one need not be readable.
    pub fn kernels(&self, env: Option<&BootEnv>) -> PerSlot<KernelLook> {
        let is_empty = |slot: Slot| env.is_some_and(|env| env.states[slot] == SlotState::Empty);
        PerSlot::new(|slot| match &self.kernels[slot] {
            Err(_) if is_empty(slot) => Ok(None),
            seen => seen.clone(),
        })
    }
}

/// A UEFI image on a disk.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the fields are what their names say")]
pub struct EfiFound {
    /// None: the image cannot be read. Then `image` is unknown, too.
    pub sha256: Option<Sha256>,
    pub image: BootImage,
}

/// Boot code for a BIOS.
#[derive(Clone, Debug)]
pub struct BiosFound {
    /// Digest of the boot code in LBA 0.
    pub boot_code: Sha256,
    /// The half of the BIOS partition that it starts, if any.
    pub half: Option<usize>,
    /// Digests of the first bytes of each half, as many as the shipped core image has. None: they cannot be read.
    pub cores: [Option<Sha256>; 2],
    /// The epoch of the core image that is started; 0 if it does not say one.
    pub epoch: u32,
}
