//! The slots that `status` has to read in full.

use crate::prelude::*;

use crate::{
    boot::{
        running::Running,
        slot::{Slot, SlotState},
    },
    plan::{self, Asked, RequestBase, SystemFacts},
};

/// The slots of which `status` reads every file unasked, because nothing shows that their root file systems are whole, or because
/// the next command would be decided by them: what it names is not to be refused for what it has not read. Of a system that is
/// confirmed and runs, on a disk where nothing is lost, there are none. Nor are there on such a disk while a trial runs: `confirm`
/// reads it, has a deadline, and is not to wait for a disk that is busy with `status`.
pub fn doubtful(facts: &SystemFacts) -> Vec<Slot> {
    let is_at_rest = facts.running.slot().is_none();
    // Which slot becomes the default, or may be called good, depends on which is whole.
    if is_at_rest || is_repaired(facts) {
        return facts.in_use().collect();
    }
    if matches!(facts.running, Running::This { trial: true, .. }) {
        return vec![];
    }
    facts.in_use().filter(|slot| is_unproven(facts, *slot)).collect()
}

fn is_repaired(facts: &SystemFacts) -> bool {
    let base = RequestBase { disk: String::new(), now: 0, asked: Asked::default() };
    plan::makes_esp(facts)
        || facts.env.is_none()
        || plan::repair(&base, facts, None, false).is_ok_and(|plan| !plan.steps.is_empty())
}

/// Whether it is a default that does not run, or a slot that was written and waits for a person.
fn is_unproven(facts: &SystemFacts, slot: Slot) -> bool {
    let Some(env) = &facts.env else { return true };
    let runs = facts.running.slot() == Some(slot);
    match env.states[slot] {
        // A trial that waits was read back by what had it wait.
        SlotState::Untried => env.once.is_none() && env.last_trial != Some(slot),
        _ => !runs && !facts.next.trial && facts.next.slot == Some(slot),
    }
}
