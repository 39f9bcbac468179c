//! The boot state in force, rebuilt from the slots' own markers where both copies are lost.

use super::{Refusal, SystemFacts};
use crate::boot::{
    env::BootEnv,
    running::Running,
    slot::{PerSlot, Slot, SlotState},
};

/// Why a lost boot state is not made anew.
const NOT_KNOWN: &str = "it is not known from the running system what they held: it is damaged on the disk, is not what the \
                         slots' own markers would boot, or was not booted from this disk";

/// The boot state in force. If it is lost: rebuilt from the markers, with `default` as the slot that boots.
pub fn current_or_rebuilt(
    system: &SystemFacts,
    now: u64,
    default: impl FnOnce() -> Option<Slot>,
) -> Result<BootEnv, Refusal> {
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
    marked(system, slot).is_some()
}

/// The number in the marker of a slot that is good by it.
pub fn marked(system: &SystemFacts, slot: Slot) -> Option<u64> {
    system.slots[slot].marker.as_ref().filter(|marker| marker.state == SlotState::Good).map(|marker| marker.seq)
}

/// The default to assume if boot.env is lost: the running slot if its marker is good, else the other slot if its marker is
/// good, else the running slot if no trial runs. A slot that a person chose in the boot menu is no trial either, so this last
/// one is weak evidence.
pub fn default_if_lost(system: &SystemFacts) -> Option<Slot> {
    let Running::This { slot, trial } = system.running else { return None };
    let marked = [slot, !slot].into_iter().find(|slot| is_marked_good(system, *slot));
    marked.or((!trial).then_some(slot))
}
