//! Confirm: from inside the trial, its slot becomes the default. One sector of boot.env is the commit; the slot's own
//! marker and META follow, and a repeated call makes good what a cut left out of them.

use crate::prelude::*;

use super::{
    Goal, Plan, Refusal, Refusals, RequestBase, SystemFacts,
    slots::{Draft, EnvCopies},
};
use crate::{
    boot::{
        env::BootEnv,
        running::Running,
        slot::{Slot, SlotState},
    },
    disk::layout::Part,
};

/// Decide.
pub fn confirm(base: &RequestBase, system: &SystemFacts) -> Result<Plan, Refusals> {
    let Running::This { slot, trial } = system.running else {
        return Err(Refusal::NotRunning(system.running).into());
    };
    let mut copies = EnvCopies::of(system, base.now)?;
    let env = copies.env.clone();
    let already = is_confirmed(&env, system, slot, trial)?;
    let mut draft = Draft::new(base, system);
    let facts = &system.slots[slot];
    if already {
        draft.extend(Part::Esp, copies.heal());
        if !facts.marker.as_ref().is_some_and(|m| m.state == SlotState::Good) {
            draft.mark_good(slot, env.seq);
        }
    } else {
        if let Some(why) = facts.damage() {
            return Err(Refusal::NotWhole { slot, why: why.to_owned() }.into());
        }
        let confirmed = env.confirmed(slot, facts.payload(), base.now);
        draft.extend(Part::Esp, copies.write(&confirmed, true));
        draft.mark_good(slot, confirmed.seq);
    }
    draft.forget_label();
    let word = if already { "already " } else { "" };
    let result = format!("slot {slot}, {}, is {word}confirmed: it is the default", facts.version());
    Ok(draft.plan(Goal::Confirm, result, "the boot state is the old one; run the same command again".to_owned()))
}

/// Whether the running slot is good and the default already, or the trial that is to be confirmed; anything else
/// is refused.
fn is_confirmed(env: &BootEnv, system: &SystemFacts, slot: Slot, trial: bool) -> Result<bool, Refusal> {
    if let Some(once) = env.once {
        return Err(Refusal::NotTrial(format!("the next boot is to try slot {once}; reboot first")));
    }
    let (state, other, other_state) = (env.states[slot], !slot, env.states[!slot]);
    let why = match (trial, state) {
        (true, SlotState::Tried) => return Ok(false),
        (_, SlotState::Good) if env.default != slot && system.slots[other].damage().is_some() => {
            format!("slot {other} is the default, and damaged: `installer rollback` makes slot {slot} the default")
        }
        (_, SlotState::Good) if env.default != slot => format!("slot {other} is the default and boots next"),
        (false, SlotState::Good) if other_state == SlotState::Tried => {
            format!("slot {other} was tried and came back; slot {slot}, which runs, was the default before")
        }
        (_, SlotState::Good) => return Ok(true),
        (true, SlotState::Bad) => "its trial was given up".to_owned(),
        (true, state) => format!("slot {slot} is {state}: it was changed since it was booted"),
        (false, state) => format!("slot {slot} was not booted as a trial, and is {state}"),
    };
    Err(Refusal::NotTrial(why))
}
