//! The boot state in force, or what the slots' own markers tell of it where both copies are lost.

use super::{Refusal, SystemFacts};
use crate::boot::{
    env::BootEnv,
    running::Running,
    slot::{PerSlot, Slot, SlotState},
};

/// Why a lost boot state is not made anew.
const NOT_KNOWN: &str = "it is not known from the running system what they held: it is damaged on the disk, is not what the \
                         slots' own markers would boot, or was not booted from this disk";

/// The boot state in force. If it is lost: the one that the markers tell, with `default` as the slot that boots.
pub fn boot_state(system: &SystemFacts, now: u64, default: impl FnOnce() -> Option<Slot>) -> Result<BootEnv, Refusal> {
    if let Some(env) = &system.env {
        return Ok(env.clone());
    }
    let default = default().ok_or(Refusal::BootEnvLost(NOT_KNOWN))?;
    let marks = PerSlot::new(|s| system.slots[s].marker.clone().filter(|_| system.slots[s].verifies));
    let mut env = BootEnv::rebuilt(default, &marks, now);
    if let Running::This { slot, trial: true } = system.running
        && slot != default
    {
        (env.states[slot], env.last_trial) = (SlotState::Tried, Some(slot));
        if !is_marked_good(system, default) {
            env.states[default] = SlotState::Empty;
        }
    }
    Ok(env)
}

/// Whether a slot's own marker says that it was confirmed.
pub fn is_marked_good(system: &SystemFacts, slot: Slot) -> bool {
    system.slots[slot].marker.as_ref().is_some_and(|marker| marker.state == SlotState::Good)
}

/// The slot that a system of this disk may take for the default if boot.env is lost: the one that runs, if its marker says
/// that it was confirmed, else the other, if that one's does. That what runs is no trial does not make it good: the boot
/// menu starts any slot in that way. It counts only where no marker says anything better.
pub fn confirmed(system: &SystemFacts) -> Option<Slot> {
    let Running::This { slot, trial } = system.running else { return None };
    let marked = [slot, !slot].into_iter().find(|slot| is_marked_good(system, *slot));
    marked.or((!trial).then_some(slot))
}
