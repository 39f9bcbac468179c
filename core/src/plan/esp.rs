//! The ESP made again where firmware finds no boot loader on it. Both slots and all data stay as they are.
//!
//! UEFI starts nothing from such a disk. A BIOS may: GRUB's core image lies in a partition of its own, and without
//! boot.env it goes by the slots' markers. So a kept boot state must agree with the markers, because they count between
//! the first write and the last.
//!
//! Facts that only the boot state has (since when a system is good, which ones are bad, the live medium) is lost if the
//! power goes meanwhile.
//!
//! 1. **Blank** both ends: nothing takes the rest there for a file system, while other files are written over it or
//!    later.
//! 2. **Write** the files, then the FATs and the directories, and behind a flush the boot sector. That one sector makes a whole
//!    file system of it.
//! 3. **Verify**: all of it is read back past the page cache.
//! 4. **BIOS**, if its loader is another one than the installer's: the half of its partition that is not started, then
//!    LBA 0. The list of the boot chain names the new one, and can be compared.

use crate::prelude::*;

use uuid::Uuid;

use super::{
    BiosFacts, Content, Plan, Refusal, Step, SystemFacts, Volume, VolumeFile,
    bootloader::{BootloaderFacts, EfiOffered, FirmwareSays, KernelLook, NotRenewed, RenewalRequest, boot_code},
    content::serial,
    draft::Draft,
    missing_files::{has_place, loader},
    renewal::bios_steps,
    step::ends,
};
use crate::{
    boot::{
        EfiLoader,
        env::{BootEnv, PATHS},
        history::{Entry, HISTORY, Verb},
        rule::next_boot,
        slot::{PerSlot, Slot, SlotState},
    },
    disk::{
        chain::{CHAIN, Chain, Link},
        drive_record::{DRIVE, DriveRecord},
        fat::map::FatMap,
        gpt::BOOT_CODE_BYTES,
        layout::Part,
    },
    kernel::arch::Arch,
    payload::manifest::FileInfo,
    units::SectorSize,
};

/// The list of a boot chain: the UEFI image, and the BIOS loader.
pub fn chain(arch: Arch, efi: &FileInfo, bios: Option<&BiosFacts>) -> Chain {
    let mut chain = vec![(Link::File(arch.efi_path()), efi.sha256)];
    if let Some(BiosFacts { boot_code, core }) = bios {
        chain.push((Link::BootCode { len: BOOT_CODE_BYTES as u64 }, *boot_code));
        chain.push((Link::CoreImage { len: core.size }, core.sha256));
    }
    Chain(chain)
}

/// The content of an ESP.
pub struct EspContent<'a> {
    pub arch: Arch,
    pub efi: &'a FileInfo,
    pub env: &'a BootEnv,
    pub chain: Chain,
    pub drive: Option<DriveRecord>,
    /// First entry of the history.
    pub first: Entry,
    /// GUID of the partition.
    pub guid: Uuid,
    /// Seconds since 1970 UTC.
    pub time: u64,
    pub sector: SectorSize,
}

impl EspContent<'_> {
    pub fn volume(self) -> Volume {
        let mut files = vec![VolumeFile::copied(&self.arch.efi_path(), self.efi, Content::EfiImage)];
        files.extend(PATHS.map(|path| VolumeFile::text(path, self.env.render())));
        files.push(VolumeFile::text(CHAIN, self.chain.render()));
        files.extend(self.drive.map(|drive| VolumeFile::text(DRIVE, drive.render())));
        files.push(VolumeFile::history(HISTORY, self.first, self.sector));
        Volume { serial: serial(self.guid), time: self.time, files }
    }
}

/// Whether the ESP is one to be made again: no boot loader is left on it, and a system that boots under a BIOS boots
/// meanwhile, too. A trial that has not run yet is no way back: its fallback is.
pub fn is_lost(system: &SystemFacts) -> bool {
    let views = PerSlot::new(|slot: Slot| system.slots[slot].view());
    let is_safe = |env: &BootEnv| {
        let meanwhile = next_boot(None, &views).slot;
        let default = Some(env.default).filter(|slot| system.slots[*slot].damage().is_none());
        let way_back = if system.next.trial { default } else { system.next.slot };
        way_back.is_none() || meanwhile == way_back
    };
    // By a copy of the boot sector, or by one of the FAT, every file is whole.
    let comes_back =
        system.esp_boot_sector.is_some() || system.esp_fats.as_ref().is_some_and(|fats| fats.whole.is_some());
    let is_lost = system.esp_lost || (system.env.is_none() && !has_place_for_boot_env(system));
    is_lost && !comes_back && system.env.as_ref().is_none_or(is_safe)
}

/// Whether the boot state can be written where it is, or both copies can be put onto the ESP.
fn has_place_for_boot_env(system: &SystemFacts) -> bool {
    let has_places = |map: &FatMap| PATHS.iter().all(|path| has_place(map, path));
    system.env_at != [None; 2] || system.esp_map.as_ref().is_some_and(has_places)
}

/// The boot state on an ESP that a plan makes again.
pub fn boot_env(plan: &Plan) -> Option<BootEnv> {
    let added = plan.steps.iter().filter_map(|step| match step {
        Step::WriteFile { file, .. } => Some(file),
        _ => None,
    });
    let first =
        plan.esp.iter().flat_map(|esp| &esp.files).chain(added).find(|file| PATHS.contains(&file.path.as_str()))?;
    match &first.from {
        Content::Text(text) => BootEnv::parse(text.as_bytes()),
        _ => None,
    }
}

impl Draft<'_> {
    /// Put the missing files back onto an ESP that is whole otherwise. None if that is not possible. Returns the loader that
    /// starts the disk under UEFI then, for people.
    pub fn complete_esp(&mut self, env: &mut BootEnv, request: &RenewalRequest) -> Result<Option<String>, Refusal> {
        let Some(facts) = &self.system.bootloader else { return Ok(None) };
        let Ok(map) = &facts.esp else { return Ok(None) };
        let efi = chosen(request, facts, env)?;
        request.not_older(facts, None)?;
        let mut files = self.missing_state(env);
        if facts.efi.is_none() {
            files.extend(loader(request, efi, facts, self.system.sector));
        } else if self.system.esp_lost {
            // It is there, and damaged.
            return Ok(None);
        }
        Ok(self.add_files(map, files).then(|| efi.image.to_string()))
    }

    /// Make the ESP again, with this boot state. Returns the loader that starts the disk under UEFI then, for people.
    pub fn make_esp(&mut self, env: &BootEnv, request: &RenewalRequest) -> Result<String, Refusal> {
        let (gpt, sector) = (&self.system.gpt, self.system.sector);
        let unread = || NotRenewed::Unreadable("the ESP".to_owned());
        let facts = self.system.bootloader.as_ref().ok_or_else(unread)?;
        let efi = chosen(request, facts, env)?;
        let bios = request.bios(facts, sector);
        request.not_older(facts, None)?;
        let entry = self.first_entry(env.default);
        let env = BootEnv { history: Some(entry.n), ..env.clone() };
        let content = EspContent {
            arch: request.offered.arch,
            efi: &efi.file,
            env: &env,
            chain: request.listed(&request.path(), efi, facts, bios),
            drive: None,
            first: entry,
            guid: gpt.guid(Part::Esp),
            time: self.base.now,
            sector,
        };
        let (volume, part, extent) = (content.volume(), Part::Esp, gpt.part(Part::Esp));
        volume.lay_out(part, extent, sector).map_err(Refusal::Esp)?;
        let bios = bios.map(|(half, new)| bios_steps(gpt, sector, half, new, boot_code(facts))).transpose();
        let bios = bios.map_err(NotRenewed::Esp)?;
        let (head, tail) = ends(extent);
        self.extend(
            part,
            [Step::Blank { part, head, tail }, Step::WriteVolume { part, extent }, Step::Verify { part, extent }],
        );
        self.extend(part, bios.into_iter().flatten());
        self.notes_on_esp(efi);
        self.esp = Some(volume);
        Ok(efi.image.to_string())
    }

    pub fn first_entry(&self, about: Slot) -> Entry {
        let version = self.system.slots[about].manifest.as_ref().and_then(|manifest| manifest.version.clone());
        let (by, reason) = (self.base.asked.by.clone(), self.base.asked.reason.clone());
        Entry { slot: Some(about), version, by, reason, ..Entry::new(1, self.base.now, Verb::Repair) }.fitted()
    }

    fn notes_on_esp(&mut self, efi: &EfiOffered) {
        let foreign = &self.system.esp_foreign;
        let lost =
            if foreign.is_empty() { String::new() } else { format!(", and this is lost: {}", foreign.join(", ")) };
        self.warnings.push(format!("the ESP is formatted: its history begins anew{lost}"));
        if let (FirmwareSays::NotKnown(why), false) = (&efi.firmware, efi.image.signed) {
            self.warnings.push(format!(
                "the new boot loader is not signed for Secure Boot, and it is not known whether the firmware starts it: {why}"
            ));
        }
    }
}

/// The UEFI image: the one that was asked for, else Slipway's loader if it starts the kernels of all slots that may boot,
/// else GRUB. One that the firmware refuses is of no use.
fn chosen<'r>(
    request: &'r RenewalRequest,
    facts: &BootloaderFacts,
    env: &BootEnv,
) -> Result<&'r EfiOffered, NotRenewed> {
    let is_used = |slot: &Slot| env.default == *slot || env.states[*slot] != SlotState::Empty;
    let starts = |look: &KernelLook| matches!(look, Ok(None));
    let starts_all = Slot::BOTH.into_iter().filter(is_used).all(|slot| starts(&facts.kernels[slot]));
    let slipway = || request.offered.slipway.as_ref().ok_or(NotRenewed::NotShipped("Slipway's loader for UEFI"));
    let (own, grub) = match request.loader {
        None => (request.offered.slipway.as_ref().filter(|_| starts_all), Some(&request.offered.grub)),
        Some(EfiLoader::Grub) => (None, Some(&request.offered.grub)),
        Some(EfiLoader::Slipway) => (Some(slipway()?), None),
    };
    let may = own.into_iter().chain(grub);
    let mut refused = None;
    for efi in may {
        match &efi.firmware {
            FirmwareSays::Refuses(why) => {
                refused.get_or_insert_with(|| NotRenewed::NotStarted { what: efi.image.to_string(), why: why.clone() });
            }
            _ => return Ok(efi),
        }
    }
    Err(refused.unwrap_or(NotRenewed::NotShipped("loader for UEFI")))
}
