//! Nodes that run the real sequence against one etcd.

use std::sync::Arc;

use slipway_core::boot::slot::SlotState;
use slipway_node::{
    facts::Facts,
    journal::Journal,
    operation::{Installed, Learned, Moved, Operation, Shape, Tried},
    quorum::Going,
    request::Goal,
    sequence::{Limits, Next, next},
    step::Step,
};
use stateright::{Model, Property};

use super::model::{Etcd, NODES, disk};
use crate::world::{
    disk::{Disk, TARGET, digest},
    machine::LATE,
};

/// One node.
#[derive(Clone, Debug, PartialEq, Hash)]
pub struct Node {
    pub disk: Disk,
    pub boot: u8,
    pub journal: Arc<Journal>,
    pub to_do: Option<Step>,
    /// Services were stopped in this boot.
    pub stopped: bool,
    /// It went down by its operation, and was not found well since.
    pub away: bool,
    /// Another member failed since this node's last look.
    pub late: bool,
}

/// One state.
#[derive(Clone, Debug, PartialEq, Hash)]
pub struct State {
    pub nodes: Vec<Node>,
    pub etcd: Etcd,
    pub left: u8,
    pub broken: Option<&'static str>,
}

/// One thing that can happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Decide(usize),
    Do(usize),
    /// A member is up, and has caught up.
    Up(usize),
    /// A fault: a step does not work.
    Fails(usize),
    /// A fault: more time goes by than a step may take.
    TimeOver(usize),
    /// A fault: power is cut.
    PowerCut(usize),
    /// A fault: a member fails by itself.
    FallIll(usize),
    /// The lock is freed by time.
    Expires,
}

/// The model: a request for each node, `preserve` or not.
pub struct Nodes {
    pub preserve: Vec<bool>,
    pub faults: u8,
    /// Forbidden: the lock has an end of its own.
    pub ttl: bool,
}

impl Nodes {
    fn journal(&self, n: usize) -> Node {
        let mut journal = Journal::default();
        let facts = facts(&disk(), 0);
        let shape = Shape { kubernetes: false, etcd: true };
        journal.ask(crate::request(Goal::Upgrade, self.preserve[n], None), shape, &facts).unwrap();
        let journal = Arc::new(journal);
        Node { disk: disk(), boot: 0, journal, to_do: None, stopped: false, away: false, late: false }
    }
}

fn facts(disk: &Disk, boot: u8) -> Facts {
    Facts { boot: boot.to_string(), uptime: 0, disk: Some(disk.seen()), ..Facts::default() }
}

impl State {
    fn decide(&mut self, n: usize, uptime: u64) -> Option<()> {
        let node = &mut self.nodes[n];
        let member = self.etcd.peers[n].listed.then_some(n as u64 + 1);
        let facts = Facts { uptime, member, ..facts(&node.disk, node.boot) };
        let op = node.journal.operation.as_ref().filter(|_| node.to_do.is_none())?;
        let next = next(op, &facts, Limits::default());
        if uptime == LATE && !matches!(next, Next::TurnBack(_)) {
            return None;
        }
        let mut journal = Journal::clone(&node.journal);
        node.to_do = journal.take(next, &facts);
        node.journal = Arc::new(journal);
        let is_over = node.journal.operation.is_none();
        let peer = &self.etcd.peers[n];
        if is_over && (!peer.listed || peer.learner || self.etcd.lock == Some(n)) {
            self.broken.get_or_insert("a node that is done is a voter, and holds nothing");
        }
        Some(())
    }

    fn settle(&mut self, n: usize, tried: Tried) {
        let mut journal = Journal::clone(&self.nodes[n].journal);
        crate::settle(&mut journal, tried);
        self.nodes[n].journal = Arc::new(journal);
    }

    fn boots(&mut self, n: usize) {
        let node = &mut self.nodes[n];
        node.disk.boots(true);
        node.boot = crate::next_boot(node.boot, node.journal.operation.as_ref());
        (node.to_do, node.stopped) = (None, false);
        self.etcd.peers[n].up = false;
    }

    /// A member fails, and not because an operation would have it.
    fn fails(&mut self, n: usize) {
        for (other, node) in self.nodes.iter_mut().enumerate() {
            let op = node.journal.operation.as_ref();
            let has_looked = op.is_some_and(|op| op.at > Step::Recheck || (op.at == Step::Recheck && op.done));
            node.late |= other != n && has_looked;
        }
    }

    /// The member of `n` goes, because its operation says so.
    fn goes(&mut self, n: usize, listed: bool) {
        let held = self.etcd.lock == Some(n);
        let others = self.nodes.iter().enumerate().any(|(other, node)| other != n && node.away);
        let served = self.etcd.serves();
        (self.etcd.peers[n].up, self.etcd.peers[n].listed) = (false, listed);
        let node = &mut self.nodes[n];
        if !held || others {
            self.broken.get_or_insert("only the holder of the lock goes, and no other is away");
        }
        if served && !self.etcd.serves() && !node.late {
            self.broken.get_or_insert("a member that goes leaves a quorum");
        }
        node.away = true;
    }

    fn perform(&mut self, n: usize) -> Option<()> {
        let step = self.nodes[n].to_do.take()?;
        if matches!(step, Step::Reboot | Step::Return) {
            self.boots(n);
            return Some(());
        }
        let op = self.nodes[n].journal.operation.clone()?;
        let tried = self.tried(n, &op, step);
        self.settle(n, tried);
        Some(())
    }

    fn tried(&mut self, n: usize, op: &Operation, step: Step) -> Tried {
        let done = Tried::Done(Learned::Nothing);
        let not = |why: &str| Tried::Blocked(why.to_owned());
        let me = n as u64 + 1;
        match step {
            Step::Lock | Step::Unlock | Step::HandOver | Step::Leave | Step::Rejoin if !self.etcd.serves() => {
                return not("etcd does not serve");
            }
            Step::Lock if self.etcd.lock.is_some_and(|holder| holder != n) => return not("another holds the lock"),
            Step::Lock => self.etcd.lock = Some(n),
            Step::Unlock if self.etcd.lock == Some(n) => self.etcd.lock = None,
            Step::Gate | Step::Recheck => {
                let going = if op.request.preserve { Going::Down } else { Going::Away };
                if let Err(why) = self.etcd.seen().may_go(me, 100, going) {
                    return not(&why.to_string());
                }
                self.nodes[n].late = false;
            }
            Step::HandOver if self.etcd.leader == n => match self.etcd.seen().successor(me, 100) {
                Some(next) => self.etcd.leader = next as usize - 1,
                None => return not("no member can lead"),
            },
            Step::Leave => self.goes(n, false),
            Step::Stop => {
                let listed = self.etcd.peers[n].listed;
                self.goes(n, listed);
                self.nodes[n].stopped = true;
            }
            Step::Rejoin => return self.rejoin(n),
            Step::Prove | Step::ProveOld => {
                let peer = &self.etcd.peers[n];
                if !(peer.listed && peer.up && !peer.learner) {
                    return not("the member has not caught up");
                }
                self.nodes[n].away = false;
            }
            _ => return self.on_disk(n, step),
        }
        done
    }

    fn rejoin(&mut self, n: usize) -> Tried {
        let peer = &mut self.etcd.peers[n];
        if !peer.listed {
            (peer.listed, peer.learner) = (true, true);
        }
        if peer.learner && !peer.up {
            return Tried::Blocked("the learner has not caught up".to_owned());
        }
        peer.learner = false;
        Tried::Done(Learned::Nothing)
    }

    fn on_disk(&mut self, n: usize, step: Step) -> Tried {
        let disk = &mut self.nodes[n].disk;
        let running = disk.running;
        match step {
            Step::Stage => {
                (disk.states[!running], disk.payloads[!running]) = (SlotState::Untried, Some(TARGET));
                return Tried::Done(Learned::Staged(
                    Installed { slot: !running, payload: Some(digest(TARGET)) },
                    Moved::default(),
                ));
            }
            Step::Activate => disk.once = Some(!running),
            Step::Confirm => (disk.states[running], disk.default) = (SlotState::Good, running),
            Step::Deactivate => disk.once = None,
            Step::GiveUp => disk.states[running] = SlotState::Bad,
            _ => {}
        }
        Tried::Done(Learned::Nothing)
    }

    fn happens(&mut self, action: Action) -> Option<()> {
        match action {
            Action::Decide(n) => self.decide(n, 0)?,
            Action::Do(n) => self.perform(n)?,
            Action::Up(n) => {
                let is_stopped = self.nodes.get(n).is_some_and(|node| node.stopped);
                let peer = &mut self.etcd.peers[n];
                if peer.up || !peer.listed || is_stopped {
                    return None;
                }
                peer.up = true;
            }
            Action::Fails(n) => {
                self.nodes.get_mut(n)?.to_do.take()?;
                self.settle(n, Tried::Failed("it did not work".to_owned()));
            }
            Action::TimeOver(n) => self.decide(n, LATE)?,
            Action::PowerCut(n) => {
                self.fails(n);
                self.boots(n);
            }
            Action::FallIll(n) => {
                if !self.etcd.peers[n].up {
                    return None;
                }
                self.fails(n);
                self.etcd.peers[n].up = false;
            }
            Action::Expires => drop(self.etcd.lock.take()?),
        }
        self.etcd.elect();
        Some(())
    }

    /// All operations end when nothing goes wrong any more.
    fn ends(&self) -> bool {
        let mut state = self.clone();
        for _ in 0..400 {
            if state.nodes.iter().all(|node| node.journal.operation.is_none()) {
                return true;
            }
            for n in 0..NODES {
                let _ = state.happens(Action::Up(n));
            }
            for n in 0..state.nodes.len() {
                let action = if state.nodes[n].to_do.is_some() { Action::Do(n) } else { Action::Decide(n) };
                let _ = state.happens(action);
            }
        }
        false
    }
}

impl Model for Nodes {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let nodes = (0..self.preserve.len()).map(|n| self.journal(n)).collect();
        vec![State { nodes, etcd: Etcd::new(), left: self.faults, broken: None }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.broken.is_some() {
            return;
        }
        for n in 0..state.nodes.len() {
            actions.push(if state.nodes[n].to_do.is_some() { Action::Do(n) } else { Action::Decide(n) });
        }
        actions.extend((0..NODES).map(Action::Up));
        if self.ttl {
            actions.push(Action::Expires);
        }
        if state.left > 0 {
            for n in 0..state.nodes.len() {
                actions.extend([Action::Fails(n), Action::TimeOver(n), Action::PowerCut(n)]);
            }
            actions.extend((0..NODES).map(Action::FallIll));
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        state.happens(action)?;
        let is_fault = !matches!(action, Action::Decide(_) | Action::Do(_) | Action::Up(_) | Action::Expires);
        state.left -= u8::from(is_fault);
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(super::LAW, |_: &Nodes, state: &State| state.broken.is_none()),
            Property::always(super::QUORUM, |machine: &Nodes, state: &State| {
                state.left < machine.faults || state.etcd.serves()
            }),
            Property::always("in the end all nodes are done", |machine: &Nodes, state: &State| {
                machine.ttl || state.ends()
            }),
            Property::sometimes("all nodes reach it", |_: &Nodes, state: &State| {
                let runs = |node: &Node| node.journal.operation.is_none() && node.disk.runs() == Some(TARGET);
                state.nodes.iter().all(runs)
            }),
        ]
    }
}
