//! The slots that `status` has to read in full.

use crate::prelude::*;

use crate::{
    boot::{running::Running, slot::Slot},
    plan::SystemFacts,
};

/// The slots of which `status` reads every file unasked, because nothing shows that their root file systems are whole: of a
/// disk from which nothing runs, those in use; else the default, if it does not run. Perhaps it did not come up.
pub fn doubtful(facts: &SystemFacts) -> Vec<Slot> {
    let default = facts.next.slot.filter(|_| !facts.next.trial);
    let is_doubtful = |slot: &Slot| match facts.running {
        Running::This { slot: running, trial } => !trial && running != *slot && default == Some(*slot),
        Running::Other { .. } | Running::Unknown => true,
    };
    facts.in_use().filter(is_doubtful).collect()
}
