//! Content of an installed disk: partition table, boot state, slots, META.

use uuid::Uuid;

use super::{
    bootloader::{boot_sector_copy, bootloaders, fats_differ, lost_sectors, may_be_started},
    error::ProbeError,
    esp::{esp_map, foreign},
    files::{check_files, missing},
    lba0::gpt,
    mend_table::mended_table,
    own_lists::own_lists,
    place, read, snapshot,
    table_guids::guid_in,
    twice,
    volumes::volumes,
};
use crate::{
    device::BlockIo,
    fat::{FatVolume, ReadError},
};
use slipway_core::{
    boot::{
        EfiLoader,
        env::{BootEnv, MARKER, Marker, PATHS},
        history::{HISTORY, History},
        rule::next_boot,
        running::Running,
        slot::{PerSlot, Slot, SlotState},
    },
    digest::Sums,
    disk::{
        chain::CHAIN,
        gpt::GptError,
        layout::{META_BYTES, Part, as_installed},
        meta::Meta,
    },
    payload::{
        lists::Lists,
        manifest::{BOOT_SHA256, SHA256SUMS, UKI},
    },
    plan::{GptFacts, SlotFacts, SystemFacts, Unreadable},
    report::{FileCheck, FileState},
    units::{Extent, MIB},
};

/// `cmdline` is the command line of the running kernel.
///
/// An unreadable copy of two counts as lost, as it does for GRUB. Data that no plan needs may be unreadable, too.
/// [`SystemFacts::unreadable`] names all of it.
pub fn system(disk: &dyn BlockIo, cmdline: &str) -> Result<SystemFacts, ProbeError> {
    let found = look(disk, cmdline, None, &|gpt, slot| slot_facts(disk, gpt, slot, None))?;
    let esp = found.gpt.part(Part::Esp);
    let misplaced = [found.gpt.misplaced.clone(), misplaced(disk, &found)].concat();
    let gpt = GptFacts { misplaced, ..found.gpt.clone() };
    let (esp_fats, esp_sectors) = (fats_differ(disk, esp), lost_sectors(disk, esp));
    // Some firmware, or all, may start what is refused here.
    let esp_boot_sector = boot_sector_copy(disk, esp);
    Ok(SystemFacts { esp_fats, esp_boot_sector, esp_sectors, gpt, ..found })
}

/// Look once more at all but the content of large files and the map of the ESP, which are taken from the first look.
pub fn look_again(disk: &dyn BlockIo, cmdline: &str, before: &SystemFacts) -> Result<SystemFacts, ProbeError> {
    let kept = before.history.as_ref().map(History::is_kept);
    let found = look(disk, cmdline, kept, &|gpt, slot| slot_facts(disk, gpt, slot, Some(&before.slots[slot])))?;
    let (esp_boot_sector, esp_sectors) = (before.esp_boot_sector, before.esp_sectors.clone());
    let gpt = GptFacts { misplaced: before.gpt.misplaced.clone(), ..found.gpt.clone() };
    Ok(SystemFacts { esp_fats: before.esp_fats.clone(), esp_boot_sector, esp_sectors, gpt, ..found })
}

// The partitions that do not lie where the table says. It is asked where something is not found there, where the copies differ,
// and where the table is not that of an installation.
fn misplaced(disk: &dyn BlockIo, found: &SystemFacts) -> Vec<(Part, String)> {
    let is_empty = |slot| found.env.as_ref().is_some_and(|env| env.states[slot] == SlotState::Empty);
    let is_lost = |slot| found.slots[slot].manifest.is_none() && !is_empty(slot);
    let is_in_doubt = found.esp_lost
        || matches!(found.gpt.copies.backup, Err(GptError::OtherTable))
        || !found.data_faults.is_empty()
        || !lies_as_installed(&found.gpt)
        || Slot::BOTH.into_iter().any(is_lost);
    let mended = is_in_doubt.then(|| mended_table(disk)).and_then(Result::ok).flatten();
    mended.map(|mended| mended.misplaced).unwrap_or_default()
}

fn lies_as_installed(gpt: &GptFacts) -> bool {
    let [wanted @ .., last] = as_installed(gpt.part(Part::BootA).len);
    let [parts @ .., ephemeral] = gpt.parts;
    parts == wanted && ephemeral.offset == last.offset
}

fn look(
    disk: &dyn BlockIo,
    cmdline: &str,
    kept: Option<bool>,
    slot: &dyn Fn(&GptFacts, Slot) -> SlotFacts,
) -> Result<SystemFacts, ProbeError> {
    let gpt = gpt(disk)?;
    let [told, once] = [true, false].map(|is_told| move |what| Unreadable { what, is_told });
    let mut unreadable = Vec::new();
    for (name, copy) in [("primary", &gpt.copies.primary), ("backup", &gpt.copies.backup)] {
        if let Err(e @ GptError::Unreadable(_)) = copy {
            unreadable.push(told(format!("the {name} GPT {e}")));
        }
    }
    let mut of_esp = Vec::new();
    let ([first, second], volume) = esp(disk, gpt.part(Part::Esp), &mut of_esp);
    unreadable.extend(of_esp.into_iter().map(once));
    let list_missing = volume.as_ref().is_some_and(|volume| matches!(volume.find(CHAIN), Ok(None)));
    let history = volume.and_then(|volume| history(disk, &volume, kept));
    let env_copies = [first.1, second.1];
    let slots = PerSlot::new(|s| slot(&gpt, s));
    let views = PerSlot::new(|s| slots[s].view());
    // Boot loaders do not ask the markers.
    let next = next_boot(BootEnv::pick(&env_copies), &views);
    let markers = PerSlot::new(|s| slots[s].marker.clone());
    let env = BootEnv::trusted(&env_copies, &markers).and_then(|copy| env_copies[copy].clone());
    let (meta, [one, two, legacy @ ..]) = meta_of(disk, gpt.part(Part::Meta));
    unreadable.extend([one, two].into_iter().flatten().map(told));
    unreadable.extend(legacy.into_iter().flatten().map(once));
    let volumes = volumes(disk, &gpt);
    unreadable.extend(volumes.unreadable.into_iter().map(told));
    let running = Running::from_cmdline(cmdline, gpt.disk_guid);
    let (sector, env_at) = (disk.sector_size(), [first.0, second.0]);
    let esp_lost = !may_be_started(disk, &gpt, env_at != [None; 2]);
    let bootloader = None;
    let is_incomplete = esp_lost || list_missing || env_at.contains(&None);
    let esp_map = is_incomplete.then(|| esp_map(disk, gpt.part(Part::Esp))).flatten();
    let esp_foreign = if is_incomplete { foreign(disk, gpt.part(Part::Esp)) } else { vec![] };
    let snapshots = PerSlot::new(|s| snapshot::head(disk, &gpt, s));
    Ok(SystemFacts {
        sector,
        gpt,
        running,
        env_at,
        esp_lost,
        list_missing,
        env_copies,
        env,
        history,
        slots,
        next,
        meta,
        data: volumes.held,
        data_faults: volumes.faults,
        covered: volumes.covered,
        esp_fats: None,
        esp_boot_sector: None,
        esp_sectors: vec![],
        esp_map,
        esp_foreign,
        snapshots,
        bootloader,
        unreadable,
    })
}

/// The boot.env that counts. None if both copies are lost.
pub fn boot_env(disk: &dyn BlockIo, gpt: &GptFacts) -> Option<BootEnv> {
    let ([first, second], _) = esp(disk, gpt.part(Part::Esp), &mut vec![]);
    BootEnv::pick(&[first.1, second.1]).cloned()
}

/// The structures that a writer changes before the content of a slot: the disk GUID, both copies of boot.env, META.
/// Equal values mean that no program began to replace a slot in between. None without a partition table of ours.
pub fn written_first(disk: &dyn BlockIo) -> Option<(Uuid, [Option<BootEnv>; 2], Meta)> {
    let gpt = gpt(disk).ok()?;
    let ([first, second], _) = esp(disk, gpt.part(Part::Esp), &mut vec![]);
    Some((gpt.disk_guid, [first.1, second.1], meta_of(disk, gpt.part(Part::Meta)).0))
}

/// META, and why each of [`Meta::PARTS`] cannot be read. An unreadable copy is not a valid one.
pub fn meta_of(disk: &dyn BlockIo, extent: Extent) -> (Meta, [Option<String>; Meta::PARTS.len()]) {
    let mut bytes = vec![0; META_BYTES as usize];
    let unreadable = Meta::PARTS.map(|(name, at, len)| {
        let part = &mut bytes[at..at + len];
        let error = read(disk, extent.offset + at as u64, part).err()?;
        // Not zeros: they would mean that META is new.
        part.fill(0xff);
        Some(format!("META: {name} cannot be read: {error}"))
    });
    (Meta::decode(&bytes), unreadable)
}

pub fn slot_volume<'d>(disk: &'d dyn BlockIo, gpt: &GptFacts, slot: Slot) -> Result<FatVolume<'d>, ProbeError> {
    let part = Part::from(slot);
    FatVolume::open(disk, gpt.part(part)).map_err(|source| ProbeError::Fat { part, source })
}

/// Byte offset and content of a copy of boot.env.
type EnvCopy = (Option<u64>, Option<BootEnv>);

// Both copies of boot.env, and the volume. Copies that are damaged or cannot be read count as lost, as they do for GRUB.
fn esp<'d>(disk: &'d dyn BlockIo, esp: Extent, unreadable: &mut Vec<String>) -> ([EnvCopy; 2], Option<FatVolume<'d>>) {
    // An ESP that cannot be opened is written anew.
    let opened = twice(|| FatVolume::open(disk, esp), |opened| matches!(opened, Err(ReadError::Io { .. })));
    let opened = opened.map(FatVolume::by_either_fat);
    let opened = opened.and_then(|volume| volume.is_read_by_all().map(|()| volume));
    let volume = match opened {
        Ok(volume) => volume,
        Err(e) => {
            if !matches!(e, ReadError::NotFat32 { .. }) {
                unreadable.push(format!("the ESP cannot be read: {e}"));
            }
            return ([(None, None), (None, None)], None);
        }
    };
    let [first, second] = place::boot_envs(disk, &volume);
    let [one, two] = PATHS.map(|path| {
        let bytes = volume.read_by_name(path, 64 << 10).unwrap_or_else(|e| {
            if matches!(e, ReadError::Io { .. }) {
                unreadable.push(format!("{path} on the ESP cannot be read: {e}"));
            }
            None
        });
        bytes.and_then(|b| BootEnv::parse(&b))
    });
    ([(first, one), (second, two)], Some(volume))
}

// The records that cannot be read are lost, and the others are not. `kept` has earlier findings about its place.
fn history(disk: &dyn BlockIo, volume: &FatVolume, kept: Option<bool>) -> Option<History> {
    let file = place::history(disk, volume)?;
    let mut bytes = vec![0; file.len as usize];
    if read(disk, file.offset, &mut bytes).is_err() {
        let sector = disk.sector_size().bytes();
        for (sector, at) in bytes.chunks_mut(sector as usize).zip((file.offset..).step_by(sector as usize)) {
            if read(disk, at, sector).is_err() {
                sector.fill(0);
            }
        }
    }
    let found = History::decode(file.offset, &bytes)?;
    let kept = kept.unwrap_or_else(|| place::is_its_own(disk, volume, HISTORY, file));
    Some(if kept { found } else { found.unproven() })
}

// `known` has earlier findings about the content of large files.
fn slot_facts(disk: &dyn BlockIo, gpt: &GptFacts, slot: Slot, known: Option<&SlotFacts>) -> SlotFacts {
    let volume = match FatVolume::open(disk, gpt.part(slot.into())) {
        Ok(volume) => volume,
        Err(e) => {
            let why = if matches!(e, ReadError::Io { .. }) { e.to_string() } else { "no file system".to_owned() };
            return SlotFacts { boot_problem: Some(why), ..SlotFacts::default() };
        }
    };
    let lists = own_lists(&volume);
    let found = SlotFacts {
        manifest: lists.manifest,
        later: lists.later,
        listed: lists.sums,
        lists_lost: lists.lost,
        marker: volume.read_by_name(MARKER, MIB).ok().flatten().and_then(|bytes| Marker::parse(&bytes)),
        marker_at: place::sector(disk, &volume, MARKER, |bytes| Marker::parse(bytes).is_some()),
        disk_guid: guid_in(&volume),
        ..SlotFacts::default()
    };
    if let Some(SlotFacts { boot_problem, verifies, whole, unlisted, .. }) = known.cloned() {
        return SlotFacts { boot_problem, verifies, whole, unlisted, ..found };
    }
    let problem = match check_files(disk, &volume, slot.into(), BOOT_SHA256, &mut |_| ()) {
        Ok(checks) => checks.iter().find(|c| c.state != FileState::Good).map(|c| format!("{}: {}", c.name, c.state)),
        Err(e) => Some(e.to_string()),
    };
    if problem.is_some() {
        return SlotFacts { verifies: false, boot_problem: problem, ..found };
    }
    let own = || bootloaders(disk, gpt).uefi.is_some_and(|image| image.loader == Some(EfiLoader::Slipway));
    match unlisted_uki(&volume) {
        // GRUB does not look for it.
        Some(why) => SlotFacts { verifies: !own(), boot_problem: Some(why), ..found },
        None => SlotFacts { verifies: true, boot_problem: disputed(&volume, &found), ..found },
    }
}

// A file that the boot loader would start, and the installer has not written.
fn disputed(volume: &FatVolume, found: &SlotFacts) -> Option<String> {
    let boot = boot_list(volume)?;
    let names: Vec<String> = boot.0.keys().cloned().collect();
    let lists = Lists { sums: found.listed.clone()?.0, boot: Some(boot), manifest: found.manifest.clone() };
    let name = names.into_iter().find(|name| lists.dispute(name))?;
    Some(format!("{name}: {}", FileState::Disputed))
}

fn boot_list(volume: &FatVolume) -> Option<Sums> {
    let bytes = volume.read_small(BOOT_SHA256, MIB).ok().flatten()?;
    Sums::parse(&bytes).ok()
}

// Slipway's loader starts it before all else, against slot.cfg, and refuses the slot if boot.sha256 does not list it.
fn unlisted_uki(volume: &FatVolume) -> Option<String> {
    volume.find(UKI).ok()??;
    let is_listed = |list: Sums| list.0.contains_key(UKI);
    (!boot_list(volume).is_some_and(is_listed))
        .then(|| format!("{UKI}: {BOOT_SHA256} does not list it, and Slipway's loader starts nothing else where it is"))
}

/// Compare every file of a slot with its SHA256SUMS. Reports files that SHA256SUMS does not list, except for itself and
/// the marker, which changes.
pub fn check_slot(
    disk: &dyn BlockIo,
    gpt: &GptFacts,
    slot: Slot,
    progress: &mut dyn FnMut(u64),
) -> Result<Vec<FileCheck>, ProbeError> {
    let part = Part::from(slot);
    let volume = slot_volume(disk, gpt, slot)?;
    let files = volume.root_files().map_err(|source| ProbeError::Fat { part, source })?;
    let names: Vec<String> = files.iter().map(|(name, _)| name.to_ascii_lowercase()).collect();
    let mut checks = check_files(disk, &volume, part, SHA256SUMS, progress)?;
    let known = |name: &str| {
        let is = |other: &str| other.eq_ignore_ascii_case(name);
        is(SHA256SUMS) || is(MARKER) || checks.iter().any(|c| is(&c.name))
    };
    let unlisted: Vec<_> = files.into_iter().filter(|(name, _)| !known(name)).collect();
    checks.extend(unlisted.into_iter().map(|(name, size)| FileCheck {
        name,
        state: FileState::Unlisted,
        size: Some(size),
        expected: None,
        actual: None,
        offset: None,
    }));
    let lists = Lists {
        sums: checks.iter().filter_map(|c| Some((c.name.clone(), c.expected?))).collect(),
        boot: boot_list(&volume),
        manifest: own_lists(&volume).manifest,
    };
    let uki = volume.find(UKI).ok().flatten().map(|file| file.name);
    for check in checks.iter_mut().filter(|c| matches!(c.state, FileState::Good | FileState::Unlisted)) {
        // Firmware finds a file by its short name, too.
        let is_uki = uki.as_ref().is_some_and(|uki| *uki == check.name && !uki.eq_ignore_ascii_case(UKI));
        // If two have one name, it is unknown which one it takes.
        let is_twice = names.iter().filter(|name| check.name.eq_ignore_ascii_case(name)).count() > 1;
        if is_uki || is_twice || lists.dispute(&check.name) {
            check.state = FileState::Disputed;
        }
    }
    let lost = lists.left_out().into_iter().filter(|name| !checks.iter().any(|c| c.name.eq_ignore_ascii_case(name)));
    let lost: Vec<_> = lost.map(|name| missing(name, None)).collect();
    checks.extend(lost);
    Ok(checks)
}

/// The number of bytes that [`check_slot`] will read.
pub fn slot_bytes(disk: &dyn BlockIo, gpt: &GptFacts, slot: Slot) -> u64 {
    let files = slot_volume(disk, gpt, slot).ok().and_then(|v| v.root_files().ok());
    files.unwrap_or_default().iter().map(|(_, size)| size).sum()
}

/// A slot in which every file matches SHA256SUMS.
pub struct Whole {
    pub listed: Sums,
    /// Names of files that SHA256SUMS does not list: nothing uses them, so they do no harm.
    pub unlisted: Vec<String>,
}

/// [`check_slot`] for a plan: the first file that is not good is the error.
pub fn slot_is_whole(
    disk: &dyn BlockIo,
    gpt: &GptFacts,
    slot: Slot,
    progress: &mut dyn FnMut(u64),
) -> Result<Whole, String> {
    let checks = check_slot(disk, gpt, slot, progress).map_err(|e| e.to_string())?;
    if let Some(bad) = checks.iter().find(|c| c.state.is_damage()) {
        return Err(format!("{}: {}", bad.name, bad.state));
    }
    let listed = Sums(checks.iter().filter_map(|c| Some((c.name.clone(), c.expected?))).collect());
    let unlisted = checks.into_iter().filter(|c| c.state == FileState::Unlisted).map(|c| c.name).collect();
    Ok(Whole { listed, unlisted })
}
