//! The number of times that a rollout has granted a node. An attempt that ended before the reboot says nothing about the
//! payload, and is repeated in the next window, as often as it takes. Every other attempt counts: a node that comes back
//! again and again without a reason would keep the budget of its pool and the waves after its own.
//!
//! Only the ledger counts, nothing that a node says. A grant that is held is counted once, by its token: it is seen before
//! it is freed. So a write that is repeated, or done by two controllers, counts nothing twice. A node that says that it is
//! done does not begin at one again.
//!
//! The node says that an attempt ended before the reboot, or a person frees its grant. Then the attempt is taken out of the
//! count, once, and the node is deferred to the next window, whatever it says afterwards. So a node that lies gets one
//! grant in each window.
//!
//! A grant to go back is no attempt. One that ended before its reboot, or that a person has freed, defers the node in the same
//! way.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{ledger::Ledger, places::Places, plan::Plan};

/// So many grants a node gets in one rollout, if it never runs the payload. Then it counts as failed.
pub const MOST: u32 = 5;
/// So many nodes are remembered by their UIDs at most, those with most attempts first: a status has a limit.
pub const REMEMBERED: usize = 1000;

/// The grants of one node in one rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Attempts {
    /// The number of attempts that count.
    #[schemars(range(min = 0, max = 1_000_000))]
    pub count: u32,
    /// The token of the last one.
    #[schemars(range(min = 1, max = 9_007_199_254_740_991_u64))]
    pub token: u64,
    /// The last one ended before the reboot into the payload. It is not in the count, and is repeated in the next window.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deferred: bool,
}

impl Attempts {
    /// Only a person has it tried again.
    pub fn is_spent(self) -> bool {
        self.count >= MOST
    }
}

/// All attempts of a rollout, as far as they matter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct History {
    /// Nodes that are at it, are deferred, or were tried more than once, by UID.
    pub nodes: BTreeMap<String, Attempts>,
    /// The places in the plan of all nodes that were tried at least once.
    pub tried: Places,
    /// Nodes that hold a grant in the ledger that was read, also if it is freed now: that write may fail, and the grant would
    /// then be counted once more. It is not written.
    #[serde(skip)]
    held: BTreeSet<String>,
}

impl History {
    /// As it was written.
    pub fn new(nodes: BTreeMap<String, Attempts>, tried: Places) -> Self {
        Self { nodes, tried, held: BTreeSet::new() }
    }

    /// With the grants of this ledger, of which a person has freed those of some nodes.
    pub fn take<'a>(&mut self, plan: &Plan, ledger: &Ledger, freed: impl Iterator<Item = &'a str>, is_denied: bool) {
        if is_denied {
            let of_pool = ledger.grants.iter().filter(|grant| grant.node.pool == plan.pool);
            self.held.extend(of_pool.map(|grant| grant.node.uid.clone()));
            let freed = freed.filter_map(|uid| ledger.held(uid)).filter(|grant| grant.node.pool == plan.pool);
            return freed.for_each(|grant| self.defer_return(&grant.node.uid, grant.token));
        }
        self.count(plan, ledger);
        freed.filter_map(|uid| ledger.held(uid)).for_each(|grant| self.defer(&grant.node.uid, grant.token));
    }

    /// With the grants that this ledger has in the plan's pool.
    pub fn count(&mut self, plan: &Plan, ledger: &Ledger) {
        let mut places = None;
        // A machine that is replaced is deleted once.
        for grant in ledger.grants.iter().filter(|grant| grant.node.pool == plan.pool && grant.replaces.is_none()) {
            let uid = &grant.node.uid;
            self.held.insert(uid.clone());
            let is_known = self.nodes.contains_key(uid);
            let place = if is_known { None } else { places.get_or_insert_with(|| places_of(plan)).get(uid.as_str()) };
            let before = place.is_some_and(|place| self.tried.contains(*place));
            let first = Attempts { count: u32::from(before), token: 0, deferred: false };
            let of = self.nodes.entry(uid.clone()).or_insert(first);
            if grant.token > of.token {
                *of = Attempts { count: of.count.saturating_add(1), token: grant.token, deferred: false };
            }
        }
    }

    /// On the way back this node is asked again later, and others before it.
    fn defer_return(&mut self, uid: &str, token: u64) {
        let of = self.nodes.entry(uid.to_owned()).or_insert(Attempts { count: 0, token: 0, deferred: false });
        if token > of.token {
            *of = Attempts { token, deferred: true, ..*of };
        }
    }

    /// These nodes say that the attempt with this token, the last that they obeyed, ended before the reboot. It counts if
    /// the grant was held in the ledger that was read, and is not in this one, because it is freed now. They are not heard
    /// before or later: a node that lies could say so once, and end otherwise.
    pub fn defer_ended<'a>(&mut self, kept: &Ledger, ended: impl Iterator<Item = (&'a str, u64)>, is_denied: bool) {
        for (uid, token) in ended {
            match self.held.contains(uid) && kept.held(uid).is_none() {
                true if is_denied => self.defer_return(uid, token),
                true => self.defer(uid, token),
                false => {}
            }
        }
    }

    /// It was granted at least once, as far as that is remembered; `place` is where the plan has it.
    pub(crate) fn was_tried(&self, uid: &str, place: u32) -> bool {
        self.tried.contains(place) || self.nodes.get(uid).is_some_and(|of| of.count > 0)
    }

    fn defer(&mut self, uid: &str, token: u64) {
        if let Some(of) = self.nodes.get_mut(uid).filter(|of| of.token == token && !of.deferred) {
            *of = Attempts { count: of.count.saturating_sub(1), deferred: true, ..*of };
        }
    }

    /// Keeps what is needed. Of a node that was tried once, which most are, its place is enough.
    pub fn remember(&mut self, plan: &Plan, is_done: impl Fn(&str) -> bool) {
        let held = std::mem::take(&mut self.held);
        let places = if self.nodes.is_empty() { BTreeMap::new() } else { places_of(plan) };
        self.nodes.retain(|uid, of| {
            let Some(place) = places.get(uid.as_str()).filter(|_| !held.contains(uid)) else { return true };
            if of.count > 0 {
                self.tried.insert(*place);
            }
            of.count > 1 || (of.deferred && !is_done(uid))
        });
        let mut order: BTreeSet<(bool, u32, String)> = BTreeSet::new();
        if self.nodes.len() > REMEMBERED {
            order.extend(self.nodes.iter().map(|(uid, of)| (held.contains(uid), of.count, uid.clone())));
        }
        for (_, _, uid) in order.iter().take(self.nodes.len().saturating_sub(REMEMBERED)) {
            self.nodes.remove(uid);
        }
    }
}

/// The places of nodes in the plan, by UID.
fn places_of(plan: &Plan) -> BTreeMap<&str, u32> {
    plan.nodes().zip(0..).map(|((_, node), place)| (node.uid.as_str(), place)).collect()
}
