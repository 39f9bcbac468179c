//! The boot rule: which slot the next boot starts. The loader goes by this code ([`crate::run`]), and the installer foresees
//! with it. GRUB runs a script of its own, `assets/grub/grub.cfg`, so a change to one needs the same change to the other.

use crate::prelude::*;

use crate::{
    env::{BootEnv, Marker},
    slot::{PerSlot, Slot, SlotState},
};

/// Facts of a slot for the boot rule.
#[derive(Clone, Debug, Default)]
pub struct SlotView {
    /// Whether kernel, initramfs and slot.cfg match boot.sha256.
    pub verifies: bool,
    /// The slot's marker.
    pub marker: Option<Marker>,
}

/// The slot that the next boot starts.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "data", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema))]
pub struct NextBoot {
    /// The slot, or none if nothing can boot.
    pub slot: Option<Slot>,
    /// Whether it is a trial: booted once only, unless confirmed.
    pub trial: bool,
    /// The reason, as a sentence.
    pub why: String,
}

/// The slots that may boot while nothing is to be tried, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// The slot to boot.
    pub first: Slot,
    /// The slot to boot if that one does not start. None if it is not good.
    pub second: Option<Slot>,
}

impl Order {
    /// By the boot state. A trial that it has armed does not count here: see [`BootEnv::spent`].
    pub fn by_env(env: &BootEnv) -> Self {
        let (default, other) = (env.default, !env.default);
        match (env.states[default], env.states[other]) {
            // The other slot may boot only if it is good. Without it, the default is tried in any state.
            (_, state) if state != SlotState::Good => Order { first: default, second: None },
            (SlotState::Good, _) => Order { first: default, second: Some(other) },
            // The default is not good, but the other slot is.
            _ => Order { first: other, second: Some(default) },
        }
    }

    /// By the slots' markers: both copies of the boot state are lost.
    pub fn by_markers(markers: &PerSlot<Option<Marker>>) -> Self {
        let good =
            PerSlot::new(|s| markers[s].as_ref().filter(|marker| marker.state == SlotState::Good).map(|m| m.seq));
        let (first, second) = match (good.a, good.b) {
            // Both are good: the one with the higher sequence number was the default last.
            (Some(a), Some(b)) if b > a => (Slot::B, Some(Slot::A)),
            // Nothing says which slot was good: one that verifies.
            (Some(_), Some(_)) | (None, None) => (Slot::A, Some(Slot::B)),
            (Some(_), None) => (Slot::A, None),
            (None, Some(_)) => (Slot::B, None),
        };
        Order { first, second }
    }

    /// The slots, in this order.
    pub fn slots(self) -> impl Iterator<Item = Slot> {
        [Some(self.first), self.second].into_iter().flatten()
    }
}

/// Predict the next boot. It cannot foresee a kernel panic, or a firmware that fails to save boot.env: then the trial is
/// skipped.
pub fn next_boot(env: Option<&BootEnv>, slots: &PerSlot<SlotView>) -> NextBoot {
    let Some(env) = env else {
        return without_env(slots);
    };
    let mut failed = String::new();
    let spent = env.spent();
    if let Some((trial, _)) = spent {
        if !env.check || slots[trial].verifies {
            return NextBoot { slot: Some(trial), trial: true, why: format!("slot {trial} is to be tried once") };
        }
        failed = format!("slot {trial} was due for a trial but does not verify; ");
    }
    // A trial that does not start is spent all the same.
    let env = spent.as_ref().map_or(env, |(_, spent)| spent);
    let (default, other) = (env.default, !env.default);
    for slot in Order::by_env(env).slots() {
        if !env.check || slots[slot].verifies {
            let why = match (slot == default, env.states[default]) {
                (true, _) => format!("{failed}slot {slot} is the default"),
                (false, SlotState::Good) => {
                    format!("{failed}the default, slot {default}, does not verify; slot {slot} is good")
                }
                (false, s) => format!("{failed}the default, slot {default}, is {}; slot {slot} is good", s.plain()),
            };
            return NextBoot { slot: Some(slot), trial: false, why };
        }
    }
    let why = format!(
        "{failed}slot {default} is the default but does not verify, slot {other} is {}",
        env.states[other].plain()
    );
    NextBoot { slot: None, trial: false, why }
}

fn without_env(slots: &PerSlot<SlotView>) -> NextBoot {
    let markers = PerSlot::new(|s| slots[s].marker.clone());
    let slot = Order::by_markers(&markers).slots().find(|s| slots[*s].verifies);
    let good = |s: Slot| markers[s].as_ref().is_some_and(|marker| marker.state == SlotState::Good);
    let why = match slot {
        Some(s) if good(s) => {
            format!("both copies of the boot state are lost; slot {s} is marked good, and starts")
        }
        Some(s) => format!("both copies of the boot state are lost and no slot is marked good; slot {s} starts"),
        None => "both copies of the boot state are lost and no slot that may boot verifies".to_owned(),
    };
    NextBoot { slot, trial: false, why }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(default: Slot, once: Option<Slot>, a: SlotState, b: SlotState) -> BootEnv {
        BootEnv { seq: 7, default, once, states: PerSlot { a, b }, ..BootEnv::installed(0) }
    }

    fn view(a: bool, b: bool) -> PerSlot<SlotView> {
        PerSlot { a: SlotView { verifies: a, marker: None }, b: SlotView { verifies: b, marker: None } }
    }

    #[test]
    fn corners_of_the_rule() {
        use Slot::{A, B};
        use SlotState::{Bad, Empty, Good, Tried, Untried};
        let boot = |e: BootEnv, v: PerSlot<SlotView>| {
            let next = next_boot(Some(&e), &v);
            (next.slot, next.trial)
        };
        assert_eq!(boot(env(A, None, Good, Empty), view(true, false)), (Some(A), false));
        assert_eq!(boot(env(A, Some(B), Good, Untried), view(true, true)), (Some(B), true));
        assert_eq!(boot(env(A, Some(B), Good, Untried), view(true, false)), (Some(A), false));
        assert_eq!(boot(env(A, None, Good, Good), view(false, true)), (Some(B), false));
        assert_eq!(boot(env(A, None, Good, Tried), view(false, true)), (None, false));
        assert_eq!(boot(env(A, None, Bad, Good), view(true, true)), (Some(B), false));
        assert_eq!(boot(env(B, None, Good, Good), view(true, true)), (Some(B), false));
        assert_eq!(boot(BootEnv { check: false, ..env(A, None, Good, Empty) }, view(false, false)), (Some(A), false));
    }

    #[test]
    fn without_boot_env_the_markers_decide() {
        let marker = |seq| Some(Marker { state: SlotState::Good, seq });
        let mut v = view(true, true);
        assert_eq!(next_boot(None, &v).slot, Some(Slot::A));
        v.b.marker = marker(3);
        assert_eq!(next_boot(None, &v).slot, Some(Slot::B));
        v.a.marker = marker(4);
        assert_eq!(next_boot(None, &v).slot, Some(Slot::A));
        v.a.verifies = false;
        assert_eq!(next_boot(None, &v).slot, Some(Slot::B));
        v.b.verifies = false;
        assert_eq!(next_boot(None, &v).slot, None);
    }
}
