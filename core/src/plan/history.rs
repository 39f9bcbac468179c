//! The entry that a plan leaves in the history.
//!
//! It is written before the change that it tells of is in force, behind everything that this change needs: the record is a
//! sector that nothing boots from, and it does not count until boot.env names its number. A plan that does not write
//! boot.env anew (`wipe`, `bootloader update`, `snapshot restore`, `repair` of a single copy, and the record of a trial that
//! fails) writes it at its end, and says so in the record.
//!
//! No command fails because it cannot be written ([`Plan::is_optional`](super::Plan::is_optional)).

use crate::prelude::*;

use super::{Goal, HeadChange, Step, SystemFacts};
use crate::{
    boot::{
        env::BootEnv,
        history::{Ending, Entry, TrialEnd, Verb},
        slot::{Slot, SlotState},
        trial::Failed,
    },
    disk::layout::Part,
};

/// The parts of an entry that come from the request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// The requester of the change.
    pub by: Option<String>,
    /// Why.
    pub reason: Option<String>,
    /// The last words of the kernel whose trial is over, if the firmware kept them.
    pub panic: Option<String>,
}

/// The subject of a plan.
#[derive(Default)]
pub struct About {
    pub slot: Option<Slot>,
    pub version: Option<String>,
    pub volumes: Vec<Part>,
    /// Whether the boot menu is on.
    pub menu: Option<bool>,
    /// Why the trial that runs is not confirmed. It replaces the trial's earlier record.
    pub failed: Option<(Failed, Option<u32>)>,
    pub asked: Asked,
}

/// Put the entry into its place among the steps. Returns whether there is one: not on a disk without a history, and not
/// if nothing changes that it would tell of.
pub fn record(goal: Goal, now: u64, about: About, system: &SystemFacts, steps: &mut Vec<Step>) -> bool {
    let step = step(goal, now, about, system, steps);
    step.map(|(at, step)| steps.insert(at, step)).is_some()
}

fn step(goal: Goal, now: u64, about: About, system: &SystemFacts, steps: &[Step]) -> Option<(usize, Step)> {
    let (verb, history) = (verb(goal)?, system.history.as_ref().filter(|history| history.is_kept())?);
    let again = about.failed.as_ref().and_then(|(_, n)| *n);
    let n = again.or_else(|| history.next(system.env.as_ref()))?;
    let commit = steps.iter().find_map(|step| match step {
        Step::WriteBootEnv { env, commit: true, .. } => Some(env.clone()),
        _ => None,
    });
    let writes_env = |step: &Step| matches!(step, Step::WriteBootEnv { .. });
    let at = match &commit {
        // Before the first copy: the two are written one right after the other.
        Some(new) => steps.iter().position(|step| matches!(step, Step::WriteBootEnv { env, .. } if env == new)),
        // A partition that is not written is not claimed.
        None if verb == Verb::Trial => about.failed.is_some().then_some(steps.len()),
        None if verb == Verb::Restore => steps.iter().any(puts_back).then_some(steps.len()),
        None if verb == Verb::Bootloader => (!steps.is_empty()).then_some(steps.len()),
        None if verb == Verb::Wipe || (verb == Verb::Repair && steps.iter().any(writes_env)) => Some(steps.len()),
        None => None,
    }?;
    let version = |slot: Slot| system.slots[slot].manifest.as_ref().and_then(|m| m.version.clone());
    let ended = commit.as_ref().and_then(|new| trial_end(new, system, steps)).map(|(slot, how)| TrialEnd {
        slot,
        version: version(slot),
        how,
        panic: about.asked.panic.clone().filter(|_| how == Ending::NotConfirmed),
    });
    let About { slot, version, volumes, menu, failed, asked: Asked { by, reason, .. } } = about;
    let failed = failed.map(|(failed, _)| Box::new(failed));
    let (done, after) = (commit.is_none(), system.env.as_ref().and_then(|env| env.history));
    let said = Entry { slot, version, volumes, menu, by, reason, ..Entry::new(n, now, verb) };
    let entry = Entry { after, done, ended, failed, ..said };
    let (offset, over) = history.place(n);
    Some((at, Step::WriteHistory { offset, entry: entry.fitted(), over: over.cloned() }))
}

const fn verb(goal: Goal) -> Option<Verb> {
    Some(match goal {
        Goal::Install => Verb::Install,
        Goal::Upgrade => Verb::Upgrade,
        Goal::Stage => Verb::Stage,
        Goal::Activate => Verb::Activate,
        Goal::Confirm => Verb::Confirm,
        Goal::Rollback => Verb::Rollback,
        Goal::Wipe => Verb::Wipe,
        Goal::Repair => Verb::Repair,
        Goal::Trial => Verb::Trial,
        Goal::Bootloader => Verb::Bootloader,
        Goal::Menu => Verb::Menu,
        Goal::Snapshot => Verb::Restore,
        // These change neither the next boot nor the kept data, and the ESP may be mounted.
        Goal::Meta | Goal::Grow => return None,
    })
}

/// To keep what is there is the beginning of a restore.
const fn puts_back(step: &Step) -> bool {
    matches!(step, Step::WriteSnapshotHead { head: HeadChange::PutBack(_), .. })
}

/// The trial that the new boot state ends, or that was over before and that no entry tells of.
fn trial_end(new: &BootEnv, system: &SystemFacts, steps: &[Step]) -> Option<(Slot, Ending)> {
    let (old, history) = (system.env.as_ref()?, system.history.as_ref()?);
    if let Some(slot) = old.once {
        let rewritten = |step: &Step| matches!(step, Step::WriteVolume { part, .. } if *part == slot.into());
        let goes_on = new.once == Some(slot) && !steps.iter().any(rewritten);
        return (!goes_on).then_some((slot, Ending::Cancelled));
    }
    let tried = Slot::BOTH.into_iter().find(|slot| old.states[*slot] == SlotState::Tried);
    match tried.map(|tried| (tried, new.states[tried])) {
        Some((tried, SlotState::Good)) => Some((tried, Ending::Confirmed)),
        Some((tried, SlotState::Bad)) => Some((tried, Ending::GivenUp)),
        _ => history.over(old, system.running),
    }
}
