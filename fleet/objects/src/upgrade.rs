//! NodeUpgrade: how far one node is.

use jiff::Timestamp;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use slipway_core::digest::Sha256;

/// Which node, in which pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(
    group = "fleet.slipway.dev",
    version = "v1alpha1",
    kind = "NodeUpgrade",
    status = "NodeUpgradeStatus",
    shortname = "nup",
    category = "slipway",
    doc = "One node of a pool, as the controller sees it: what it runs, what it does, and why it does not go. The \
           controller makes one for each node of each pool and never reads it. It goes with its Node.",
    printcolumn(name = "Pool", type_ = "string", json_path = ".spec.pool"),
    printcolumn(name = "State", type_ = "string", json_path = ".status.reason", description = "Why it does not go"),
    printcolumn(name = "Why", type_ = "string", json_path = ".status.message", description = "The same for people"),
    printcolumn(name = "Step", type_ = "string", json_path = ".status.step", description = "What is being done on it"),
    printcolumn(name = "Token", type_ = "integer", json_path = ".status.token", description = "The grant it holds"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct NodeUpgradeSpec {
    /// The UID of the Node: another one after it was deleted and made again.
    #[serde(rename = "nodeUID")]
    pub node_uid: String,
    /// The name of the pool that the node is in.
    pub pool: String,
}

/// The state of a node, and why it does not go.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeUpgradeStatus {
    /// Why the node does not go, in one word that stays the same; Done if nothing is left to do.
    pub reason: String,
    /// The same for people.
    pub message: String,
    /// The wave of the plan that it is in, from 1.
    pub wave: Option<u32>,
    /// The grant that it holds.
    pub token: Option<u64>,
    /// The step of what is being done on it.
    pub step: Option<String>,
    /// The digest of the payload that runs.
    pub runs: Option<Sha256>,
    /// The digest of the payload that is verified in the other slot.
    pub staged: Option<Sha256>,
    /// Bytes that came over the network for the rollout's payload; absent if the node has not staged it.
    pub bytes_fetched: Option<u64>,
    /// Bytes of it that were in the node's slots already.
    pub bytes_reused: Option<u64>,
    /// Bytes of it that were written into the slot; the others were in place.
    pub bytes_written: Option<u64>,
    /// Since when it has not answered, if it holds a grant: it may be rebooting.
    pub silent_since: Option<Timestamp>,
    /// Whether it says that it is well; absent if it does not answer.
    pub well: Option<bool>,
}
