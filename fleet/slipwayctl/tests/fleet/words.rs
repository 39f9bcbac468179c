//! People's words, from the command line to what becomes of them.

use serde_json::{Value, json};
use slipway_fleet_objects::pool::NodePool;

use crate::{
    node::payload,
    program::fleet,
    site::{Site, fleet as object},
};

fn spec(site: &Site) -> Value {
    let pools: kube::Api<NodePool> = kube::Api::all(site.client.clone());
    serde_json::to_value(site.runtime.block_on(pools.get("p")).unwrap().spec).unwrap()
}

#[test]
fn what_runs_is_the_plan_that_was_looked_at() {
    let Some(site) = Site::new(3) else { return };
    let _controller = site.controller();
    let paused = json!({ "paused": { "who": "bob", "why": "to look first" } });
    site.pool_with("new", json!({ "steps": [{ "nodes": 1, "soak": "1h" }] }), paused);
    site.until("there is a plan", |site| site.node_status("n3").reason == "Paused");
    let rollout = site.rollouts().remove(0);
    let hash = rollout.spec.plan.hash.to_string();

    let plan = site.json(&["plan", "p"]);
    assert_eq!((plan["schema"].clone(), plan["plan"].clone()), (json!(1), json!(hash)));
    let names = |wave: &Value| wave["nodes"].as_array().unwrap().iter().map(|node| node["name"].clone()).collect();
    let shown: Vec<Vec<Value>> = plan["waves"].as_array().unwrap().iter().map(names).collect();
    let names = |wave: &slipway_rollout::plan::Wave| wave.nodes.iter().map(|node| json!(node.name)).collect();
    let made: Vec<Vec<Value>> = rollout.spec.plan.waves.iter().map(names).collect();
    assert_eq!(shown, made);
    assert_eq!(plan["blocks"][0]["message"], "the rollout is paused: bob: to look first");
    assert_eq!(plan["blocks"][0]["nodes"].as_array().unwrap().len(), 3);
    // The canary now, and the next one after it and its soak.
    let begins = |wave: usize| plan["waves"][wave]["nodes"][0]["begins"]["at"].as_str().unwrap().parse().unwrap();
    let (canary, next): (jiff::Timestamp, jiff::Timestamp) = (begins(0), begins(1));
    assert_eq!((next - canary).total(jiff::Unit::Minute).unwrap(), 70.0);
    let text = site.fleet(&["plan", "p"]).ok();
    assert!(text.contains(&format!("\nplan    {hash}\n")), "{text}");
    assert!(text.contains("\nwave 1: 1 node, then 1h in which all must be well\n"), "{text}");

    let other = "0".repeat(64);
    let refused = site.fleet(&["resume", "p", "--plan", &other]).fails(3);
    assert!(refused.contains("refused (another-plan)") && refused.contains(&hash), "{refused}");
    assert_eq!(spec(&site)["paused"]["who"], "bob");
    let told = site.fleet(&["resume", "p", "--plan", &hash]).ok();
    assert_eq!(told, "nodepool/p: is paused no more; it was by bob: to look first\n");
    site.until("the canary soaks", |site| site.pool_status().message.contains("wave 1 must be well until"));
    // Each node is told after its pool, and what the program shows of a wave is what its nodes say.
    for (wave, node) in rollout.spec.plan.nodes() {
        site.until_it_says(&node.name, if wave == 0 { "Done" } else { "Soak" });
    }
    let status = site.json(&["status"]);
    let pool = &status["pools"][0];
    assert_eq!((pool["rollout"]["plan"].clone(), pool["state"].clone()), (json!(hash), json!("Waiting")));
    assert_eq!(pool["rollout"]["waves"][0]["stage"], "soaks");
    assert_eq!(pool["rollout"]["waves"][0]["nodes"][0]["status"], "done");
    assert_eq!(pool["rollout"]["waves"][1]["nodes"][0]["status"], "waits");
    // Not on a terminal: a line for each, and no colours.
    let lines = site.fleet(&["status", "p"]).ok();
    assert!(lines.lines().any(|line| line == "p  wave 1  soaks, soak 1h"), "{lines}");
    assert_eq!(lines.lines().filter(|line| line.contains("  Soak  wave 1 must be well until")).count(), 2, "{lines}");
    assert!(!lines.contains('\x1b'), "{lines:?}");
    let canary = rollout.spec.plan.waves[0].nodes[0].name.clone();
    assert!(lines.contains(&format!("p  wave 1  {canary}  Done  ")), "{lines}");
}

#[test]
fn nobody_agrees_to_the_plan_of_a_target_that_was_changed() {
    let Some(site) = Site::new(2) else { return };
    let paused = json!({ "paused": { "who": "bob", "why": "to look first" } });
    let controller = site.controller();
    site.pool_with("new", json!({}), paused);
    site.until("there is a plan", |site| site.node_status("n2").reason == "Paused");
    drop(controller);
    let hash = site.rollouts().remove(0).spec.plan.hash.to_string();
    assert_eq!(site.json(&["plan", "p"])["behind"], false);
    let target = json!({ "image": "docker://registry.example/os:newer", "payload": payload("newer") });
    site.change_pool(json!({ "target": target }));
    // No controller has looked: the status still names the old plan.
    assert_eq!(site.json(&["plan", "p"])["behind"], true);
    let text = site.fleet(&["plan", "p"]).ok();
    assert!(text.contains("it may be the plan of an earlier target"), "{text}");
    let refused = site.fleet(&["resume", "p", "--plan", &hash]).fails(3);
    assert!(refused.contains("refused (behind)"), "{refused}");
    assert_eq!(spec(&site)["paused"]["who"], "bob");
    let _controller = site.controller();
    site.until("there is another plan", |site| site.pool_status().payload == Some(payload("newer")));
    site.until("it is followed", |site| site.node_status("n2").reason == "Paused" && site.rollouts().len() == 2);
    site.fleet(&["resume", "p", "--plan", &hash]).fails(3);
    assert_eq!(spec(&site)["paused"]["who"], "bob");
}

#[test]
fn a_pause_and_a_node_that_is_left_out_hold_until_they_are_taken_back() {
    let Some(site) = Site::new(2) else { return };
    let _controller = site.controller();
    site.pool_with("new", json!({}), json!({ "paused": { "who": "bob", "why": "to begin with" } }));
    site.until("it is seen", |site| site.node_status("n2").reason == "Paused");
    let refused = site.fleet(&["pause", "p", "--reason", "the fair"]).fails(3);
    assert!(refused.contains("refused (paused)") && refused.contains("bob: to begin with"), "{refused}");
    let told = site.json(&["skip", "n2", "--reason", "it is on loan"]);
    assert_eq!((told["object"].clone(), told["changed"].clone()), (json!("nodepool/p"), json!(true)));
    assert_eq!(site.json(&["skip", "n2", "--reason", "it is on loan"])["changed"], false);
    assert_eq!(spec(&site)["skip"], json!([{ "node": "n2", "who": "alice", "why": "it is on loan" }]));
    site.fleet(&["resume", "p"]).ok();
    site.until("the other one is done", |site| site.node_status("n1").reason == "Done");
    site.until("it is left out", |site| site.node_status("n2").reason == "Skipped");
    assert_eq!(site.nodes[1].runs(), payload("old"));
    let status = site.json(&["status"]);
    assert_eq!(status["pools"][0]["skip"][0]["who"], "alice");
    site.fleet(&["unskip", "n2"]).ok();
    let refused = site.fleet(&["unskip", "n2"]).fails(3);
    assert!(refused.contains("refused (not-skipped)"), "{refused}");
    site.until_all_run("new");
    assert_eq!(site.fleet(&["resume", "p"]).ok(), "nodepool/p: is not paused\n");
}

#[test]
fn a_grant_that_nobody_gives_back_is_freed_by_a_persons_word() {
    let Some(mut site) = Site::new(2) else { return };
    (1..=2).for_each(|n| site.chronicle.hold(&format!("n{n} drain")));
    let _controller = site.controller();
    site.pool("new", json!({}));
    site.until("one is under way", |site| site.chronicle.lines().iter().any(|line| line.ends_with(" cordon")));
    let grant = site.ledger().grants.remove(0);
    let name = grant.node.name.clone();
    let n: usize = name[1..].parse().unwrap();
    let status = site.json(&["status"]);
    let nodes = status["pools"][0]["rollout"]["waves"][0]["nodes"].as_array().unwrap().clone();
    let of = nodes.iter().find(|node| node["name"] == name).unwrap();
    assert_eq!((of["token"].clone(), of["status"].clone()), (json!(grant.token), json!("under-way")), "{of}");
    let runtime = &site.runtime;
    site.nodes[n - 1].fall_silent(runtime);
    // It may be rebooting, as far as is known: a person who knows better need not wait.
    let is_missed = |site: &Site| site.node_status(&name).reason == "Rebooting";
    site.until("it is missed", is_missed);
    let other = format!("n{}", 3 - n);
    let refused = site.fleet(&["unblock", &other, "--reason", "a slip"]).fails(3);
    assert!(refused.contains("refused (no-grant)"), "{refused}");
    let told = site.fleet(&["unblock", &name, "--reason", "its mainboard is dead"]).ok();
    assert!(told.contains(&format!("the grant {} of {name} is freed", grant.token)), "{told}");
    site.until("it is free", |site| site.ledger().grants.is_empty());
    let again = site.fleet(&["unblock", &name, "--reason", "once more"]).fails(3);
    assert!(again.contains("refused (no-grant)"), "{again}");
    (1..=2).for_each(|n| site.chronicle.release(&format!("n{n} drain")));
}

/// Nothing is to be rolled out, and no other node of the control plane could go. The way out is what is shown.
#[test]
fn a_grant_of_a_node_that_is_gone_is_shown_where_no_rollout_is_until_a_person_frees_it() {
    let Some(site) = Site::new(0) else { return };
    site.make(object("DisruptionLedger", "cluster", json!({}))).unwrap();
    let node = json!({ "uid": "gone", "name": "c1", "pool": "control", "role": "control-plane" });
    let grants = json!([{ "node": node, "token": 3, "since": "2026-06-01T11:00:00Z" }]);
    let ledgers = site.api_of("fleet.slipway.dev/v1alpha1", "DisruptionLedger", None);
    let patch = kube::api::Patch::Merge(json!({ "status": { "epoch": 3, "grants": grants } }));
    site.runtime.block_on(ledgers.patch_status("cluster", &Default::default(), &patch)).unwrap();
    let shown = "held  grant 3  c1 of the pool control, since 2026-06-01T11:00:00Z: its Node is gone, and no other node of the \
                 control plane begins; remove its member of etcd, then: slipwayctl fleet unblock c1 --reason WHY\n";
    let text = site.fleet(&["status"]).ok();
    assert!(text.starts_with("There is no NodePool") && text.ends_with(shown), "{text}");
    let controller = site.controller();
    site.pool("new", json!({}));
    site.until("it is seen", |site| site.pool_status().state == "Waiting");
    // Also of other pools: theirs may not go either.
    let text = site.fleet(&["status", "p"]).ok();
    assert!(text.starts_with("p  Waiting") && text.ends_with(shown), "{text}");
    let held = &site.json(&["status"])["held"][0];
    assert_eq!(
        (held["purpose"].clone(), held["token"].clone(), held["node"].clone()),
        (json!("upgrade"), json!(3), json!("c1"))
    );
    let none = site.fleet(&["status", "-l", "team=web"]).ok();
    assert_eq!(none, "No NodePool has the labels team=web: leave --selector out to see all.\n");
    site.fleet(&["unblock", "c1", "--reason", "its member is removed"]).ok();
    site.until("it is free", |site| site.ledger().grants.is_empty());
    assert!(!site.fleet(&["status"]).ok().contains("held  "));
    drop(controller);
}

#[test]
fn of_people_who_write_at_once_nobody_is_lost() {
    let Some(site) = Site::new(0) else { return };
    site.pool("new", json!({}));
    let admin = site.server.kubeconfig("admin");
    let names: Vec<String> = (1..=8).map(|n| format!("node-{n}")).collect();
    let skip = |name: &String| {
        let words = ["skip", name, "--pool", "p", "--reason", "moves"];
        fleet(&admin, &words).stdout(std::process::Stdio::piped()).spawn().unwrap()
    };
    let running: Vec<_> = names.iter().map(skip).collect();
    for program in running {
        let ended: crate::program::Ended = program.wait_with_output().unwrap().into();
        ended.ok();
    }
    let mut there: Vec<String> =
        spec(&site)["skip"].as_array().unwrap().iter().map(|of| of["node"].as_str().unwrap().to_owned()).collect();
    there.sort();
    assert_eq!(there, names);
}

#[test]
fn a_rollout_that_is_given_up_goes_back_and_its_payload_is_not_to_blame() {
    let Some(site) = Site::new(3) else { return };
    (1..=3).for_each(|n| site.chronicle.hold(&format!("n{n} drain")));
    let _controller = site.controller();
    site.pool("new", json!({}));
    site.until("one is under way", |site| site.chronicle.lines().iter().any(|line| line.ends_with(" cordon")));
    let grant = site.ledger().grants.remove(0);
    let told = site.fleet(&["abort", "p", "--reason", "the wrong image"]).ok();
    assert!(told.contains("is given up; nodes that are at it are asked to go back"), "{told}");
    site.until("it is asked", |site| site.node_status(&grant.node.name).reason == "Aborts");
    (1..=3).for_each(|n| site.chronicle.release(&format!("n{n} drain")));
    site.until("its grant is free", |site| site.ledger().grants.is_empty());
    // Nobody says that it is repeated.
    site.until("that is said", |site| site.node_status(&grant.node.name).reason == "Aborted");
    let status = site.node_status(&grant.node.name);
    assert!(status.message.contains("the wrong image"), "{}", status.message);
    assert_eq!(site.chronicle.count(&format!("{} uncordon", grant.node.name)), 1);
    assert!(site.nodes.iter().all(|node| node.runs() == payload("old")));
    assert_eq!(site.ledger().epoch, 1, "no other node was granted");
    let rollout = site.rollouts().remove(0).status.unwrap();
    assert_eq!((rollout.denied, rollout.aborted.as_deref()), (None, Some("alice: the wrong image")));
    assert_eq!(site.json(&["status"])["pools"][0]["state"], "Aborted");
    // It stays so, whatever the pool says later.
    site.change_pool(json!({ "abort": null }));
    let generation = |site: &Site| site.json(&["status"])["pools"][0]["behind"] == false;
    site.until("it was looked at", generation);
    assert_eq!(site.json(&["abort", "p", "--reason", "once more"])["changed"], false);
    assert_eq!(site.ledger().epoch, 1);
}

#[test]
fn a_rollout_goes_now_although_its_window_is_closed_and_its_soak_is_long() {
    let Some(site) = Site::new(2) else { return };
    let _controller = site.controller();
    // No window is ever open for a blackout of a hundred years.
    let blackout = json!({ "from": "2000-01-01T00:00", "until": "2100-01-01T00:00", "zone": "UTC", "why": "for ever" });
    site.pool("new", json!({ "blackouts": [blackout], "steps": [{ "nodes": 1, "soak": "10h" }] }));
    site.until("it is closed", |site| site.pool_status().message.contains("(for ever)"));
    let told = site.fleet(&["run-now", "p", "--for", "1h", "--reason", "a hole in OpenSSL"]).ok();
    assert!(told.contains("windows and blackouts hold"), "{told}");
    site.until("the canary soaks", |site| site.pool_status().message.contains("wave 1 must be well until"));
    assert_eq!(site.ledger().epoch, 1);
    let rollout = site.rollouts().remove(0);
    let spec = spec(&site)["runNow"].clone();
    assert_eq!((spec["rolloutUID"].clone(), spec["who"].clone()), (json!(rollout.metadata.uid), json!("alice")));
    site.fleet(&["run-now", "p", "--skip-soak", "--reason", "a hole in OpenSSL"]).ok();
    site.until_all_run("new");
    let events: kube::Api<k8s_openapi::api::core::v1::Event> = kube::Api::namespaced(site.client.clone(), "default");
    let events = site.runtime.block_on(events.list(&kube::api::ListParams::default())).unwrap().items;
    let said = |event: &&k8s_openapi::api::core::v1::Event| event.reason.as_deref() == Some("RunsNow");
    let message = events.iter().find(said).and_then(|event| event.message.clone()).unwrap();
    assert!(message.ends_with("alice: a hole in OpenSSL"), "{message}");
    let refused = site.fleet(&["run-now", "p", "--reason", "once more"]).fails(3);
    assert!(refused.contains("refused (over)"), "{refused}");
    let refused = site.fleet(&["abort", "p", "--reason", "too late"]).fails(3);
    assert!(refused.contains("refused (finished)"), "{refused}");
}

#[test]
fn what_is_after_the_canary_waits_for_a_persons_approval() {
    let Some(site) = Site::new(2) else { return };
    let _controller = site.controller();
    site.pool("new", json!({ "steps": [{ "nodes": 1, "soak": "1s" }], "approval": "AfterCanaries" }));
    let waits =
        |site: &Site| site.pool_status().message.contains("wave 2 waits for approval: slipwayctl fleet approve p");
    site.until("the canary is done, and the other one waits", waits);
    let rollout = site.rollouts().remove(0);
    let other = rollout.spec.plan.waves[1].nodes[0].name.clone();
    site.until_it_says(&other, "Approval");
    // An approval of another plan does not count, by any writer.
    let word = json!({ "rolloutUID": rollout.metadata.uid, "wave": 2, "who": "eve", "why": "now" });
    let mut wrong = word.clone();
    wrong["plan"] = json!("0".repeat(64));
    site.change_pool(json!({ "approval": wrong }));
    site.until("it was looked at", |site| site.json(&["status"])["pools"][0]["behind"] == false);
    assert_eq!((site.node_status(&other).reason.as_str(), site.ledger().epoch), ("Approval", 1));
    // Where no policy asks for it there is nothing to approve.
    let refused = site.kubernetes(&["approve", "--reason", "now"]).fails(3);
    assert!(refused.contains("refused (not-found)"), "{refused}");
    site.make(object("KubernetesUpgrade", "cluster", json!({ "version": "1.31.2" }))).unwrap();
    let upgrades = site.api_of("fleet.slipway.dev/v1alpha1", "KubernetesUpgrade", None);
    let status = json!({ "state": "Waiting", "reason": "WindowClosed", "message": "it is closed", "plan": "4".repeat(64),
        "observedGeneration": 1 });
    let patch = kube::api::Patch::Merge(json!({ "status": status }));
    site.runtime.block_on(upgrades.patch_status("cluster", &Default::default(), &patch)).unwrap();
    let refused = site.kubernetes(&["approve", "--reason", "now"]).fails(3);
    assert!(refused.contains("refused (nothing-waits)") && refused.contains("; now: it is closed"), "{refused}");
    let patch = kube::api::Patch::Merge(json!({ "spec": { "policies": ["policy"] } }));
    site.runtime.block_on(upgrades.patch("cluster", &Default::default(), &patch)).unwrap();
    // One does now, and no controller has looked at that.
    let refused = site.kubernetes(&["approve", "--reason", "now"]).fails(3);
    assert!(refused.contains("refused (behind)"), "{refused}");
    let refused = site.fleet(&["approve", "p", "--plan", &"0".repeat(64), "--reason", "now"]).fails(3);
    assert!(refused.contains("refused (another-plan)"), "{refused}");
    let told = site.fleet(&["approve", "p", "--reason", "the canary is well"]).ok();
    assert!(told.contains("wave 2 of ") && told.contains(" may begin"), "{told}");
    site.until_all_run("new");
    let given = site.rollouts().remove(0).status.unwrap().approvals;
    assert_eq!((given.len(), given[0].wave, given[0].word.to_string().as_str()), (1, 2, "alice: the canary is well"));
    assert_eq!(site.json(&["status"])["pools"][0]["rollout"]["approvals"][0]["who"], "alice");
    let events: kube::Api<k8s_openapi::api::core::v1::Event> = kube::Api::namespaced(site.client.clone(), "default");
    let events = site.runtime.block_on(events.list(&kube::api::ListParams::default())).unwrap().items;
    let has = |reason: &str| events.iter().any(|event| event.reason.as_deref() == Some(reason));
    assert!(has("WaitsForApproval") && has("WaveApproved"));
}
