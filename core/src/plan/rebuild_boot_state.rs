//! The boot state in force, rebuilt from the slots' own markers where both copies are lost; and markers that lead to the same.
//!
//! Of two good slots, the one whose marker has the higher number was the default last, and slot A if they have the same.

use super::{Refusal, Step, SystemFacts, slots::Draft};
use crate::boot::{
    env::{BootEnv, Marker},
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
fn marked(system: &SystemFacts, slot: Slot) -> Option<u64> {
    system.slots[slot].marker.as_ref().filter(|marker| marker.state == SlotState::Good).map(|marker| marker.seq)
}

/// The boot state under a number that makes its default the last one. A marker may have a later one: the boot state is one of an
/// earlier time, or the marker is wrong.
pub fn latest(env: BootEnv, system: &SystemFacts) -> BootEnv {
    let own = marked(system, env.default).unwrap_or_default();
    let other = marked(system, !env.default).map_or(0, |seq| seq + 1);
    env.at_least(own.max(other))
}

impl Draft<'_> {
    /// Has the default boot by the markers alone, too. This comes after the boot state.
    pub fn mark_default(&mut self, env: &BootEnv) {
        let slot = env.default;
        let (own, other) = (marked(self.system, slot), marked(self.system, !slot));
        let is_first = |own: u64| other.is_none_or(|other| own > other || (own == other && slot == Slot::A));
        // A slot that was the default since is still told apart by it.
        let is_later = other.is_some_and(|other| other > env.seq);
        if !own.is_some_and(|own| is_first(own) || own == env.seq || is_later) {
            self.mark_good(slot, env.seq);
        }
        // At the limit no number is higher.
        if other == Some(env.seq) && !is_first(env.seq) {
            self.mark_good(!slot, env.seq.saturating_sub(1));
        }
    }

    /// Set a slot's marker to good, or warn that it has none.
    pub fn mark_good(&mut self, slot: Slot, seq: u64) {
        let Some(offset) = self.system.slots[slot].marker_at else {
            self.warnings.push(format!(
                "slot {slot} has no marker of its own: if both copies of the boot state are lost, GRUB may boot the other one"
            ));
            return;
        };
        let (marker, over) = (Marker { state: SlotState::Good, seq }, self.system.slots[slot].marker.clone());
        self.extend(slot.into(), [Step::WriteMarker { slot, offset, marker, over }]);
    }
}

/// The default to assume if boot.env is lost: the running slot if its marker is good, else the other slot if its marker is
/// good, else the running slot if no trial runs. A slot that a person chose in the boot menu is no trial either, so this last
/// one is weak evidence.
pub fn default_if_lost(system: &SystemFacts) -> Option<Slot> {
    let Running::This { slot, trial } = system.running else { return None };
    let marked = [slot, !slot].into_iter().find(|slot| is_marked_good(system, *slot));
    marked.or((!trial).then_some(slot))
}
