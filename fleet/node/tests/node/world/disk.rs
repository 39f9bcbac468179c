//! The disk of the model, which follows Slipway's boot rule. The rule is written down once more: nothing here calls
//! `slipway_core::boot::rule`.

use slipway_core::{
    boot::slot::{PerSlot, Slot, SlotState},
    digest::Sha256,
};
use slipway_node::facts;

/// The system that runs at first, in slot A.
pub const OLD: u8 = 1;
/// The requested system.
pub const TARGET: u8 = 2;
/// The system that slot B held before.
pub const OLDER: u8 = 3;
/// The payload that another program installs meanwhile.
pub const FOREIGN: u8 = 4;

/// The digest of a payload.
pub fn digest(payload: u8) -> Sha256 {
    Sha256([payload; 32])
}

/// The content of EPHEMERAL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ephemeral {
    /// The content before the upgrade.
    Kept,
    /// Making it anew was cut short: boot.env says so.
    Blank,
    Anew,
}

/// boot.env, and the contents of slots and EPHEMERAL.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Disk {
    pub running: Slot,
    pub default: Slot,
    pub once: Option<Slot>,
    pub states: PerSlot<SlotState>,
    pub payloads: PerSlot<Option<u8>>,
    pub ephemeral: Ephemeral,
}

impl Disk {
    /// Slot A runs; slot B is like this.
    pub fn new(b: SlotState, payload: Option<u8>) -> Self {
        let states = PerSlot { a: SlotState::Good, b };
        let payloads = PerSlot { a: Some(OLD), b: payload };
        Self { running: Slot::A, default: Slot::A, once: None, states, payloads, ephemeral: Ephemeral::Kept }
    }

    /// The next boot.
    pub fn next(&self) -> Slot {
        let is_good = |slot: Slot| self.states[slot] == SlotState::Good;
        self.once.unwrap_or(if is_good(self.default) || !is_good(!self.default) { self.default } else { !self.default })
    }

    /// GRUB runs. Where the firmware does not let it save, it skips the trial.
    pub fn boots(&mut self, saves: bool) {
        let trial = self.once.filter(|_| saves);
        self.running = match trial {
            Some(slot) => {
                (self.once, self.states[slot]) = (None, SlotState::Tried);
                slot
            }
            None => self.default,
        };
    }

    /// A trial runs.
    pub fn is_trial(&self) -> bool {
        self.states[self.running] == SlotState::Tried
    }

    /// The running system.
    pub fn runs(&self) -> Option<u8> {
        self.payloads[self.running]
    }

    /// As a node sees it.
    pub fn seen(&self) -> facts::Disk {
        facts::Disk {
            versions: PerSlot { a: None, b: None },
            components: PerSlot::default(),
            running: self.running,
            states: PerSlot::new(|slot| Some(self.states[slot])),
            payloads: PerSlot::new(|slot| self.payloads[slot].map(digest)),
            next: Some(self.next()),
            blank: self.ephemeral == Ephemeral::Blank,
        }
    }

    /// The next boot starts a system that is known to work, or tries a verified payload once; the system that a trial falls back
    /// to is the old system, whole. A trial has an EPHEMERAL.
    pub fn is_safe(&self) -> bool {
        let next = self.next();
        let is_due = self.once == Some(next) && self.states[next] == SlotState::Untried;
        let boots = (self.states[next] == SlotState::Good || is_due) && self.payloads[next].is_some();
        let falls_back = self.states[self.default] == SlotState::Good && self.payloads[self.default].is_some();
        let has_ephemeral = self.ephemeral != Ephemeral::Blank || (self.once.is_none() && !self.is_trial());
        boots && falls_back && has_ephemeral && self.states.a == SlotState::Good && self.payloads.a == Some(OLD)
    }
}
