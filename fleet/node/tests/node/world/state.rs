//! One state of the model: a node, the view that others have of it, and a memory of the past for the laws.

use std::sync::Arc;

use slipway_core::boot::slot::{Slot, SlotState};
use slipway_node::{
    cordon::NodeState, facts::Facts, journal::Journal, operation::Operation, request::Goal, sequence::Outcome,
    step::Step,
};

use super::{
    disk::{Disk, Ephemeral, OLD, TARGET, digest},
    machine::TOKEN,
};

/// Who holds the lock in etcd.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lock {
    Free,
    Ours,
    Others,
}

/// The health of a system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Well {
    No,
    /// The member of etcd is: it votes and has caught up. Units or the kubelet are not.
    Member,
    All,
}

/// One state.
#[derive(Clone, Debug, PartialEq, Hash)]
pub struct State {
    pub disk: Disk,
    /// Which boot this is. Numbers that nothing refers to any more are used again.
    pub boot: u8,
    /// The journal, on the medium and in memory: each change is written before the node acts on it.
    pub journal: Arc<Journal>,
    /// The step that the journal announces and that is to be done now.
    pub to_do: Option<Step>,
    pub well: Well,
    /// Services were stopped in this boot.
    pub stopped: bool,
    /// EPHEMERAL is mounted.
    pub mounted: bool,
    /// Our member is in etcd's member list.
    pub member: bool,
    /// A person has taken it out for good.
    pub removed: bool,
    pub node: NodeState,
    pub lock: Lock,
    /// The fleet's grant is ours.
    pub grant: bool,
    /// The last look before services stop was made in this boot, and the grant was there.
    pub rechecked: bool,
    /// The target is never well.
    pub ill: bool,
    /// The target was denied before.
    pub denied: bool,
    /// Pods were evicted, and the machine was not started anew since.
    pub drained: bool,
    /// The system was found well in this boot.
    pub proven: bool,
    /// The last step of this boot was a look at the system, and it was not well.
    pub found_ill: bool,
    /// The machine was started anew, or services were stopped, and the system was not found well since.
    pub disturbed: bool,
    /// The same of the member of etcd alone.
    pub member_disturbed: bool,
    pub rebooted: bool,
    /// The target was booted as a trial.
    pub tried: bool,
    /// Another program changed the slots.
    pub meddled: bool,
    /// The value of `unschedulable` when no operation works on the node: a person's last wish.
    pub want: bool,
    /// The last step was not done.
    pub unsettled: bool,
    /// Faults that may yet happen.
    pub left: u8,
    /// A law that was broken on the way here.
    pub broken: Option<&'static str>,
}

impl State {
    pub fn op(&self) -> Option<&Operation> {
        self.journal.operation.as_ref()
    }

    pub fn broken_unless(&mut self, holds: bool, law: &'static str) {
        if !holds && self.broken.is_none() {
            self.broken = Some(law);
        }
    }

    /// Something is given back.
    pub fn frees(&mut self, anything: bool) {
        let is_well = !self.disturbed || self.op().is_some_and(|op| self.has_word(op));
        self.broken_unless(!anything || is_well, "nothing is given back before the node is well, or an admin says so");
    }

    /// An admin has accepted the node as it is in this boot.
    pub fn has_word(&self, op: &Operation) -> bool {
        op.as_is.as_ref().is_some_and(|as_is| as_is.boot == self.boot.to_string())
    }

    /// Services stop, or the machine starts anew.
    pub fn is_disturbed(&mut self) {
        (self.well, self.disturbed, self.member_disturbed) = (Well::No, true, true);
    }

    /// The machine starts anew.
    pub fn boots(&mut self, saves: bool) {
        self.disk.boots(saves);
        self.tried |= self.disk.is_trial() && self.disk.runs() == Some(TARGET);
        self.boot = crate::next_boot(self.boot, self.op());
        (self.to_do, self.unsettled) = (None, false);
        (self.stopped, self.drained, self.rebooted) = (false, false, true);
        (self.proven, self.found_ill, self.rechecked) = (false, false, false);
        // A file system that is not there is not mounted.
        self.mounted = self.disk.ephemeral != Ephemeral::Blank;
        self.is_disturbed();
    }

    /// The node's view of itself.
    pub fn facts(&self, uptime: u64) -> Facts {
        Facts {
            boot: self.boot.to_string(),
            uptime,
            disk: Some(self.disk.seen()),
            node: Some(self.node.clone()),
            member: self.member.then_some(7),
            grant: self.grant.then_some(TOKEN),
            unread: None,
        }
    }

    /// The best health that the running system can have. etcd keeps its data in EPHEMERAL.
    pub fn can_be(&self) -> Well {
        let is_ill = self.ill && self.disk.runs() == Some(TARGET);
        match () {
            () if self.stopped || !self.mounted || self.removed => Well::No,
            () if is_ill => Well::Member,
            () => Well::All,
        }
    }

    /// The journal reaches the medium, beside the copy that counts until then. What is left of one that is not written
    /// whole is in the laws of the journal.
    pub fn write(&mut self, journal: Journal) {
        let journal = Journal { seq: self.journal.seq + 1, ..journal };
        let copies = [Some(Journal::clone(&self.journal)), Journal::decode(&journal.encode().unwrap()).ok()];
        let read = Journal::newest(copies.into_iter().flatten());
        self.broken_unless(read.as_ref() == Some(&journal), "a journal that was written is what is read");
        // Numbers count for ever; which of two is larger is all that matters.
        self.journal = Arc::new(Journal { seq: 0, ..journal });
    }

    /// The operation is over.
    pub fn ended(&mut self, op: &Operation, outcome: &Outcome) {
        let goal = op.request.goal;
        let disk = self.disk.clone();
        let is_default = disk.default == disk.running && disk.states[disk.running] == SlotState::Good;
        let staged = Slot::BOTH.into_iter().any(|slot| disk.payloads[slot] == Some(TARGET));
        let is_so = match (outcome, goal) {
            (Outcome::Reached, Goal::Stage) => staged || self.meddled,
            (Outcome::Reached, Goal::Upgrade) => is_default && disk.once.is_none() && disk.runs() == Some(TARGET),
            (Outcome::Reached, Goal::Rollback) => is_default && disk.running == Slot::B,
            (Outcome::Reached, Goal::Reboot) => self.rebooted && disk.runs() == Some(OLD),
            (Outcome::Left(why), _) => !why.is_empty() && self.has_word(op),
            (Outcome::Later(_), _) | (Outcome::Reached, Goal::Later) => false,
            (Outcome::CameBack(why), _) => {
                !why.is_empty() && (self.meddled || (disk.runs() == Some(OLD) && is_default && disk.once.is_none()))
            }
        };
        self.broken_unless(is_so, "an outcome is so on the disk");
        let is_undone = self.member != self.removed && self.lock != Lock::Ours;
        self.broken_unless(is_undone, "at the end nothing is held, and the member is in etcd unless it was removed");
        // The end is what tells the fleet that its grant is free.
        let is_obeyed = op.request.token.is_none_or(|token| self.journal.token == token);
        self.broken_unless(is_obeyed, "at the end the token was obeyed, whatever came of it");
        let is_well = !self.disturbed || goal == Goal::Stage || self.has_word(op);
        self.broken_unless(is_well, "nothing ends before the node is well, or an admin says so");
        let is_kept = disk.ephemeral == Ephemeral::Kept;
        let is_as_asked = self.mounted && (op.request.preserve == is_kept || *outcome != Outcome::Reached);
        self.broken_unless(is_as_asked, "at the end EPHEMERAL is mounted, and anew if that was asked for");
        let ours = op.id().to_string();
        let is_as_before = self.node.unschedulable == self.want && self.node.owner != Some(ours);
        self.broken_unless(is_as_before, "at the end the cordon is what it was before, or what a person made of it");
        // A system that a person has confirmed is not judged.
        let is_confirmed = disk.states[disk.running] == SlotState::Good && disk.runs() == Some(TARGET);
        // An abort is no verdict, but only where it is the reason of the way back.
        let is_aborted = match outcome {
            Outcome::CameBack(why) | Outcome::Left(why) => {
                op.abort.as_ref().is_some_and(|abort| why.starts_with(abort))
            }
            Outcome::Reached | Outcome::Later(_) => false,
        };
        let in_vain = self.tried && *outcome != Outcome::Reached && !is_aborted && !is_confirmed;
        let is_denied = self.journal.denial(digest(TARGET)).is_some();
        // Who put something else into the slot took the evidence away: then nothing is said of it.
        let is_judged = is_denied == (self.denied || in_vain) || (self.meddled && !is_denied);
        self.broken_unless(is_judged, "what was tried in vain is denied, and nothing else");
    }
}
