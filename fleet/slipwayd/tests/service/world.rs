//! A machine of a few lines: two slots and the boot rule. It crashes where a test says.

use slipway_core::{
    boot::slot::{PerSlot, Slot, SlotState},
    digest::Sha256,
};
use slipway_node::{
    cordon::{self, NodeState},
    facts::{Disk, Facts},
    operation::{Installed, Learned, Moved, Operation, Tried},
    step::Step,
};
use slipwayd::world::{Watcher, World};

/// The machine.
#[derive(Clone)]
pub struct Machine {
    pub boot: u32,
    pub disk: Disk,
    pub default: Slot,
    pub node: NodeState,
    /// Steps that were done, in their order.
    pub did: Vec<Step>,
    /// The new system is not well.
    pub sick: bool,
    /// A step that is blocked.
    pub blocked: Option<Step>,
    /// A step that fails.
    pub fails: Option<Step>,
    pub uptime: u64,
    /// The token that the ledger names as this node's grant.
    pub grant: Option<u64>,
}

pub fn payload(name: &str) -> Sha256 {
    Sha256::of(name.as_bytes())
}

impl Machine {
    /// Slot A runs `old`.
    pub fn new() -> Self {
        let disk = Disk {
            running: Slot::A,
            states: PerSlot { a: Some(SlotState::Good), b: Some(SlotState::Empty) },
            payloads: PerSlot { a: Some(payload("old")), b: None },
            next: Some(Slot::A),
            versions: PerSlot { a: None, b: None },
            components: PerSlot::default(),
            blank: false,
        };
        let node = NodeState::default();
        Self {
            boot: 1,
            disk,
            default: Slot::A,
            node,
            did: vec![],
            sick: false,
            blocked: None,
            fails: None,
            uptime: 100,
            grant: Some(7),
        }
    }

    /// Power off and on: what the boot rule makes of it.
    pub fn power_cut(&mut self) {
        (self.boot, self.uptime) = (self.boot + 1, 10);
        let tries = self.disk.next.filter(|next| self.disk.states[*next] == Some(SlotState::Untried));
        if let Some(slot) = tries {
            self.disk.states[slot] = Some(SlotState::Tried);
        }
        self.disk.running = tries.unwrap_or(self.default);
        self.disk.next = Some(self.default);
    }

    fn do_it(&mut self, step: Step, op: &Operation) -> Learned {
        let other = !self.disk.running;
        match step {
            Step::Stage => {
                self.disk.states[other] = Some(SlotState::Untried);
                self.disk.payloads[other] = Some(payload("new"));
                return Learned::Staged(Installed { slot: other, payload: Some(payload("new")) }, Moved::default());
            }
            Step::Cordon => self.node = cordon::cordoned(&self.node, op.id()).unwrap(),
            Step::Uncordon => self.node = cordon::released(&self.node, op.id()),
            Step::Activate => self.disk.next = Some(other),
            Step::Deactivate => self.disk.next = Some(self.default),
            Step::GiveUp => self.disk.states[self.disk.running] = Some(SlotState::Bad),
            Step::Confirm => {
                self.disk.states[self.disk.running] = Some(SlotState::Good);
                self.default = self.disk.running;
                self.disk.next = Some(self.default);
            }
            Step::Reboot | Step::Return => self.power_cut(),
            _ => {}
        }
        Learned::Nothing
    }
}

impl World for Machine {
    fn facts(&mut self, _op: Option<&Operation>) -> Facts {
        self.uptime += 1;
        let (disk, node) = (Some(self.disk.clone()), Some(self.node.clone()));
        Facts {
            boot: self.boot.to_string(),
            uptime: self.uptime,
            disk,
            node,
            member: None,
            grant: self.grant,
            unread: None,
        }
    }

    fn perform(&mut self, step: Step, op: &Operation, _watcher: &dyn Watcher) -> Tried {
        let is_blocked = self.blocked == Some(step) && op.left_as_is(&op.boot).is_none();
        if is_blocked || (self.sick && step == Step::Prove) {
            self.uptime += 300;
            return Tried::Blocked("it is not well".to_owned());
        }
        if self.fails == Some(step) {
            return Tried::Failed("it will not work".to_owned());
        }
        self.did.push(step);
        let was = self.boot;
        let learned = self.do_it(step, op);
        // The process ends with the machine: the outcome of the step is lost.
        if self.boot != was { Tried::Blocked("the machine goes down".to_owned()) } else { Tried::Done(learned) }
    }
}
