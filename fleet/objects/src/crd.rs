//! The definitions of the kinds, as the API server takes them.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::CustomResourceExt as _;

use crate::{
    channel::Channel, kubernetes_upgrade::KubernetesUpgrade, ledger::DisruptionLedger, policy::UpgradePolicy,
    pool::NodePool, rollout::Rollout, upgrade::NodeUpgrade,
};

/// Every definition, with the name of the file that it is kept in.
pub fn all() -> [(&'static str, CustomResourceDefinition); 7] {
    [
        ("channels", Channel::crd()),
        ("disruptionledgers", DisruptionLedger::crd()),
        ("kubernetesupgrades", KubernetesUpgrade::crd()),
        ("nodepools", NodePool::crd()),
        ("nodeupgrades", NodeUpgrade::crd()),
        // Only controllers write plans, and their waves are as many as there are: rules on each would cost servers too much.
        ("rollouts", rules_at_the_top(Rollout::crd())),
        ("upgradepolicies", UpgradePolicy::crd()),
    ]
    .map(|(name, definition)| (name, portable(definition)))
}

/// The definition as every API server takes it without a warning: no formats that only Rust knows, and no default that is
/// an empty text, which servers of 1.20 refuse. Nor is anything nullable: of such a field `kubectl explain` would show
/// neither a type nor what is below it, because OpenAPI v2 has no null, and from 1.20 on servers drop a null where none may
/// be. Nothing is lost: the types read what is missing as empty.
fn portable(mut definition: CustomResourceDefinition) -> CustomResourceDefinition {
    let versions = definition.spec.versions.iter_mut();
    versions.filter_map(|version| version.schema.as_mut()?.open_api_v3_schema.as_mut()).for_each(simplify);
    definition
}

/// The definition with the rules of its `spec` as a whole, and with none further down.
fn rules_at_the_top(mut definition: CustomResourceDefinition) -> CustomResourceDefinition {
    fn strip(schema: &mut JSONSchemaProps) {
        schema.x_kubernetes_validations = None;
        schema.properties.iter_mut().flat_map(|properties| properties.values_mut()).for_each(strip);
        if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
            strip(items);
        }
    }
    let versions = definition.spec.versions.iter_mut();
    let schemas =
        versions.filter_map(|version| version.schema.as_mut()?.open_api_v3_schema.as_mut()?.properties.as_mut());
    let specs = schemas.filter_map(|properties| properties.get_mut("spec")?.properties.as_mut());
    specs.flat_map(|properties| properties.values_mut()).for_each(strip);
    definition
}

fn simplify(schema: &mut JSONSchemaProps) {
    schema.nullable = None;
    if schema.format.as_ref().is_some_and(|format| format.starts_with("uint") || format == "int8") {
        schema.format = None;
    }
    if schema.default.as_ref().is_some_and(|default| default.0 == "") {
        schema.default = None;
    }
    schema.properties.iter_mut().flat_map(|properties| properties.values_mut()).for_each(simplify);
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        simplify(values);
    }
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        simplify(items);
    }
}
