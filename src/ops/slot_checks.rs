//! Every file of a slot, compared with its digest.

use std::collections::BTreeMap;

use crate::{device::Disk, probe};
use slipway_core::{
    boot::slot::{Slot, SlotState},
    disk::layout::Part,
    plan::SystemFacts,
    report::{Observer, SlotCheck},
};

/// Every slot that boot.env does not call empty.
pub fn slots(disk: &Disk, facts: &SystemFacts, observer: &mut dyn Observer) -> BTreeMap<Slot, SlotCheck> {
    let used = Slot::BOTH.into_iter().filter(|slot| is_used(facts, *slot));
    used.map(|slot| (slot, check(disk, facts, slot, observer))).collect()
}

/// Whether boot.env does not call it empty.
pub fn is_used(facts: &SystemFacts, slot: Slot) -> bool {
    facts.env.as_ref().is_none_or(|env| env.states[slot] != SlotState::Empty)
}

fn check(disk: &Disk, facts: &SystemFacts, slot: Slot, observer: &mut dyn Observer) -> SlotCheck {
    observer.phase(&format!("verify     {}", Part::from(slot)), probe::slot_bytes(disk, &facts.gpt, slot));
    match probe::check_slot(disk, &facts.gpt, slot, &mut |n| observer.advance(n)) {
        Ok(files) => SlotCheck { files, error: None },
        Err(e) => SlotCheck { files: vec![], error: Some(e.to_string()) },
    }
}
