//! The boot rule of `assets/grub/grub.cfg` as a function. GRUB runs its own script, so a change to one needs the same
//! change to the other.

use crate::prelude::*;

use serde::{Deserialize, Serialize};

use super::slot::{PerSlot, Slot, SlotState};
use crate::boot::env::{BootEnv, Marker};

/// What the boot rule finds in a slot.
#[derive(Clone, Debug, Default)]
pub struct SlotView {
    /// Whether kernel, initramfs and slot.cfg match boot.sha256.
    pub verifies: bool,
    /// The slot's marker.
    pub marker: Option<Marker>,
}

/// What the next boot starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct NextBoot {
    /// The slot, or none if nothing can boot.
    pub slot: Option<Slot>,
    /// Whether it is a trial: booted once only, unless confirmed.
    pub trial: bool,
    /// The reason, as a sentence.
    pub why: String,
}

/// Predict the next boot. It cannot foresee a kernel panic, or a firmware that fails to save boot.env: then GRUB skips
/// the trial.
pub fn next_boot(env: Option<&BootEnv>, slots: &PerSlot<SlotView>) -> NextBoot {
    let Some(env) = env else {
        return without_env(slots);
    };
    let mut failed = String::new();
    if let Some(trial) = env.once {
        if !env.check || slots[trial].verifies {
            return NextBoot { slot: Some(trial), trial: true, why: format!("slot {trial} is to be tried once") };
        }
        failed = format!("slot {trial} was due for a trial but does not verify; ");
    }
    // A trial that does not start costs GRUB one reboot. By then it has cleared `once` and marked the slot `tried`.
    let state = |slot| match env.once {
        Some(trial) if trial == slot => SlotState::Tried,
        _ => env.states[slot],
    };
    let (default, other) = (env.default, !env.default);
    let order = match (state(default), state(other)) {
        // The other slot may boot only if it is good. Without it, the default is tried whatever its state.
        (_, s) if s != SlotState::Good => vec![default],
        (SlotState::Good, _) => vec![default, other],
        // The default is not good, but the other slot is.
        _ => vec![other, default],
    };
    for slot in order {
        if !env.check || slots[slot].verifies {
            let why = match (slot == default, state(default)) {
                (true, _) => format!("{failed}slot {slot} is the default"),
                (false, SlotState::Good) => {
                    format!("{failed}the default, slot {default}, does not verify; slot {slot} is good")
                }
                (false, s) => format!("{failed}the default, slot {default}, is {}; slot {slot} is good", s.plain()),
            };
            return NextBoot { slot: Some(slot), trial: false, why };
        }
    }
    let why =
        format!("{failed}slot {default} is the default but does not verify, slot {other} is {}", state(other).plain());
    NextBoot { slot: None, trial: false, why }
}

fn without_env(slots: &PerSlot<SlotView>) -> NextBoot {
    let good = PerSlot::new(|s| {
        let marker = slots[s].marker.as_ref()?;
        (marker.state == SlotState::Good).then_some(marker.seq)
    });
    let order = match (good.a, good.b) {
        // Both are good: the one with the higher sequence number was the default last.
        (Some(a), Some(b)) if b > a => vec![Slot::B, Slot::A],
        (Some(_), Some(_)) | (None, None) => vec![Slot::A, Slot::B],
        (Some(_), None) => vec![Slot::A],
        (None, Some(_)) => vec![Slot::B],
    };
    let slot = order.into_iter().find(|s| slots[*s].verifies);
    let why = match slot {
        Some(s) if good[s].is_some() => {
            format!("both copies of the boot state are lost; slot {s} is marked good and verifies")
        }
        Some(s) => format!("both copies of the boot state are lost and no slot is marked good; slot {s} verifies"),
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
        use SlotState::{Bad, Empty, Good, Trial, Tried};
        let boot = |e: BootEnv, v: PerSlot<SlotView>| {
            let next = next_boot(Some(&e), &v);
            (next.slot, next.trial)
        };
        assert_eq!(boot(env(A, None, Good, Empty), view(true, false)), (Some(A), false));
        assert_eq!(boot(env(A, Some(B), Good, Trial), view(true, true)), (Some(B), true));
        assert_eq!(boot(env(A, Some(B), Good, Trial), view(true, false)), (Some(A), false));
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
