//! The members of etcd, one on each node of the control plane, and the lock in their store.

use slipway_node::quorum::{Answer, Cluster, Member};

/// A member.
#[derive(Clone, Debug)]
pub struct Peer {
    /// The machine it runs on.
    pub machine: usize,
    pub up: bool,
    /// The value of `Etcd::failures` when it last went down by no operation.
    pub failed: u64,
}

/// The cluster.
#[derive(Clone, Debug, Default)]
pub struct Etcd {
    pub peers: Vec<Peer>,
    /// The machine that leads.
    pub leader: usize,
    /// The machine that holds the upgrade lock. It has no end of its own.
    pub lock: Option<usize>,
    /// Counts members that went down by no operation, and changes of the member list by people.
    pub failures: u64,
    /// The value of `failures` after the last change of the member list.
    pub edited: u64,
}

impl Etcd {
    /// One on each of these machines.
    pub fn new(machines: impl Iterator<Item = usize>) -> Self {
        let peers: Vec<Peer> = machines.map(|machine| Peer { machine, up: true, failed: 0 }).collect();
        let leader = peers.first().map_or(0, |peer| peer.machine);
        Self { peers, leader, ..Self::default() }
    }

    /// It serves: a majority is up. Without members the store is somewhere else.
    pub fn serves(&self) -> bool {
        let up = self.peers.iter().filter(|peer| peer.up).count();
        self.peers.is_empty() || up > self.peers.len() / 2
    }

    /// The machine is a member.
    pub fn has(&self, machine: usize) -> bool {
        self.peers.iter().any(|peer| peer.machine == machine)
    }

    /// The member of this machine comes up, or goes down.
    pub fn set(&mut self, machine: usize, up: bool, is_ours: bool) {
        if !up && !is_ours {
            self.failures += 1;
        }
        let failures = self.failures;
        if let Some(peer) = self.peers.iter_mut().find(|peer| peer.machine == machine) {
            peer.up = up;
            if !up && !is_ours {
                peer.failed = failures;
            }
        }
        self.elect();
    }

    /// A leader that is gone is replaced.
    fn elect(&mut self) {
        if !self.peers.iter().any(|peer| peer.machine == self.leader && peer.up) {
            self.leader = self.peers.iter().find(|peer| peer.up).map_or(self.leader, |peer| peer.machine);
        }
    }

    /// A person takes the member of this machine out.
    pub fn remove(&mut self, machine: usize) {
        self.peers.retain(|peer| peer.machine != machine);
        self.edits();
        self.lock = self.lock.filter(|holder| *holder != machine);
        self.elect();
    }

    /// A new machine becomes a member.
    pub fn add(&mut self, machine: usize) {
        self.peers.push(Peer { machine, up: false, failed: 0 });
        self.edits();
    }

    fn edits(&mut self) {
        self.failures += 1;
        self.edited = self.failures;
    }

    /// The members' reports.
    pub fn seen(&self) -> Cluster {
        let id = |machine: usize| machine as u64 + 1;
        let leader = if self.serves() { id(self.leader) } else { 0 };
        let says = || Answer { leader, term: 3, applied: 100, ..Answer::default() };
        let member = |peer: &Peer| Member {
            id: id(peer.machine),
            name: format!("n{}", peer.machine),
            says: peer.up.then(says),
            ..Member::default()
        };
        Cluster { members: self.peers.iter().map(member).collect(), alarms: Vec::new() }
    }
}
