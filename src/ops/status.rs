//! Describes an installed disk: what is on it, which slot boots next, and why.

use std::time::{Duration, SystemTime};

use super::{DiskRequest, installed_disk};
use crate::{
    device::{Access, BlockIo as _, Disk},
    error::Failure,
};
use slipway_core::{
    boot::{
        env::PATHS,
        running::Running,
        slot::{PerSlot, Slot, SlotState},
    },
    disk::layout::Part,
    plan::{self, GptCopies, RequestBase, SystemFacts},
    report::{MetaTag, SlotStatus, StatusReport},
};

pub fn run(request: &DiskRequest) -> Result<StatusReport, Failure> {
    let disk = request.open(Access::Read)?;
    let system = installed_disk::look(request, &disk)?.system;
    Ok(status(&disk, system))
}

pub(super) fn status(disk: &Disk, facts: SystemFacts) -> StatusReport {
    StatusReport {
        disk: disk.identity().clone(),
        bytes: disk.size(),
        sector_bytes: disk.sector_size().bytes(),
        disk_guid: facts.gpt.disk_guid,
        partitions: Part::ALL.map(|p| (p, facts.gpt.part(p))).into(),
        problems: problems(&facts, disk.size(), disk.sector_size().bytes()),
        slots: PerSlot::new(|s| {
            let slot = &facts.slots[s];
            SlotStatus {
                state: facts.env.as_ref().map(|env| env.states[s]),
                since: facts.env.as_ref().and_then(|env| env.since[s]).map(utc),
                version: slot.manifest.as_ref().and_then(|m| m.version.clone()),
                payload: slot.manifest.as_ref().map(|m| m.payload_digest()),
                marker: slot.marker.clone(),
                verifies: slot.verifies,
                problem: slot.boot_problem.clone(),
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

/// `bytes` is the size of the disk, `sector` that of a sector.
pub(super) fn gpt_problems(copies: &GptCopies, bytes: u64, sector: u64) -> Vec<String> {
    let mut problems = Vec::new();
    if let Err(e) = &copies.primary {
        problems.push(format!("the primary GPT is damaged ({e}); the backup is in use"));
    }
    match (&copies.backup, copies.backup_offset) {
        (Err(e), _) => problems.push(format!("the backup GPT is damaged: {e}")),
        (Ok(()), Some(at)) if at + sector < bytes => problems.push(format!(
            "the backup GPT is not at the end of the disk but at byte {at}: the disk is larger than the image that \
             was written to it; this does not keep a disk from booting, and a tool that grows the last partition moves the backup \
             GPT"
        )),
        _ => {}
    }
    if copies.foreign_backup {
        problems.push(
            "the end of the disk holds the backup GPT of another partition table: partitioning tools may offer to \
             restore it"
                .to_owned(),
        );
    }
    problems
}

fn problems(facts: &SystemFacts, bytes: u64, sector: u64) -> Vec<String> {
    let mut problems = gpt_problems(&facts.gpt.copies, bytes, sector);
    for (path, copy) in PATHS.iter().zip(&facts.env_copies) {
        match copy {
            None => problems.push(format!("{path} on the ESP is lost or damaged")),
            Some(copy) if facts.env.as_ref() != Some(copy) => {
                problems.push(format!("{path} on the ESP differs from the other copy, which is in use"))
            }
            Some(_) => {}
        }
    }
    for (n, valid) in (1..).zip(facts.meta.valid) {
        if !valid {
            problems.push(format!("META: ADV copy {n} is not valid"));
        }
    }
    if facts.meta.valid == [true, true] && !facts.meta.copies_equal {
        problems.push("META: the two copies differ; the first one is used".to_owned());
    }
    problems
}
