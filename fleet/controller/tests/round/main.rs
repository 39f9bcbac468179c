//! Size: quick
//!
//! Decisions of one round, without a cluster: the tests write the objects and the answers of nodes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod anything;
mod attacks;
mod back;
mod certificates;
mod channel_status;
mod channel_target;
mod desired_state;
mod extremes;
mod hands;
mod holders;
mod hostile;
mod kubernetes;
mod kubernetes_job;
mod own_words;
mod page;
mod refused;
mod scene;
mod serve;
mod shared;
mod soaks;
mod volumes;

use std::{collections::BTreeMap, process::Command};

use scene::{NEW, Scene, payload};
use serde_json::json;
use slipway_fleet::{
    observed_node::{self, NoReport},
    pool_metrics,
    pools::{Members, Problem},
    report,
};
use slipway_fleet_objects::rollout::Rollout;
use slipway_node_api::v1::{Denied, Ended, Goal, HealthState, Outcome};
use slipway_rollout::{
    decide::Action,
    ledger::{Ledger, Role},
};

/// A rollout of all nodes, and every node staged.
fn staged(nodes: usize) -> Scene {
    let mut scene = Scene::new(nodes);
    scene.roll();
    for n in 0..nodes {
        scene.says(n).staged = Some(payload(NEW).into());
    }
    scene
}

#[test]
fn a_target_gets_one_rollout_and_everybody_is_asked_to_stage() {
    let mut scene = Scene::new(3);
    let round = scene.round();
    let [rollout] = &round.new[..] else { panic!("{:?}", round.new) };
    assert_eq!(rollout.spec.plan.nodes().count(), 3);
    assert_eq!(rollout.metadata.owner_references.as_ref().unwrap()[0].uid, "uid-p");
    assert!(round.ledger.grants.is_empty());
    scene.roll();
    let round = scene.round();
    assert!(round.new.is_empty(), "{:?}", round.new);
    let steps = &round.pools["p"].as_ref().unwrap().decision.steps;
    assert!(steps.len() == 3 && steps.iter().all(|step| matches!(step, Action::Stage { .. })), "{steps:?}");
}

#[test]
fn a_grant_is_in_the_ledger_that_is_written_and_the_epoch_is_not_behind_what_nodes_obeyed() {
    let mut scene = staged(3);
    let round = scene.round();
    assert_eq!((round.ledger.epoch, round.ledger.grants.len()), (1, 1));
    // The ledger was deleted and made anew: the nodes would obey nothing of it. Most of them say so.
    (scene.says(0).token, scene.says(1).token) = (40, 41);
    let round = scene.round();
    assert!(round.ledger.epoch > 41 && round.ledger.grants[0].token > 41, "{:?}", round.ledger);
}

#[test]
fn two_pools_share_one_ledger_and_one_place_of_the_control_plane() {
    let mut scene = Scene::new(2);
    for (n, pool) in [(0, "p"), (1, "q")] {
        scene.label(n, "pool", pool);
        scene.label(n, "node-role.kubernetes.io/control-plane", "");
        scene.says(n).staged = Some(payload(NEW).into());
    }
    scene.pool("q", json!({ "nodeSelector": { "pool": "q" } }));
    scene.roll();
    let round = scene.round();
    assert_eq!(round.ledger.grants.len(), 1, "{:?}", round.ledger);
    assert_eq!(round.ledger.grants[0].node.role, Role::ControlPlane);
    let waits = &round.pools["q"].as_ref().unwrap().decision.blocked[0].why;
    assert_eq!(waits.reason(), "ControlPlane");
}

#[test]
fn a_member_of_the_control_plane_elsewhere_that_does_not_answer_is_down() {
    let mut scene = Scene::new(2);
    for n in 0..2 {
        scene.label(n, "node-role.kubernetes.io/control-plane", "");
        scene.says(n).staged = Some(payload(NEW).into());
    }
    scene.label(1, "pool", "none");
    scene.roll();
    assert_eq!(scene.round().ledger.grants.len(), 1);
    scene.silence(1);
    assert_eq!(scene.round().ledger.grants.len(), 0);
}

#[test]
fn a_grant_is_freed_by_the_well_node_by_absence_and_by_word_and_by_nothing_else() {
    let mut scene = staged(2);
    scene.ledger.status = Some(scene.round().ledger);
    let held = scene.ledger.status.as_ref().unwrap().grants[0].clone();
    let n: usize = held.node.uid.strip_prefix("uid-").unwrap().parse().unwrap();
    // It may get another one at once.
    let is_held = |scene: &Scene| scene.round().ledger.grants.iter().any(|grant| grant.token == held.token);
    assert!(is_held(&scene), "it has not begun");
    scene.says(n).token = held.token;
    assert!(!is_held(&scene), "it is well, with this token");
    scene.says(n).health.as_mut().unwrap().set_state(HealthState::Ill);
    assert!(is_held(&scene));
    scene.says(n).health = None;
    assert!(is_held(&scene), "what is not known is no news");
    scene.silence(n);
    assert!(is_held(&scene), "silence is no proof");
    let round = scene.round();
    let told = report::nodes(round.pools["p"].as_ref().unwrap(), &scene.readings, &Default::default());
    assert!(told[held.node.uid.as_str()].message.starts_with("rebooting since "), "{told:?}");
    scene.ledger.spec.release = serde_json::from_value(json!([{ "token": 7, "who": "a", "why": "b" }])).unwrap();
    assert!(is_held(&scene), "the word is for another grant");
    scene.ledger.spec.release[0].token = held.token;
    assert!(!is_held(&scene), "a person says so");
    scene.ledger.spec.release.clear();
    scene.objects.nodes.remove(n);
    assert!(!is_held(&scene), "its Node is gone");
    scene.ledger.status.as_mut().unwrap().grants[0].node.role = Role::ControlPlane;
    assert!(is_held(&scene), "its member of etcd may be there");
}

#[test]
fn a_grant_of_a_pool_that_is_gone_is_freed_all_the_same() {
    let mut scene = staged(2);
    scene.ledger.status = Some(scene.round().ledger);
    let held = scene.ledger.status.as_ref().unwrap().grants[0].clone();
    let n: usize = held.node.uid.strip_prefix("uid-").unwrap().parse().unwrap();
    scene.objects.pools.clear();
    assert_eq!(scene.round().ledger.grants, std::slice::from_ref(&held));
    scene.says(n).token = held.token;
    assert!(scene.round().ledger.grants.is_empty(), "and no node is granted");
}

#[test]
fn what_cannot_be_understood_begins_nothing() {
    let problem = |scene: &Scene| scene.round().pools["p"].as_ref().unwrap_err().clone();
    let mut scene = staged(2);
    scene.pool("p", json!({ "policies": ["gone"] }));
    assert_eq!(problem(&scene), Problem::PolicyMissing("gone".to_owned()));
    scene.objects.policies.insert("gone".to_owned(), Err("it has a slip of the pen".to_owned()));
    assert_eq!(problem(&scene).reason(), "PolicyInvalid");
    scene.pool("p", json!({ "target": { "channel": "stable" } }));
    assert_eq!(problem(&scene).reason(), "NoTarget");
    scene.objects.pools.insert("p".to_owned(), Err("it has one, too".to_owned()));
    assert_eq!(problem(&scene).reason(), "PoolInvalid");
}

#[test]
fn a_plan_that_was_edited_begins_nothing() {
    let mut scene = staged(2);
    scene.objects.rollouts[0].spec.plan.waves[0].nodes.reverse();
    let round = scene.round();
    assert!(round.ledger.grants.is_empty());
    assert_eq!(round.pools["p"].as_ref().unwrap().decision.blocked[0].why.reason(), "PlanChanged");
}

#[test]
fn a_new_target_waits_for_the_grants_of_the_old_one() {
    let mut scene = staged(2);
    scene.ledger.status = Some(scene.round().ledger);
    let target = json!({ "image": "docker://registry.example/os:3", "payload": payload("3") });
    scene.pool("p", json!({ "target": target }));
    let round = scene.round();
    let pool_round = round.pools["p"].as_ref().unwrap();
    assert!(round.new.is_empty() && round.aside.is_empty());
    assert!(
        matches!(pool_round.decision.steps[..], [Action::Begin { token: 1, .. }]),
        "{:?}",
        pool_round.decision.steps
    );
    assert_eq!(round.ledger.grants.len(), 1);
    scene.ledger.status.as_mut().unwrap().grants.clear();
    let round = scene.round();
    assert_eq!((round.new.len(), round.aside.len()), (1, 1));
    assert_eq!(round.new[0].spec.plan.payload, payload("3"));
    // It is put aside before it ever said anything, with its numbers: some API servers refuse an empty text.
    let status = report::aside(&round.aside[0], scene::now());
    assert_eq!((status.state.as_str(), status.waves.as_str(), status.nodes), ("Superseded", "0/1", 2));
}

/// Its labels may be those of no Node by mistake, and then nothing is ever upgraded.
#[test]
fn a_pool_without_nodes_is_not_up_to_date_and_names_its_labels() {
    let status = |scene: &Scene| report::pool(scene.round().pools["p"].as_ref().unwrap(), None, scene::now());
    let mut scene = Scene::new(0);
    let message = "no Node has the labels of its nodeSelector: pool=p";
    assert_eq!((status(&scene).state.as_str(), status(&scene).message.as_str()), ("Waiting", message));
    scene.pool("p", json!({ "paused": { "who": "eve", "why": "the fair" } }));
    assert_eq!(status(&scene).state, "Paused");
    let mut scene = Scene::new(1);
    scene.says(0).disk.as_mut().unwrap().slots[0].payload = Some(payload(NEW).into());
    assert_eq!(status(&scene).state, "UpToDate");
}

#[test]
fn a_rollout_that_no_node_could_stage_is_not_finished() {
    let mut scene = Scene::new(3);
    scene.roll();
    let outcome = Some(Outcome { came_back: Some("no room".to_owned()), left: false });
    let goal = Goal::Stage.into();
    let source = scene.objects.rollouts[0].spec.image.clone();
    for n in 0..3 {
        let (payload, source, outcome) = (payload(NEW).into(), source.clone(), outcome.clone());
        scene.says(n).ended = vec![Ended { goal, payload, source, failed: true, outcome, ..Ended::default() }];
    }
    let status = |scene: &Scene| {
        let round = scene.round();
        report::rollout(&scene.objects.rollouts[0], round.pools["p"].as_ref().unwrap(), scene::now())
    };
    let unstaged = status(&scene);
    assert_eq!((unstaged.state.as_str(), unstaged.done, unstaged.nodes), ("Incomplete", 0, 3), "{}", unstaged.message);
    let message = "3 nodes are not done; the first: n0: it failed: no room";
    assert!(unstaged.message.starts_with(message), "{}", unstaged.message);
    // A person leaves them out: they are not missed.
    let skip = ["n0", "n1", "n2"].map(|node| json!({ "node": node, "who": "a", "why": "its disk is old" }));
    scene.pool("p", json!({ "skip": skip }));
    assert_eq!(status(&scene).state, "Finished");
}

#[test]
fn who_is_left_out_is_no_canary_of_a_new_plan() {
    let mut scene = Scene::new(3);
    scene.policy("careful", json!({ "steps": [{ "nodes": 1, "soak": "1h" }] }));
    scene.pool("p", json!({ "policies": ["careful"] }));
    let canary = scene.round().new[0].spec.plan.waves[0].nodes[0].name.clone();
    // It is on loan, or was dead for weeks.
    let skip = json!([{ "node": canary, "who": "a", "why": "it is on loan" }]);
    scene.pool("p", json!({ "policies": ["careful"], "skip": skip }));
    let plan = scene.round().new.remove(0).spec.plan;
    assert_ne!(plan.waves[0].nodes[0].name, canary, "{plan:?}");
    assert_eq!(plan.nodes().last().unwrap().1.name, canary);
    scene.roll();
    for n in 0..3 {
        scene.says(n).staged = Some(payload(NEW).into());
    }
    let round = scene.round();
    let pool_round = round.pools["p"].as_ref().unwrap();
    let of = |name: &str| pool_round.decision.blocked.iter().find(|of| of.node.name == name).map(|of| of.why.reason());
    assert_eq!(of(&canary), Some("Skipped"));
    assert!(pool_round.decision.blocked.iter().all(|of| of.why.reason() != "NoCanary"));
    assert_eq!(round.ledger.grants.len(), 1, "another one is the canary");
}

/// One that does not answer, or could not stage, is behind its likes; one that is left out behind all others.
#[test]
fn who_may_not_be_able_to_go_is_behind_the_others_of_a_new_plan() {
    let planned = |scene: &Scene| {
        let plan = scene.round().new.remove(0).spec.plan;
        plan.waves.iter().map(|wave| wave.nodes.iter().map(|node| node.name.clone()).collect()).collect::<Vec<Vec<_>>>()
    };
    let with = |more: serde_json::Value| {
        let mut scene = Scene::new(4);
        scene.policy("careful", json!({ "steps": [{ "nodes": 1, "soak": "1h" }] }));
        let mut all = json!({ "policies": ["careful"], "order": "control-plane-first" });
        all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        scene.pool("p", all);
        scene.label(0, "node-role.kubernetes.io/control-plane", "");
        scene.label(1, "node-role.kubernetes.io/control-plane", "");
        scene
    };
    let first = planned(&with(json!({})))[0][0].clone();
    let n: usize = first[1..].parse().unwrap();
    let (first, other) = (format!("n{n}"), format!("n{}", 1 - n));
    let mut silent = with(json!({}));
    silent.silence(n);
    assert_eq!(planned(&silent)[..2], [vec![other.clone()], vec![first.clone()]]);
    let mut unstaged = with(json!({}));
    let (goal, outcome) = (Goal::Stage.into(), Outcome { came_back: Some("no room".to_owned()), left: false });
    let (payload, source) = (payload(NEW).into(), format!("docker://registry.example/os:{NEW}"));
    let outcome = Some(outcome);
    // For a rollout that was deleted since.
    let id = "00000000-0000-4000-8000-000000000000".to_owned();
    unstaged.says(n).ended = vec![Ended { id, goal, payload, source, failed: true, outcome, ..Ended::default() }];
    assert_eq!(planned(&unstaged)[..2], [vec![other.clone()], vec![first.clone()]]);
    let mut ahead = with(json!({}));
    ahead.says(n).token = 7;
    assert_eq!(planned(&ahead)[..2], [vec![other.clone()], vec![first]]);
    // The whole control plane.
    let skip = ["n0", "n1"].map(|node| json!({ "node": node, "who": "a", "why": "later" }));
    let waves = planned(&with(json!({ "skip": skip })));
    assert_eq!(waves.iter().map(Vec::len).collect::<Vec<_>>(), [1, 1, 2]);
    assert!(waves[2].contains(&other) && !waves[0].contains(&other), "{waves:?}");
}

#[test]
fn what_came_back_is_not_tried_again_and_a_further_node_gets_a_further_rollout() {
    let mut scene = staged(2);
    scene.pool("p", json!({ "policies": ["patient"] }));
    scene.policy("patient", json!({ "failureBudget": 2 }));
    scene.says(0).denied = vec![Denied { payload: payload(NEW).into(), why: "it was not well".to_owned() }];
    scene.says(1).disk.as_mut().unwrap().slots[0].payload = Some(payload(NEW).into());
    let round = scene.round();
    let pool_round = round.pools["p"].as_ref().unwrap();
    assert_eq!(pool_round.decision.blocked.len(), 1);
    assert_eq!(pool_round.decision.blocked[0].why.to_string(), "it failed: it was not well");
    assert!(round.new.is_empty(), "not while it is not finished");
    let status = report::rollout(&scene.objects.rollouts[0], pool_round, scene::now());
    assert_eq!((status.state.as_str(), status.done, status.nodes), ("Incomplete", 1, 2));
    let message = "1 node is not done: n0: it failed: it was not well";
    assert!(status.message.starts_with(message), "{}", status.message);
    let finished = status.conditions.iter().find(|of| of.type_ == "Finished").map(|of| of.status.as_str());
    assert_eq!(finished, Some("False"));
    scene.objects.rollouts[0].status = Some(status);
    assert!(scene.round().new.is_empty(), "what failed is no reason for another one");
    scene.node(2);
    let round = scene.round();
    let planned = |rollout: &Rollout| rollout.spec.plan.nodes().map(|(_, node)| node.uid.clone()).collect::<Vec<_>>();
    assert_eq!(round.new.iter().map(planned).collect::<Vec<_>>(), [["uid-2"]]);
    assert!(round.new[0].metadata.name.as_ref().unwrap().ends_with("-2"));
}

/// An alert is about them, and its command shows the words of the nodes.
#[test]
fn the_failures_in_the_metrics_are_those_that_nodes_say() {
    let mut scene = staged(5);
    scene.policy("patient", json!({ "failureBudget": 5 }));
    scene.pool("p", json!({ "policies": ["patient"], "skip": [{ "node": "n2", "who": "alice", "why": "on loan" }] }));
    scene.ledger.status = Some(Ledger { epoch: 9, ..Ledger::default() });
    // Two have no attempt left, and do not say why. One is left out. One is tried again.
    let spent = json!({ "count": 5, "token": 9 });
    let status = json!({ "attempts": { "uid-0": spent, "uid-1": spent } });
    scene.objects.rollouts[0].status = Some(serde_json::from_value(status).unwrap());
    scene.says(2).denied = vec![Denied { payload: payload(NEW).into(), why: "it was not well".to_owned() }];
    scene.says(3).token = 3;
    scene.came_back(3, "evict the pods: it took too long");
    let (members, none) = (Members::new(&scene.objects), (&BTreeMap::new(), &BTreeMap::new()));
    let metrics = pool_metrics::of(&scene.round(), &members, &scene.readings, none);
    assert_eq!((metrics["p"].failures, metrics["p"].nodes["Failed"]), (2, 2), "{:?}", metrics["p"].nodes);
}

/// Its status says that it holds its grant, which is freed when it is well again.
#[test]
fn a_failure_that_still_holds_its_grant_is_in_the_metrics() {
    let mut scene = staged(2);
    let ledger = scene.round().ledger;
    let (uid, token) = (ledger.grants[0].node.uid.clone(), ledger.grants[0].token);
    scene.ledger.status = Some(ledger);
    let n = usize::from(uid != "uid-0");
    scene.says(n).token = token;
    let failures = |scene: &Scene| {
        let (members, none) = (Members::new(&scene.objects), (&BTreeMap::new(), &BTreeMap::new()));
        let metrics = pool_metrics::of(&scene.round(), &members, &scene.readings, none);
        (metrics["p"].failures, metrics["p"].grants)
    };
    scene.says(n).health.as_mut().unwrap().set_state(HealthState::Ill);
    assert_eq!(failures(&scene), (0, 1), "it is at it, and not well yet");
    scene.says(n).denied = vec![Denied { payload: payload(NEW).into(), why: "it was not well".to_owned() }];
    assert_eq!(failures(&scene), (1, 1));
    scene.says(n).health.as_mut().unwrap().set_state(HealthState::Well);
    assert_eq!(failures(&scene), (1, 0), "it is counted once");
}

/// An alert is about it: only a person frees such a grant, and there is no Node, and so no NodeUpgrade, that says so.
#[test]
fn who_is_gone_with_a_grant_is_in_the_metrics() {
    let mut scene = Scene::new(2);
    for n in 0..2 {
        scene.label(n, "node-role.kubernetes.io/control-plane", "");
        scene.says(n).staged = Some(payload(NEW).into());
    }
    scene.roll();
    scene.ledger.status = Some(scene.round().ledger);
    let held = scene.ledger.status.as_ref().unwrap().grants[0].node.uid.clone();
    scene.objects.nodes.retain(|node| node.metadata.uid.as_ref() != Some(&held));
    let (members, none) = (Members::new(&scene.objects), (&BTreeMap::new(), &BTreeMap::new()));
    let metrics = pool_metrics::of(&scene.round(), &members, &scene.readings, none);
    assert_eq!((metrics["p"].grants, metrics["p"].nodes["GoneWithGrant"]), (1, 1), "{:?}", metrics["p"].nodes);
}

#[test]
fn who_answers_for_another_node_is_not_believed() {
    let mut scene = staged(2);
    scene.says(0).node = "another".to_owned();
    let round = scene.round();
    let pool_round = round.pools["p"].as_ref().unwrap();
    let why = "who answers at its address says that it is \"another\"";
    assert_eq!(pool_round.unclear["uid-0"], NoReport::Unclear(why.to_owned()));
    let blocked = pool_round.decision.blocked.iter().find(|of| of.node.uid == "uid-0").unwrap();
    let told = report::sentence(pool_round, blocked);
    assert!(told.starts_with("who answers at its address") && !told.contains("does not answer"), "{told}");
    assert_eq!(
        observed_node::address(&scene.objects.nodes[0], 7),
        Err("its Node has no address of the type InternalIP".to_owned())
    );
}

/// As the installer's, slipwayctl's and slipwayd's.
#[test]
fn exit_codes_of_the_command_line() {
    for (args, code) in [
        (&["--no-such-flag"][..], 1),
        (&["frobnicate"], 1),
        (&["upgrade-kubernetes", "--no-such-flag"], 1),
        (&["--port", "many"], 2),
        (&["--interval", "0"], 2),
        (&["--listen"], 2),
        (&["--help"], 0),
        (&["--version"], 0),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_slipway-fleet")).args(args).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{args:?}: {output:?}");
    }
}
