//! The slots' own markers, which lead to the same slot as the boot state. Of two good slots, the one whose marker has the higher
//! number was the default last, and slot A if they have the same.

use super::{
    super::{Step, SystemFacts, rebuild_boot_state::marked},
    Draft,
};
use crate::boot::{
    env::{BootEnv, Marker},
    rule::Order,
    slot::{PerSlot, Slot, SlotState},
};

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
        let markers = |own: u64| {
            let own = Some(Marker { state: SlotState::Good, seq: own });
            PerSlot::new(|of| if of == slot { own.clone() } else { self.system.slots[of].marker.clone() })
        };
        let is_first = |own: u64| Order::by_markers(&markers(own)).first == slot;
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
