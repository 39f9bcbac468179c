//! Rollback: back to the other slot, for good.
//!
//! The commit is one sector of boot.env. The slot's marker and META follow. If power is lost before they are written,
//! the next `rollback` writes them.

use crate::prelude::*;

use super::{
    Goal, Plan, Refusal, Refusals, RequestBase, SystemFacts,
    draft::{Draft, latest},
    env_copies::EnvCopies,
    rebuild_boot_state::default_if_lost,
    slots::only_the_trial_boots,
    snapshot,
};
use crate::{
    boot::{
        env::BootEnv,
        running::Running,
        slot::{Slot, SlotState},
    },
    disk::layout::Part,
};

/// Plan the rollback. A pending trial is cancelled, a running trial is given up; otherwise the other slot becomes the
/// default: one that is good, or that was the default since ([`SystemFacts::later_default`]).
pub fn rollback(base: &RequestBase, system: &SystemFacts) -> Result<Plan, Refusals> {
    // A damaged slot does not keep a system from leaving it.
    let copies = EnvCopies::or_rebuilt(system, base.now, || default_if_lost(system))?;
    let back = Back::new(&copies.env, system)?;
    Ok(plan(base, system, copies, back))
}

/// Plan the rollback of a disk that nothing runs from. A pending trial is cancelled; otherwise the other slot becomes the
/// default if it is good and whole.
///
/// A system that was rolled back before is gone back to only if the default does not boot. So a second run changes
/// nothing.
pub fn rollback_offline(base: &RequestBase, system: &SystemFacts) -> Result<Plan, Refusals> {
    if let Some(slot) = system.running.slot() {
        return Err(Refusal::NotOffline(slot).into());
    }
    let copies = EnvCopies::or_rebuilt(system, base.now, || None)?;
    let back = Back::offline(&copies.env, system)?;
    Ok(plan(base, system, copies, back))
}

fn plan(base: &RequestBase, system: &SystemFacts, mut copies: EnvCopies, back: Back) -> Plan {
    let env = copies.env.clone();
    let held = |slot: Slot| system.slots[slot].system();
    let next = match back {
        Back::Cancel(_) => env.disarmed(),
        Back::GiveUp(slot) => latest(env.given_up(slot, held(slot), base.now), system),
        Back::To(slot) => {
            // If the slot is damaged on the disk, its system is not to blame and must not be remembered as bad.
            let left = held(!slot).filter(|_| system.slots[!slot].damage().is_none());
            let mut next = env.rolled_back(slot, left);
            next.forget_bad(held(slot).as_slice());
            if next.states[slot] != SlotState::Good {
                // It was the default since.
                (next.states[slot], next.since[slot]) = (SlotState::Good, Some(base.now));
            }
            latest(next, system)
        }
        Back::Already => env.clone(),
    };
    let default = next.default;
    let default_name = format!("slot {default}, {}", system.slots[default].version());
    let mut draft = Draft::new(base, system);
    draft.is_about_slot(default);
    let result = match back {
        Back::Cancel(slot) => format!("slot {slot} is not tried; {default_name}, boots next"),
        Back::GiveUp(slot) => format!("the trial of slot {slot} is given up; {default_name}, boots next"),
        Back::To(_) => format!("{default_name}, is the default and boots next"),
        Back::Already => format!("{default_name}, boots next already"),
    };
    let steps = if let Back::Already = back { copies.heal() } else { copies.write(&next, true) };
    draft.extend(Part::Esp, steps);
    if next.states[default] == SlotState::Good {
        draft.mark_default(&next);
    }
    draft.forget_label();
    if matches!(back, Back::GiveUp(_) | Back::To(_)) {
        draft.warnings.extend(snapshot::on_the_way_back(system, default, &next));
    }
    draft.plan(Goal::Rollback, result, "the boot state is the old one".to_owned())
}

fn whole(system: &SystemFacts, slot: Slot) -> Result<(), Refusal> {
    match system.slots[slot].damage() {
        Some(why) => Err(Refusal::NotWhole { slot, why: why.to_owned() }),
        None => Ok(()),
    }
}

enum Back {
    /// Cancel the trial of this slot, which has not booted yet.
    Cancel(Slot),
    /// Give up the running trial of this slot.
    GiveUp(Slot),
    /// Make this slot the default.
    To(Slot),
    /// The right slot already boots next.
    Already,
}

impl Back {
    fn cancel(env: &BootEnv, system: &SystemFacts, trial: Slot) -> Result<Self, Refusal> {
        only_the_trial_boots(system, env, trial).map_or_else(|| whole(system, env.default), Err)?;
        Ok(Back::Cancel(trial))
    }

    fn new(env: &BootEnv, system: &SystemFacts) -> Result<Self, Refusal> {
        let Running::This { slot: running, trial } = system.running else {
            return Err(Refusal::NotRunning(system.running));
        };
        let whole = |slot: Slot| whole(system, slot);
        let (default, other) = (env.default, !env.default);
        if let Some(slot) = env.once {
            return Self::cancel(env, system, slot);
        }
        if trial && env.states[running] == SlotState::Tried {
            return whole(default).map(|()| Back::GiveUp(running));
        }
        if running != default {
            // The boot loader skipped a default that does not verify, so the running slot is the only good one.
            let is_good = env.states[running] == SlotState::Good || system.later_default().is_some();
            let passed_over = whole(default).is_err() && is_good;
            return if passed_over { whole(running).map(|()| Back::To(running)) } else { Ok(Back::Already) };
        }
        match env.states[other] {
            SlotState::Good => whole(other).map(|()| Back::To(other)),
            _ if system.later_default().is_some() => whole(other).map(|()| Back::To(other)),
            // Staged or cancelled: the other slot was never tried, so there is nothing to go back from.
            SlotState::Untried => Ok(Back::Already),
            state => Err(Refusal::NoWayBack { slot: other, state }),
        }
    }

    fn offline(env: &BootEnv, system: &SystemFacts) -> Result<Self, Refusal> {
        let whole = |slot: Slot| whole(system, slot);
        let (default, other) = (env.default, !env.default);
        if let Some(slot) = env.once {
            return Self::cancel(env, system, slot);
        }
        let boots = env.states[default] == SlotState::Good && whole(default).is_ok();
        let left_before = system.slots[other].system().is_some_and(|held| env.bad.contains(&held));
        match env.states[other] {
            SlotState::Good if boots && left_before => Ok(Back::Already),
            SlotState::Good => whole(other).map(|()| Back::To(other)),
            _ if system.later_default().is_some() => whole(other).map(|()| Back::To(other)),
            // It was never tried, or its trial is over.
            SlotState::Untried | SlotState::Tried | SlotState::Bad if boots => Ok(Back::Already),
            state => Err(Refusal::NoWayBack { slot: other, state }),
        }
    }
}
