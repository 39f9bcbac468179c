//! UpgradePolicy: the limits that people set.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use slipway_rollout::{
    int_or_percent::IntOrPercent,
    ledger::Rate,
    policy::{ApprovalPolicy, CanaryStep, Policy, Topology},
    window::{Blackout, Window},
};

/// The limits that people set for upgrades.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(
    group = "fleet.slipway.dev",
    version = "v1alpha1",
    kind = "UpgradePolicy",
    shortname = "upolicy",
    category = "slipway",
    doc = "When nodes may be upgraded, how many at once, and what stops it. A NodePool names the policies that hold for \
           it: all of them hold, and the strictest of each kind counts. What is left out allows everything, but for \
           maxUnavailable (one node) and failureBudget (the first failure).",
    printcolumn(name = "Max unavailable", type_ = "string", json_path = ".spec.maxUnavailable"),
    printcolumn(name = "Failure budget", type_ = "string", json_path = ".spec.failureBudget"),
    printcolumn(name = "Opens", type_ = "string", json_path = ".spec.windows[*].start"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase", default)]
pub struct UpgradePolicySpec {
    /// How many nodes of a pool may be unavailable at once: a number, or a percentage such as 25%. A percentage is rounded
    /// down, and is at least one node. It is never all nodes of a pool of two or more. Nodes that are not well count, also
    /// those that are not being upgraded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_unavailable: Option<IntOrPercent>,
    /// How many nodes may begin in how long a time: {count: 2, per: 1h}. Without it as many as maxUnavailable allows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// When nodes may begin: while any one of these is open, as {start: "22:00", lasts: 6h, zone: Europe/Berlin}. Without any,
    /// always. A node that has begun goes on to its end.
    #[schemars(length(max = 64))]
    pub windows: Vec<Window>,
    /// When no node may begin, whatever is open: {from: 2026-12-23T18:00, until: 2027-01-04T06:00, zone: UTC, why: holidays}.
    #[schemars(length(max = 64))]
    pub blackouts: Vec<Blackout>,
    /// In how many zones nodes may be unavailable at once: {key: topology.kubernetes.io/zone}. Without it in any number. All
    /// policies of a pool name the same key. A node without this label does not go.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topology: Option<Topology>,
    /// So many nodes first, counted from the start, and then a time in which all of them must be well: {nodes: 1, soak: 1h}.
    /// These are canaries: one failure among them stops the rollout. Without any, all nodes are one wave. A Rollout keeps the
    /// steps and soaks that it was made with: what is changed here holds from the next one on.
    #[schemars(length(max = 64))]
    pub steps: Vec<CanaryStep>,
    /// So many failures stop a rollout: a number, or a percentage of its nodes, rounded down, at least one. A node has failed
    /// that booted the payload and was not well with it, or used its five attempts up, or left the payload, or was replaced by
    /// one with another payload. Without this the first failure stops the rollout; among canaries it always does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_budget: Option<IntOrPercent>,
    /// Where nodes wait until a person approves, by slipwayctl fleet approve: EachWave, or AfterCanaries, which is before the
    /// first wave after the canaries, and at the latest before the last wave. Of several policies EachWave counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approval: Option<ApprovalPolicy>,
}

impl UpgradePolicySpec {
    /// The policy of this name, as decisions take it.
    pub fn policy(self, name: &str) -> Policy {
        let Self { max_unavailable, rate, windows, blackouts, topology, steps, failure_budget, approval } = self;
        let name = name.to_owned();
        Policy { name, max_unavailable, rate, windows, blackouts, topology, steps, failure_budget, approval }
    }
}
