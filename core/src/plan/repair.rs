//! Repair: lost parts with a second copy on the disk are written again, and boot.env is made from the slots'
//! markers if both copies are lost. An ESP on which nothing is left is made again (`esp.rs`).
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
    esp,
    meta::MetaChange,
    rebuild_boot_state::{current_or_rebuilt, is_marked_good},
    slots::{Draft, EnvCopies},
};
use crate::{
    boot::{
        env::{BootEnv, MARKER, PATHS},
        history::HISTORY,
        slot::{Slot, SlotState},
    },
    disk::layout::Part,
    text::quoted,
};

/// Plan the repair. Slots that boot.env or their marker calls good must have been compared with their checksums.
/// `request`: the loaders for a lost ESP that is made again ([`makes_esp`]).
pub fn repair(base: &RequestBase, system: &SystemFacts, request: Option<&RenewalRequest>) -> Result<Plan, Refusals> {
    let boots = boots(system);
    if system.env.is_none() && boots.is_none() {
        return Err(Refusal::NothingToRepair.into());
    }
    let mut draft = Draft::new(base, system);
    let (env, loader) = match request.filter(|_| esp::is_lost(system)) {
        Some(request) => {
            let env = current_or_rebuilt(system, base.now, || boots)?;
            let loader = draft.make_esp(&env, request)?;
            (env, Some(loader))
        }
        None => (write_env(&mut draft, boots)?, None),
    };
    draft.is_about_slot(env.default);
    let default = env.default;
    // A marker that is good already is left alone, even if the other slot's has the higher number: a power cut could
    // tear it, and the other slot may be half written.
    let whole = |slot: Slot| system.slots[slot].damage().is_none();
    if env.states[default] == SlotState::Good && whole(default) && !is_marked_good(system, default) {
        draft.mark_good(default, env.seq);
    }
    let damage = damage(system, &env);
    let is_stuck = !damage.is_empty() && !Slot::BOTH.into_iter().any(|s| env.states[s] == SlotState::Good && whole(s));
    if !is_stuck {
        draft.warnings.extend(damage.iter().map(|what| format!("{what}: an upgrade from the other slot replaces it")));
    }
    if system.meta.valid != [false, false] {
        let meta = &system.meta;
        let change = MetaChange::new(system.gpt.part(Part::Meta), meta, BTreeMap::new(), None);
        let mut change = change.map_err(Refusal::from)?;
        // The copy that counts stays as it is.
        let lost = |step: &Step| match step {
            Step::WriteMetaCopy { copy, .. } => !meta.valid[usize::from(*copy - 1)] || (meta.valid[0] && *copy == 2),
            _ => true,
        };
        change.steps.retain(lost);
        draft.set_meta(change);
    } else if !system.meta.blank {
        draft.warnings.push("neither copy of META is valid, and nothing else knows its tags: not repaired".to_owned());
    }
    for (name, copy) in [("primary", &system.gpt.copies.primary), ("backup", &system.gpt.copies.backup)] {
        if let Err(why) = copy {
            draft.warnings.push(format!("the {name} GPT ({why}) is not repaired: `gdisk` does that"));
        }
    }
    let mut left = left(system, default, loader.is_some());
    if is_stuck {
        left.push(stuck(base, system, default, &damage));
    }
    let result = format!(
        "{}; slot {default}, {}, is the default",
        what(system, loader.as_deref()),
        system.slots[default].version()
    );
    let meanwhile = match &loader {
        Some(_) => "the ESP is not whole yet, and the slots and all data are as they were",
        None => "what boots is what booted before",
    };
    Ok(Plan { left, ..draft.plan(Goal::Repair, result, meanwhile.to_owned()) })
}

/// Both copies of boot.env agree afterwards: with the one that counts, or with the markers.
fn write_env(draft: &mut Draft, boots: Option<Slot>) -> Result<BootEnv, Refusal> {
    let mut copies = EnvCopies::or_rebuilt(draft.system, draft.base.now, || boots)?;
    let env = copies.env.clone();
    let steps = if copies.is_rebuilt { copies.write(&env, true) } else { copies.heal() };
    draft.extend(Part::Esp, steps);
    Ok(env)
}

/// Whether a repair makes the ESP again, if it gets the loaders: all slots and data stay.
pub fn makes_esp(system: &SystemFacts) -> bool {
    esp::is_lost(system) && (system.env.is_some() || boots(system).is_some())
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
fn what(system: &SystemFacts, loader: Option<&str>) -> String {
    const REBUILT: &str = "the boot state is made again from the slots' own markers";
    match (loader, &system.env) {
        (Some(loader), None) => format!("the ESP is made again, with {loader}, and {REBUILT}"),
        (Some(loader), Some(_)) => format!("the ESP is made again, with {loader}, and the boot state is what it was"),
        (None, None) => REBUILT.to_owned(),
        (None, Some(_)) if system.env_at.contains(&None) => {
            "the boot state has one copy only, and the other cannot be made again in place".to_owned()
        }
        (None, Some(_)) => "the boot state has two copies".to_owned(),
    }
}

/// Faults of the slots that are called good.
fn damage(system: &SystemFacts, env: &BootEnv) -> Vec<String> {
    let good = Slot::BOTH.into_iter().filter(|slot| env.states[*slot] == SlotState::Good);
    good.filter_map(|slot| Some(format!("slot {slot} is damaged ({})", system.slots[slot].damage()?))).collect()
}

/// The remedy where no slot is whole.
fn stuck(base: &RequestBase, system: &SystemFacts, default: Slot, damage: &[String]) -> String {
    let (disk, damage) = (quoted(&base.disk), damage.join(", "));
    let offline = if system.running.slot().is_none() { " --offline" } else { "" };
    format!(
        "{damage}, and no slot is whole: `installer upgrade --disk {disk} --source SOURCE{offline}` writes slot {}, and keeps \
         the data",
        !default
    )
}

/// The default of a boot state that is made again where no slot is whole, and nothing runs from the disk: then an
/// upgrade writes the other slot, and the data stays. An unconfirmed slot must not start, so the default is a damaged one.
fn damaged_default(system: &SystemFacts) -> Option<Slot> {
    let is_at_rest = system.running.slot().is_none();
    let damaged = || Slot::BOTH.into_iter().filter(|slot| is_at_rest && system.slots[*slot].damage().is_some());
    damaged().find(|slot| is_marked_good(system, *slot)).or_else(|| damaged().next())
}

/// Parts without a place of their own to be written to: the data there now belongs to other files.
fn left(system: &SystemFacts, default: Slot, is_new_esp: bool) -> Vec<String> {
    const REMEDY: &str =
        "check the file system with `fsck.vfat`, then run `installer verify`; if that finds damage, reinstall";
    let mut left = Vec::new();
    let lost = PATHS.iter().zip(system.env_at).filter_map(|(path, at)| at.is_none().then_some(path));
    for path in lost.filter(|_| !is_new_esp) {
        left.push(format!(
            "{path} on the ESP is missing, or not exactly one sector of its own, and is not written: {REMEDY}"
        ));
    }
    if system.history.as_ref().is_some_and(|history| !history.is_kept() && !is_new_esp) {
        left.push(format!("{HISTORY} on the ESP is not known to lie there alone, and is not written: {REMEDY}"));
    }
    let slot = &system.slots[default];
    if slot.marker_at.is_none() && slot.damage().is_none() {
        let part = Part::from(default);
        left.push(format!(
            "{MARKER} on {part} is missing, or not exactly one sector of its own, and is not written: {REMEDY}"
        ));
    }
    left
}
