//! `installer verify`.

use std::collections::BTreeMap;

use crate::{
    cli::DiskArgs,
    device::{Access, BlockIo, Disk},
    error::{Failure, Kind, OrFail as _},
    execute::Observer as _,
    model::{
        bootenv::MARKER,
        layout::Part,
        manifest::SHA256SUMS,
        slot::{Slot, SlotState},
    },
    probe::{self, FileCheck, FileState, LabelFacts, ProbeError},
    report::{Progress, Report, SlotCheck, VerifyReport},
};

pub fn run(args: &DiskArgs, progress: &mut Progress) -> Result<Report, Failure> {
    let disk = super::open(args, Access::Read)?;
    let facts = probe::system(&disk)
        .map_err(|e| anyhow::Error::new(e).context(args.disk.display().to_string()))
        .or_fail(Kind::Install)?;
    let empty = |s| facts.env.as_ref().is_some_and(|env| env.states[s] == SlotState::Empty);
    let mut slots = BTreeMap::new();
    for slot in Slot::BOTH.into_iter().filter(|s| !empty(*s)) {
        slots.insert(slot, check(&disk, &facts.label, slot, progress));
    }
    let good = |c: &SlotCheck| c.error.is_none() && c.files.iter().all(|f| f.state == FileState::Good);
    let ok = !slots.is_empty() && slots.values().all(good);
    Ok(Report::Verify(VerifyReport { disk: disk.identity().path.display().to_string(), ok, slots }))
}

fn check(disk: &Disk, label: &LabelFacts, slot: Slot, progress: &mut Progress) -> SlotCheck {
    let files = || -> Result<_, ProbeError> {
        let part = Part::from(slot);
        let volume = probe::slot_volume(disk, label, slot)?;
        let files = volume.root_files().map_err(|source| ProbeError::Fat { part, source })?;
        progress.phase(&format!("verify     {part}"), files.iter().map(|(_, size)| size).sum());
        let mut checks =
            probe::check_files(disk as &dyn BlockIo, &volume, part, SHA256SUMS, &mut |n| progress.advance(n))?;
        // The list itself and the marker, which changes, are in no list.
        let known = |name: &str| name == SHA256SUMS || name == MARKER || checks.iter().any(|c| c.name == name);
        let unlisted: Vec<_> = files.into_iter().filter(|(name, _)| !known(name)).collect();
        checks.extend(unlisted.into_iter().map(|(name, size)| FileCheck {
            name,
            state: FileState::Unlisted,
            size: Some(size),
            expected: None,
            actual: None,
            offset: None,
        }));
        Ok(checks)
    };
    match { files }() {
        Ok(files) => SlotCheck { files, error: None },
        Err(e) => SlotCheck { files: vec![], error: Some(e.to_string()) },
    }
}
