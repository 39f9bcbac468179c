//! The objects of the API server: each with a version, and a write names the version that it was computed from.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    rc::Rc,
};

use jiff::Timestamp;
use slipway_node::cordon::NodeState;
use slipway_rollout::{
    attempts::History,
    facts::{Approval, Interruption, Retry},
    ledger::{Ledger, Node},
    plan::Plan,
};

use crate::{clock::Seconds, policies::Terms};

/// The oldest version that a watch may begin at.
const KEPT: Seconds = 3 * 3600;

/// An object with its version.
#[derive(Clone, Debug)]
pub struct Versioned<T> {
    pub version: u64,
    pub object: Rc<T>,
}

impl<T> Versioned<T> {
    fn new(object: T) -> Self {
        Self { version: 1, object: Rc::new(object) }
    }

    /// Compare and set. False if another writer was first.
    pub fn write(&mut self, version: u64, object: T) -> bool {
        let is_same = self.version == version;
        if is_same {
            self.put(object);
        }
        is_same
    }

    pub fn put(&mut self, object: T) {
        (self.version, self.object) = (self.version + 1, Rc::new(object));
    }
}

/// A rollout, with what people want of it.
#[derive(Clone, Debug)]
pub struct Rollout {
    pub plan: Plan,
    pub passed: usize,
    /// By a person.
    pub paused: Option<String>,
    /// By the controllers themselves.
    pub stopped: Option<String>,
    pub denied: Option<String>,
    pub finished: bool,
    pub soaking_since: Option<Timestamp>,
    pub interruption: Option<Interruption>,
    pub retry: Option<Retry>,
    pub attempts: History,
    pub aborted: Option<String>,
    /// People want it to go now, until then, and pass over the soak of this wave.
    pub window_override: Option<(Seconds, Option<usize>)>,
    pub skip: BTreeSet<String>,
    /// People's approvals. They stay.
    pub approvals: Vec<Approval>,
    /// Tokens of grants that people want to be free, by UID. They are never taken out.
    pub words: BTreeMap<String, u64>,
}

/// A Node object.
#[derive(Clone, Debug)]
pub struct Object {
    pub node: Node,
    pub state: NodeState,
    /// People's wish for `unschedulable` when no operation works on it.
    pub want: bool,
}

/// The objects of a watch: the nodes, and the policies of each pool.
#[derive(Clone, Debug)]
pub struct Listing {
    pub nodes: Vec<Node>,
    pub terms: Vec<Rc<Terms>>,
}

/// The API server.
pub struct Api {
    pub ledger: Versioned<Ledger>,
    pub rollouts: Vec<Versioned<Rollout>>,
    /// By name.
    pub nodes: BTreeMap<String, Object>,
    pub terms: Vec<Rc<Terms>>,
    /// It gives no answer until then.
    pub down_until: Seconds,
    history: VecDeque<(Seconds, Rc<Listing>)>,
}

impl Api {
    /// With these nodes and policies, and no rollout yet.
    pub fn new(nodes: &[Node], terms: Vec<Rc<Terms>>) -> Self {
        let object = |node: &Node| {
            let object = Object { node: node.clone(), state: NodeState::default(), want: false };
            (node.name.clone(), object)
        };
        let nodes = nodes.iter().map(object).collect();
        let ledger = Versioned::new(Ledger::default());
        let mut api = Self { ledger, rollouts: Vec::new(), nodes, terms, down_until: 0, history: VecDeque::new() };
        api.changed(0);
        api
    }

    /// A rollout is made.
    pub fn begin(&mut self, plan: Plan) {
        let (paused, stopped, denied, aborted, window_override) = (None, None, None, None, None);
        let (skip, words, approvals) = (BTreeSet::new(), BTreeMap::new(), Vec::new());
        let rollout = Rollout {
            plan,
            passed: 0,
            paused,
            stopped,
            denied,
            finished: false,
            soaking_since: None,
            interruption: None,
            retry: None,
            attempts: History::default(),
            aborted,
            window_override,
            skip,
            approvals,
            words,
        };
        self.rollouts.push(Versioned::new(rollout));
    }

    /// A person changes a rollout, whatever it is now.
    pub fn edit(&mut self, pool: usize, change: impl FnOnce(&mut Rollout)) {
        let Some(at) = self.rollouts.get_mut(pool) else { return };
        let mut rollout = Rollout::clone(&at.object);
        change(&mut rollout);
        at.put(rollout);
    }

    /// Nodes came or went, or policies were edited: watches tell of it.
    pub fn changed(&mut self, now: Seconds) {
        let nodes = self.nodes.values().map(|object| object.node.clone()).collect();
        self.history.push_back((now, Rc::new(Listing { nodes, terms: self.terms.clone() })));
        while self.history.len() > 1 && self.history.get(1).is_some_and(|(at, _)| *at + KEPT < now) {
            self.history.pop_front();
        }
    }

    /// The objects that a watch of this age shows.
    pub fn listing(&self, at: Seconds) -> Option<Rc<Listing>> {
        let of_then = self.history.iter().rev().find(|(since, _)| *since <= at);
        of_then.or(self.history.front()).map(|(_, listing)| Rc::clone(listing))
    }

    /// True if there is a Node with this UID.
    pub fn exists(&self, uid: &str) -> bool {
        self.nodes.values().any(|object| object.node.uid == uid)
    }

    /// True if the Node of this name has this UID.
    pub fn exists_as(&self, name: &str, uid: &str) -> bool {
        self.nodes.get(name).is_some_and(|object| object.node.uid == uid)
    }
}
