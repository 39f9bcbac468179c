//! Nodes that are replaced. A stand-in: [`Provider`], for Cluster API's controllers. It has a Machine's kind in a few lines,
//! drains no node, and makes a machine with its Node as soon as one is gone.

use std::{thread::sleep, time::Duration};

use k8s_openapi::api::core::v1::{Node, PersistentVolume, Pod};
use kube::{
    Api,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use slipway_fleet::{
    cluster::{Cluster, Error},
    cluster_api::{ClusterApi, Provider as _},
};

use crate::{
    node::payload,
    site::{Site, manifest_of},
};

const API: &str = "cluster.x-k8s.io/v1beta1";

/// Cluster API's controllers, in a few lines.
struct Provider {
    /// The image that the template names.
    template: &'static str,
    /// The number of the last machine.
    last: usize,
    /// The fewest Nodes that there ever were.
    fewest: usize,
}

fn definition() -> Value {
    let schema = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let version = |name: &str, storage: bool| {
        json!({ "name": name, "served": true, "storage": storage, "schema": { "openAPIV3Schema": schema },
            "subresources": { "status": {} } })
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "machines.cluster.x-k8s.io" },
        "spec": { "group": "cluster.x-k8s.io", "scope": "Namespaced",
            "names": { "plural": "machines", "singular": "machine", "kind": "Machine", "listKind": "MachineList" },
            "versions": [version("v1beta1", true), version("v1beta2", false)] },
    })
}

impl Provider {
    /// The nodes of this site are its machines.
    fn new(site: &mut Site, template: &'static str) -> Self {
        site.apply(vec![definition()]);
        let machines = site.api_of(API, "Machine", Some("default"));
        let (runtime, server) = (&site.runtime, &mut site.server);
        server.until(|| runtime.block_on(machines.list(&ListParams::default())));
        let last = site.nodes.len();
        (1..=last).for_each(|n| machine(site, n));
        Self { template, last, fewest: last }
    }

    /// A deleted machine goes, and another one comes.
    fn replace_deleted(&mut self, site: &mut Site) {
        let machines = site.api_of(API, "Machine", Some("default"));
        let all = site.runtime.block_on(machines.list(&ListParams::default())).unwrap().items;
        for going in all.iter().filter(|of| of.metadata.deletion_timestamp.is_some()) {
            let name = going.metadata.name.as_deref().unwrap();
            let n: usize = name[1..].parse().unwrap();
            site.nodes[n - 1].fall_silent(&site.runtime);
            site.delete_object(&format!("n{n}"));
            self.fewest = self.fewest.min(nodes(site).len());
            let done = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
            site.runtime.block_on(machines.patch(name, &PatchParams::default(), &done)).unwrap();
            self.last += 1;
            site.add_node(self.last, self.template);
            machine(site, self.last);
        }
    }

    /// It works until it is so.
    fn until(&mut self, site: &mut Site, what: &str, is_so: impl Fn(&Site) -> bool) {
        let mut looks = 0;
        while !is_so(site) {
            self.replace_deleted(site);
            sleep(Duration::from_millis(100));
            looks += 1;
            if looks % 100 == 0 {
                eprintln!("waits: {what}; {:?}; {:?}", site.pool_status().message, site.ledger().grants);
            }
        }
    }
}

/// The machine of this node.
fn machine(site: &Site, n: usize) {
    let machines = site.api_of(API, "Machine", Some("default"));
    let owner = json!({ "apiVersion": API, "kind": "MachineSet", "name": "workers", "uid": "u", "controller": true });
    let name = format!("m{n}");
    let object = json!({ "apiVersion": API, "kind": "Machine", "metadata": {
        "name": name, "ownerReferences": [owner], "finalizers": ["example.org/stand-in"] } });
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    let status = json!({ "status": { "nodeRef": { "name": format!("n{n}") } } });
    let all: Api<Node> = Api::all(site.client.clone());
    let named = json!({ "cluster.x-k8s.io/machine": name, "cluster.x-k8s.io/cluster-namespace": "default" });
    let named = Patch::Merge(json!({ "metadata": { "annotations": named } }));
    site.runtime.block_on(async {
        machines.create(&PostParams::default(), &object).await.unwrap();
        machines.patch_status(&name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
        all.patch(&format!("n{n}"), &PatchParams::default(), &named).await.unwrap();
    });
}

fn nodes(site: &Site) -> Vec<Node> {
    let all: Api<Node> = Api::all(site.client.clone());
    site.runtime.block_on(all.list(&ListParams::default())).unwrap().items
}

/// The rights of the manifests for this; without the verb `delete` at first.
fn rights(site: &mut Site) {
    let mut objects = manifest_of("replace.yaml");
    objects[0]["rules"][0]["verbs"] = json!(["list"]);
    site.apply(objects);
}

fn all_rights(site: &Site) {
    let roles = site.api_of("rbac.authorization.k8s.io/v1", "ClusterRole", None);
    let rules = Patch::Merge(json!({ "rules": manifest_of("replace.yaml")[0]["rules"] }));
    site.runtime.block_on(roles.patch("slipway-fleet-replace", &PatchParams::default(), &rules)).unwrap();
}

/// A volume on the disk of a node, with a claim.
fn volume(site: &Site, node: &str) {
    let volumes: Api<PersistentVolume> = Api::all(site.client.clone());
    let term = json!({ "matchExpressions": [{ "key": "kubernetes.io/hostname", "operator": "In", "values": [node] }] });
    let volume = json!({ "metadata": { "name": "disk" }, "spec": {
        "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"], "local": { "path": "/mnt/disk" },
        "claimRef": { "namespace": "default", "name": "data" },
        "nodeAffinity": { "required": { "nodeSelectorTerms": [term] } } } });
    let volume = serde_json::from_value(volume).unwrap();
    site.runtime.block_on(volumes.create(&PostParams::default(), &volume)).unwrap();
}

/// It is moved elsewhere. Volumes are not protected here.
fn volume_goes(site: &Site) {
    let volumes: Api<PersistentVolume> = Api::all(site.client.clone());
    let done = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    site.runtime.block_on(async {
        volumes.delete("disk", &DeleteParams::default()).await.unwrap();
        let _ = volumes.patch("disk", &PatchParams::default(), &done).await;
    });
}

/// A machine that was made again under its name, or written since, is not deleted.
fn is_deleted_only_as_found(site: &mut Site) {
    let client = site.controllers_client();
    let cluster = Cluster::new(client.clone());
    let provider = ClusterApi::new(&cluster);
    let machines = site.api_of(API, "Machine", Some("default"));
    let object = json!({ "apiVersion": API, "kind": "Machine", "metadata": { "name": "spare" } });
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    site.runtime.block_on(async {
        let (post, delete) = (PostParams::default(), DeleteParams::default());
        let find = async || {
            let found = provider.find(&[]).await.unwrap();
            found.into_iter().find(|of| of.name == "spare").unwrap()
        };
        machines.create(&post, &object).await.unwrap();
        let mut old = find().await;
        assert!(old.machine.set.as_ref().unwrap_err().contains("no controller"), "{old:?}");
        machines.delete("spare", &delete).await.unwrap();
        machines.create(&post, &object).await.unwrap();
        let new = find().await;
        // Whatever version it is read in: it is another machine.
        old.version.clone_from(&new.version);
        assert!(matches!(provider.delete(&old).await, Err(Error::Conflict(_))));
        let written = Patch::Merge(json!({ "metadata": { "labels": { "a": "b" } } }));
        machines.patch("spare", &PatchParams::default(), &written).await.unwrap();
        assert!(matches!(provider.delete(&new).await, Err(Error::Conflict(_))));
        provider.delete(&find().await).await.unwrap();
        assert!(machines.get_opt("spare").await.unwrap().is_none());
        // And nothing else is theirs.
        let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
        let refused = pods.delete("any", &DeleteParams::default()).await;
        assert!(matches!(&refused, Err(kube::Error::Api(status)) if status.code == 403), "{refused:?}");
        let theirs = Api::<DynamicObject>::namespaced_with(client, "default", &find_kind());
        let refused = theirs.create(&post, &object).await;
        assert!(matches!(&refused, Err(kube::Error::Api(status)) if status.code == 403), "{refused:?}");
    });
}

fn find_kind() -> kube::core::ApiResource {
    kube::core::ApiResource::from_gvk(&kube::core::GroupVersionKind::gvk("cluster.x-k8s.io", "v1beta1", "Machine"))
}

#[test]
fn nodes_are_replaced_one_at_a_time_whoever_is_killed() {
    let Some(mut site) = Site::with_room(3, 6) else { return };
    let mut provider = Provider::new(&mut site, "new");
    let controller = site.controller();
    volume(&site, "n2");
    site.pool_with("new", json!({}), json!({ "strategy": "Replace", "replace": { "provider": "ClusterAPI" } }));
    site.until("it lacks the right", |site| site.node_status("n1").reason == "NoMachines");
    assert!(site.node_status("n1").message.contains("403"), "{}", site.node_status("n1").message);
    rights(&mut site);
    // It is granted, and may not be deleted yet.
    site.until("one is granted", |site| site.ledger().grants.len() == 1);
    let grant = site.ledger().grants.remove(0);
    let refused = |site: &Site| site.node_status(&grant.node.name).message.contains("403");
    site.until("it is to be deleted", |site| site.node_status(&grant.node.name).reason == "Deletes" && refused(site));
    drop(controller);
    all_rights(&site);
    is_deleted_only_as_found(&mut site);
    assert_eq!(site.ledger().grants, std::slice::from_ref(&grant), "no clock frees it");
    let (_one, _other) = (site.controller(), site.controller());
    provider.until(&mut site, "two are replaced", |site| {
        site.nodes.iter().filter(|node| node.runs() == payload("new")).count() == 2 && site.ledger().grants.is_empty()
    });
    site.until("the other one says why", |site| site.node_status("n2").reason == "LocalVolumes");
    let message = site.node_status("n2").message;
    assert!(message.contains("it would lose volume disk of claim default/data"), "{message}");
    assert_eq!((site.ledger().epoch, site.nodes.len()), (2, 5), "who is killed is followed, with the same grant");
    volume_goes(&site);
    provider.until(&mut site, "all are replaced", |site| site.pool_status().state == "UpToDate");
    assert_eq!((provider.fewest, provider.last, site.ledger().epoch), (2, 6, 3));
    let status = site.rollouts().remove(0).status.unwrap();
    assert_eq!((status.state.as_str(), status.done, status.succeeded.len()), ("Finished", 3, 3));
    assert_eq!(site.chronicle.lines(), Vec::<String>::new(), "no node was asked for anything");
}

#[test]
fn a_successor_with_another_payload_stops_it() {
    let Some(mut site) = Site::with_room(2, 3) else { return };
    let mut provider = Provider::new(&mut site, "wrong");
    rights(&mut site);
    all_rights(&site);
    let (_one, _other) = (site.controller(), site.controller());
    site.pool_with("new", json!({ "steps": [{ "nodes": 1, "soak": "1h" }] }), json!({ "strategy": "Replace" }));
    provider.until(&mut site, "it is paused", |site| site.pool_status().state == "Paused");
    let rollout = site.rollouts().remove(0);
    let canary = rollout.spec.plan.waves[0].nodes[0].name.clone();
    let status = rollout.status.unwrap();
    let said = format!("the canary n3 failed: it came in the place of {canary}, and runs another payload");
    assert_eq!(status.denied, None, "the payload ran nowhere");
    assert!(status.paused.unwrap().starts_with(&said));
    site.until("that is said", |site| site.rollouts()[0].status.as_ref().unwrap().replacing.len() == 1);
    assert_eq!(site.rollouts()[0].status.as_ref().unwrap().replacing[0].reason, "SuccessorDiffers");
    assert_eq!((provider.last, site.ledger().epoch, site.ledger().grants.len()), (3, 1, 1), "it stays charged");
    site.release(site.ledger().grants[0].token);
    provider.until(&mut site, "a person frees it", |site| site.ledger().grants.is_empty());
    let other = rollout.spec.plan.waves[1].nodes[0].name.clone();
    site.until("the other one stays", |site| site.node_status(&other).reason == "Paused");
    assert_eq!((provider.last, provider.fewest), (3, 1));
}
