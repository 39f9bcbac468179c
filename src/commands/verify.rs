//! `installer verify`.

use std::collections::BTreeMap;

use crate::{
    cli::{DiskArgs, Progress},
    device::{Access, Disk},
    error::Failure,
    execute::Observer as _,
    probe::{self},
};
use slipway_core::{
    boot::slot::{Slot, SlotState},
    disk::layout::Part,
    plan::GptFacts,
    report::{FileState, Report, SlotCheck, VerifyReport},
};

pub fn run(args: &DiskArgs, progress: &mut Progress) -> Result<Report, Failure> {
    let (disk, facts) = super::look(args, Access::Read)?;
    let empty = |s| facts.env.as_ref().is_some_and(|env| env.states[s] == SlotState::Empty);
    let mut slots = BTreeMap::new();
    for slot in Slot::BOTH.into_iter().filter(|s| !empty(*s)) {
        slots.insert(slot, check(&disk, &facts.gpt, slot, progress));
    }
    let good = |c: &SlotCheck| c.error.is_none() && c.files.iter().all(|f| f.state == FileState::Good);
    let ok = !slots.is_empty() && slots.values().all(good);
    Ok(Report::Verify(VerifyReport { disk: disk.identity().path.clone(), ok, slots }))
}

fn check(disk: &Disk, gpt: &GptFacts, slot: Slot, progress: &mut Progress) -> SlotCheck {
    progress.phase(&format!("verify     {}", Part::from(slot)), probe::slot_bytes(disk, gpt, slot));
    match probe::check_slot(disk, gpt, slot, &mut |n| progress.advance(n)) {
        Ok(files) => SlotCheck { files, error: None },
        Err(e) => SlotCheck { files: vec![], error: Some(e.to_string()) },
    }
}
