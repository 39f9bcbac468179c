//! The nodes that may be disturbed. One object for the whole cluster; every change is one compare-and-set of it.
//!
//! * Whether a node may go is computed from the object that is being written, and from nothing older. So two controllers
//!   at once are harmless: one of the two writes fails, and its controller looks again.
//! * A grant has no end of its own. A node that went silent stays charged, because only the node can know what it does.
//! * It is freed by three things: the node itself, well and with this grant's token; proof that the node is gone; or a
//!   person, with a reason.
//! * Tokens rise strictly, also over grants that were freed. A node obeys no token that is not above its last one.
//! * A node that is replaced stays charged until another machine of the same set is well with the payload. That its own
//!   machine is gone frees nothing. A set makes machines for no particular node: a machine counts for one grant only.
//! * The object has a size that etcd takes: there are so many grants at most, and a machine that has counted is named once,
//!   for all grants of its set, and only as long as one of them waits.
//! * Only grants raise the highest token, and no node does: what one says that it obeyed concerns itself alone. Where the
//!   ledger is lost, what most nodes say is believed: [`Ledger::rebuild`].
//! * A node is its UID. One that was made again under the same name is another one.
//! * A node that is not well and holds no grant is unavailable all the same, and counts. Such a node may be upgraded
//!   itself while others are ill, too: that takes nothing away, and may mend it.
//! * Budget, rate and zones are counted within the pool of the node that asks: they are what its policies say. One node
//!   of the control plane at a time is a rule for the whole cluster.
//! * A node that the labels of several pools name is the oldest one's. It counts in the budgets and zones of all of them:
//!   it goes only if it has room in each, and while it is away the others have one place less. If it counted in the oldest
//!   pool alone, a budget that people have given to a label would not hold for the nodes with that label: two of them could
//!   be away where one may. That is worse than a node that waits, says in whose budget, and is waited for by later waves, until
//!   its label goes, that pool has room, or a person leaves it out.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use slipway_core::digest::Sha256;

pub use crate::{
    limits::{Limits, Rate, Refusal},
    node::{Node, Role},
};

/// Grants that are held at once, at most. A grant of a node that is replaced has about 600 bytes, of the 1.5 MiB that etcd takes.
pub const MOST: usize = 1000;

/// The highest token: the largest number that every reader of JSON takes as it is.
pub const HIGHEST: u64 = (1 << 53) - 1;

/// A ledger that is rebuilt goes on so far above what most nodes obeyed: some have obeyed more than the others. In no
/// fleet are as many grants given while half of the nodes get none.
const MARGIN: u64 = 1 << 20;

/// A node that may be disturbed.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Grant {
    /// The node that holds it.
    pub node: Node,
    /// The grant's number. A node obeys no token that is not above its last one.
    pub token: u64,
    /// When it was given. For people, and for nothing else: no grant ends by time.
    pub since: Timestamp,
    /// The node is replaced by another one; absent if it is upgraded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaces: Option<Replacement>,
}

/// The successor of a node: another machine of the same MachineSet.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Replacement {
    /// The digest of the payload that the successor is to run.
    pub payload: Sha256,
    /// The UID of the machine that is deleted.
    pub machine: String,
    /// The name of that machine, for people.
    pub name: String,
    /// The set that makes the successor.
    pub set: String,
    /// Successors were made later than this: machines that existed at the grant do not count.
    pub newest: Timestamp,
    /// UIDs of machines that were made later, and are no successors: they were there already, as the grant was given.
    pub others: Vec<String>,
}

/// Machines of one set that already count as a successor. They succeed no other node.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Taken {
    /// The set that made them.
    pub set: String,
    /// Their UIDs.
    pub machines: Vec<String>,
}

/// A grant that was given, whether it is still held or not: what rates count.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Given {
    /// In this pool.
    pub pool: String,
    /// When it was given.
    pub at: Timestamp,
}

/// An upgrade of Kubernetes that is under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct KubernetesClaim {
    /// The claim's number. A node replaces a static pod for a controller only with the token that it finds here.
    pub token: u64,
    /// The version that Kubernetes is upgraded to. Another run to the same version goes on with the same claim.
    pub version: String,
    /// Since when. For people, and for nothing else: no claim ends by time.
    pub since: Timestamp,
}

/// The ledger.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Ledger {
    /// The highest token that was ever given.
    pub epoch: u64,
    /// The held grants, one for each node.
    #[serde(deserialize_with = "one_for_each_node")]
    pub grants: Vec<Grant>,
    /// The times of recent grants, in pools that have a rate.
    pub given: Vec<Given>,
    /// Machines that already count as a successor, of sets of which other nodes still wait for a successor.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub taken: Vec<Taken>,
    /// The upgrade of Kubernetes that is under way: while it is, no grant is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubernetes: Option<KubernetesClaim>,
    /// What a newer program has written. It stays, and nothing is given: it may be what forbids that. So whatever an older
    /// program must not miss becomes a field of its own here, which is absent as long as it means nothing.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: BTreeMap<String, serde_json::Value>,
}

/// If a hand has written several grants for a node, the one with the highest token is read, as the node takes it. The next
/// write takes the others out.
fn one_for_each_node<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Grant>, D::Error> {
    let mut grants = Vec::<Grant>::deserialize(from)?;
    grants.sort_by_key(|grant| Reverse(grant.token));
    let mut seen = BTreeSet::new();
    grants.retain(|grant| seen.insert(grant.node.uid.clone()));
    grants.reverse();
    Ok(grants)
}

/// The proof that frees a grant.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Proof {
    /// The node says that it is well, that nothing of it is under way, and that this is the highest token it obeyed.
    Well { token: u64 },
    /// The API server has no Node with this UID any more. For the control plane: nor has etcd its member.
    Gone { member_gone: bool },
    /// Of a node that is replaced: its machine is gone, and the Node of another one of the same set is well with the payload.
    Succeeded {
        /// The grant's number.
        token: u64,
        /// The UID of the successor's machine. It succeeds no other node.
        machine: String,
        /// The UID of the successor's Node.
        node: String,
    },
    /// A person says so.
    Word { who: String, why: String },
}

/// Why a grant stays.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "kebab-case")]
pub enum ReleaseRefusal {
    /// There is none.
    #[error("it holds no grant")]
    NoGrant,
    /// It speaks of another grant: an old message, or one that it did not obey yet.
    #[error("it was granted the token {granted}, and speaks of {token}")]
    AnotherToken { token: u64, granted: u64 },
    /// The node is gone, and may come back to etcd.
    #[error("its Node is gone, and etcd still lists its member: remove that first")]
    MemberThere,
    /// The node is replaced.
    #[error("it is replaced, and its grant stays in use until its successor is well with the payload")]
    Replaced,
    /// The node is upgraded.
    #[error("it is upgraded in place, and has no successor")]
    NotReplaced,
    /// The reason would be unknown.
    #[error("a release of a grant needs who and why")]
    NoReason,
}

impl Ledger {
    /// The grant that a node holds.
    pub fn held(&self, uid: &str) -> Option<&Grant> {
        self.grants.iter().find(|grant| grant.node.uid == uid)
    }

    /// The highest token that was ever given, as far as this ledger says. A node that says more does not say what is so.
    pub fn highest(&self) -> u64 {
        let claimed = self.kubernetes.as_ref().map(|claim| claim.token);
        self.grants.iter().map(|grant| grant.token).chain(claimed).fold(self.epoch, u64::max).min(HIGHEST)
    }

    /// Have a ledger that was lost, or restored from an older copy, be no longer behind: nodes obey no token that is not
    /// above their last one. `tokens` has what each node of a pool says that it obeyed, 0 where it does not answer.
    ///
    /// More than half of the nodes must say that the ledger is behind. So a minority that lies raises nothing; and as long as
    /// the ledger is not lost, nothing is raised at all, because honest nodes obey only what it gave.
    pub fn rebuild(&mut self, mut tokens: Vec<u64>) {
        tokens.sort_unstable();
        let majority = tokens.get(tokens.len().saturating_sub(1) / 2).copied().unwrap_or(0);
        if majority > self.highest() {
            self.epoch = majority.saturating_add(MARGIN).min(HIGHEST / 2).max(self.epoch);
        }
    }

    /// Grants count for rates from `now` on, at the latest: a clock that was ahead must not stop a pool until it was right.
    pub fn correct_times(&mut self, now: Timestamp) {
        for given in &mut self.given {
            given.at = given.at.min(now);
        }
    }

    /// The ledger with one more grant, and that grant's token. The caller writes it if, and only if, the object is still
    /// the one that this was computed from.
    pub fn grant(&self, node: &Node, limits: &Limits, now: Timestamp) -> Result<(Self, u64), Refusal> {
        self.grant_for(node, None, limits, now)
    }

    /// The same for a node that is replaced, if it is.
    pub fn grant_for(
        &self,
        node: &Node,
        replaces: Option<&Replacement>,
        limits: &Limits,
        now: Timestamp,
    ) -> Result<(Self, u64), Refusal> {
        let mut ledger = self.clone();
        let token = ledger.give(node, replaces, limits, now)?;
        Ok((ledger, token))
    }

    /// The same in place. What is refused changes nothing.
    pub(crate) fn give(
        &mut self,
        node: &Node,
        replaces: Option<&Replacement>,
        limits: &Limits,
        now: Timestamp,
    ) -> Result<u64, Refusal> {
        self.may_go(node, limits, now)?;
        let token = self.next_token(&limits.named_tokens)?;
        self.epoch = token;
        self.grants.push(Grant { node: node.clone(), token, since: now, replaces: replaces.cloned() });
        let counts = |given: &Given| limits.rates.iter().any(|rate| rate.per.after(given.at) > now);
        self.given.retain(|given| given.pool != node.pool || counts(given));
        if !limits.rates.is_empty() {
            self.given.push(Given { pool: node.pool.clone(), at: now });
        }
        Ok(token)
    }

    /// The token that is given next; `named` are those that are not given.
    pub(crate) fn next_token(&self, named: &BTreeSet<u64>) -> Result<u64, Refusal> {
        let mut token = self.highest() + 1;
        while named.contains(&token) {
            token += 1;
        }
        if token > HIGHEST { Err(Refusal::Spent) } else { Ok(token) }
    }

    /// Whether everything in it is understood.
    pub(crate) fn is_known(&self) -> Result<(), Refusal> {
        let fields: Vec<String> = self.unknown.keys().cloned().collect();
        if fields.is_empty() { Ok(()) } else { Err(Refusal::Newer { fields }) }
    }

    fn may_go(&self, node: &Node, limits: &Limits, now: Timestamp) -> Result<(), Refusal> {
        if let Some(grant) = self.held(&node.uid) {
            return Err(Refusal::Holds { token: grant.token });
        }
        self.is_known()?;
        if let Some(claim) = &self.kubernetes {
            return Err(Refusal::Kubernetes { version: claim.version.clone(), token: claim.token });
        }
        if now < limits.from || limits.until.is_some_and(|until| now >= until) {
            return Err(Refusal::Closed);
        }
        if self.grants.len() >= MOST {
            return Err(Refusal::Full { most: MOST });
        }
        let charged = self.charged(node, limits);
        if node.role == Role::ControlPlane {
            let others = charged.iter().filter(|other| other.role == Role::ControlPlane);
            if let Some(other) = others.min_by_key(|other| &other.uid) {
                return Err(Refusal::ControlPlane { other: other.name.clone() });
            }
        }
        limits.has_room(node, charged)?;
        for younger in &limits.younger {
            if let Some(there) = younger.shared.get(&node.name) {
                let why = |why| Refusal::Shared { pool: there.pool.clone(), why: Box::new(why) };
                younger.has_room(there, self.charged(there, younger)).map_err(why)?;
            }
        }
        limits.rates.iter().try_for_each(|rate| self.within(rate, &node.pool, now))
    }

    /// Others that are unavailable, each once. Those that are ill without a grant do not count against one that is ill
    /// itself.
    fn charged<'a>(&'a self, node: &Node, limits: &'a Limits) -> Vec<&'a Node> {
        let is_down = limits.down.iter().any(|down| down.uid == node.uid);
        let down = limits.down.iter().filter(|down| !is_down && down.uid != node.uid);
        let mut down: BTreeMap<&str, &Node> = down.map(|other| (other.uid.as_str(), other)).collect();
        let as_here = |grant: &'a Grant| limits.shared.get(&grant.node.name).unwrap_or(&grant.node);
        let mut charged: Vec<&Node> = self.grants.iter().map(as_here).collect();
        // The ledger has the last word about a node. One whose labels changed since counts in both pools: it may be at it.
        for other in &charged {
            if down.get(other.uid.as_str()).is_some_and(|down| down.pool == other.pool) {
                down.remove(other.uid.as_str());
            }
        }
        charged.extend(down.into_values());
        charged
    }

    fn within(&self, rate: &Rate, pool: &str, now: Timestamp) -> Result<(), Refusal> {
        // Also those that come from a clock that was ahead.
        let counts = |given: &&Given| given.pool == pool && rate.per.after(given.at) > now;
        let mut times: Vec<Timestamp> = self.given.iter().filter(counts).map(|given| given.at).collect();
        if (times.len() as u64) < u64::from(rate.count) {
            return Ok(());
        }
        times.sort_unstable();
        let first_that_must_end = times.len().checked_sub(rate.count as usize).and_then(|at| times.get(at));
        let again = first_that_must_end.map(|at| rate.per.after(*at));
        Err(Refusal::Rate { count: rate.count, per: rate.per, again })
    }

    /// The ledger without this node's grant.
    pub fn free(&self, uid: &str, proof: &Proof) -> Result<Self, ReleaseRefusal> {
        let mut ledger = self.clone();
        ledger.take(uid, proof)?;
        Ok(ledger)
    }

    /// The same in place. What does not free it changes nothing.
    pub(crate) fn take(&mut self, uid: &str, proof: &Proof) -> Result<(), ReleaseRefusal> {
        let grant = self.held(uid).ok_or(ReleaseRefusal::NoGrant)?.clone();
        match proof {
            Proof::Well { token } | Proof::Succeeded { token, .. } if *token != grant.token => {
                return Err(ReleaseRefusal::AnotherToken { token: *token, granted: grant.token });
            }
            // It never obeyed it, and that it is gone is what was meant.
            Proof::Well { .. } | Proof::Gone { .. } if grant.replaces.is_some() => {
                return Err(ReleaseRefusal::Replaced);
            }
            Proof::Succeeded { machine, .. } => self.succeeds(&grant, machine)?,
            Proof::Gone { member_gone: false } if grant.node.role == Role::ControlPlane => {
                return Err(ReleaseRefusal::MemberThere);
            }
            Proof::Word { who, why } if who.trim().is_empty() || why.trim().is_empty() => {
                return Err(ReleaseRefusal::NoReason);
            }
            _ => {}
        }
        // The token is not given again.
        self.epoch = self.epoch.max(grant.token);
        self.grants.retain(|grant| grant.node.uid != uid);
        let waits = self.grants.iter().filter_map(|grant| grant.replaces.as_ref());
        let waits: BTreeSet<&str> = waits.map(|replaces| replaces.set.as_str()).collect();
        self.taken.retain(|taken| waits.contains(taken.set.as_str()));
        Ok(())
    }

    /// A machine succeeds the node of this grant, and no other one of its set.
    fn succeeds(&mut self, grant: &Grant, machine: &str) -> Result<(), ReleaseRefusal> {
        let set = &grant.replaces.as_ref().ok_or(ReleaseRefusal::NotReplaced)?.set;
        match self.taken.iter_mut().find(|taken| taken.set == *set) {
            Some(taken) if taken.machines.iter().any(|uid| uid == machine) => {}
            Some(taken) => taken.machines.push(machine.to_owned()),
            None => self.taken.push(Taken { set: set.clone(), machines: vec![machine.to_owned()] }),
        }
        Ok(())
    }

    /// The successors of nodes that hold a grant.
    pub(crate) fn waits(&self) -> impl Iterator<Item = &Replacement> {
        self.grants.iter().filter_map(|grant| grant.replaces.as_ref())
    }

    /// The UIDs of machines that already count as a successor.
    pub(crate) fn taken(&self) -> impl Iterator<Item = &str> {
        self.taken.iter().flat_map(|taken| &taken.machines).map(String::as_str)
    }
}
