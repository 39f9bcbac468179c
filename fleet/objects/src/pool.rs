//! NodePool: nodes that are upgraded together.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use slipway_core::digest::Sha256;
use slipway_rollout::{duration::PositiveDuration, facts::WindowOverride, plan::Order};

use crate::Attribution;

/// Nodes that are upgraded together, and to what.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(
    group = "fleet.slipway.dev",
    version = "v1alpha1",
    kind = "NodePool",
    status = "NodePoolStatus",
    shortname = "npool",
    category = "slipway",
    doc = "Nodes that are upgraded together: which ones, to which payload, and what the policies are. Set spec.target to \
           begin. The controller makes a Rollout, whose plan is followed; status.message says what goes on, and if \
           nothing does, why not.",
    printcolumn(name = "Nodes", type_ = "integer", json_path = ".status.nodes", description = "How many nodes it has"),
    printcolumn(name = "Done", type_ = "integer", json_path = ".status.done", description = "How many run the target"),
    printcolumn(name = "State", type_ = "string", json_path = ".status.state", description = "What goes on"),
    printcolumn(name = "Why", type_ = "string", json_path = ".status.message", description = "Why no more goes on"),
    printcolumn(name = "Rollout", type_ = "string", json_path = ".status.rollout", priority = 1),
    printcolumn(
        name = "Seen",
        type_ = "date",
        json_path = ".status.observedAt",
        description = "When a controller looked at it last"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct NodePoolSpec {
    /// Labels that a Node must have to be in this pool; {} is every Node. A node that is in an older pool, too, is that
    /// one's, and counts in the budgets of both. A kubelet may give its Node most labels: use node-restriction.kubernetes.io/…,
    /// which it may not set.
    pub node_selector: BTreeMap<String, String>,
    /// What its nodes are to run: an image with its payload, or the choice of a channel.
    pub target: Target,
    /// Names of UpgradePolicies. All of them hold: the strictest of each kind counts. Without any, one node goes at a time,
    /// at any hour, and the first failure stops it. If one is missing or cannot be understood, nothing begins.
    #[serde(default)]
    #[schemars(length(max = 64), inner(length(min = 1, max = 253)))]
    pub policies: Vec<String>,
    /// How its nodes get the target: upgraded in place, or replaced.
    #[serde(default)]
    pub strategy: Strategy,
    /// How nodes are replaced, where the strategy is Replace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replace: Option<Replace>,
    /// Whether nodes of the control plane go before the others, or after them. Who comes later waits until they are done.
    #[serde(default)]
    pub order: Order,
    /// Make EPHEMERAL anew on each node. A member of etcd leaves its cluster first, and comes back as a learner.
    #[serde(default)]
    pub discard_ephemeral: bool,
    /// Upgrade a node although etcd loses its quorum meanwhile. Clusters of one or two members of etcd cannot be upgraded
    /// otherwise; they are down while it lasts.
    #[serde(default)]
    pub allow_control_plane_outage: bool,
    /// Also write a payload that is older than what runs.
    #[serde(default)]
    pub allow_any_version: bool,
    /// Upgrade a member of etcd, or have it go back, although etcd's data could not be read then, or after the way back.
    #[serde(default)]
    pub allow_any_etcd: bool,
    /// Begin nothing new while this is set. What has begun goes on to its end. Only a person takes it away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<Attribution>,
    /// Have nodes go back if the payload of a rollout is denied: those that run it already have the system of their other
    /// slot run again. Nothing is downloaded. They go one after the other under the same policies. Without this they stay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollback: Option<Rollback>,
    /// Give a rollout up: nothing new of it begins, ever, and nodes that are at it are asked to go back, as far as they can.
    /// It stays given up when this is taken away. Delete the Rollout to have its payload tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub abort: Option<Abort>,
    /// Have a rollout go now, whatever windows and blackouts say. Budgets, rates, zones and order hold as ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_now: Option<RunNow>,
    /// Approve waves of a rollout, where policies ask for that. The Rollout's status keeps who did, and when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<Approval>,
    /// How long a node may be away while it reboots in its upgrade, the way back included, as 45m: longer than its firmware takes
    /// to start the machine, twice. Until then it says Rebooting; after it SilentWithGrant, and a person is to look. Nothing
    /// else hangs on it. Without it 20m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reboot_deadline: Option<PositiveDuration>,
    /// How many Rollouts are kept that were superseded, or are over and have another one after them. Those that denied a
    /// payload are kept anyway.
    #[serde(default = "history")]
    #[schemars(range(min = 0, max = 1000))]
    pub revision_history_limit: u32,
    /// Nodes that are left out. The rollout does not wait for them. They stay in the budget when they are not well.
    #[serde(default)]
    #[schemars(length(max = 1024))]
    pub skip: Vec<Skip>,
}

fn history() -> u32 {
    10
}

/// How nodes get the target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Strategy {
    /// Each node is asked to upgrade itself.
    #[default]
    InPlace,
    /// The machine of each node is deleted, and its MachineSet makes another one, whose template names the target already.
    Replace,
}

/// How nodes are replaced.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Replace {
    /// Whose machines the nodes are: ClusterAPI, which is the only one.
    pub provider: Provider,
    /// Replace nodes also where volumes would be lost that are on their disks.
    pub allow_local_volumes: bool,
}

/// Whose machines nodes are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Provider {
    /// Machines of cluster.x-k8s.io, in this API server.
    #[default]
    ClusterAPI,
}

/// The target of nodes: image and payload, or channel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("oneOf" = [
    { "required": ["image", "payload"], "not": { "required": ["channel"] } },
    { "required": ["channel"], "not": { "anyOf": [{ "required": ["image"] }, { "required": ["payload"] }] } },
]))]
pub struct Target {
    /// The installer image: docker://registry.example/os:2. Needs payload beside it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024), regex(pattern = "^(docker://|oci:|oci-archive:|dir:)[!-~]+$"))]
    pub image: Option<String>,
    /// The SHA-256 digest that names the payload in the image. Nodes refuse an image with another payload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", regex(pattern = "^[0-9a-f]{64}$"))]
    pub payload: Option<Sha256>,
    /// The name of a Channel, whose status.latest is followed. Instead of image and payload. A new image begins a new rollout;
    /// a node that runs a newer version than the channel's choice is left as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub channel: Option<String>,
}

/// The meaning of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named<'a> {
    /// This payload, in this image.
    Image(&'a str, Sha256),
    /// The last choice of this channel.
    Channel(&'a str),
}

impl Target {
    /// Its meaning; `None` if it names nothing, or two things.
    pub fn named(&self) -> Option<Named<'_>> {
        match (&self.image, self.payload, &self.channel) {
            (Some(image), Some(payload), None) => Some(Named::Image(image, payload)),
            (None, None, Some(channel)) => Some(Named::Channel(channel)),
            _ => None,
        }
    }
}

/// Nodes go back from a payload that is denied.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Rollback {
    /// Those of the control plane, too. Think of etcd: its data may be newer than the old system understands.
    pub control_plane: bool,
}

/// Names of Rollouts are refused where their UID belongs: of the name nothing would follow. Other slips are told by the pool's
/// status, because a UID has no form that Kubernetes promises.
fn no_name() -> serde_json::Value {
    let how = "the UID, not the name, which says so of this Rollout alone: kubectl get nroll NAME -o jsonpath={.metadata.uid}";
    json!([{ "rule": "!self.matches('-[0-9a-f]{10}-[0-9]+$')", "message": how }])
}

/// A rollout that is given up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Abort {
    /// The UID of the Rollout: it says so of this one, and of none that follows.
    #[serde(rename = "rolloutUID")]
    #[schemars(length(min = 1, max = 64), extend("x-kubernetes-validations" = no_name()))]
    pub rollout_uid: String,
    /// Whose word this is.
    #[serde(flatten)]
    pub word: Attribution,
}

/// A rollout that goes now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunNow {
    /// The UID of the Rollout: it says so of this one, and of none that follows.
    #[serde(rename = "rolloutUID")]
    #[schemars(length(min = 1, max = 64), extend("x-kubernetes-validations" = no_name()))]
    pub rollout_uid: String,
    /// Until then: 2026-06-01T22:00:00Z. From then on windows and blackouts hold again.
    pub until: Timestamp,
    /// The wave, counted from 1, whose soak is passed over. Its nodes must be well all the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = u32::MAX))]
    pub soak_of_wave: Option<u32>,
    /// Whose word this is.
    #[serde(flatten)]
    pub word: Attribution,
}

/// Waves that may begin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Approval {
    /// The UID of the Rollout: it says so of this one, and of none that follows.
    #[serde(rename = "rolloutUID")]
    #[schemars(length(min = 1, max = 64), extend("x-kubernetes-validations" = no_name()))]
    pub rollout_uid: String,
    /// The hash of the plan that was looked at. For another plan it does not count.
    #[schemars(with = "String", regex(pattern = "^[0-9a-f]{64}$"))]
    pub plan: Sha256,
    /// This wave, counted from 1, and all before it.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub wave: u32,
    /// Whose word this is.
    #[serde(flatten)]
    pub word: Attribution,
}

impl RunNow {
    /// The same, as decisions take it.
    pub fn window_override(&self) -> WindowOverride {
        let soak = self.soak_of_wave.and_then(|wave| (wave as usize).checked_sub(1));
        WindowOverride { until: self.until, soak }
    }
}

/// A node that is left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Skip {
    /// The name of the Node that is left out: node-7.
    #[schemars(length(min = 1, max = 253))]
    pub node: String,
    /// Whose word this is.
    #[serde(flatten)]
    pub word: Attribution,
}

/// How far a pool is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodePoolStatus {
    /// How many nodes it has.
    pub nodes: u32,
    /// How many of them run the target, are well, and hold no grant.
    pub done: u32,
    /// What goes on, in one word: UpToDate, Finished, Incomplete, Running, Waiting, Paused,
    /// Denied, Aborted, Invalid.
    pub state: String,
    /// What goes on, and why no more; for people.
    pub message: String,
    /// The digest of the payload that its nodes are to run.
    pub payload: Option<Sha256>,
    /// The Rollout that is followed.
    pub rollout: Option<String>,
    /// The generation of the pool that this speaks of.
    pub observed_generation: i64,
    /// When a controller looked at it last, to the minute: if that is long ago, none runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_at: Option<Timestamp>,
    /// Valid: whether the pool can be understood; its reasons are Valid, PoolInvalid, RolloutInvalid, LedgerInvalid,
    /// PolicyMissing, PolicyInvalid, PoliciesConflict, NoTarget. UpToDate: whether all nodes are done; its reasons are the
    /// words of state. NodesShared: whether the labels of the pool name nodes that an older pool has; its reasons are
    /// NodesShared, OwnNodes.
    pub conditions: Vec<Condition>,
}
