//! Repair: lost parts with a second copy on the disk are written again, and boot.env is made from the slots'
//! markers if both copies are lost. An ESP on which nothing is left is made again (`esp.rs`), unless only files are
//! missing from it (`missing_files.rs`).
//!
//! The next boot starts the same slot as before: the copy of a pair that counts is not written, and if both copies of
//! boot.env are lost, the new ones say the same as the boot loader reads from the markers. Only a good slot that is
//! damaged gives way to a good slot that is whole. A slot that was never confirmed does not become the default in this
//! way.

use crate::prelude::*;

use alloc::collections::BTreeMap;

use super::{
    Goal, Plan, Refusal, Refusals, RequestBase, Step, SystemFacts,
    bootloader::RenewalRequest,
    draft::Draft,
    env_copies::EnvCopies,
    esp,
    meta::MetaChange,
    missing_files::{has_place, list},
    rebuild_boot_state::{current_or_rebuilt, is_marked_good},
};
use crate::{
    boot::{
        env::{BootEnv, MARKER, PATHS},
        history::HISTORY,
        slot::{Slot, SlotState},
    },
    digest::Sha256,
    disk::{
        chain::CHAIN,
        fat::{copies::LostSector, map::FatMap},
        layout::Part,
        loss::Loss,
    },
    kernel::arch::Arch,
    text::quoted,
    units::Extent,
};

/// Plan the repair. Slots that are in use must have been compared with their checksums.
/// `request`: the loaders for a lost ESP ([`makes_esp`]). `force`: files of others on an ESP may be lost.
pub fn repair(
    base: &RequestBase,
    system: &SystemFacts,
    request: Option<&RenewalRequest>,
    force: bool,
) -> Result<Plan, Refusals> {
    if let Some((from, sha256)) = system.esp_boot_sector {
        return Ok(boot_sector(base, system, from, sha256));
    }
    let boots = boots(system);
    if system.env.is_none() && boots.is_none() {
        return Err(Refusal::NothingToRepair.into());
    }
    let mut draft = Draft::new(base, system);
    // New files need FATs that agree. Else this comes last: a sector that takes no writes keeps nothing else from being mended.
    let fat = copy_of_the_fat(system);
    let (first, last) = if system.esp_map.is_some() { (fat, None) } else { (None, fat) };
    draft.extend(Part::Esp, first);
    let (env, esp) = match request.filter(|_| esp::is_lost(system)) {
        Some(request) => write_esp(&mut draft, boots, request, force)?,
        None => write_env(&mut draft, boots, request)?,
    };
    draft.is_about_slot(env.default);
    let default = env.default;
    // A marker that is good already is left alone, even if the other slot's has the higher number: a power cut could
    // tear it, and the other slot may be half written.
    let whole = |slot: Slot| system.slots[slot].damage().is_none();
    draft.warnings.extend(unproven(system, &env));
    if env.states[default] == SlotState::Good && whole(default) && !is_marked_good(system, default) {
        draft.mark_good(default, env.seq);
    }
    let stuck = damaged_slots(&mut draft, &env);
    write_meta(&mut draft)?;
    for (name, copy) in [("primary", &system.gpt.copies.primary), ("backup", &system.gpt.copies.backup)] {
        if let Err(why) = copy {
            draft.warnings.push(format!("the {name} GPT ({why}) is not repaired: `gdisk` does that"));
        }
    }
    if !matches!(esp, Esp::Made(_)) {
        draft.extend(Part::Esp, last.into_iter().chain(lost_sectors(system)));
    }
    let mut left = left(system, default, &esp);
    if system.list_missing
        && !matches!(esp, Esp::Made(_))
        && !draft.steps.iter().any(|step| matches!(step, Step::AddEntry { file, .. } if file.path == CHAIN))
    {
        left.push(no_list(base, system));
    }
    left.extend(stuck);
    let disk = quoted(&base.disk);
    left.extend(system.gpt.intruders.iter().map(|intruder| format!("{intruder}: {}", intruder.remedy(&disk))));
    let result = format!("{}; {}", what(system, &esp), slots_afterwards(system, &env));
    let meanwhile = match &esp {
        Esp::Made(_) | Esp::Completed(_) => "the ESP is not whole yet, and the slots and all data are as they were",
        Esp::Kept | Esp::HasPlaces => "what boots is what booted before",
    };
    Ok(Plan { left, ..draft.plan(Goal::Repair, result, meanwhile.to_owned()) })
}

/// The ESP has lost its first sector alone. What else is lost is known only when it is back.
fn boot_sector(base: &RequestBase, system: &SystemFacts, from: Extent, sha256: Sha256) -> Plan {
    let extent = Extent { offset: system.gpt.part(Part::Esp).offset, len: from.len };
    let mut draft = Draft::new(base, system);
    draft.extend(Part::Esp, [Step::CopyBootSector { from, extent, sha256 }]);
    let result = format!(
        "the first sector of the ESP is written again, and all files are there; `installer status --disk {}` shows whether more \
         is lost",
        quoted(&base.disk)
    );
    draft.plan(Goal::Repair, result, "the ESP is as it was".to_owned())
}

/// Whether this plan is the first half of a repair: only with its first sector, and with FATs that agree, the ESP tells what else
/// it has lost.
pub fn is_first_half(plan: &Plan) -> bool {
    let copies_a_fat = || plan.steps.iter().any(|step| matches!(step, Step::CopyFat { .. }));
    plan.steps.iter().any(Step::is_boot_sector) || (!plan.left.is_empty() && copies_a_fat())
}

/// Zeros hold nothing that a new META could take away. An install has written it before the table, so they are a loss.
fn write_meta(draft: &mut Draft) -> Result<(), Refusal> {
    let system = draft.system;
    let meta = &system.meta;
    if meta.blank {
        draft.warnings.push(
            "META is blank: it begins anew, and the tags that it held are lost; `installer meta set` sets those again that \
             you need"
                .to_owned(),
        );
    }
    if meta.valid != [false, false] || meta.blank {
        let mut change = MetaChange::new(system.gpt.part(Part::Meta), meta, BTreeMap::new(), None)?;
        // The copy that counts stays as it is.
        let lost = |step: &Step| match step {
            Step::WriteMetaCopy { copy, .. } => !meta.valid[usize::from(*copy - 1)] || (meta.valid[0] && *copy == 2),
            _ => true,
        };
        change.steps.retain(lost);
        draft.set_meta(change);
    } else {
        draft.warnings.push(
            "neither copy of META is valid, and nothing else knows its tags: not repaired; `installer meta set` starts afresh"
                .to_owned(),
        );
    }
    Ok(())
}

/// The change of the ESP.
enum Esp {
    /// It is made again, with this loader.
    Made(String),
    /// Missing files are put back, with this loader among them.
    Completed(String),
    /// Files that were missing are put back.
    HasPlaces,
    /// Nothing else than boot.env is written.
    Kept,
}

/// The copy of the FAT of the ESP by which a file is not whole, or that no reader goes by, becomes what the other one is. Files
/// that are missing are for another repair: which clusters are free is known only afterwards.
fn copy_of_the_fat(system: &SystemFacts) -> Option<Step> {
    let fats = system.esp_fats.as_ref()?;
    let ((whole, sha256), esp) = (fats.whole?, system.gpt.part(Part::Esp).offset);
    let on_disk = |copy: usize| Extent { offset: esp + fats.copies[copy].offset, ..fats.copies[copy] };
    let copy = 1 - whole;
    Some(Step::CopyFat { copy: copy as u8 + 1, from: on_disk(whole), extent: on_disk(copy), sha256 })
}

/// What the beginning of the ESP holds twice, written again from the other one, or from the FAT.
fn lost_sectors(system: &SystemFacts) -> impl Iterator<Item = Step> {
    let copy = |lost: &LostSector| match lost.from {
        Some((from, sha256)) => Step::CopyBootSector { from, extent: lost.extent, sha256 },
        None => Step::CountFree { extent: lost.extent },
    };
    system.esp_sectors.iter().map(copy)
}

/// Whether a plan writes both sectors that say how many clusters are free, because both are lost: Linux mounts no ESP without
/// them. Where it is about other things, the number alone may be wrong.
pub(super) fn counts_anew(plan: &Plan) -> bool {
    let counted = |step: &Step| match step {
        Step::CountFree { extent } => Some(*extent),
        _ => None,
    };
    let mut counted = plan.steps.iter().filter_map(counted);
    let first = counted.next();
    plan.goal == Goal::Repair && counted.any(|other| Some(other) != first)
}

/// A lost ESP gets the missing files, or is made again.
fn write_esp(
    draft: &mut Draft,
    boots: Option<Slot>,
    request: &RenewalRequest,
    force: bool,
) -> Result<(BootEnv, Esp), Refusal> {
    let system = draft.system;
    let mut env = current_or_rebuilt(system, draft.base.now, || boots)?;
    let written = in_place(draft, boots)?;
    let mut kept = written.as_ref().map_or_else(|| env.clone(), |(env, _)| env.clone());
    let esp = match draft.complete_esp(&mut kept, request)? {
        Some(loader) => {
            draft.extend(Part::Esp, written.into_iter().flat_map(|(_, steps)| steps));
            env = kept;
            Esp::Completed(loader)
        }
        None if !system.esp_foreign.is_empty() && !force => {
            return Err(Refusal::ForeignFiles(system.esp_foreign.clone()));
        }
        None => Esp::Made(draft.make_esp(&env, request)?),
    };
    Ok((env, esp))
}

/// The copies of boot.env that have places, written there; with the boot state afterwards.
fn in_place(draft: &Draft, boots: Option<Slot>) -> Result<Option<(BootEnv, Vec<Step>)>, Refusal> {
    let system = draft.system;
    if system.env_at == [None; 2] {
        return Ok(None);
    }
    let mut copies = EnvCopies::or_rebuilt(system, draft.base.now, || boots)?;
    let env = copies.env.clone();
    let steps = if copies.is_rebuilt { copies.write(&env, true) } else { copies.heal() };
    Ok(Some((copies.env, steps)))
}

/// Both copies of boot.env agree afterwards: with the one that counts, or with the markers. What is missing beside them
/// is put back, too.
fn write_env(
    draft: &mut Draft,
    boots: Option<Slot>,
    request: Option<&RenewalRequest>,
) -> Result<(BootEnv, Esp), Refusal> {
    let system = draft.system;
    let written = in_place(draft, boots)?;
    let is_written = written.is_some();
    let mut env = match written {
        None => current_or_rebuilt(system, draft.base.now, || boots)?,
        Some((env, steps)) => {
            draft.extend(Part::Esp, steps);
            env
        }
    };
    let mut files = draft.missing_state(&mut env);
    let facts = system.bootloader.as_ref().filter(|_| system.list_missing);
    files.extend(request.zip(facts).and_then(|(request, facts)| list(request, facts, system.sector)));
    match system.esp_map.as_ref().filter(|_| !files.is_empty()) {
        Some(map) if draft.add_files(map, files) => Ok((env, Esp::HasPlaces)),
        _ if is_written || copy_of_the_fat(system).is_some() => Ok((env, Esp::Kept)),
        _ => Err(Refusal::NoBootEnv),
    }
}

/// Whether a repair needs the loaders, to write the ESP or to know those on it: all slots and data stay.
pub fn needs_loaders(system: &SystemFacts) -> bool {
    system.esp_boot_sector.is_none() && (makes_esp(system) || system.list_missing)
}

/// Whether a repair makes the ESP again, if it gets the loaders.
pub fn makes_esp(system: &SystemFacts) -> bool {
    esp::is_lost(system) && (system.env.is_some() || boots(system).is_some())
}

/// Whether a repair writes more to the ESP than single sectors of boot.env: no other program may have it open then.
pub fn rewrites_esp(system: &SystemFacts) -> bool {
    let copies_first = system.esp_fats.as_ref().is_some_and(|fats| matches!(fats.whole, Some((1, _))));
    copies_first || system.esp_boot_sector.is_some() || system.env_at.contains(&None) && system.esp_map.is_some()
}

/// Whether a lost ESP can only be made again as a whole, which others' files on it do not survive.
pub fn formats_esp(system: &SystemFacts) -> bool {
    let arches = || Arch::ALL.iter().map(|arch| arch.efi_path());
    let is_complete = |map: &FatMap| {
        let has_image = arches().any(|path| map.file(&path).is_some());
        PATHS.iter().all(|path| has_place(map, path)) && !has_image && arches().all(|path| has_place(map, &path))
    };
    esp::is_lost(system) && !system.esp_map.as_ref().is_some_and(is_complete)
}

/// The default of a boot state that is made again.
fn boots(system: &SystemFacts) -> Option<Slot> {
    let whole = |slot: Slot| system.slots[slot].damage().is_none();
    let good = |slot: Slot| is_marked_good(system, slot);
    let unmarked = !Slot::BOTH.into_iter().any(good);
    let may_boot = |slot: &Slot| whole(*slot) && (good(*slot) || (unmarked && system.slots[*slot].marker.is_none()));
    let boots = system.next.slot.filter(may_boot).or_else(|| Slot::BOTH.into_iter().find(may_boot));
    boots.or_else(|| damaged_default(system))
}

/// The boot state afterwards, for people. `loader` starts an ESP that was made again.
fn what(system: &SystemFacts, esp: &Esp) -> String {
    const REBUILT: &str = "the boot state is made again from the slots' own markers";
    let state = if system.env.is_some() { "the boot state is what it was" } else { REBUILT };
    match (esp, &system.env) {
        (Esp::Made(loader), _) => format!("the ESP is made again, with {loader}, and {state}"),
        (Esp::Completed(loader), _) => {
            format!("the missing files are on the ESP again, with {loader}, all else there is as it was, and {state}")
        }
        // Then that is all there was to write.
        (Esp::Kept, _) if system.env_at == [None; 2] => {
            "the damaged FAT of the ESP is written from the other one".to_owned()
        }
        (Esp::HasPlaces | Esp::Kept, None) => REBUILT.to_owned(),
        (Esp::Kept, Some(_)) if system.env_at.contains(&None) => {
            "the boot state has one copy only, and the other cannot be made again in place".to_owned()
        }
        (Esp::HasPlaces, Some(_)) if system.list_missing => {
            "the boot state has two copies, and the missing files are on the ESP again".to_owned()
        }
        (Esp::HasPlaces | Esp::Kept, Some(_)) => "the boot state has two copies".to_owned(),
    }
}

/// For a damaged slot.
const SLOT_REMEDY: &str = "`installer verify` says what mends it";

fn used(env: &BootEnv) -> impl Iterator<Item = Slot> {
    Slot::BOTH.into_iter().filter(|slot| env.states[*slot] != SlotState::Empty)
}

/// The default and the damaged slots, for people: a result that leaves damage out would be an all-clear.
fn slots_afterwards(system: &SystemFacts, env: &BootEnv) -> String {
    let (default, is_damaged) = (env.default, |slot: &Slot| system.slots[*slot].problem().is_some());
    let named = format!("slot {default}, {}, is the default", system.slots[default].version());
    let damaged: Vec<String> = used(env).filter(is_damaged).map(|slot| slot.to_string()).collect();
    match &damaged[..] {
        [] => named,
        [slot] if *slot == default.to_string() => format!("{named}, and is damaged: {SLOT_REMEDY}"),
        [slot] => format!("{named}, and slot {slot} is damaged: {SLOT_REMEDY}"),
        _ => format!("{named}, and both slots are damaged: {SLOT_REMEDY}"),
    }
}

/// Systems that a boot state made again does not know.
fn unproven(system: &SystemFacts, env: &BootEnv) -> Vec<String> {
    let is_unknown = |slot: &Slot| {
        let holds = system.slots[*slot].manifest.is_some() && system.slots[*slot].damage().is_none();
        system.env.is_none() && env.states[*slot] == SlotState::Empty && holds
    };
    let note = |slot: Slot| {
        format!(
            "slot {slot} holds {}, whole, and nothing says any more that it was ever confirmed: it counts as empty, and the next \
             upgrade writes over it",
            system.slots[slot].version()
        )
    };
    Slot::BOTH.into_iter().filter(is_unknown).map(note).collect()
}

/// The remedy where the list of the boot chain is missing, and the disk has other loaders than this installer.
fn no_list(base: &RequestBase, system: &SystemFacts) -> String {
    let update = system.command("bootloader update", &base.disk);
    format!(
        "{}, and nothing vouches for the boot loaders there, which are not this installer's: `{update}` replaces them, and then \
         `installer repair` lists them",
        Loss::Chain
    )
}

/// Tells of damaged slots. What replaces them depends on what runs and what boots. Where nothing boots, that is left to do.
fn damaged_slots(draft: &mut Draft, env: &BootEnv) -> Option<String> {
    let system = draft.system;
    let told = |slot: Slot| Some(format!("slot {slot} is damaged ({})", system.slots[slot].problem()?));
    let damaged: Vec<String> = used(env).filter_map(told).collect();
    // The default may boot in any state.
    let boots = |slot: Slot| env.default == slot || env.states[slot] == SlotState::Good || env.once == Some(slot);
    let is_whole = |slot: Slot| system.slots[slot].damage().is_none();
    if !damaged.is_empty() && !Slot::BOTH.into_iter().any(|slot| boots(slot) && is_whole(slot)) {
        return Some(format!("{}, and no slot boots that is whole: {SLOT_REMEDY}", damaged.join(", ")));
    }
    draft.warnings.extend(damaged.iter().map(|what| format!("{what}: {SLOT_REMEDY}")));
    None
}

/// The default of a boot state that is made again where no slot is whole, and nothing runs from the disk: then an
/// upgrade writes the other slot, and the data stays. An unconfirmed slot must not start, so the default is a damaged one.
fn damaged_default(system: &SystemFacts) -> Option<Slot> {
    let is_at_rest = system.running.slot().is_none();
    let damaged = || Slot::BOTH.into_iter().filter(|slot| is_at_rest && system.slots[*slot].damage().is_some());
    damaged().find(|slot| is_marked_good(system, *slot)).or_else(|| damaged().next())
}

/// Parts without a place of their own to be written to: the data there now belongs to other files.
fn left(system: &SystemFacts, default: Slot, esp: &Esp) -> Vec<String> {
    const REMEDY: &str =
        "`fsck.vfat -a` on that partition mends the file system, and `installer status` then says what is left to do";
    let (mut left, is_new_esp) = (Vec::new(), matches!(esp, Esp::Made(_)));
    if system.esp_fats.as_ref().is_some_and(|fats| fats.whole.is_none()) && !is_new_esp {
        left.push(format!("{}: {REMEDY}", Loss::Fats));
    }
    let lost = PATHS.iter().zip(system.env_at).filter_map(|(path, at)| at.is_none().then_some(path));
    let again = match copy_of_the_fat(system) {
        Some(_) => Some("run `installer repair` once more".to_owned()),
        None => {
            system.others_in_the_way().map(|move_them| format!("{move_them}, and run `installer repair` once more"))
        }
    };
    for path in lost.filter(|_| matches!(esp, Esp::Kept)) {
        left.push(format!(
            "{path} on the ESP is missing, or not exactly one sector of its own, and is not written: {}",
            again.as_deref().unwrap_or(REMEDY)
        ));
    }
    // By a damaged FAT it is not known.
    let is_known = !is_new_esp && copy_of_the_fat(system).is_none();
    if system.history.as_ref().is_some_and(|history| !history.is_kept() && is_known) {
        left.push(format!("{HISTORY} on the ESP is not known to lie there alone, and is not written: {REMEDY}"));
    }
    let slot = &system.slots[default];
    if slot.marker_at.is_none() && slot.damage().is_none() {
        let part = Part::from(default);
        left.push(format!(
            "{MARKER} on {part} is missing, or not exactly one sector of its own, and is not written: the next upgrade writes \
             a slot that has one"
        ));
    }
    left
}
