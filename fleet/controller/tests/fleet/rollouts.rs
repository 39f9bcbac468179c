//! Rollouts that go well, whatever happens to the controllers.

use serde_json::json;

use crate::{node::payload, site::Site};

#[test]
fn two_controllers_upgrade_each_node_once_and_never_more_than_allowed() {
    let Some(site) = Site::new(4) else { return };
    let (_one, _other) = (site.controller(), site.controller());
    site.pool("new", json!({ "maxUnavailable": 2, "topology": { "key": "topology.kubernetes.io/zone" } }));
    site.until_all_run("new");
    let lines = site.chronicle.lines();
    assert!(site.chronicle.most_at_once() <= 2, "{lines:?}");
    for n in 1..=4 {
        assert_eq!(site.chronicle.count(&format!("n{n} reboot")), 1, "{lines:?}");
    }
    // All were staged before the first was disturbed.
    let first = lines.iter().position(|line| line.ends_with(" cordon")).unwrap();
    assert!((1..=4).all(|n| lines[..first].contains(&format!("n{n} stage"))), "{lines:?}");
    // The rollout follows its plan, zone after zone.
    let rollouts = site.rollouts();
    let [rollout] = &rollouts[..] else { panic!("{rollouts:?}") };
    let zones: Vec<_> = rollout.spec.plan.nodes().map(|(_, node)| node.zone.clone().unwrap()).collect();
    assert_eq!(zones, ["a", "a", "b", "b"]);
    let zone = |line: &&String| {
        let name = line.strip_suffix(" cordon")?;
        rollout.spec.plan.nodes().find(|(_, node)| node.name == name)?.1.zone.clone()
    };
    let went: Vec<_> = lines.iter().filter_map(|line| zone(&line)).collect();
    assert_eq!(went, zones, "{lines:?}");
    assert_eq!(rollout.status.as_ref().unwrap().state, "Finished");
    let ledger = site.ledger();
    assert_eq!((ledger.epoch, ledger.grants.len()), (4, 0));
    for n in 1..=4 {
        site.until_it_says(&format!("n{n}"), "Done");
    }
}

#[test]
fn a_controller_that_is_killed_is_followed_by_another() {
    let Some(site) = Site::new(3) else { return };
    let holds: Vec<String> = (1..=3).map(|n| format!("n{n} drain")).collect();
    holds.iter().for_each(|line| site.chronicle.hold(line));
    let controller = site.controller();
    site.pool("new", json!({}));
    let cordoned = |site: &Site| site.chronicle.lines().iter().filter(|line| line.ends_with(" cordon")).count();
    site.until("one is under way", |site| cordoned(site) == 1);
    drop(controller);
    holds.iter().for_each(|line| site.chronicle.release(line));
    // It ends without help.
    site.until("it has ended", |site| site.nodes.iter().any(|node| node.upgrades() == 1));
    assert_eq!((cordoned(&site), site.ledger().grants.len()), (1, 1), "its grant is held until a person looks");
    let _controller = site.controller();
    site.until_all_run("new");
    assert_eq!(site.chronicle.most_at_once(), 1);
    assert_eq!(site.nodes.iter().map(|node| node.upgrades()).collect::<Vec<_>>(), [1, 1, 1]);
    assert_eq!(site.ledger().epoch, 3);
}

/// By the real API server's own word.
#[test]
fn a_payload_whose_kubelet_is_newer_than_the_api_server_waits() {
    let Some(site) = Site::new(2) else { return };
    let server = site.server_version();
    let newer = server.to_string().replace('.', ".9");
    for node in &site.nodes {
        node.names("new", &format!("kubelet={newer}.0"));
        node.names("next", &format!("kubelet=v{server}.7"));
    }
    let _controller = site.controller();
    site.pool("new", json!({}));
    site.until_it_says("n1", "KubeletSkew");
    site.until_it_says("n2", "KubeletSkew");
    let told = site.node_status("n1").message;
    assert_eq!(
        told,
        format!("its kubelet {newer} would be newer than the API server's {server}: upgrade the API servers first")
    );
    assert_eq!((site.ledger().epoch, site.chronicle.count("n1 cordon")), (0, 0));
    site.pool_target("next");
    site.until_all_run("next");
}

#[test]
fn a_pool_that_people_have_paused_begins_nothing_and_says_so() {
    let Some(site) = Site::new(2) else { return };
    let _controller = site.controller();
    site.pool_with("new", json!({}), json!({ "paused": { "who": "alice", "why": "the fair" } }));
    site.until("it is seen", |site| site.node_status("n2").reason == "Paused");
    assert_eq!(site.pool_status().message, "alice: the fair");
    site.change_pool(json!({ "policies": ["policy", "missing"] }));
    site.until("the policy is missed", |site| site.node_status("n2").reason == "PolicyMissing");
    assert!(site.pool_status().message.contains("missing"));
    let skip = json!([{ "node": "n2", "who": "bob", "why": "it is on loan" }]);
    assert_eq!(site.chronicle.lines(), Vec::<String>::new());
    site.change_pool(json!({ "policies": ["policy"], "skip": skip, "paused": null }));
    site.until("the other one is done", |site| site.node_status("n1").reason == "Done");
    site.until("it is left out", |site| site.node_status("n2").reason == "Skipped");
    assert_eq!(site.nodes[0].runs(), payload("new"));
}
