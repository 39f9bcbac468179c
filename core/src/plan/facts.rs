//! Findings of the probe: the facts that plans are made from.

use crate::prelude::*;

mod losses;
mod names;
mod partition_table;

pub use partition_table::{Covered, GptCopies, GptFacts, Intruder};

use alloc::collections::BTreeMap;

use uuid::Uuid;

use super::bootloader_facts::{BiosFacts, BootloaderFacts};
use crate::{
    boot::{
        EfiLoader,
        env::{BootEnv, Marker, PATHS},
        history::{HISTORY, History},
        rule::{NextBoot, SlotView},
        running::Running,
        slot::{PerSlot, Slot, SlotState},
    },
    digest::{Sha256, Sums},
    disk::{
        fat::{
            copies::{FatsDiffer, LostSector},
            map::FatMap,
        },
        identity::{DiskIdentity, DiskUse},
        layout::Part,
        magic::Magic,
        meta::Meta,
        volume_fault::VolumeFault,
    },
    kernel::arch::Arch,
    payload::manifest::{FileInfo, Manifest},
    snapshot,
    text::quoted,
    units::{Extent, SectorSize},
};

/// Content of a disk before an install.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// The first and last MiB are zero, or there is a GPT without partitions.
    Nothing,
    /// Anything else, described for people.
    Something(String),
    /// A disk image in another format than raw, or what one may be packed in.
    OtherFormat(&'static Magic),
}

impl Found {
    /// The content that would be overwritten, for people.
    pub fn what(&self) -> Option<&str> {
        match self {
            Found::Nothing => None,
            Found::Something(what) => Some(what),
            Found::OtherFormat(format) => Some(format.name),
        }
    }
}

/// The disk to install to.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the other fields are what their names say")]
pub struct DiskFacts {
    pub identity: DiskIdentity,
    /// Size in bytes; whole sectors.
    pub bytes: u64,
    pub sector: SectorSize,
    /// Mounts, swap and other users that must go first.
    pub busy: Vec<DiskUse>,
    pub found: Found,
}

/// The boot assets: GRUB's images.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the other fields are what their names say")]
pub struct AssetFacts {
    pub efi: FileInfo,
    /// The loader in `efi`, if it says so.
    pub loader: Option<EfiLoader>,
    /// The BIOS boot code; x86 only.
    pub bios: Option<BiosFacts>,
}

/// One slot as found.
#[derive(Clone, Debug, Default)]
pub struct SlotFacts {
    /// The manifest, if it can be read.
    pub manifest: Option<Manifest>,
    /// Parts of it that only a later version knows.
    pub later: Vec<String>,
    /// The marker, if it is valid.
    pub marker: Option<Marker>,
    /// Why the boot loader would not load the slot: a file that does not match `boot.sha256`.
    pub boot_problem: Option<String>,
    /// Whether the boot loader would load the slot.
    pub verifies: bool,
    /// Byte offset of the marker on the disk; `None` if it is not one whole sector and cannot be replaced in place.
    pub marker_at: Option<u64>,
    /// The GUID of the disk, as it hands it over to the kernel.
    pub disk_guid: Option<Uuid>,
    /// Result of comparing every file that `SHA256SUMS` lists, the squashfs included. `None`: not checked, because
    /// that takes long.
    pub whole: Option<Result<(), String>>,
    /// `SHA256SUMS`. A whole slot holds the listed files, which need not be signed.
    pub listed: Option<Sums>,
    /// Why `SHA256SUMS` or `manifest.json` says nothing, or too little. The boot loader reads neither, so no plan goes by it.
    pub lists_lost: Option<String>,
    /// Files that `SHA256SUMS` does not list, found when the others were checked. fsck leaves such files.
    pub unlisted: Vec<String>,
}

impl SlotFacts {
    /// The digest that names the payload in it, see [`Manifest::payload_digest`].
    pub fn payload(&self) -> Option<Sha256> {
        self.manifest.as_ref().map(Manifest::payload_digest)
    }

    /// The digest that names the system: the files and their command line.
    pub fn system(&self) -> Option<Sha256> {
        self.manifest.as_ref().map(Manifest::system_digest)
    }

    /// The facts that the boot rule goes by.
    pub fn view(&self) -> SlotView {
        SlotView { verifies: self.verifies, marker: self.marker.clone() }
    }

    /// The version, for people.
    pub fn version(&self) -> &str {
        self.manifest.as_ref().and_then(|m| m.version.as_deref()).unwrap_or("(no version)")
    }

    /// The fault of the slot, if any: by all files if they were checked, else by those the boot loader loads.
    pub fn damage(&self) -> Option<&str> {
        match &self.whole {
            Some(Err(why)) => Some(why),
            _ => self.boot_problem.as_deref(),
        }
    }

    /// What a person is told of: damage, or lists that are lost. The initramfs and the next upgrade go by those lists.
    pub fn problem(&self) -> Option<&str> {
        self.damage().or(self.lists_lost.as_deref())
    }
}

/// A place that the disk did not return.
#[derive(Clone, Debug)]
pub struct Unreadable {
    /// The place and the error, for people.
    pub what: String,
    /// Whether other facts tell of it as well: of two copies which is lost, and the faults of the volumes of the OS.
    pub is_told: bool,
}

/// An installed disk, and how the running system relates to it.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the other fields are what their names say")]
pub struct SystemFacts {
    pub gpt: GptFacts,
    pub sector: SectorSize,
    pub running: Running,
    /// Byte offsets of both copies of boot.env; `None` if one is not found, or is not a whole sector and cannot be
    /// replaced in place.
    pub env_at: [Option<u64>; 2],
    /// Firmware finds no boot loader on the ESP, and none can be put in its place.
    pub esp_lost: bool,
    /// The ESP is a whole file system without the list of the boot chain.
    pub list_missing: bool,
    /// Both copies of boot.env, if valid.
    pub env_copies: [Option<BootEnv>; 2],
    /// The copy that counts.
    pub env: Option<BootEnv>,
    /// The history; `None` on a disk of an earlier version, or where it cannot be found or written in place.
    pub history: Option<History>,
    pub slots: PerSlot<SlotFacts>,
    pub next: NextBoot,
    pub meta: Meta,
    pub data: BTreeMap<Part, VolumeHolds>,
    /// The faults of the volumes in STATE and EPHEMERAL.
    pub data_faults: BTreeMap<Part, VolumeFault>,
    /// The one of them that ends in a partition of others.
    pub covered: Option<Covered>,
    /// The two FATs of the ESP, if they are not the same.
    pub esp_fats: Option<FatsDiffer>,
    /// The copy of the boot sector of the ESP, and its digest, if that sector is all that the ESP has lost.
    pub esp_boot_sector: Option<(Extent, Sha256)>,
    /// Sectors at the beginning of the ESP that are lost, and can be written again. The places are in bytes of the disk.
    pub esp_sectors: Vec<LostSector>,
    /// The map of the ESP, where a file on it is to be made anew.
    pub esp_map: Option<FatMap>,
    /// Files and directories of others on an ESP that has lost files of ours.
    pub esp_foreign: Vec<String>,
    /// The snapshot in each slot, by its head.
    pub snapshots: PerSlot<snapshot::head::Found>,
    /// The boot loaders, if the change is about them.
    pub bootloader: Option<BootloaderFacts>,
    /// Places that the disk did not return. None of them is needed to boot.
    pub unreadable: Vec<Unreadable>,
}

/// Content of STATE or EPHEMERAL, by its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VolumeHolds {
    /// An XFS file system.
    Xfs,
    /// An encrypted volume (LUKS).
    Luks,
    /// Zeros.
    Blank,
    /// Something else.
    Other,
}

impl SystemFacts {
    /// Content of STATE or EPHEMERAL; `Other` if nothing was found.
    pub fn held(&self, part: Part) -> VolumeHolds {
        self.data.get(&part).copied().unwrap_or(VolumeHolds::Other)
    }

    /// The architecture of the systems in the slots, by the first manifest that can be read. Nothing on the ESP says it.
    pub fn arch(&self) -> Arch {
        let known = Slot::BOTH.into_iter().find_map(|slot| self.slots[slot].manifest.as_ref());
        known.map_or(Arch::NATIVE, |manifest| manifest.arch)
    }

    /// The slots that boot.env does not call empty.
    pub fn in_use(&self) -> impl Iterator<Item = Slot> {
        Slot::BOTH.into_iter().filter(|slot| self.env.as_ref().is_none_or(|env| env.states[*slot] != SlotState::Empty))
    }

    /// What keeps files of ours from an ESP that is whole: files of others have their names or their room. With the remedy, as
    /// the beginning of a sentence.
    pub fn others_in_the_way(&self) -> Option<String> {
        let others = || format!("move what others have on the ESP elsewhere ({})", self.esp_foreign.join(", "));
        (self.esp_map.is_some() && !self.esp_foreign.is_empty()).then(others)
    }

    /// A command line for this disk, as a shell takes it, with what its verb needs here: the disk is at rest if nothing runs from
    /// it, and it may be for other machines. `disk` is its path.
    pub fn command(&self, verb: &str, disk: &str) -> String {
        let is = |verbs: &[&str]| verbs.contains(&verb);
        let source = if is(&["install", "upgrade"]) { " --source SOURCE" } else { "" };
        let is_at_rest = self.running.slot().is_none() && is(&["activate", "bootloader update", "rollback", "upgrade"]);
        let offline = if is_at_rest { " --offline" } else { "" };
        let takes_arch = is(&["activate", "bootloader update", "install", "upgrade"]);
        let other = Some(self.arch()).filter(|arch| takes_arch && *arch != Arch::NATIVE);
        let arch = other.map_or_else(String::new, |arch| format!(" --arch {arch}"));
        format!("installer {verb} --disk {}{source}{offline}{arch}", quoted(disk))
    }

    /// The place of the copy of boot.env that counts.
    pub fn env_counts(&self) -> Option<usize> {
        BootEnv::trusted(&self.env_copies, &PerSlot::new(|slot| self.slots[slot].marker.clone()))
    }

    /// The manifest of the system in `kept`: its own, or that of the other slot if damage took it.
    pub fn manifest(&self, kept: Slot) -> Option<&Manifest> {
        self.slots[kept].manifest.as_ref().or_else(|| self.slots[!kept].manifest.as_ref())
    }

    /// The slot that was the default since, and the number in its marker, if the boot state is one of an earlier time, as after the
    /// ESP was put back: a marker is written after the boot state, under its number.
    pub fn later_default(&self) -> Option<(Slot, u64)> {
        let env = self.env.as_ref()?;
        let marker = self.slots[!env.default].marker.as_ref()?;
        (marker.state == SlotState::Good && marker.seq > env.seq).then_some((!env.default, marker.seq))
    }

    /// Things that a later version has written and this one does not understand.
    pub fn of_a_later_version(&self) -> Vec<String> {
        let keys: Vec<&str> = self.env.iter().flat_map(|env| &env.later).map(|(key, _)| key.as_str()).collect();
        let env = (!keys.is_empty())
            .then(|| format!("boot.env has keys of a later version, which stay as they are: {}", keys.join(", ")));
        let of_slot = |slot: Slot| {
            let SlotFacts { manifest, later, .. } = &self.slots[slot];
            let what = later.join(", ");
            match (later.is_empty(), manifest) {
                (true, _) => None,
                (_, Some(_)) => {
                    Some(format!("manifest.json of slot {slot} says what only a later version knows: {what}"))
                }
                (_, None) => {
                    Some(format!("manifest.json of slot {slot} is one that only a later version can read: {what}"))
                }
            }
        };
        env.into_iter().chain(Slot::BOTH.into_iter().filter_map(of_slot)).collect()
    }

    /// Faults on the disk that do not keep a plan from its goal.
    pub(super) fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::from_iter(self.unreadable.iter().map(|place| place.what.clone()));
        warnings.extend(self.of_a_later_version());
        if let [Some(_), None] | [None, Some(_)] = self.env_at {
            let [lost, kept] = if self.env_at[0].is_none() { PATHS } else { [PATHS[1], PATHS[0]] };
            warnings.push(format!(
                "{lost} on the ESP is missing, or not exactly one sector of its own: {kept} alone holds the boot state"
            ));
        }
        if self.history.as_ref().is_some_and(|history| !history.is_kept()) {
            warnings.push(format!(
                "{HISTORY} on the ESP is not known to lie there alone: this change is not recorded in it"
            ));
        }
        warnings.extend(self.gpt.intruders.iter().map(ToString::to_string));
        for slot in Slot::BOTH.into_iter().filter(|slot| !self.slots[*slot].unlisted.is_empty()) {
            let names = self.slots[slot].unlisted.join(", ");
            warnings.push(format!("slot {slot} has files that SHA256SUMS does not list, which nothing uses: {names}"));
        }
        warnings
    }
}
