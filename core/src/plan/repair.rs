//! Repair: what is lost and stands on the disk a second time is written again, and boot.env is made from the slots'
//! markers if both copies are lost.
//!
//! What boots afterwards is what would have booted before: the copy of a pair that counts is not written, and if both
//! copies of boot.env are lost, the new ones say what GRUB reads from the markers. Only a good slot that is damaged gives
//! way to a good slot that is whole. A slot that was never confirmed does not become the default in this way.

use crate::prelude::*;

use alloc::collections::BTreeMap;

use super::{
    Goal, Plan, Refusal, Refusals, RequestBase, Step, SystemFacts,
    meta::MetaChange,
    slots::{Draft, EnvCopies, is_marked_good},
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
pub fn repair(base: &RequestBase, system: &SystemFacts) -> Result<Plan, Refusals> {
    let whole = |slot: Slot| system.slots[slot].damage().is_none();
    let good = |slot: Slot| is_marked_good(system, slot);
    let unmarked = !Slot::BOTH.into_iter().any(good);
    let may_boot = |slot: &Slot| whole(*slot) && (good(*slot) || (unmarked && system.slots[*slot].marker.is_none()));
    let boots = system.next.slot.filter(may_boot).or_else(|| Slot::BOTH.into_iter().find(may_boot));
    let boots = boots.or_else(|| damaged_default(system));
    if system.env.is_none() && boots.is_none() {
        return Err(Refusal::NothingToRepair.into());
    }
    let mut copies = EnvCopies::or_rebuilt(system, base.now, || boots)?;
    let env = copies.env.clone();
    let mut draft = Draft::new(base, system);
    draft.is_about_slot(env.default);
    let steps = if copies.is_rebuilt { copies.write(&env, true) } else { copies.heal() };
    draft.extend(Part::Esp, steps);
    let default = env.default;
    // A marker that is good already is left alone, even if the other slot's has the higher number: a power cut could
    // tear it, and the other slot may be half written.
    if env.states[default] == SlotState::Good && whole(default) && !good(default) {
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
    let mut left = left(system, default);
    if is_stuck {
        left.push(stuck(base, system, default, &damage));
    }
    let what = if copies.is_rebuilt {
        "the boot state is made again from the slots' own markers"
    } else if system.env_at.contains(&None) {
        "the boot state has one copy only, and the other cannot be made again in place"
    } else {
        "the boot state has two copies"
    };
    let result = format!("{what}; slot {}, {}, is the default", env.default, system.slots[env.default].version());
    let meanwhile = "what boots is what booted before; run the same command again".to_owned();
    Ok(Plan { left, ..draft.plan(Goal::Repair, result, meanwhile) })
}

/// What is wrong with the slots that are called good.
fn damage(system: &SystemFacts, env: &BootEnv) -> Vec<String> {
    let good = Slot::BOTH.into_iter().filter(|slot| env.states[*slot] == SlotState::Good);
    good.filter_map(|slot| Some(format!("slot {slot} is damaged ({})", system.slots[slot].damage()?))).collect()
}

/// What is left to do where no slot is whole.
fn stuck(base: &RequestBase, system: &SystemFacts, default: Slot, damage: &[String]) -> String {
    let (disk, damage) = (quoted(&base.disk), damage.join(", "));
    let offline = if system.running.slot().is_none() { " --offline" } else { "" };
    format!(
        "{damage}, and no slot is whole: `installer upgrade --disk {disk} --source SOURCE{offline}` writes slot {}, and keeps \
         the data",
        !default
    )
}

/// The default of a boot state that is made again where no slot is whole, and nothing runs from the disk: then an upgrade
/// writes the other slot, and the data stays. It must not start what was never confirmed, so it is one that is damaged.
fn damaged_default(system: &SystemFacts) -> Option<Slot> {
    let is_at_rest = system.running.slot().is_none();
    let damaged = || Slot::BOTH.into_iter().filter(|slot| is_at_rest && system.slots[*slot].damage().is_some());
    damaged().find(|slot| is_marked_good(system, *slot)).or_else(|| damaged().next())
}

/// What has no place of its own that it could be written to. Whatever stands there now is somebody else's.
fn left(system: &SystemFacts, default: Slot) -> Vec<String> {
    const REMEDY: &str =
        "check the file system with `fsck.vfat`, then run `installer verify`; if that finds damage, reinstall";
    let mut left = Vec::new();
    for path in PATHS.iter().zip(system.env_at).filter_map(|(path, at)| at.is_none().then_some(path)) {
        left.push(format!(
            "{path} on the ESP is missing, or not exactly one sector of its own, and is not written: {REMEDY}"
        ));
    }
    if system.history.as_ref().is_some_and(|history| !history.is_kept()) {
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
