//! Volumes that a node would lose with its machine.

use std::slice::from_ref;

use k8s_openapi::api::core::v1::{Node, PersistentVolume, Pod};
use serde_json::{Value, json};
use slipway_fleet::volumes::{is_needed, is_needed_of, local_volumes, needs_pods};

fn nodes() -> Vec<Node> {
    let node = |name: &str, zone: &str| {
        let labels = json!({ "topology.kubernetes.io/zone": zone, "topology.example/node": name, "rank": "7" });
        serde_json::from_value(json!({ "metadata": { "name": name, "uid": format!("uid-{name}"), "labels": labels } }))
    };
    vec![node("n1", "a").unwrap(), node("n2", "a").unwrap(), node("n3", "b").unwrap()]
}

fn volume(more: Value, terms: Option<Value>) -> PersistentVolume {
    let mut spec = json!({ "claimRef": { "namespace": "shop", "name": "data" } });
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    if let Some(terms) = terms {
        spec["nodeAffinity"] = json!({ "required": { "nodeSelectorTerms": terms } });
    }
    serde_json::from_value(json!({ "metadata": { "name": "disk" }, "spec": spec })).unwrap()
}

fn expression(key: &str, operator: &str, values: &[&str]) -> Value {
    json!({ "key": key, "operator": operator, "values": values })
}

/// The nodes that would lose it. Fields that the controller does not keep make no difference.
fn losers(volume: PersistentVolume, pods: &[Pod]) -> Vec<String> {
    let whole: Vec<String> = local_volumes(&nodes(), from_ref(&volume), pods).into_keys().collect();
    let (mut volumes, mut pods) = (vec![volume], pods.to_vec());
    volumes.retain_mut(is_needed);
    pods.retain_mut(is_needed_of);
    assert_eq!(local_volumes(&nodes(), &volumes, &pods).into_keys().collect::<Vec<_>>(), whole);
    whole
}

#[test]
fn what_is_not_needed_of_volumes_and_pods_is_not_kept() {
    let meta = json!({ "name": "disk", "annotations": { "a": "b" }, "managedFields": [{ "manager": "m" }] });
    let claim = json!({ "namespace": "shop", "name": "data" });
    let mut volume: PersistentVolume = serde_json::from_value(json!({ "metadata": meta,
        "spec": { "claimRef": claim, "hostPath": { "path": "/a" }, "capacity": { "storage": "1Gi" } } }))
    .unwrap();
    assert!(is_needed(&mut volume));
    let lean = json!({ "claimRef": claim, "hostPath": { "path": "/a" } });
    assert_eq!(serde_json::to_value(&volume).unwrap()["spec"], lean);
    assert_eq!(serde_json::to_value(&volume).unwrap()["metadata"], json!({ "name": "disk" }));
    volume.spec.as_mut().unwrap().host_path = None;
    assert!(!is_needed(&mut volume), "it is on no node's disk");
    let volumes =
        json!([{ "name": "v", "persistentVolumeClaim": { "claimName": "data" } }, { "name": "w", "emptyDir": {} }]);
    let mut pod: Pod =
        serde_json::from_value(json!({ "metadata": { "namespace": "shop", "name": "p", "labels": { "a": "b" } },
        "spec": { "nodeName": "n1", "containers": [{ "name": "c", "image": "i" }], "volumes": volumes } }))
        .unwrap();
    assert!(is_needed_of(&mut pod));
    let lean = serde_json::to_value(&pod).unwrap();
    assert_eq!(
        (lean["spec"]["containers"].as_array().unwrap().len(), &lean["spec"]["volumes"]),
        (0, &json!([volumes[0]]))
    );
    pod.spec.as_mut().unwrap().volumes = None;
    assert!(!is_needed_of(&mut pod));
}

#[test]
fn a_volume_that_fits_one_node_alone_is_lost_with_it() {
    let local = || json!({ "local": { "path": "/mnt/disk" } });
    let csi = || json!({ "csi": { "driver": "disks.example", "volumeHandle": "1" } });
    let on = |expression: Value| Some(json!([{ "matchExpressions": [expression] }]));
    let hostname = || expression("kubernetes.io/hostname", "In", &["n2"]);
    assert_eq!(losers(volume(local(), on(hostname())), &[]), ["uid-n2"]);
    assert_eq!(
        local_volumes(&nodes(), &[volume(local(), on(hostname()))], &[])["uid-n2"],
        "it would lose volume disk of claim shop/data"
    );
    // Of any driver, by any label, or by the Node's own name.
    assert_eq!(losers(volume(csi(), on(expression("topology.example/node", "In", &["n3"]))), &[]), ["uid-n3"]);
    assert_eq!(losers(volume(csi(), on(expression("topology.example/node", "NotIn", &["n1", "n2"]))), &[]), ["uid-n3"]);
    let field = json!([{ "matchFields": [expression("metadata.name", "In", &["n1"])] }]);
    assert_eq!(losers(volume(csi(), Some(field)), &[]), ["uid-n1"]);
    let both = json!([{ "matchExpressions": [expression("topology.kubernetes.io/zone", "In", &["a"]), hostname()] }]);
    assert_eq!(losers(volume(csi(), Some(both)), &[]), ["uid-n2"]);
    // A disk that two hosts say they have is on each of them.
    let two = expression("kubernetes.io/hostname", "In", &["n1", "n2"]);
    assert_eq!(losers(volume(local(), on(two.clone())), &[]), ["uid-n1", "uid-n2"]);
    // Not lost: a volume that others reach, in the same zone, too; one that is nowhere; one that was never claimed.
    let none: Vec<String> = Vec::new();
    assert_eq!(losers(volume(csi(), on(two)), &[]), none);
    assert_eq!(losers(volume(csi(), on(expression("topology.kubernetes.io/zone", "In", &["b"]))), &[]), none);
    assert_eq!(losers(volume(csi(), on(expression("rank", "Gt", &["6"]))), &[]), none);
    assert_eq!(losers(volume(local(), on(expression("rank", "Lt", &["7"]))), &[]), none);
    assert_eq!(losers(volume(csi(), None), &[]), none);
    let mut unclaimed = volume(local(), on(hostname()));
    unclaimed.spec.as_mut().unwrap().claim_ref = None;
    assert_eq!(losers(unclaimed, &[]), none);
}

#[test]
fn a_volume_of_the_host_is_that_of_each_node_where_a_pod_uses_it() {
    let pod = |name: &str, node: &str, volume: Value| -> Pod {
        let spec = json!({ "nodeName": node, "containers": [], "volumes": [volume] });
        serde_json::from_value(json!({ "metadata": { "namespace": "shop", "name": name }, "spec": spec })).unwrap()
    };
    let claim = json!({ "name": "v", "persistentVolumeClaim": { "claimName": "data" } });
    let host = || volume(json!({ "hostPath": { "path": "/srv" } }), None);
    assert!(needs_pods(&[host()]) && !needs_pods(&[volume(json!({ "nfs": {"server": "s", "path": "/"} }), None)]));
    assert_eq!(losers(host(), &[]), Vec::<String>::new());
    assert_eq!(losers(host(), &[pod("p", "n1", claim.clone())]), ["uid-n1"]);
    let mut other = pod("p", "n1", claim);
    other.metadata.namespace = Some("elsewhere".to_owned());
    assert_eq!(losers(host(), &[other]), Vec::<String>::new());
    // A claim that is made for a pod has a name of its own.
    let mut made = host();
    made.spec.as_mut().unwrap().claim_ref.as_mut().unwrap().name = Some("p-v".to_owned());
    let ephemeral = json!({ "name": "v", "ephemeral": {} });
    assert_eq!(losers(made, &[pod("p", "n3", ephemeral)]), ["uid-n3"]);
}
