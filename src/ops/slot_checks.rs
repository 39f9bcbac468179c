//! Every file of a slot, compared with its digest.

use crate::{device::Disk, probe};
use slipway_core::{
    boot::slot::Slot,
    digest::Sha256,
    disk::layout::Part,
    payload::manifest::Manifest,
    plan::SystemFacts,
    report::{FileCheck, Observer, SlotCheck},
};

pub fn check(disk: &Disk, facts: &SystemFacts, slot: Slot, observer: &mut dyn Observer) -> SlotCheck {
    observer.phase(&format!("verify     {}", Part::from(slot)), probe::slot_bytes(disk, &facts.gpt, slot));
    match probe::check_slot(disk, &facts.gpt, slot, &mut |n| observer.advance(n)) {
        Ok(files) => {
            let payload = facts.slots[slot].manifest.as_ref().and_then(|manifest| payload_of(manifest, &files));
            SlotCheck { files, error: None, payload }
        }
        Err(e) => SlotCheck { files: vec![], error: Some(e.to_string()), payload: None },
    }
}

// By the bytes that were read of its files, and not by the manifest.
fn payload_of(manifest: &Manifest, read: &[FileCheck]) -> Option<Sha256> {
    let mut manifest = manifest.clone();
    for file in &mut manifest.files {
        file.sha256 = read.iter().find(|read| read.name.eq_ignore_ascii_case(&file.name))?.actual?;
    }
    Some(manifest.payload_digest())
}
