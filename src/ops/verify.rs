//! Compares every file of every slot with its checksum.

use std::collections::BTreeMap;

use super::{DiskRequest, installed_disk};
use crate::{
    device::{Access, Disk},
    error::Failure,
    probe,
};
use slipway_core::{
    boot::slot::{Slot, SlotState},
    disk::layout::Part,
    plan::GptFacts,
    report::{Observer, SlotCheck, VerifyReport},
};

/// Skips a slot that boot.env calls empty.
pub fn run(request: &DiskRequest, observer: &mut dyn Observer) -> Result<VerifyReport, Failure> {
    let disk = request.open(Access::Read)?;
    let facts = installed_disk::look(request, &disk)?.system;
    let empty = |s| facts.env.as_ref().is_some_and(|env| env.states[s] == SlotState::Empty);
    let mut slots = BTreeMap::new();
    for slot in Slot::BOTH.into_iter().filter(|s| !empty(*s)) {
        slots.insert(slot, check(&disk, &facts.gpt, slot, observer));
    }
    let good = |c: &SlotCheck| c.error.is_none() && c.files.iter().all(|f| !f.state.is_damage());
    let ok = !slots.is_empty() && slots.values().all(good);
    Ok(VerifyReport { disk: disk.identity().path.clone(), ok, slots })
}

fn check(disk: &Disk, gpt: &GptFacts, slot: Slot, observer: &mut dyn Observer) -> SlotCheck {
    observer.phase(&format!("verify     {}", Part::from(slot)), probe::slot_bytes(disk, gpt, slot));
    match probe::check_slot(disk, gpt, slot, &mut |n| observer.advance(n)) {
        Ok(files) => SlotCheck { files, error: None },
        Err(e) => SlotCheck { files: vec![], error: Some(e.to_string()) },
    }
}
