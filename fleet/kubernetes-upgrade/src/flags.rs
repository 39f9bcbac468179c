//! The gate that looks for flags, feature gates, admission plugins and APIs that the target does not know any more.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use slipway_kubernetes::{
    facts::Facts,
    removals::{BUILT_IN, Removals},
};

use crate::mirror_pods::{MirrorPods, NAMESPACE, get};

/// A ConfigMap in the control plane's namespace that replaces the table, and its key.
pub const TABLE: (&str, &str) = ("slipway-kubernetes-removals", "removals.tsv");

/// Findings that a sentence has.
const MOST: usize = 10;

/// Why the gate is closed. An error: it could not be looked at.
pub async fn closed(client: &Client, pods: &MirrorPods, facts: &Facts) -> Result<Option<String>, String> {
    let (object, key) = TABLE;
    let replaced = match get::<ConfigMap>(client, object).await? {
        Ok(replaced) => replaced,
        Err(why) => return Ok(Some(why)),
    };
    let replaced = replaced.map(|of| of.data.unwrap_or_default().remove(key).unwrap_or_default());
    let table: Removals = match replaced.as_deref().unwrap_or(BUILT_IN).parse() {
        Ok(table) => table,
        Err(why) => return Ok(Some(format!("{key} in the ConfigMap {NAMESPACE}/{object}: {why}"))),
    };
    Ok(removed(&table, pods, facts))
}

fn removed(table: &Removals, pods: &MirrorPods, facts: &Facts) -> Option<String> {
    let mut found = Vec::new();
    for (node, component, pod) in facts.pods() {
        // Another decision says that it is unknown.
        let Some(has) = pod.version() else { continue };
        let Some(line) = pods.of(node, component.name()) else {
            let name = component.pod(node);
            return Some(format!("{node}: its kubelet shows no pod {name} in {NAMESPACE}: its flags are unknown"));
        };
        let removed = table.found(component, line, has.minor(), facts.target.minor());
        found.extend(removed.map(|removal| format!("{node}: {component}: {removal}")));
    }
    if found.is_empty() {
        return None;
    }
    let more = found.len().saturating_sub(MOST);
    found.truncate(MOST);
    let (target, found) = (&facts.target, found.join("; "));
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    Some(format!("{target} does not start with what a manifest gives it; take it out first: {found}{more}"))
}
