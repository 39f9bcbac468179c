//! The definitions of the kinds, as the API server takes them.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt as _;

use crate::{
    channel::Channel, ledger::DisruptionLedger, policy::UpgradePolicy, pool::NodePool, rollout::Rollout,
    upgrade::NodeUpgrade,
};

/// Every definition, with the name of the file that it is kept in.
pub fn all() -> [(&'static str, CustomResourceDefinition); 6] {
    [
        ("channels", Channel::crd()),
        ("disruptionledgers", DisruptionLedger::crd()),
        ("nodepools", NodePool::crd()),
        ("nodeupgrades", NodeUpgrade::crd()),
        ("rollouts", Rollout::crd()),
        ("upgradepolicies", UpgradePolicy::crd()),
    ]
}
