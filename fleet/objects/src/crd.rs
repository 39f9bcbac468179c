//! The definitions of the kinds, as the API server takes them.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray,
};
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
    .map(|(name, definition)| (name, portable(definition)))
}

/// API servers of 1.20 take a default that is an empty text for none, and refuse it. Nothing is lost: the types read what
/// is missing as empty.
fn portable(mut definition: CustomResourceDefinition) -> CustomResourceDefinition {
    let versions = definition.spec.versions.iter_mut();
    versions.filter_map(|version| version.schema.as_mut()?.open_api_v3_schema.as_mut()).for_each(without_empty);
    definition
}

fn without_empty(schema: &mut JSONSchemaProps) {
    if schema.default.as_ref().is_some_and(|default| default.0 == "") {
        schema.default = None;
    }
    schema.properties.iter_mut().flat_map(|properties| properties.values_mut()).for_each(without_empty);
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        without_empty(items);
    }
}
