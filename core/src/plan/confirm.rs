//! Confirm: the running trial makes its own slot the default.
//!
//! The commit is one sector of boot.env. The slot's marker and META follow. If power is lost before they are written,
//! the next `confirm` writes them.

use crate::prelude::*;

use super::{
    Goal, Plan, Refusal, Refusals, RequestBase, SystemFacts,
    draft::{Draft, latest},
    env_copies::EnvCopies,
    rebuild_boot_state::{default_if_lost, is_marked_good},
};
use crate::{
    boot::{
        env::BootEnv,
        running::Running,
        slot::{Slot, SlotState},
    },
    disk::layout::Part,
};

/// Plan the confirmation, or say why there is nothing to confirm.
pub fn confirm(base: &RequestBase, system: &SystemFacts) -> Result<Plan, Refusals> {
    let Running::This { slot, trial } = system.running else {
        return Err(Refusal::NotTrial(format!("the running system is {}", system.running)).into());
    };
    // The trial that runs may be the only system that is left.
    let mut copies = EnvCopies::or_rebuilt(system, base.now, || {
        let whole = system.slots[slot].damage().is_none();
        default_if_lost(system).or(trial.then_some(!slot)).filter(|_| whole)
    })?;
    let env = copies.env.clone();
    let already = is_confirmed(&env, system, slot, trial)?;
    let mut draft = Draft::new(base, system);
    draft.is_about_slot(slot);
    let facts = &system.slots[slot];
    if already {
        draft.extend(Part::Esp, copies.heal());
        // One that is good already is left alone, as by a repair: a power cut could tear it, and the other slot may be half written.
        if !is_marked_good(system, slot) {
            draft.mark_default(&env);
        }
    } else {
        if let Some(why) = facts.damage() {
            return Err(Refusal::NotWhole { slot, why: why.to_owned() }.into());
        }
        let confirmed = latest(env.confirmed(slot, facts.system().as_slice(), base.now), system);
        draft.extend(Part::Esp, copies.write(&confirmed, true));
        draft.mark_default(&confirmed);
    }
    draft.forget_label();
    let word = if already { "already " } else { "" };
    let result = format!("slot {slot}, {}, is {word}confirmed: it is the default", facts.version());
    Ok(draft.plan(Goal::Confirm, result, "the boot state is the old one".to_owned()))
}

/// True if the running slot is already good and the default, false if it is the trial to confirm. Anything else is
/// refused.
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
            format!("slot {other} was tried and never confirmed; slot {slot}, which runs, was the default before")
        }
        (_, SlotState::Good) => return Ok(true),
        (true, SlotState::Bad) => "the trial was given up".to_owned(),
        (true, state) => format!("slot {slot} is {}: it was changed after it was booted", state.plain()),
        (false, SlotState::Empty) => {
            format!("slot {slot} was not booted as a trial, and nothing says that it was ever confirmed")
        }
        (false, state) => format!("slot {slot} was not booted as a trial, and is {}", state.plain()),
    };
    Err(Refusal::NotTrial(why))
}
