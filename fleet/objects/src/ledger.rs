//! DisruptionLedger: the nodes that may be disturbed.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use slipway_rollout::ledger::Ledger;

use crate::Attribution;

/// The name of the one ledger of a cluster.
pub const LEDGER: &str = "cluster";

/// The part of the ledger that people write.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(
    group = "fleet.slipway.dev",
    version = "v1alpha1",
    kind = "DisruptionLedger",
    status = "Ledger",
    shortname = "ledger",
    category = "slipway",
    doc = "Who may be disturbed. There is one, named cluster. Its status has the grants: a node begins only if it finds its \
           own here, and every grant is one write of this object, so that no two controllers overdraw a budget. A grant \
           has no end of its own: it is freed by the node, when it is well; by proof that the node is gone; or by a \
           person, in spec.release.",
    printcolumn(
        name = "Epoch",
        type_ = "integer",
        json_path = ".status.epoch",
        description = "The highest token given"
    ),
    printcolumn(name = "Held by", type_ = "string", json_path = ".status.grants[*].node.name"),
    printcolumn(name = "Tokens", type_ = "string", json_path = ".status.grants[*].token"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(default)]
pub struct DisruptionLedgerSpec {
    /// Grants that people free by hand, for a node that will not say itself that it is well. Be sure that it cannot come
    /// back in the middle of its upgrade: others go down while it may. Entries stay as a record, of which slipwayctl keeps the
    /// last 256.
    #[schemars(length(max = 512))]
    pub release: Vec<Release>,
}

/// A grant that a person frees.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Release {
    /// The grant's token: it frees this grant, and no later one of the same node.
    #[schemars(range(min = 0, max = slipway_rollout::ledger::HIGHEST))]
    pub token: u64,
    /// Whose word this is.
    #[serde(flatten)]
    pub word: Attribution,
}
