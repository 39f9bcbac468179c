//! Rollouts in which something goes wrong.

use kube::api::{ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use slipway_fleet::names;

use crate::{
    metrics::numbers,
    node::payload,
    site::{Site, fleet, manifest_of},
};

/// The number of times that any node was disturbed.
fn cordons(site: &Site) -> usize {
    site.chronicle.lines().iter().filter(|line| line.ends_with(" cordon")).count()
}

/// The API server takes it; no controller does.
#[test]
fn a_rollout_that_somebody_wrote_by_hand_stops_no_other_pool() {
    let Some(site) = Site::new(1) else { return };
    let plan = json!({ "pool": "other", "payload": "abc", "hash": "abc", "waves": [] });
    site.make(fleet("Rollout", "by-hand", json!({ "image": "i", "plan": plan }))).unwrap();
    let target = json!({ "image": "docker://registry.example/os:new", "payload": payload("new") });
    site.make(fleet("NodePool", "other", json!({ "nodeSelector": { "pool": "none" }, "target": target }))).unwrap();
    let _controller = site.controller();
    site.pool("new", json!({}));
    site.until_all_run("new");
    site.until("the other one says why", |site| site.status_of("other").state == "Invalid");
    let message = site.status_of("other").message;
    assert!(
        message.starts_with("its Rollout by-hand cannot be understood: ") && message.contains("delete it"),
        "{message}"
    );
    // What only controllers write, and nobody reads but people, is written anew.
    let upgrades = site.api_of("fleet.slipway.dev/v1alpha1", "NodeUpgrade", None);
    let by_hand = json!({ "status": { "reason": "By hand", "message": "by hand", "runs": "nonsense" } });
    site.runtime.block_on(upgrades.patch_status("n1", &PatchParams::default(), &Patch::Merge(&by_hand))).unwrap();
    site.until("it is whole again", |site| {
        let read = site.runtime.block_on(upgrades.get("n1")).unwrap();
        read.data["status"]["reason"] == "Done" && read.data["status"]["runs"] == json!(payload("new"))
    });
    // So is what a pool's status says: its spec is as good as before.
    let pools = site.api_of("fleet.slipway.dev/v1alpha1", "NodePool", None);
    let by_hand = json!({ "status": { "state": "By hand", "payload": "nonsense" } });
    site.runtime.block_on(pools.patch_status("p", &PatchParams::default(), &Patch::Merge(&by_hand))).unwrap();
    site.until("the pool is whole again", |site| {
        let read = site.runtime.block_on(pools.get("p")).unwrap();
        read.data["status"]["state"] == "UpToDate" && read.data["status"]["payload"] == json!(payload("new"))
    });
    let events = site.api_of("v1", "Event", Some("default"));
    let is_told = |kind: &str| {
        let all = site.runtime.block_on(events.list(&ListParams::default())).unwrap().items;
        all.iter().any(|of| of.data["reason"] == "NotUnderstood" && of.data["involvedObject"]["kind"] == kind)
    };
    site.until("both are told", |_| is_told("Rollout") && is_told("NodeUpgrade"));
    // A ledger that no controller understands stops all of them, and each says so.
    let ledgers = site.api_of("fleet.slipway.dev/v1alpha1", "DisruptionLedger", None);
    let node = json!({ "uid": "u", "name": "n", "pool": "p", "role": "worker" });
    let replaces = json!({
        "payload": "nonsense", "machine": "m", "name": "m", "set": "s", "newest": "2026-01-01T00:00:00Z", "others": [],
    });
    let grant = json!({ "node": node, "token": 1, "since": "2026-01-01T00:00:00Z", "replaces": replaces });
    let of = |grants: Value| Patch::Merge(json!({ "status": { "grants": grants } }));
    let write = |grants| site.runtime.block_on(ledgers.patch_status("cluster", &PatchParams::default(), &of(grants)));
    write(json!([grant])).unwrap();
    let says = |site: &Site, pool: &str| site.status_of(pool).message.contains("DisruptionLedger cluster cannot be");
    site.until("both pools say so", |site| says(site, "p") && says(site, "other"));
    site.until("and the node", |site| site.node_status("n1").reason == "LedgerInvalid");
    write(json!([])).unwrap();
    site.until("it goes on", |site| site.pool_status().state == "UpToDate");
}

#[test]
fn a_bad_canary_comes_back_and_nobody_else_starts() {
    let Some(site) = Site::new(3) else { return };
    let (_one, _other) = (site.controller(), site.controller());
    site.pool("bad", json!({ "maxUnavailable": 2, "failureBudget": 3, "steps": [{ "nodes": 1, "soak": "1h" }] }));
    site.until("it is denied", |site| site.pool_status().state == "Denied");
    site.until("its grant is free", |site| site.ledger().grants.is_empty());
    let rollout = site.rollouts().remove(0);
    let canary = rollout.spec.plan.waves[0].nodes[0].name.clone();
    let denied = rollout.status.unwrap().denied.unwrap();
    assert!(denied.contains(&format!("the canary {canary} failed")), "{denied}");
    assert_eq!(cordons(&site), 1, "{:?}", site.chronicle.lines());
    assert_eq!(site.chronicle.count(&format!("{canary} return")), 1);
    assert!(site.nodes.iter().all(|node| node.runs() == payload("old")));
    for (_, node) in rollout.spec.plan.nodes() {
        site.until_it_says(&node.name, if node.name == canary { "Failed" } else { "PayloadDenied" });
    }
    // A good one goes on from there.
    let target = json!({ "image": "docker://registry.example/os:new", "payload": payload("new") });
    site.change_pool(json!({ "target": target }));
    site.until("the canary soaks", |site| site.pool_status().message.contains("wave 1 must be well until"));
    assert_eq!(site.nodes.iter().filter(|node| node.runs() == payload("new")).count(), 1);
    let old = site.rollouts().into_iter().find(|of| of.spec.plan.payload == payload("bad")).unwrap();
    assert_eq!(old.status.unwrap().state, "Superseded");
}

#[test]
fn a_node_that_fell_silent_stays_charged_until_a_person_frees_it() {
    let Some(mut site) = Site::new(2) else { return };
    (1..=2).for_each(|n| site.chronicle.hold(&format!("n{n} drain")));
    let _controller = site.controller();
    site.pool("new", json!({}));
    site.until("one is under way", |site| cordons(site) == 1);
    let grant = site.ledger().grants.remove(0);
    let n: usize = grant.node.name[1..].parse().unwrap();
    let (silent, other) = (n - 1, format!("n{}", 3 - n));
    let site_runtime = &site.runtime;
    site.nodes[silent].fall_silent(site_runtime);
    // As far as is known it reboots.
    let is_missed = |site: &Site| site.node_status(&grant.node.name).reason == "Rebooting";
    site.until("it is missed", is_missed);
    // One look after another.
    site.change_pool(json!({ "paused": { "who": "alice", "why": "to see a look" } }));
    site.until("it was looked at", |site| site.node_status(&other).reason == "Paused");
    site.change_pool(json!({ "paused": null }));
    site.until("and again", |site| site.node_status(&other).reason == "Budget");
    assert_eq!((cordons(&site), site.ledger().grants.len()), (1, 1));
    site.release(grant.token);
    site.until("it is free", |site| site.ledger().grants.is_empty());
    // It is not well as far as is known: the other one still waits.
    site.until("that is said", |site| site.node_status(&grant.node.name).reason == "Silent");
    assert_eq!(cordons(&site), 1);
    site.serve_again(n);
    (1..=2).for_each(|n| site.chronicle.release(&format!("n{n} drain")));
    // It finds no grant before its services stop, and comes back.
    site.until("it comes back", |site| site.node_status(&grant.node.name).reason == "RetriesLater");
    assert_eq!(site.nodes[silent].runs(), payload("old"));
}

#[test]
fn a_node_that_was_made_again_under_its_name_is_another_one() {
    let Some(site) = Site::new(2) else { return };
    (1..=2).for_each(|n| site.chronicle.hold(&format!("n{n} stop")));
    let controller = site.controller();
    site.pool("new", json!({}));
    // From here on it finishes alone.
    let rechecked = |site: &Site| site.chronicle.lines().iter().any(|line| line.ends_with(" recheck"));
    site.until("one is under way", rechecked);
    let grant = site.ledger().grants.remove(0);
    let (name, n): (_, usize) = (grant.node.name.clone(), grant.node.name[1..].parse().unwrap());
    let other = format!("n{}", 3 - n);
    // It must not look in between: a grant whose Node is gone is free, and the other one may begin.
    controller.signal("-STOP");
    site.delete_object(&name);
    let uid = site.add_object(n);
    controller.signal("-CONT");
    assert_ne!(uid, grant.node.uid);
    site.until("its grant is free", |site| site.ledger().grants.is_empty());
    // The machine is in the middle of it all the same, and counts.
    site.until("the other one waits", |site| site.node_status(&other).reason == "Budget");
    assert_eq!(cordons(&site), 1);
    (1..=2).for_each(|n| site.chronicle.release(&format!("n{n} stop")));
    site.until_all_run("new");
    assert_eq!(site.chronicle.most_at_once(), 1, "{:?}", site.chronicle.lines());
    assert_eq!(site.nodes.iter().map(|node| node.upgrades()).collect::<Vec<_>>(), [1, 1]);
}

#[test]
fn a_rollout_that_the_api_server_refuses_is_its_own_pools_trouble() {
    let Some(site) = Site::new(2) else { return };
    site.label("n2", "pool", "other");
    // Its rollouts would have longer names than there can be.
    let name = "a".repeat(245);
    let target = json!({ "image": "docker://registry.example/os:new", "payload": payload("new") });
    site.make(fleet("NodePool", &name, json!({ "nodeSelector": { "pool": "other" }, "target": target }))).unwrap();
    let _controller = site.controller();
    site.pool("new", json!({}));
    site.until("the other pool is done", |site| site.pool_status().state == "UpToDate");
    assert_eq!(site.nodes[0].runs(), payload("new"));
    site.until("it says why", |site| site.status_of(&name).message.contains("the API server says 422"));
    let status = site.status_of(&name);
    assert!(status.message.starts_with("nothing begins: rollout aaa"), "{}", status.message);
    assert_eq!((status.done, site.nodes[1].runs()), (0, payload("old")));
}

#[test]
fn what_cannot_be_written_of_one_pool_is_its_own_trouble() {
    let Some(site) = Site::new(2) else { return };
    site.label("n2", "pool", "other");
    // Of all rollouts, only that of the pool p may be written.
    let all = manifest_of("rights.yaml")[0]["rules"].clone();
    let mut some = all.clone();
    let is_it = |rule: &&mut Value| rule["resources"].as_array().unwrap().contains(&json!("rollouts/status"));
    some.as_array_mut().unwrap().iter_mut().find(is_it).unwrap()["resourceNames"] =
        json!([names::rollout("p", payload("new"), None)]);
    site.may(&some);
    // And no grant of the other pool.
    let kinds = site.api_of("apiextensions.k8s.io/v1", "CustomResourceDefinition", None);
    let allow = |pools: &str| {
        let name = "disruptionledgers.fleet.slipway.dev";
        let mut kind = site.runtime.block_on(kinds.get(name)).unwrap();
        let schema = kind.data.pointer_mut("/spec/versions/0/schema/openAPIV3Schema/properties/status").unwrap();
        schema["properties"]["grants"]["items"]["properties"]["node"]["properties"]["pool"]["pattern"] = json!(pools);
        site.runtime.block_on(kinds.replace(name, &PostParams::default(), &kind)).unwrap();
    };
    allow("^p$");
    let (_controller, port) = site.controller_that_looks(&site.token, 1);
    let target = json!({ "image": "docker://registry.example/os:new", "payload": payload("new") });
    site.make(fleet("NodePool", "other", json!({ "nodeSelector": { "pool": "other" }, "target": target }))).unwrap();
    site.pool("new", json!({}));
    site.until("the other pool is done", |site| site.pool_status().state == "UpToDate");
    assert_eq!((site.nodes[0].runs(), site.nodes[1].runs()), (payload("new"), payload("old")));
    site.until("it says why", |site| site.status_of("other").message.contains("403"));
    let message = site.status_of("other").message;
    assert!(message.starts_with("nothing begins: rollout other-"), "{message}");
    // Nodes are told after their pools.
    site.until("its node says so", |site| site.node_status("n2").reason == "Unwritten");
    let refused = |pool: &str| numbers(port)[&format!("slipway_fleet_pool_refused{{pool=\"{pool}\"}}")];
    assert_eq!((refused("p"), refused("other")), (0.0, 1.0));
    // Now its grants are refused, and the pool p goes on again.
    site.may(&all);
    site.until("it says that", |site| site.status_of("other").message.contains("its grants cannot be written"));
    site.until("its node says so", |site| site.node_status("n2").reason == "Unwritten");
    assert_eq!(site.ledger().grants.len(), 0);
    site.chronicle.hold("n1 drain");
    site.pool_target("newer");
    site.until("the pool p goes on again", |site| site.chronicle.count("n1 cordon") == 2);
    assert_eq!(site.nodes[1].runs(), payload("old"));
    // A freed grant cannot be written, either. Then all nodes wait, and say why.
    let mut none = all.clone();
    none.as_array_mut().unwrap().retain(|rule| rule["resources"] != json!(["disruptionledgers/status"]));
    site.may(&none);
    site.chronicle.release("n1 drain");
    let says = |site: &Site, pool: &str| {
        site.status_of(pool).message.contains("the ledger cannot be written: the API server says 403")
    };
    site.until("all say so", |site| says(site, "p") && says(site, "other"));
    assert_eq!((site.nodes[0].runs(), site.ledger().grants.len()), (payload("newer"), 1));
    site.may(&all);
    allow("");
    site.until("nothing is refused", |site| site.nodes[1].runs() == payload("new") && site.ledger().grants.is_empty());
    site.until("and that is said", |_| refused("other") == 0.0);
}
