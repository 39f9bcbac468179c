//! Compares the boot chain and every file of every slot with their digests, and looks at every copy of everything else.

use std::collections::BTreeMap;

use super::{DiskRequest, copies, installed_disk};
use crate::{
    device::{Access, Disk},
    error::Failure,
    probe,
};
use slipway_core::{
    boot::slot::{Slot, SlotState},
    disk::layout::Part,
    plan::SystemFacts,
    report::{Observer, SlotCheck, VerifyReport},
};

pub fn run(request: &DiskRequest, observer: &mut dyn Observer) -> Result<VerifyReport, Failure> {
    let disk = request.open(Access::Read)?;
    let facts = installed_disk::look(request, &disk)?.system;
    let boot_chain = probe::boot_chain(&disk, &facts.gpt);
    let slots = slots(&disk, &facts, observer);
    let (problems, notes) = copies::problems(&disk, &facts);
    let damage = boot_chain.problems().into_iter().chain(slots.values().flat_map(SlotCheck::problems));
    let ok = !slots.is_empty() && problems.is_empty() && damage.count() == 0;
    Ok(VerifyReport { disk: disk.identity().path.clone(), ok, boot_chain, slots, problems, notes })
}

/// Every slot that boot.env does not call empty.
pub(super) fn slots(disk: &Disk, facts: &SystemFacts, observer: &mut dyn Observer) -> BTreeMap<Slot, SlotCheck> {
    let used = Slot::BOTH.into_iter().filter(|slot| is_used(facts, *slot));
    used.map(|slot| (slot, check(disk, facts, slot, observer))).collect()
}

/// Whether boot.env does not call it empty.
pub(super) fn is_used(facts: &SystemFacts, slot: Slot) -> bool {
    facts.env.as_ref().is_none_or(|env| env.states[slot] != SlotState::Empty)
}

fn check(disk: &Disk, facts: &SystemFacts, slot: Slot, observer: &mut dyn Observer) -> SlotCheck {
    observer.phase(&format!("verify     {}", Part::from(slot)), probe::slot_bytes(disk, &facts.gpt, slot));
    match probe::check_slot(disk, &facts.gpt, slot, &mut |n| observer.advance(n)) {
        Ok(files) => SlotCheck { files, error: None },
        Err(e) => SlotCheck { files: vec![], error: Some(e.to_string()) },
    }
}
