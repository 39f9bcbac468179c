//! Decides whether the boot loaders of a disk are renewed, and why not. Steps: `renewal.rs`.
//!
//! A disk has two: the UEFI image on the ESP, and boot code with a core image for BIOS. The installer ships one set of
//! both. A set has an epoch, and none follows one with a higher epoch: nothing overrides that, because the way to go back
//! to a loader that must not be used any more is to install it.
//!
//! Everything that is not certain is a reason to leave the loaders as they are: they start the disk's systems.

use crate::prelude::*;

use alloc::borrow::Cow;

use core::fmt;

use serde::{Deserialize, Serialize};

use super::bootloader_facts::BiosFacts;
pub use super::bootloader_facts::{
    BiosFound, BiosOffered, BootloaderFacts, EfiFound, EfiOffered, FirmwareSays, KernelLook, Offered,
};
use crate::{
    boot::{
        EfiLoader,
        slot::{PerSlot, Slot},
    },
    digest::Sha256,
    disk::{
        chain::{CHAIN, Chain, Link},
        fat::map::FatMap,
        gpt::BOOT_CODE_BYTES,
    },
    efi::boot_image::BootImage,
    kernel::{arch::Arch, efi_stub::StubLack},
    report::{FailureId, FailureKind},
    units::SectorSize,
};

/// A list that is damaged says nothing.
static NO_LINKS: Chain = Chain(Vec::new());

pub(super) const NO_BOOT_CODE: &str =
    "LBA 0 has no boot code of ours, and nothing says whether it had; under UEFI this disk boots";

/// A renewal with every choice made.
#[derive(Clone, Debug)]
pub struct RenewalRequest {
    /// The installer's boot loaders.
    pub offered: Offered,
    /// The loader for UEFI. None: Slipway's own, unless GRUB was chosen for this disk.
    pub loader: Option<EfiLoader>,
    /// Renew against the firmware's verdict.
    pub ignore_secure_boot: bool,
    /// Replace damaged parts, too.
    pub mend: bool,
}

/// Why the boot loaders stay as they are. The message is the reason alone; [`NotRenewed::remedy`] is the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what the fields are")]
pub enum NotRenewed {
    /// No file of the ESP can be replaced.
    #[error("no file on the ESP can be replaced: {0}")]
    Esp(String),
    /// Nothing is there to be replaced, and no step of a renewal makes an entry of a directory.
    #[error("{0} is missing from the ESP")]
    Missing(String),
    /// The disk is for other machines.
    #[error("the boot loaders that are offered are for {offered}, and the disk starts on {has}")]
    OtherArch { has: Arch, offered: Arch },
    /// It cannot be known whether the shipped loader is newer.
    #[error("{0} cannot be read, so it is not known what starts this disk")]
    Unreadable(String),
    /// The set on the disk has a higher epoch.
    #[error(
        "the boot loader on the disk has the epoch {has}, and the one of this installer {offered}, so it is one that \
         must not come back"
    )]
    Older { has: u32, offered: u32 },
    /// Firmware with Secure Boot would not start it.
    #[error("firmware with Secure Boot would not start {what}: {why}")]
    NotStarted { what: String, why: String },
    /// The firmware's verdict cannot be looked up.
    #[error(
        "the loader on the disk is signed for Secure Boot, or may be, and it is not known whether the firmware starts \
         {what}: {why}"
    )]
    FirmwareNotKnown { what: String, why: String },
    /// This installer does not ship it.
    #[error("this installer ships no {0}")]
    NotShipped(&'static str),
    /// A link has neither the recorded digest nor the new one.
    #[error("the boot chain is damaged ({0})")]
    Damaged(String),
    /// The disk would move from GRUB to Slipway's loader, which does not start its kernel.
    #[error("Slipway's loader does not start the kernel of slot {slot} under UEFI: {lack}")]
    Kernel { slot: Slot, lack: StubLack },
    /// The content of that kernel cannot be looked at.
    #[error("it cannot be told whether Slipway's loader starts the kernel of slot {slot} under UEFI: {why}")]
    KernelUnread { slot: Slot, why: String },
    /// The next boot tries a slot.
    #[error("slot {0} is to be tried at the next boot")]
    TrialPending(Slot),
}

impl NotRenewed {
    /// The place of the fault: disk, environment or input.
    pub const fn kind(&self) -> FailureKind {
        match self {
            Self::FirmwareNotKnown { .. } | Self::NotShipped(_) => FailureKind::Environment,
            Self::Esp(_) | Self::Missing(_) | Self::Unreadable(_) | Self::Damaged(_) | Self::TrialPending(_) => {
                FailureKind::Install
            }
            Self::Older { .. }
            | Self::NotStarted { .. }
            | Self::Kernel { .. }
            | Self::KernelUnread { .. }
            | Self::OtherArch { .. } => FailureKind::Input,
        }
    }

    /// For programs.
    pub const fn id(&self) -> FailureId {
        match self {
            Self::OtherArch { .. } => FailureId::BootloaderArchitecture,
            Self::Esp(_) | Self::Missing(_) => FailureId::EspUnfit,
            Self::Unreadable(_) => FailureId::BootChainUnreadable,
            Self::Older { .. } => FailureId::OlderBootloader,
            Self::NotStarted { .. } => FailureId::BootloaderNotStarted,
            Self::Kernel { .. } | Self::KernelUnread { .. } => FailureId::KernelNotStarted,
            Self::FirmwareNotKnown { .. } => FailureId::SecureBootUnknown,
            Self::NotShipped(_) => FailureId::BootloaderNotShipped,
            Self::Damaged(_) => FailureId::BootChainDamaged,
            Self::TrialPending(_) => FailureId::TrialPending,
        }
    }

    /// The remedy: a clause behind the reason.
    pub fn remedy(&self) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            NotRenewed::OtherArch { has, .. } => {
                return format!("`installer bootloader update --arch {has}` names it").into();
            }
            NotRenewed::Esp(_) => {
                "`installer repair` mends its FAT from the other one, and `fsck.vfat` the rest of an ESP that is not mounted"
            }
            NotRenewed::Missing(_) => "`installer repair` makes the ESP again, and keeps the slots and all data",
            NotRenewed::Unreadable(_) => "`installer verify` shows what is damaged",
            NotRenewed::Older { .. } => "take a newer installer",
            NotRenewed::NotStarted { .. } => {
                "sign it (`installer uki --program`), or take it with `installer bootloader update --ignore-secure-boot`"
            }
            NotRenewed::FirmwareNotKnown { .. } => {
                "run this on the machine itself, or take it with `installer bootloader update --ignore-secure-boot`"
            }
            NotRenewed::NotShipped(_) => {
                "take another one, or name another loader by `installer bootloader update --efi-loader`"
            }
            NotRenewed::Damaged(_) => "`installer bootloader update` mends it, and should before the next reboot",
            NotRenewed::Kernel { .. } => "`installer bootloader update --efi-loader grub` renews GRUB in its place",
            NotRenewed::KernelUnread { .. } => {
                "`installer verify` shows what is damaged, an upgrade writes that slot anew, and `installer bootloader update \
                 --efi-loader grub` renews GRUB in its place"
            }
            NotRenewed::TrialPending(_) => {
                "boot it, or, if the default is whole, cancel that with `installer rollback`"
            }
        })
    }
}

/// The change of the boot loaders, for people and programs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct BootloaderChange {
    /// The UEFI image, if it is replaced.
    pub efi: Option<EfiChange>,
    /// Whether boot code and core image for BIOS are replaced.
    pub bios: bool,
    /// The damaged links of the boot chain that this mends.
    pub mends: Vec<String>,
}

/// A UEFI image that is replaced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[expect(missing_docs, reason = "the fields are what their names say")]
pub struct EfiChange {
    pub from: BootImage,
    pub to: BootImage,
}

impl BootloaderChange {
    /// Whether nothing is replaced.
    pub const fn is_none(&self) -> bool {
        self.efi.is_none() && !self.bios
    }
}

impl fmt::Display for BootloaderChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.efi, self.bios) {
            (Some(efi), bios) => {
                let bios = if bios { ", and GRUB for BIOS is renewed" } else { "" };
                write!(f, "UEFI starts {} (before: {}){bios}", efi.to, efi.from)?;
            }
            (None, true) => f.write_str("GRUB for BIOS is renewed")?,
            (None, false) => f.write_str("the boot loaders are those of this installer")?,
        }
        if self.mends.is_empty() { Ok(()) } else { write!(f, "; mended: {}", self.mends.join(", ")) }
    }
}

/// The loaders to renew.
#[expect(missing_docs, reason = "the other fields are what their names say")]
pub struct Due<'a> {
    pub map: &'a FatMap,
    /// The new UEFI image.
    pub efi: Option<&'a EfiOffered>,
    /// The half for the new core image, its new content, and the boot code that it takes the place of.
    pub bios: Option<(usize, &'a BiosFacts, Sha256)>,
    /// The list as it is, and as it is to be.
    pub list: Option<(&'a Chain, Chain)>,
    pub change: BootloaderChange,
    /// The check that was overridden: for the history.
    pub overridden: Option<String>,
}

impl RenewalRequest {
    /// Path of the UEFI image on the ESP.
    pub fn path(&self) -> String {
        self.offered.arch.efi_path()
    }

    /// The UEFI image for this disk.
    pub fn efi(&self, found: &EfiFound) -> Result<&EfiOffered, NotRenewed> {
        let kept = if found.image.is_chosen_grub() { EfiLoader::Grub } else { EfiLoader::default() };
        match self.loader.unwrap_or(kept) {
            EfiLoader::Grub => Ok(&self.offered.grub),
            EfiLoader::Slipway => {
                self.offered.slipway.as_ref().ok_or(NotRenewed::NotShipped("Slipway's loader for UEFI"))
            }
        }
    }

    /// The renewal to do, or why not. Both loaders are renewed, or none. `kernels` are those that the slots will have.
    pub fn due<'a>(
        &'a self,
        facts: &'a BootloaderFacts,
        kernels: &PerSlot<KernelLook>,
        sector: SectorSize,
    ) -> Result<Due<'a>, NotRenewed> {
        let path = self.path();
        // First: without it nothing starts the disk under UEFI, and its remedy makes the whole ESP again.
        let found = facts.efi.as_ref().ok_or_else(|| match facts.other {
            Some(has) if has != self.offered.arch => NotRenewed::OtherArch { has, offered: self.offered.arch },
            // A read that failed once found none, and the next one did.
            _ => NotRenewed::Missing(path.clone()),
        })?;
        let map = facts.esp.as_ref().map_err(|why| NotRenewed::Esp(why.clone()))?;
        if found.sha256.is_none() && !self.mend {
            return Err(NotRenewed::Unreadable(path));
        }
        let list = match &facts.list {
            Ok(list) => list.as_ref(),
            Err(_) if self.mend => Some(&NO_LINKS),
            Err(why) => return Err(NotRenewed::Damaged(format!("{CHAIN}: {why}"))),
        };
        let offered = self.efi(found)?;
        let efi = (found.sha256 != Some(offered.file.sha256)).then_some(offered);
        let bios = self.bios(facts, sector);
        let change = BootloaderChange {
            efi: efi.map(|new| EfiChange { from: found.image.clone(), to: new.image.clone() }),
            bios: bios.is_some(),
            mends: facts.damage.clone(),
        };
        if !change.is_none() {
            self.not_older(facts, efi.map(|new| (found, new)))?;
        }
        if let (false, false, Some(first)) = (self.mend, change.is_none(), facts.damage.first()) {
            return Err(NotRenewed::Damaged(first.clone()));
        }
        if let Some(new) = efi {
            starts_kernels(new, found, kernels)?;
        }
        let overridden = match efi.map(|new| starts(new, found)) {
            Some(Err(why)) if self.ignore_secure_boot => Some(format!("--ignore-secure-boot: {why}")),
            Some(Err(why)) => return Err(why),
            _ => None,
        };
        let list = list.map(|list| (list, self.listed(&path, offered, facts, bios)));
        Ok(Due { map, efi, bios: bios.map(|(half, new)| (half, new, boot_code(facts))), list, change, overridden })
    }

    /// Why damaged loaders are replaced only by `--ignore-secure-boot`. None also where it is known that this machine would not
    /// start the new one.
    pub fn not_started(
        &self,
        facts: &BootloaderFacts,
        kernels: &PerSlot<KernelLook>,
        sector: SectorSize,
    ) -> Option<NotRenewed> {
        let is_refused = || {
            let new = facts.efi.as_ref().and_then(|found| self.efi(found).ok());
            new.is_some_and(|new| matches!(new.firmware, FirmwareSays::Refuses(_)))
        };
        let left = self.due(facts, kernels, sector).err()?;
        let is_about_it = matches!(left, NotRenewed::NotStarted { .. } | NotRenewed::FirmwareNotKnown { .. });
        (is_about_it && !is_refused()).then_some(left)
    }

    /// `efi`: the image on the disk, and the one that replaces it.
    pub(super) fn not_older(
        &self,
        facts: &BootloaderFacts,
        efi: Option<(&EfiFound, &EfiOffered)>,
    ) -> Result<(), NotRenewed> {
        let pairs = [
            efi.map(|(old, new)| (old.image.epoch, new.image.epoch)),
            facts.bios.as_ref().zip(self.offered.bios.as_ref()).map(|(old, new)| (old.epoch, new.epoch)),
        ];
        let older = pairs.into_iter().flatten().find(|(has, offered)| offered < has);
        older.map_or(Ok(()), |(has, offered)| Err(NotRenewed::Older { has, offered }))
    }

    /// The half that the boot code does not start, if the started one is not the shipped one.
    pub(super) fn bios(&self, facts: &BootloaderFacts, sector: SectorSize) -> Option<(usize, &BiosFacts)> {
        // A BIOS reads sectors of 512 bytes only.
        let (found, offered) =
            facts.bios.as_ref().filter(|_| sector == SectorSize::S512).zip(self.offered.bios.as_ref())?;
        let is_current = |half: usize| {
            let new = &offered.halves[half];
            found.boot_code == new.boot_code && found.cores[half] == Some(new.core.sha256)
        };
        if found.half.is_some_and(is_current) {
            return None;
        }
        let other = 1 - found.half.unwrap_or(0);
        Some((other, &offered.halves[other]))
    }

    /// A list of the boot chain with this UEFI image, if what is there for BIOS is this installer's.
    pub(super) fn proven_list(&self, efi: &EfiOffered, facts: &BootloaderFacts, sector: SectorSize) -> Option<Chain> {
        let has_none = sector != SectorSize::S512 || self.offered.bios.is_none();
        let is_current = has_none || (facts.bios.is_some() && self.bios(facts, sector).is_none());
        is_current.then(|| self.listed(&self.path(), efi, facts, None))
    }

    /// The list of the boot chain afterwards.
    pub(super) fn listed(
        &self,
        path: &str,
        efi: &EfiOffered,
        facts: &BootloaderFacts,
        bios: Option<(usize, &BiosFacts)>,
    ) -> Chain {
        let mut links = vec![(Link::File(path.to_owned()), efi.file.sha256)];
        let current = || {
            let (found, offered) = facts.bios.as_ref().zip(self.offered.bios.as_ref())?;
            Some(&offered.halves[found.half?])
        };
        match bios.map(|(_, new)| new).or_else(current) {
            Some(BiosFacts { boot_code, core }) => {
                links.push((Link::BootCode { len: BOOT_CODE_BYTES as u64 }, *boot_code));
                links.push((Link::CoreImage { len: core.size }, core.sha256));
            }
            // A loader that is not shipped stays as it is.
            None => {
                let listed = facts.list.iter().flatten().flat_map(|list| &list.0);
                links.extend(listed.filter(|(link, _)| !matches!(link, Link::File(_))).cloned());
            }
        }
        Chain(links)
    }
}

pub(super) fn boot_code(facts: &BootloaderFacts) -> Sha256 {
    facts.bios.as_ref().map_or_else(|| Sha256::of(&[]), |bios| bios.boot_code)
}

/// Checks that a disk that moves to Slipway's loader boots as before. Both slots count: either may be the way back.
fn starts_kernels(new: &EfiOffered, found: &EfiFound, kernels: &PerSlot<KernelLook>) -> Result<(), NotRenewed> {
    let own = Some(EfiLoader::Slipway);
    if new.image.loader != own || found.image.loader == own {
        return Ok(());
    }
    for slot in Slot::BOTH {
        match &kernels[slot] {
            Ok(None) => {}
            Ok(Some(lack)) => return Err(NotRenewed::Kernel { slot, lack: *lack }),
            // GRUB may start an image that could not be read just now. An unknown image starts nothing: then the disk
            // only gains by another one.
            Err(why) if found.image.loader == Some(EfiLoader::Grub) => {
                return Err(NotRenewed::KernelUnread { slot, why: why.clone() });
            }
            Err(_) => {}
        }
    }
    Ok(())
}

/// Checks that firmware that starts the image on the disk starts the new one.
fn starts(new: &EfiOffered, found: &EfiFound) -> Result<(), NotRenewed> {
    let what = new.image.to_string();
    let not = |why: &str| Err(NotRenewed::NotStarted { what: what.clone(), why: why.to_owned() });
    // An image that cannot be read may have been signed.
    let may_be_signed = found.image.signed || found.sha256.is_none();
    match &new.firmware {
        FirmwareSays::Refuses(why) => not(why),
        _ if found.image.signed && !new.image.signed => not("the loader on the disk is signed, and this one is not"),
        // Firmware with Secure Boot would not have started an unsigned image.
        FirmwareSays::NotKnown(why) if may_be_signed => Err(NotRenewed::FirmwareNotKnown { what, why: why.clone() }),
        FirmwareSays::NotKnown(_) | FirmwareSays::Starts | FirmwareSays::AnythingStarts => Ok(()),
    }
}

/// Whether a disk boots under BIOS: only then its list has a core image, and its BIOS partition one.
pub fn boots_under_bios(list: Option<&Chain>, half: Option<usize>) -> bool {
    list.map_or(half.is_some(), |list| list.0.iter().any(|(link, _)| matches!(link, Link::BootCode { .. })))
}
