//! The objects and the rights that the manifests install.

use k8s_openapi::api::core::v1::{Node, Secret};
use kube::{
    Api,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::json;
use slipway_fleet::cluster::{Cluster, Error};
use slipway_fleet_objects::{
    channel::Channel,
    ledger::{DisruptionLedger, LEDGER},
    pool::NodePool,
    rollout::Rollout,
};

use crate::{
    node::payload,
    site::{Site, fleet},
};

/// The API server's own answer.
fn is_forbidden<T: std::fmt::Debug>(answer: kube::Result<T>) -> bool {
    matches!(&answer, Err(kube::Error::Api(status)) if status.code == 403 && status.reason == "Forbidden")
}

#[test]
fn a_request_outside_of_the_rights_is_refused() {
    let Some(site) = Site::new(1) else { return };
    let (mine, runtime) = (site.controllers_client(), &site.runtime);
    let (post, patch) = (PostParams::default(), PatchParams::default());
    let nodes: Api<Node> = Api::all(mine.clone());
    let pools: Api<NodePool> = Api::all(mine.clone());
    let ledgers: Api<DisruptionLedger> = Api::all(mine.clone());
    let rollouts: Api<Rollout> = Api::all(mine.clone());
    let channels: Api<Channel> = Api::all(mine.clone());
    runtime.block_on(async {
        // These it has.
        nodes.list(&ListParams::default()).await.unwrap();
        Cluster::new(mine.clone()).ledger().await.unwrap();
        let gone = rollouts.delete("none", &DeleteParams::default()).await;
        assert!(
            matches!(gone, Err(kube::Error::Api(status)) if status.code == 404),
            "old rollouts are its own to remove"
        );
        // And these it has not.
        let cordon = Patch::Merge(json!({ "spec": { "unschedulable": true } }));
        assert!(is_forbidden(nodes.patch("n1", &patch, &cordon).await));
        assert!(is_forbidden(nodes.delete("n1", &DeleteParams::default()).await));
        let resume = Patch::Merge(json!({ "spec": { "paused": null } }));
        assert!(is_forbidden(pools.patch("p", &patch, &resume).await), "what people write is theirs");
        let allow = Patch::Merge(json!({ "spec": { "deny": [] } }));
        assert!(is_forbidden(channels.patch("stable", &patch, &allow).await), "and what they deny");
        assert!(
            is_forbidden(channels.patch_status("stable", &patch, &Patch::Merge(json!({}))).await),
            "only as a whole"
        );
        let release = json!({ "spec": { "release": [{ "token": 1, "who": "it", "why": "it" }] } });
        assert!(is_forbidden(ledgers.patch(LEDGER, &patch, &Patch::Merge(release)).await));
        assert!(is_forbidden(ledgers.patch_status(LEDGER, &patch, &Patch::Merge(json!({}))).await), "only as a whole");
        assert!(is_forbidden(ledgers.delete(LEDGER, &DeleteParams::default()).await));
        assert!(is_forbidden(pools.delete("any", &DeleteParams::default()).await));
        assert!(is_forbidden(channels.delete("any", &DeleteParams::default()).await));
        let secrets: Api<Secret> = Api::namespaced(mine.clone(), "slipway-fleet");
        assert!(is_forbidden(secrets.list(&ListParams::default()).await));
        assert!(is_forbidden(secrets.create(&post, &Secret::default()).await));
    });
}

#[test]
fn what_cannot_be_meant_is_refused_by_the_schema() {
    let Some(site) = Site::new(0) else { return };
    let refused = |kind: &str, spec: serde_json::Value| match site.make(fleet(kind, "x", spec)) {
        Err(kube::Error::Api(status)) if status.code == 422 => status.message,
        other => panic!("{other:?}"),
    };
    for (policy, why) in [
        (json!({ "maxUnavailable": "0%" }), "maxUnavailable"),
        (json!({ "maxUnavailable": "110%" }), "maxUnavailable"),
        (json!({ "maxUnavailable": -1 }), "maxUnavailable"),
        (json!({ "rate": { "count": 1, "per": "soon" } }), "per"),
        (json!({ "windows": [{ "start": "25:00", "lasts": "4h", "zone": "UTC" }] }), "start"),
        (json!({ "windows": [{ "start": "22:00", "lasts": "4h", "zone": "UTC", "days": ["monday"] }] }), "days"),
        (json!({ "topology": { "key": "zone", "maxDomains": 0 } }), "maxDomains"),
        (json!({ "topology": { "key": "" } }), "topology.key"),
        (json!({ "rate": { "count": 1, "per": "30m 1h" } }), "per"),
        (json!({ "rate": { "count": 1, "per": "1d" } }), "per"),
        (json!({ "blackouts": [{ "from": "tomorrow", "until": "2027-01-04T06:00", "zone": "UTC" }] }), "from"),
        (json!({ "blackouts": [{ "from": "2026-12-23", "until": "2027-01-04T06:00Z", "zone": "UTC" }] }), "until"),
    ] {
        let said = refused("UpgradePolicy", policy);
        assert!(said.contains(why), "{said}");
    }
    let said = refused("NodePool", json!({ "nodeSelector": {}, "target": { "image": "x", "payload": "abc" } }));
    assert!(said.contains("payload"), "{said}");
    let unnamed = json!({ "image": "registry.example/os:2", "payload": payload("x") });
    let said = refused("NodePool", json!({ "nodeSelector": {}, "target": unnamed }));
    assert!(said.contains("target.image") && said.contains("docker://"), "{said}");
    let whole = json!({ "image": "docker://registry.example/os:2", "payload": payload("x") });
    for target in [json!({}), json!({ "image": "x" }), json!({ "payload": payload("x") })] {
        let said = refused("NodePool", json!({ "nodeSelector": {}, "target": target }));
        assert!(said.contains("spec.target"), "{said}");
    }
    let mut both = whole.clone();
    both["channel"] = "stable".into();
    assert!(refused("NodePool", json!({ "nodeSelector": {}, "target": both })).contains("spec.target"));
    for target in [whole, json!({ "channel": "stable" })] {
        let name = if target["channel"].is_null() { "image" } else { "channel" };
        site.make(fleet("NodePool", name, json!({ "nodeSelector": { "no": "node" }, "target": target }))).unwrap();
    }
    for select in [json!({}), json!({ "label": "stable", "tags": "v*" }), json!({ "tags": "a b" })] {
        let said = refused("Channel", json!({ "repository": "r.io/os", "select": select }));
        assert!(said.contains("spec.select"), "{said}");
    }
    for (list, entry) in [("floors", "1.4"), ("floors", "v1.4.0"), ("deny", "1.9"), ("deny", "sha256:0123")] {
        let said = refused("Channel", json!({ "repository": "r.io/os", "select": { "label": "a" }, list: [entry] }));
        assert!(said.contains(&format!("spec.{list}")), "{said}");
    }
    let unsigned = json!({ "who": "", "why": "" });
    let said = refused("NodePool", json!({ "nodeSelector": {}, "target": {}, "paused": unsigned }));
    assert!(said.contains("paused.who") && said.contains("paused.why"), "{said}");
    // Where nothing is said no grant is freed, and nobody would be told why.
    let blank = json!({ "token": 1, "who": " ", "why": "\n" });
    let said = refused("DisruptionLedger", json!({ "release": [blank] }));
    assert!(said.contains(".who") && said.contains(".why"), "{said}");
    // And what the documents show is taken.
    let whole = json!({
        "maxUnavailable": "25%", "failureBudget": 2, "rate": { "count": 10, "per": "1h" },
        "windows": [{ "days": ["tue"], "start": "22:00", "lasts": "4h 30m", "zone": "Europe/Berlin" }],
        "blackouts": [{ "from": "2026-12-23T18:00", "until": "2027-01-04T06:00", "zone": "UTC", "why": "holidays" }],
        "topology": { "key": "topology.kubernetes.io/zone" }, "steps": [{ "nodes": 1, "soak": "1h" }],
    });
    site.make(fleet("UpgradePolicy", "whole", whole)).unwrap();
}

#[test]
fn a_ledger_that_somebody_has_written_is_not_written_over() {
    let Some(site) = Site::new(0) else { return };
    let cluster = Cluster::new(site.controllers_client());
    site.runtime.block_on(async {
        let (one, other) = (cluster.ledger().await.unwrap(), cluster.ledger().await.unwrap());
        let mut ledger = one.status.clone().unwrap_or_default();
        ledger.epoch = 7;
        cluster.write_ledger(&one, &ledger).await.unwrap();
        let mut late = other.status.clone().unwrap_or_default();
        late.epoch = 3;
        let refused = cluster.write_ledger(&other, &late).await;
        assert!(matches!(refused, Err(Error::Conflict(_))), "{refused:?}");
        let mut blind = other.clone();
        blind.metadata.resource_version = None;
        let refused = cluster.write_ledger(&blind, &late).await;
        assert!(matches!(refused, Err(Error::Failed { .. })), "{refused:?}");
        assert_eq!(cluster.ledger().await.unwrap().status, Some(ledger));
    });
}
