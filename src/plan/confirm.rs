//! Confirm: from inside the trial, its slot becomes the default. One sector of boot.env is the commit; the slot's own
//! marker and META follow, and a repeated call makes good what a cut left out of them.

use super::{
    Ask, Goal, Plan, Refusal, Refusals, SystemFacts,
    slots::{EnvCopies, forget_cached, forget_label, mark_good},
};
use crate::model::{
    bootenv::BootEnv,
    layout::Part,
    running::Running,
    slot::{Slot, SlotState},
};

/// Decide.
pub fn confirm(ask: &Ask, system: &SystemFacts) -> Result<Plan, Refusals> {
    let Running::This { slot, trial } = system.running else {
        return Err(Refusal::NotRunning(system.running).into());
    };
    let mut copies = EnvCopies::of(system, ask.now)?;
    let env = copies.env.clone();
    let again = is_confirmed(&env, slot, trial)?;
    if let (Some(why), false) = (system.slots[slot].damage(), again) {
        return Err(Refusal::NotWhole { slot, why: why.to_owned() }.into());
    }
    let (mut steps, mut touched) = (Vec::new(), Vec::new());
    if !again {
        let confirmed = env.confirmed(slot, system.slots[slot].payload(), ask.now);
        steps.extend(copies.write(&confirmed, true));
        touched.push(Part::Esp);
    }
    let marked = system.slots[slot].marker.as_ref().is_some_and(|m| m.state == SlotState::Good);
    let marker = mark_good(system, slot, copies.env.seq).filter(|_| !again || !marked);
    let warnings = match (&marker, marked) {
        (None, false) => vec![format!(
            "slot {slot} has no marker of its own: if both copies of boot.env are lost, the \
            other slot boots"
        )],
        _ => vec![],
    };
    touched.extend(marker.is_some().then_some(Part::from(slot)));
    steps.extend(marker);
    let meta = forget_label(system);
    touched.extend((!meta.steps.is_empty()).then_some(Part::Meta));
    steps.extend(meta.steps);
    steps.extend(forget_cached(system, &touched));
    let already = if again { "already " } else { "" };
    Ok(Plan {
        goal: Goal::Confirm,
        disk: ask.disk.clone(),
        system: None,
        table: None,
        meta: meta.tags,
        meta_legacy: meta.legacy,
        warnings,
        result: format!("slot {slot}, {}, is {already}confirmed: it is the default", system.slots[slot].version()),
        meanwhile: "the boot state is the old one; run the same command again".to_owned(),
        steps,
    })
}

/// Whether the running slot is good and the default already, or the trial that is to be confirmed; anything else
/// is refused.
fn is_confirmed(env: &BootEnv, slot: Slot, trial: bool) -> Result<bool, Refusal> {
    if let Some(once) = env.once {
        return Err(Refusal::NotTrial(format!("the next boot is to try slot {once}; reboot first")));
    }
    let (state, other, other_state) = (env.states[slot], !slot, env.states[!slot]);
    let why = match (trial, state) {
        (true, SlotState::Tried) => return Ok(false),
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
