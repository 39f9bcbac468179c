//! Records why a trial is not confirmed.
//!
//! The record goes into the history, from which nothing boots. boot.env is not written, so the next boot stays as it is.

use crate::prelude::*;

use super::{Goal, Plan, Refusal, Refusals, RequestBase, SystemFacts, draft::Draft};
use crate::boot::{
    running::Running,
    slot::Slot,
    trial::{Failed, is_over},
};

/// The slot of the running trial, if it still waits for its confirmation.
pub fn unconfirmed(system: &SystemFacts) -> Option<Slot> {
    let Running::This { slot, trial: true } = system.running else { return None };
    let over = system.env.as_ref().and_then(|env| is_over(slot, env));
    over.is_none().then_some(slot)
}

/// Record why the running trial is not confirmed. One record for each trial: the last failure, and how often. A missed
/// deadline says less than the check that failed, and does not take its place.
pub fn record_failure(base: &RequestBase, system: &SystemFacts, failed: &Failed) -> Result<Plan, Refusals> {
    let Some(slot) = unconfirmed(system) else {
        return Err(Refusal::NotTrial(format!("the running system is {}", system.running)).into());
    };
    let before = system.history.as_ref().and_then(|history| history.failed(slot, system.env.as_ref()));
    let known = before.is_some_and(|(_, before)| before.check.is_some() && failed.check.is_none());
    let failed = match before {
        Some((_, before)) if known => before.clone(),
        Some((_, before)) => failed.clone().after(before),
        None => failed.clone(),
    };
    let mut draft = Draft::new(base, system);
    draft.is_about_slot(slot);
    let result = format!("slot {slot}, {}, is not confirmed: {failed}", system.slots[slot].version());
    if !known {
        if system.history.is_none() {
            draft.warnings.push("the disk keeps no history, so the next system is not told why".to_owned());
        }
        draft.is_about_failure(failed, before.map(|(entry, _)| entry.n));
    }
    Ok(draft.plan(Goal::Trial, result, "the boot state is the old one".to_owned()))
}
