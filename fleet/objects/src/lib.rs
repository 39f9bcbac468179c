//! The objects of `fleet.slipway.dev/v1alpha1`: what people write of a fleet, and what they read. All are cluster-scoped.
//!
//! | kind | people write | the controller writes |
//! |---|---|---|
//! | [`NodePool`](pool::NodePool) | which nodes, which payload, which policies; pause, skip, abort, go now | how far it is, and why not further |
//! | [`UpgradePolicy`](policy::UpgradePolicy) | what is allowed | |
//! | [`Channel`](channel::Channel) | where new images come from | what was found, and what was not chosen |
//! | [`Rollout`](rollout::Rollout) | | the plan, once; how far it is |
//! | [`NodeUpgrade`](upgrade::NodeUpgrade) | | one node: what it does, and why it does not go |
//! | [`KubernetesUpgrade`](kubernetes_upgrade::KubernetesUpgrade) | the version of Kubernetes; pause, approve | how far it is, and why not further |
//! | [`DisruptionLedger`](ledger::DisruptionLedger) | who frees a grant by hand, and why | the grants |
//!
//! [`condition`] has how a condition changes, [`crd`] the definitions, and [`image`] how a digest is written.

// Each printer column is an attribute, and two of them may be alike in a part.
#![allow(clippy::duplicated_attributes)]

pub mod channel;
pub mod condition;
pub mod crd;
pub mod image;
pub mod kubernetes_upgrade;
pub mod ledger;
pub mod policy;
pub mod pool;
pub mod rollout;
pub mod upgrade;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The author of a change, and the reason. Both are shown wherever the change has an effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Attribution {
    /// The person who says so, as others know them: alice.
    #[schemars(length(min = 1, max = 253), regex(pattern = r"\S"))]
    pub who: String,
    /// The reason, for who reads it later: "on loan until May".
    #[schemars(length(min = 1, max = 1024), regex(pattern = r"\S"))]
    pub why: String,
}

impl std::fmt::Display for Attribution {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.who, self.why)
    }
}
