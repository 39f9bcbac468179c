//! Three members of etcd, one on each node, and the lock in their store.

use slipway_node::quorum::{Answer, Cluster, Member};

use crate::world::disk::Disk;

/// The number of nodes.
pub const NODES: usize = 3;

/// A member of etcd, and the node's part of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Peer {
    pub listed: bool,
    pub learner: bool,
    /// It runs, and has caught up.
    pub up: bool,
}

/// The state that all nodes share.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Etcd {
    pub peers: [Peer; NODES],
    /// The node that leads.
    pub leader: usize,
    /// The node that holds the lock.
    pub lock: Option<usize>,
}

impl Etcd {
    pub fn new() -> Self {
        let peer = Peer { listed: true, learner: false, up: true };
        Self { peers: [peer.clone(), peer.clone(), peer], leader: 0, lock: None }
    }

    fn voters(&self) -> impl Iterator<Item = (usize, &Peer)> {
        self.peers.iter().enumerate().filter(|(_, peer)| peer.listed && !peer.learner)
    }

    /// Voters that are up, and how many etcd needs.
    pub fn quorum(&self) -> (usize, usize) {
        (self.voters().filter(|(_, peer)| peer.up).count(), self.voters().count() / 2 + 1)
    }

    /// It serves: nothing is read or written without a quorum.
    pub fn serves(&self) -> bool {
        let (up, needed) = self.quorum();
        up >= needed
    }

    /// A leader that is gone is replaced.
    pub fn elect(&mut self) {
        let leads = self.voters().any(|(n, peer)| n == self.leader && peer.up);
        let next = self.voters().find(|(_, peer)| peer.up).map(|(n, _)| n);
        if let Some(next) = next.filter(|_| !leads) {
            self.leader = next;
        }
    }

    /// The answers of the members.
    pub fn seen(&self) -> Cluster {
        let leader = if self.serves() { self.leader as u64 + 1 } else { 0 };
        let says = || Answer { leader, term: 3, applied: 100, ..Answer::default() };
        let members = self.peers.iter().enumerate().filter(|(_, peer)| peer.listed).map(|(n, peer)| Member {
            id: n as u64 + 1,
            name: format!("node-{n}"),
            learner: peer.learner,
            says: peer.up.then(says),
            ..Member::default()
        });
        Cluster { members: members.collect(), alarms: Vec::new() }
    }
}

/// The disk of each node at first.
pub fn disk() -> Disk {
    Disk::new(slipway_core::boot::slot::SlotState::Empty, None)
}
