//! Which slot a change keeps, and which one it writes.

use crate::prelude::*;

use super::{
    Refusal, Refusals, RunsFrom, SystemFacts, VolumeHolds,
    draft::{Draft, META_UPGRADE},
    env_copies::EnvCopies,
    snapshot_request::SnapshotRequest,
};
use crate::{
    boot::{
        env::BootEnv,
        running::Running,
        slot::{Slot, SlotState},
    },
    disk::layout::Part,
};

/// What becomes of EPHEMERAL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ephemeral {
    Kept,
    /// Wiped; XFS is made again if it held XFS.
    Wiped,
    /// Wiped and left blank: the OS encrypts it.
    Blank,
}

/// The kept slot, which is the fallback, and the target, which is the other.
pub struct Slots {
    pub kept: Slot,
    /// The kept slot for people, such as `slot A, which runs`.
    pub name: String,
    pub target: Slot,
    pub copies: EnvCopies,
    origin: RunsFrom,
}

impl Slots {
    /// Decides the roles of the slots, or refuses where they are not certain.
    pub fn new(origin: RunsFrom, system: &SystemFacts, now: u64) -> Result<Self, Refusal> {
        let (kept, what) = match origin {
            RunsFrom::Inside => (running(system, now)?, "runs"),
            RunsFrom::Medium(medium) => {
                let own_trial = |env: &BootEnv| medium.is_some() && env.medium == medium;
                (default(system, own_trial, false)?, "boots by default")
            }
            RunsFrom::Offline => {
                if let Some(slot) = system.running.slot() {
                    return Err(Refusal::NotOffline(slot));
                }
                // The verb decides which trials may be pending.
                let kept = default(system, |_| true, true)?;
                (kept, if system.slots[kept].damage().is_some() { "is the default" } else { "boots by default" })
            }
        };
        let name = format!("slot {kept}, which {what}");
        Ok(Slots { kept, name, target: !kept, copies: EnvCopies::read(system, now)?, origin })
    }

    /// Offline, a pending trial is settled inside the system, unless the request is for the same trial: then an
    /// earlier run was interrupted, or this is the second. A damaged slot is no trial any more.
    pub fn check_pending(&self, system: &SystemFacts, is_asked_for: bool) -> Result<(), Refusal> {
        match self.copies.env.once.filter(|trial| system.slots[*trial].damage().is_none()) {
            Some(trial) if self.origin == RunsFrom::Offline && !is_asked_for => {
                Err(pending(system, &self.copies.env, trial))
            }
            _ => Ok(()),
        }
    }

    /// State of the disk until the commit, for people.
    pub fn meanwhile(&self, system: &SystemFacts) -> String {
        let is_whole = system.slots[self.kept].damage().is_none();
        let kept = format!("{}, {}", self.name, if is_whole { "still boots" } else { "is damaged as before" });
        format!("{kept}, and slot {} is not tried", self.target)
    }

    /// Checks the fallback. A damaged kept slot is an error if the target is the only slot that boots, because then the
    /// target must not be overwritten. Otherwise it is a warning.
    pub fn check_fallback(&self, system: &SystemFacts) -> Result<Option<String>, Refusal> {
        let (kept, target, env) = (self.kept, self.target, &self.copies.env);
        let boots =
            env.states[target] == SlotState::Good || env.once == Some(target) || system.next.slot == Some(target);
        match system.slots[kept].damage() {
            None => Ok(None),
            Some(why) if boots && system.slots[target].damage().is_none() => {
                let boots_next = env.once == Some(target);
                Err(Refusal::OnlyWayBack { running: kept, target, why: why.to_owned(), boots_next })
            }
            Some(why) => Ok(Some(format!(
                "{}, is damaged on the disk ({why}): until slot {target} is confirmed there is no slot to fall back to",
                self.name
            ))),
        }
    }

    /// The boot state that records the live medium, if boot.env does not name it yet. For runs that write no slot.
    pub fn with_medium(&self) -> Option<BootEnv> {
        let medium = self.origin.medium().filter(|id| self.copies.env.medium != Some(*id))?;
        Some(self.copies.env.installed_by(medium))
    }

    /// Steps 6 and 7 of an upgrade: the snapshot, META, the wipe of EPHEMERAL if asked for, and the commit.
    pub fn activation(
        &mut self,
        draft: &mut Draft,
        tags: &[(u8, Vec<u8>)],
        ephemeral: Ephemeral,
        snapshot: Option<&SnapshotRequest>,
    ) -> Result<(), Refusals> {
        draft.snapshot(self.kept, snapshot)?;
        let label = [(META_UPGRADE, self.kept.to_string().into_bytes())];
        draft.set_meta(draft.meta_with(tags.iter().chain(&label))?);
        if ephemeral != Ephemeral::Kept {
            draft.wipe_ephemeral(&mut self.copies, ephemeral == Ephemeral::Blank);
        }
        let mut armed = self.copies.env.armed(self.target, draft.base.now);
        // The wipe above is done, or was never begun, or somebody has made a file system since: so the note that one is under
        // way ends with the commit, unless what is there is blank or half made.
        let is_unmade = match draft.system.held(Part::Ephemeral) {
            VolumeHolds::Blank => true,
            VolumeHolds::Other => draft.system.data_faults.contains_key(&Part::Ephemeral),
            VolumeHolds::Xfs | VolumeHolds::Luks => false,
        };
        armed.format_ephemeral &= ephemeral == Ephemeral::Kept && is_unmade;
        armed.medium = self.origin.medium().or(armed.medium);
        draft.extend(Part::Esp, self.copies.write(&armed, true));
        Ok(())
    }
}

/// The running slot, if it may serve as the fallback.
fn running(system: &SystemFacts, now: u64) -> Result<Slot, Refusal> {
    let Running::This { slot: running, trial } = system.running else {
        return Err(Refusal::NotRunning(system.running));
    };
    let (env, target) = (EnvCopies::read(system, now)?.env, !running);
    let state = env.states[running];
    if trial && state != SlotState::Good {
        return Err(Refusal::Unconfirmed(running));
    }
    if env.default == target && system.slots[target].damage().is_none() {
        return Err(Refusal::NotDefault { running, default: target });
    }
    if env.default == target && state != SlotState::Good {
        return Err(Refusal::NotGood { slot: running, state });
    }
    Ok(running)
}

fn pending(system: &SystemFacts, env: &BootEnv, trial: Slot) -> Refusal {
    only_the_trial_boots(system, env, trial)
        .unwrap_or_else(|| Refusal::Unsettled(format!("slot {trial} is to be tried at the next boot")))
}

/// A trial that nothing may cancel or overwrite: what it would fall back to is damaged.
pub fn only_the_trial_boots(system: &SystemFacts, env: &BootEnv, trial: Slot) -> Option<Refusal> {
    let (default, is_damaged) = (env.default, |slot: Slot| system.slots[slot].damage().is_some());
    (is_damaged(default) && !is_damaged(trial)).then_some(Refusal::OnlyTheTrialBoots { trial, default })
}

/// The default slot of a disk that nothing runs from. Refused unless the next boot is certain: a lost boot state is not
/// rebuilt from outside, and no trial may be pending except one of our own. `may_be_damaged`: it is enough that the
/// other slot is not the one that boots, so that nothing is lost if that one is written.
fn default(system: &SystemFacts, own_trial: impl Fn(&BootEnv) -> bool, may_be_damaged: bool) -> Result<Slot, Refusal> {
    let unsettled = |why: String| Err(Refusal::Unsettled(why));
    if let Some(slot) = system.running.slot() {
        return unsettled(format!("its slot {slot} is running"));
    }
    let Some(env) = &system.env else { return unsettled("both copies of boot.env are lost".to_owned()) };
    let (default, state) = (env.default, env.states[env.default]);
    if let Some(trial) = env.once.filter(|_| !own_trial(env)) {
        return Err(pending(system, env, trial));
    }
    if state != SlotState::Good && !(may_be_damaged && system.next.slot.is_none()) {
        return unsettled(format!("its default, slot {default}, is {}", state.plain()));
    }
    let other_boots = env.states[!default] == SlotState::Good && system.slots[!default].damage().is_none();
    if let Some(why) = system.slots[default].damage().filter(|_| other_boots || !may_be_damaged) {
        return unsettled(format!("its default, slot {default}, is damaged on the disk ({why})"));
    }
    Ok(default)
}
