//! Every file of a slot, compared with its digest.

use crate::{device::Disk, probe};
use slipway_core::{
    boot::slot::Slot,
    disk::layout::Part,
    plan::SystemFacts,
    report::{Observer, SlotCheck},
};

pub fn check(disk: &Disk, facts: &SystemFacts, slot: Slot, observer: &mut dyn Observer) -> SlotCheck {
    observer.phase(&format!("verify     {}", Part::from(slot)), probe::slot_bytes(disk, &facts.gpt, slot));
    match probe::check_slot(disk, &facts.gpt, slot, &mut |n| observer.advance(n)) {
        Ok(files) => SlotCheck { files, error: None },
        Err(e) => SlotCheck { files: vec![], error: Some(e.to_string()) },
    }
}
