//! The way back from a payload that is denied.

use serde_json::json;

use crate::{node::payload, site::Site};

/// The numbers of the nodes that run this payload.
fn run(site: &Site, name: &str) -> Vec<usize> {
    let runs = |(_, node): &(usize, &crate::node::StandIn)| node.runs() == payload(name);
    site.nodes.iter().enumerate().filter(runs).map(|(n, _)| n + 1).collect()
}

/// It is denied by the last node of its plan; the others run it, and hold no grants.
fn denied_at_the_last(site: &Site, more: serde_json::Value) -> Vec<usize> {
    let mut spec = json!({ "paused": { "who": "alice", "why": "to see the plan" } });
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    site.pool_with("new", json!({}), spec);
    site.until("there is a plan", |site| !site.rollouts().is_empty());
    let rollout = site.rollouts().remove(0);
    let order: Vec<usize> = rollout.spec.plan.nodes().map(|(_, node)| node.name[1..].parse().unwrap()).collect();
    let last = *order.last().unwrap();
    site.nodes[last - 1].spoil("new");
    site.change_pool(json!({ "paused": null }));
    site.until("it is denied", |site| site.pool_status().state == "Denied");
    order
}

#[test]
fn nodes_that_have_it_go_back_one_by_one_and_download_nothing() {
    let Some(site) = Site::new(3) else { return };
    let (_one, _other) = (site.controller(), site.controller());
    let order = denied_at_the_last(&site, json!({}));
    site.until("its grant is free", |site| site.ledger().grants.is_empty());
    // Their rollback is not wanted yet.
    let mut two = order[..2].to_vec();
    two.sort_unstable();
    assert_eq!(run(&site, "new"), two);
    site.until_it_says(&format!("n{}", order[0]), "Done");
    let count = |site: &Site, n: usize, step: &str| site.chronicle.count(&format!("n{n} {step}"));
    let (staged, started) = ([1, 2, 3].map(|n| count(&site, n, "stage")), [1, 2, 3].map(|n| count(&site, n, "reboot")));
    site.change_pool(json!({ "rollback": {} }));
    site.until("all run the old one", |site| run(site, "old").len() == 3);
    site.until("their grants are free", |site| site.ledger().grants.is_empty());
    let lines = site.chronicle.lines();
    assert_eq!(site.chronicle.most_at_once(), 1, "{lines:?}");
    for n in 1..=3 {
        let name = format!("n{n}");
        assert_eq!(count(&site, n, "stage"), staged[n - 1], "{lines:?}");
        // Once for those two; the last one had come back by itself.
        assert_eq!(count(&site, n, "reboot"), started[n - 1] + usize::from(n != order[2]), "{lines:?}");
        site.until("that is said", |site| site.node_status(&name).reason == "Failed");
    }
    let status = site.node_status(&format!("n{}", order[0]));
    assert!(status.message.contains("it went back, because the payload is denied"), "{}", status.message);
    let rollout = site.rollouts().remove(0).status.unwrap();
    assert_eq!(rollout.state, "Denied");
    assert_eq!(site.ledger().epoch, 5, "three grants there, two back");
}

#[test]
fn the_control_plane_goes_back_only_if_asked() {
    let Some(site) = Site::new(3) else { return };
    site.label("n1", "node-role.kubernetes.io/control-plane", "");
    let _controller = site.controller();
    let order = denied_at_the_last(&site, json!({ "rollback": {}, "order": "control-plane-first" }));
    assert_eq!(order[0], 1);
    site.until("the worker is back", |site| run(site, "new") == [1]);
    site.until("the other one says why", |site| site.node_status("n1").reason == "KeepsDenied");
    let status = site.node_status("n1");
    assert!(status.message.contains("its rollback was not asked for"), "{}", status.message);
    site.until("grants are free", |site| site.ledger().grants.is_empty());
    site.change_pool(json!({ "rollback": { "controlPlane": true } }));
    site.until("it is back", |site| run(site, "old").len() == 3);
    assert_eq!(site.chronicle.most_at_once(), 1, "{:?}", site.chronicle.lines());
}
