//! Describes an installed disk: what is on it, which slot boots next, and why.

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime},
};

use super::{DiskRequest, clones::Clones, copies, installed_disk, verify};
use crate::{
    device::{Access, BlockIo as _, Disk},
    error::Failure,
    probe,
};
use slipway_core::{
    boot::{
        running::Running,
        slot::{PerSlot, Slot, SlotState},
    },
    disk::layout::Part,
    plan::{self, RequestBase, SystemFacts},
    report::{MetaTag, Observer, SlotStatus, StatusReport},
};

/// `full`: read every file of every slot, as `verify` does.
pub fn run(request: &DiskRequest, full: bool, observer: &mut dyn Observer) -> Result<StatusReport, Failure> {
    let disk = request.open(Access::Read)?;
    let mut system = installed_disk::look(request, &disk)?.system;
    let slots = if full { verify::slots(&disk, &system, observer) } else { BTreeMap::new() };
    for (slot, check) in slots {
        let problems = check.problems();
        system.slots[slot].whole = Some(if problems.is_empty() { Ok(()) } else { Err(problems.join("; ")) });
    }
    Ok(status(&disk, system))
}

pub(super) fn status(disk: &Disk, facts: SystemFacts) -> StatusReport {
    let boot_chain = probe::boot_chain(disk, &facts.gpt);
    let (mut problems, mut notes) = copies::problems(disk, &facts);
    problems.extend(boot_chain.problems());
    let damage = |slot: Slot| Some(format!("slot {slot}: {}", facts.slots[slot].damage()?));
    problems.extend(Slot::BOTH.into_iter().filter(|slot| verify::is_used(&facts, *slot)).filter_map(damage));
    let clones = Clones::look(disk, &facts.gpt);
    problems.extend(clones.problems());
    notes.extend(clones.note());
    StatusReport {
        disk: disk.identity().clone(),
        bytes: disk.size(),
        sector_bytes: disk.sector_size().bytes(),
        disk_guid: facts.gpt.disk_guid,
        partitions: Part::ALL.map(|p| (p, facts.gpt.part(p))).into(),
        boot_chain,
        problems,
        notes,
        slots: PerSlot::new(|s| {
            let slot = &facts.slots[s];
            SlotStatus {
                state: facts.env.as_ref().map(|env| env.states[s]),
                since: facts.env.as_ref().and_then(|env| env.since[s]).map(utc),
                version: slot.manifest.as_ref().and_then(|m| m.version.clone()),
                payload: slot.manifest.as_ref().map(|m| m.payload_digest()),
                marker: slot.marker.clone(),
                verifies: slot.verifies,
                whole: slot.whole.as_ref().map(Result::is_ok),
                problem: slot.damage().map(str::to_owned),
            }
        }),
        meta: MetaTag::all(&facts.meta).into_iter().map(|t| (t.key, t.value)).collect(),
        running: facts.running,
        last_trial: last_trial(&facts),
        rollback: rollback(&facts),
        next_boot: facts.next,
        boot_env: facts.env,
    }
}

/// `2026-01-31T12:00:00Z`.
fn utc(seconds: u64) -> String {
    // A boot.env that another program wrote may hold a number beyond the year 9999.
    let time = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds.min(253_402_300_799)));
    humantime::format_rfc3339_seconds(time.unwrap_or(SystemTime::UNIX_EPOCH)).to_string()
}

fn last_trial(facts: &SystemFacts) -> Option<String> {
    let env = facts.env.as_ref()?;
    let tried = Slot::BOTH.into_iter().find(|s| env.states[*s] == SlotState::Tried);
    let slot = env.once.or(tried).or(env.last_trial)?;
    let version = facts.slots[slot].version();
    let runs = facts.running == Running::This { slot, trial: true };
    let how = match env.states[slot] {
        SlotState::Trial if env.once == Some(slot) => "is to be tried at the next boot",
        SlotState::Trial => "is staged: `installer activate` has the next boot try it",
        SlotState::Tried if runs => {
            "runs and is not confirmed: without `installer confirm` the next boot starts the other slot"
        }
        SlotState::Tried => "was tried and never confirmed",
        SlotState::Bad => "was tried and given up",
        SlotState::Good => "was tried and confirmed",
        SlotState::Empty => return Some(format!("slot {slot} was tried; its content is being replaced")),
    };
    Some(format!("slot {slot}, {version}, {how}"))
}

fn rollback(facts: &SystemFacts) -> String {
    match plan::rollback(&RequestBase { disk: String::new(), now: 0 }, facts) {
        Ok(plan) => plan.result,
        Err(refusals) => {
            let why: Vec<String> = refusals.0.iter().map(ToString::to_string).collect();
            format!("would be refused: {}", why.join("; "))
        }
    }
}
