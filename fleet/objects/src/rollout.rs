//! Rollout: one plan, and how far it is.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use slipway_rollout::{
    attempts::Attempts,
    facts::{Interruption, Retry},
    places::Places,
    plan::Plan,
};

use crate::Attribution;

/// The state of a rollout whose nodes are all done, but for those that people left out.
pub const FINISHED: &str = "Finished";
/// The state of a rollout whose pool has another target now.
pub const SUPERSEDED: &str = "Superseded";
/// The state of a rollout of which nothing is left to do, and some nodes are not done, such as those that failed.
pub const INCOMPLETE: &str = "Incomplete";

/// One plan of one pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema, CustomResource)]
#[kube(
    group = "fleet.slipway.dev",
    version = "v1alpha1",
    kind = "Rollout",
    status = "RolloutStatus",
    shortname = "nroll",
    category = "slipway",
    doc = "One plan of one pool: which nodes, in which waves, in which order, and how far it is. The controller makes it \
           when a NodePool has a new target, and follows it to the letter. It does not change; a new target is a new \
           Rollout. Delete it to have its nodes tried again.",
    printcolumn(name = "Pool", type_ = "string", json_path = ".spec.plan.pool"),
    printcolumn(name = "Nodes", type_ = "integer", json_path = ".status.nodes", description = "How many it has"),
    printcolumn(name = "Done", type_ = "integer", json_path = ".status.done", description = "How many are done"),
    printcolumn(name = "Waves", type_ = "string", json_path = ".status.waves", description = "How many are over"),
    printcolumn(name = "State", type_ = "string", json_path = ".status.state", description = "What goes on"),
    printcolumn(name = "Why", type_ = "string", json_path = ".status.message", description = "Why no more goes on"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("self == oldSelf").message("a Rollout does not change: a new target is a new Rollout"))]
pub struct RolloutSpec {
    /// The installer image, as nodes are asked to fetch it.
    #[schemars(length(min = 1, max = 1024))]
    pub image: String,
    /// The plan. Its hash names pool, payload, nodes, their order, and the soaks. If it does not fit, nothing begins.
    pub plan: Plan,
}

/// How far a rollout is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RolloutStatus {
    /// How many waves are over. It only rises.
    pub passed: u32,
    /// Why its payload is tried on no other node. This stays.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub denied: Option<String>,
    /// Why the controller has paused it. This stays.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused: Option<String>,
    /// Who has given it up, and why. This stays.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aborted: Option<String>,
    /// It was finished once, and its payload was not denied until then: it is denied no more. This stays.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub finished: bool,
    /// Since when the controllers have seen the nodes of the wave that soaks well, by their own clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub soaking_since: Option<Timestamp>,
    /// How often the soak of this wave began anew, and which node was not seen well the last time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interruption: Option<Interruption>,
    /// Which attempts are repeated, where some ended before the reboot: by a PodDisruptionBudget, an abort, or an API server
    /// that was away. That says nothing about the payload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
    /// How often nodes were granted, by UID, and by which token the last time: those that are at it, those whose last attempt
    /// ended before the reboot, and those that were tried more than once. Who used its attempts up without running the payload
    /// counts as failed.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("x-kubernetes-map-type" = "atomic"))]
    pub attempts: BTreeMap<String, Attempts>,
    /// The places in the plan, counted from 0, of all nodes that were tried at least once: 0-41,43.
    #[serde(skip_serializing_if = "Places::is_empty")]
    pub tried: Places,
    /// The wave, counted from 1, that waits for a person's approval now.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub awaiting_approval: Option<u32>,
    /// What people have approved. This stays.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128))]
    pub approvals: Vec<ApprovalRecord>,
    /// The successors: the UID of a Node, by the UID that the plan has. This stays.
    // As a whole: the API server would else remember who wrote each of them, and that is as large again.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("x-kubernetes-map-type" = "atomic"))]
    pub succeeded: BTreeMap<String, String>,
    /// Nodes whose machines go, or are gone, and whose successors are not there yet; the first of them, if there are hundreds.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub replacing: Vec<Replacing>,
    /// How many nodes it has.
    pub nodes: u32,
    /// How many of them run the payload, are well, and hold no grant.
    pub done: u32,
    /// How many waves are over, of how many: 1/3.
    pub waves: String,
    /// What goes on, in one word: Finished, Incomplete, Running, Waiting, Paused, Denied, Aborted, Superseded.
    pub state: String,
    /// What goes on, and why no more; for people.
    pub message: String,
    /// Finished: whether every node that is not left out is done; its reasons are the words of state.
    pub conditions: Vec<Condition>,
}

impl RolloutStatus {
    /// Nothing of it is left to do: every node is done, or those that are not need a person.
    pub fn has_ended(&self) -> bool {
        matches!(self.state.as_str(), FINISHED | INCOMPLETE)
    }
}

/// An approval that counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalRecord {
    /// This wave, counted from 1, and all before it.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub wave: u32,
    /// When a controller saw it first.
    pub at: Timestamp,
    /// Whose word it is.
    #[serde(flatten)]
    pub word: Attribution,
}

/// A node that is being replaced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Replacing {
    /// The UID that the plan has.
    #[serde(rename = "nodeUID")]
    pub node_uid: String,
    /// The name of its Node.
    pub node: String,
    /// Why it is not done, in one word that stays the same.
    pub reason: String,
    /// The same for people.
    pub message: String,
}
