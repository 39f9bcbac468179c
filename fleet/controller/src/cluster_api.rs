//! Machines of Cluster API (cluster.x-k8s.io): which is a Node's, and deleting it.
//!
//! [`ClusterApi`] reads objects of cluster.x-k8s.io, in the version that the API server prefers, and deletes them. What
//! follows is theirs: cordon, drain with PodDisruptionBudgets, the infrastructure, the Node. A MachineSet makes a machine
//! for each that is gone, from its template.

use std::{collections::BTreeMap, future::Future};

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1 as core,
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use kube::{
    Api,
    api::{DeleteParams, DynamicObject, Preconditions},
    core::ApiResource,
    discovery,
};
use serde_json::{Value, json};
use slipway_rollout::facts::Machine;

use crate::{
    cluster::{Cluster, Error, PAGE, Result},
    observed_node,
};

const GROUP: &str = "cluster.x-k8s.io";
/// On a Node: the name and the namespace of its Machine.
const MACHINE: &str = "cluster.x-k8s.io/machine";
const NAMESPACE: &str = "cluster.x-k8s.io/cluster-namespace";
/// On a Machine: the MachineDeployment that its MachineSet is of.
const DEPLOYMENT: &str = "cluster.x-k8s.io/deployment-name";

/// A machine, as it was found.
#[derive(Clone, Debug)]
pub struct Found {
    /// The input of decisions about it.
    pub machine: Machine,
    /// Where it is.
    pub namespace: String,
    /// Its name there.
    pub name: String,
    /// Its `resourceVersion` when it was read.
    pub version: String,
    /// The kind, in the version in which it was read.
    pub kind: ApiResource,
}

/// The machines of nodes. The successors follow from these: [`slipway_rollout::replace`].
pub trait Provider {
    /// Every machine, with its Node among these.
    fn find(&self, nodes: &[core::Node]) -> impl Future<Output = Result<Vec<Found>>> + Send;
    /// Delete a machine, if it is still the one that was found, and was not written since.
    fn delete(&self, found: &Found) -> impl Future<Output = Result<()>> + Send;
}

/// Machines of cluster.x-k8s.io in the same API server.
#[derive(Clone, Copy)]
pub struct ClusterApi<'a> {
    cluster: &'a Cluster,
}

impl<'a> ClusterApi<'a> {
    /// Of this cluster.
    pub fn new(cluster: &'a Cluster) -> Self {
        Self { cluster }
    }
}

impl Provider for ClusterApi<'_> {
    async fn find(&self, nodes: &[core::Node]) -> Result<Vec<Found>> {
        let client = self.cluster.client();
        let group = self.cluster.within("the kinds of cluster.x-k8s.io", discovery::group(client, GROUP)).await?;
        let none = || Error::Failed { what: GROUP.to_owned(), why: "the API server knows no Machine".to_owned() };
        let (kind, _) = group.recommended_kind("Machine").ok_or_else(none)?;
        let machines: Api<DynamicObject> = Api::all_with(client.clone(), &kind);
        let machines = self.cluster.list_trimmed("machines", machines, PAGE, trim).await?;
        let nodes = by_name(nodes);
        Ok(machines.iter().filter_map(|object| found(object, &nodes, &kind)).collect())
    }

    async fn delete(&self, found: &Found) -> Result<()> {
        let machines: Api<DynamicObject> =
            Api::namespaced_with(self.cluster.client().clone(), &found.namespace, &found.kind);
        let same =
            Preconditions { uid: Some(found.machine.uid.clone()), resource_version: Some(found.version.clone()) };
        let how = DeleteParams { preconditions: Some(same), ..DeleteParams::default() };
        let what = format!("machine {}", found.machine.name);
        self.cluster.within(&what, machines.delete(&found.name, &how)).await.map(drop)
    }
}

/// Drops the fields of a Machine that no decision needs. Every Machine is kept: always true.
fn trim(machine: &mut DynamicObject) -> bool {
    machine.metadata.managed_fields = None;
    machine.metadata.annotations = None;
    machine.data = json!({ "status": { "nodeRef": machine.data["status"]["nodeRef"].take() } });
    true
}

/// Nodes by their names, of which each is there once.
fn by_name(nodes: &[core::Node]) -> BTreeMap<&str, &core::Node> {
    nodes.iter().map(|node| (observed_node::name(node), node)).collect()
}

/// A Machine as decisions see it. One without a UID or a time never was in an API server.
fn found(object: &DynamicObject, nodes: &BTreeMap<&str, &core::Node>, kind: &ApiResource) -> Option<Found> {
    let meta = &object.metadata;
    let (name, namespace) = (meta.name.clone()?, meta.namespace.clone()?);
    let created = Timestamp::from_second(meta.creation_timestamp.as_ref()?.0.as_second()).ok()?;
    let named = object.data["status"]["nodeRef"]["name"].as_str().and_then(|name| nodes.get(name));
    let node = named.filter(|node| is_of(node, meta, &object.data));
    let machine = Machine {
        uid: meta.uid.clone()?,
        name: format!("{namespace}/{name}"),
        node: node.map(|node| observed_node::uid(node).to_owned()),
        set: set(meta, &namespace),
        created,
        is_deleting: meta.deletion_timestamp.is_some(),
    };
    Some(Found { machine, namespace, name, version: meta.resource_version.clone()?, kind: kind.clone() })
}

/// True if this Node is the Machine's. The Machine must name it: a Node's own annotation may be written by its kubelet.
/// Names are given again, and other clusters have the same ones: so the Node must name the Machine, or the Machine the UID
/// of the Node; and neither may name another one.
fn is_of(node: &core::Node, machine: &ObjectMeta, data: &Value) -> bool {
    let reference = &data["status"]["nodeRef"];
    if reference["name"].as_str() != Some(observed_node::name(node)) {
        return false;
    }
    let uid = reference["uid"].as_str().filter(|uid| !uid.is_empty());
    let annotation = |key: &str| node.metadata.annotations.as_ref().and_then(|all| all.get(key));
    let named = annotation(MACHINE).zip(annotation(NAMESPACE));
    let is_named = named
        .map(|(name, namespace)| machine.name.as_ref() == Some(name) && machine.namespace.as_ref() == Some(namespace));
    let is_uid = uid.map(|uid| uid == observed_node::uid(node));
    is_named != Some(false) && is_uid != Some(false) && (is_named.is_some() || is_uid.is_some())
}

/// The set that makes another machine when this one goes. A MachineDeployment may have another of its MachineSets make it.
fn set(machine: &ObjectMeta, namespace: &str) -> std::result::Result<String, String> {
    let owners = machine.owner_references.iter().flatten();
    let owner: Option<&OwnerReference> = owners.into_iter().find(|owner| owner.controller == Some(true));
    let owner = owner.ok_or("no set would make another machine: its Machine has no controller")?;
    let is_ours = owner.api_version.split_once('/').is_some_and(|(group, _)| group == GROUP);
    if !is_ours || owner.kind != "MachineSet" {
        return Err(format!("no set would make another machine: its Machine belongs to a {}", owner.kind));
    }
    let labels: Option<&BTreeMap<String, String>> = machine.labels.as_ref();
    Ok(match labels.and_then(|labels| labels.get(DEPLOYMENT)) {
        Some(name) => format!("MachineDeployment {namespace}/{name}"),
        None => format!("MachineSet {namespace}/{}", owner.name),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use kube::core::GroupVersionKind;

    use super::*;

    fn node(annotations: Value) -> core::Node {
        let meta = json!({ "name": "n1", "uid": "u1", "annotations": annotations });
        serde_json::from_value(json!({ "metadata": meta })).unwrap()
    }

    #[test]
    fn a_node_and_its_machine_name_each_other() {
        let machine: ObjectMeta = serde_json::from_value(json!({ "name": "m1", "namespace": "a" })).unwrap();
        let named = json!({ MACHINE: "m1", NAMESPACE: "a" });
        let refers = |reference: Value| json!({ "status": { "nodeRef": reference } });
        let is_it =
            |annotations: &Value, reference: Value| is_of(&node(annotations.clone()), &machine, &refers(reference));
        assert!(is_it(&named, json!({ "name": "n1" })));
        assert!(
            is_it(&named, json!({ "name": "n1", "uid": "u1" }))
                && is_it(&json!({}), json!({ "name": "n1", "uid": "u1" }))
        );
        // A kubelet may write any annotation; names are given again; other clusters have the same ones.
        assert!(!is_it(&named, json!({ "name": "n2" })) && !is_it(&named, Value::Null));
        assert!(!is_it(&named, json!({ "name": "n1", "uid": "u2" })));
        assert!(!is_it(&json!({}), json!({ "name": "n1" })) && !is_it(&json!({}), json!({ "name": "n1", "uid": "" })));
        for other in [json!({ MACHINE: "m2", NAMESPACE: "a" }), json!({ MACHINE: "m1", NAMESPACE: "b" })] {
            assert!(!is_it(&other, json!({ "name": "n1", "uid": "u1" })));
        }
    }

    #[test]
    fn what_is_not_needed_of_a_machine_is_not_kept() {
        let owner = json!({ "apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "MachineSet", "name": "s", "uid": "u", "controller": true });
        let meta = json!({ "name": "m1", "namespace": "a", "uid": "um", "resourceVersion": "7", "annotations": { "b": "c" },
            "creationTimestamp": "2026-06-01T12:00:00Z", "ownerReferences": [owner], "managedFields": [{ "manager": "m" }] });
        let mut object: DynamicObject = serde_json::from_value(json!({ "metadata": meta, "spec": { "bootstrap": {} },
            "status": { "nodeRef": { "name": "n1", "uid": "u1" }, "phase": "Running" } }))
        .unwrap();
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(GROUP, "v1beta1", "Machine"));
        let (nodes, before) = ([node(json!({}))], object.clone());
        assert!(trim(&mut object));
        assert_eq!(object.data, json!({ "status": { "nodeRef": { "name": "n1", "uid": "u1" } } }));
        let [lean, whole] = [&object, &before].map(|of| found(of, &by_name(&nodes), &kind).unwrap().machine);
        assert_eq!((&lean, lean.node.as_deref()), (&whole, Some("u1")));
    }

    #[test]
    fn only_a_machine_set_makes_another_machine() {
        let owned = |owner: Value, labels: Value| {
            let meta = json!({ "name": "m1", "ownerReferences": [owner], "labels": labels });
            set(&serde_json::from_value(meta).unwrap(), "a")
        };
        let owner = |api: &str, kind: &str, controls: bool| json!({ "apiVersion": api, "kind": kind, "name": "s", "uid": "u", "controller": controls });
        let ours = "cluster.x-k8s.io/v1beta2";
        assert_eq!(owned(owner(ours, "MachineSet", true), json!({})).unwrap(), "MachineSet a/s");
        // Its other MachineSets may make the next one.
        let of = json!({ "cluster.x-k8s.io/deployment-name": "d" });
        assert_eq!(owned(owner(ours, "MachineSet", true), of).unwrap(), "MachineDeployment a/d");
        for (api, kind, controls) in [
            (ours, "MachineSet", false),
            (ours, "MachinePool", true),
            ("controlplane.cluster.x-k8s.io/v1beta2", "KubeadmControlPlane", true),
            ("machine.example/v1", "MachineSet", true),
        ] {
            owned(owner(api, kind, controls), json!({})).unwrap_err();
        }
    }
}
