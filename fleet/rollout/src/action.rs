//! Decisions, as data.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use slipway_core::digest::Sha256;

use crate::{
    attempts::History,
    blocked::Blocked,
    facts::{Interruption, Retry},
    ledger::{Limits, Node, Proof, Replacement},
};

/// An action. Each is idempotent.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// Have the node write the payload into its other slot.
    Stage { uid: String, payload: Sha256 },
    /// Write the grant into the ledger, if it allows that with the limits of this decision.
    Grant {
        /// Which node.
        node: Node,
        /// Its replacement; `None` if it is upgraded.
        replaces: Option<Box<Replacement>>,
    },
    /// Ask the node to begin.
    Begin { uid: String, token: u64, payload: Sha256 },
    /// Ask the node to have the system of its other slot run again.
    Return { uid: String, token: u64 },
    /// Ask the node to end what it began with this grant, and to go back.
    Abort { uid: String, token: u64 },
    /// Have the node's machine deleted: this one, if the grant is still held.
    Delete { uid: String, token: u64, machine: String },
    /// Take the grant out of the ledger.
    Free { uid: String, proof: Proof },
    /// Give no more grants until a person says so.
    Pause { why: String },
    /// Try this payload on no other node.
    Deny { payload: Sha256, why: String },
}

/// A node that is not done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockedNode {
    /// Which.
    pub node: Node,
    /// Why.
    pub why: Blocked,
}

/// A decision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// The steps, in this order.
    pub steps: Vec<Action>,
    /// The limits of every grant among them.
    pub limits: Limits,
    /// Why nodes do not go, in the plan's order.
    pub blocked: Vec<BlockedNode>,
    /// The number of finished waves.
    pub passed: usize,
    /// Until when the nodes of the next one must stay well, if all of them are done.
    pub soaks: Option<Timestamp>,
    /// Since when the nodes of that wave have been seen well; comes back with the next facts.
    pub soaking_since: Option<Timestamp>,
    /// The interruptions of that soak; comes back with the next facts.
    pub interruption: Option<Interruption>,
    /// Which attempts are repeated; comes back with the next facts.
    pub retry: Option<Retry>,
    /// Number of grants of each node; comes back with the next facts.
    pub attempts: History,
    /// The successors of the plan's nodes: UIDs of Nodes, by the UID that the plan has.
    pub succeeded: BTreeMap<String, String>,
    /// Nothing is left to do.
    pub finished: bool,
}

/// The node, if a person's word frees its grant. A node that has obeyed it, and says that it is well, frees it itself.
pub fn freed_by_word(step: &Action) -> Option<&str> {
    let Action::Free { uid, proof: Proof::Word { .. } } = step else { return None };
    Some(uid)
}

/// The successor, if that frees a grant.
pub fn successor(step: &Action) -> Option<(String, String)> {
    let Action::Free { uid, proof: Proof::Succeeded { node, .. } } = step else { return None };
    Some((uid.clone(), node.clone()))
}
