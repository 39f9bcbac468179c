//! The facts that a node observes of itself before each decision.

use serde::{Deserialize, Serialize};
use slipway_core::{
    boot::slot::{PerSlot, Slot, SlotState},
    digest::Sha256,
    payload::components::Components,
};

use crate::cordon::NodeState;

/// The facts that a node observes of itself. An unknown fact is `None`, and never counts as well. By default nothing is known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Facts {
    /// Which boot this is: `/proc/sys/kernel/random/boot_id`.
    pub boot: String,
    /// Seconds since the kernel started.
    pub uptime: u64,
    /// The disk's slots.
    pub disk: Option<Disk>,
    /// The Node object; only looked at before a step that needs it.
    pub node: Option<NodeState>,
    /// Our member of etcd; only looked at before a step that needs it.
    pub member: Option<u64>,
    /// The token of the grant that the fleet's ledger names as this node's; only looked at before a request with a token is
    /// taken.
    pub grant: Option<u64>,
    /// Why the Node, or the member, could not be looked at.
    #[serde(default)]
    pub unread: Option<String>,
}

/// The slots of the disk that the node runs from.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Disk {
    /// The slot that runs.
    pub running: Slot,
    /// By boot.env.
    pub states: PerSlot<Option<SlotState>>,
    /// The digest that names each slot's payload.
    pub payloads: PerSlot<Option<Sha256>>,
    /// The version of the OS in each slot.
    pub versions: PerSlot<Option<String>>,
    /// The versions of programs that the payload in each slot names.
    pub components: PerSlot<Components>,
    /// The next boot; `None` if nothing would boot.
    pub next: Option<Slot>,
    /// Making EPHEMERAL anew was cut short, and it is still blank.
    pub blank: bool,
}

impl Disk {
    /// True if the system that runs is not confirmed: without `confirm` the next boot is the other one.
    pub fn is_on_trial(&self) -> bool {
        matches!(self.states[self.running], Some(SlotState::Tried | SlotState::Untried))
    }

    /// The payload that is whole in the slot that does not run: written and verified, or a system that was confirmed.
    pub fn staged(&self) -> Option<Sha256> {
        let other = !self.running;
        self.payloads[other].filter(|_| matches!(self.states[other], Some(SlotState::Untried | SlotState::Good)))
    }

    /// True if the system that runs is one that stays.
    pub fn is_good(&self) -> bool {
        self.states[self.running] == Some(SlotState::Good)
    }
}
