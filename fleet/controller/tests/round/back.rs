//! Nodes that go back, and nodes that do not.

use serde_json::json;
use slipway_fleet::{names, reconcile::events, report};
use slipway_node::request::Goal;
use slipway_node_api::v1::{self, Ended, HealthState, Outcome, Slot};
use slipway_rollout::decide::Action;

use crate::{
    scene::{NEW, Scene, now, payload},
    staged,
};

/// Node `n` was upgraded by the first rollout, and runs it in slot B. The system of slot A was good.
fn reaches(scene: &mut Scene, n: usize) {
    let rollout = scene.objects.rollouts[0].metadata.uid.clone().unwrap();
    let id = names::operation(&rollout, &format!("uid-{n}"), Goal::Upgrade, 0).to_string();
    let says = scene.says(n);
    let disk = says.disk.as_mut().unwrap();
    (disk.running, disk.slots[1].payload) = (Slot::B.into(), Some(payload(NEW).into()));
    says.ended =
        vec![Ended { id, goal: v1::Goal::Upgrade.into(), outcome: Some(Outcome::default()), ..Ended::default() }];
}

/// Write the status of the first rollout as a round returns it.
fn tell(scene: &mut Scene) {
    let round = scene.round();
    let status = report::rollout(&scene.objects.rollouts[0], round.pools["p"].as_ref().unwrap(), now());
    scene.objects.rollouts[0].status = Some(status);
}

fn steps(scene: &Scene) -> Vec<Action> {
    scene.round().pools["p"].as_ref().unwrap().decision.steps.clone()
}

/// Why node `n` does not go.
fn why(scene: &Scene, n: usize) -> String {
    let round = scene.round();
    let blocked = round.pools["p"].as_ref().unwrap().blocked();
    blocked.get(format!("uid-{n}").as_str()).map(|of| of.why.to_string()).unwrap_or_default()
}

#[test]
fn who_leaves_the_payload_of_a_finished_rollout_sends_nobody_back() {
    let mut scene = staged(2);
    scene.pool("p", json!({ "rollback": {} }));
    (0..2).for_each(|n| reaches(&mut scene, n));
    tell(&mut scene);
    assert_eq!(scene.objects.rollouts[0].status.as_ref().unwrap().state, "Finished");
    // A person has it go back, by hand.
    scene.says(0).disk.as_mut().unwrap().running = Slot::A.into();
    for _ in 0..3 {
        assert_eq!(steps(&scene), []);
        tell(&mut scene);
    }
    let status = scene.objects.rollouts[0].status.as_ref().unwrap();
    assert_eq!((status.denied.as_deref(), status.state.as_str()), (None, "Incomplete"));
    assert_eq!(why(&scene, 0), "it failed: it ran the payload, and does so no more");
    // Meanwhile the other one was ill: that is no reason either.
    scene.says(1).health.as_mut().unwrap().set_state(HealthState::Ill);
    tell(&mut scene);
    scene.says(1).health.as_mut().unwrap().set_state(HealthState::Well);
    assert_eq!(steps(&scene), []);
}

#[test]
fn nobody_goes_back_to_a_payload_that_was_denied() {
    let mut scene = staged(2);
    let target = json!({ "image": "docker://registry.example/os:3", "payload": payload("3") });
    scene.pool("p", json!({ "target": target }));
    scene.roll();
    let (first, other) = (0, 1);
    assert_eq!(scene.objects.rollouts[other].spec.plan.payload, payload("3"));
    scene.pool("p", json!({ "rollback": {} }));
    reaches(&mut scene, 0);
    // The other slot has a good system: that of another payload.
    scene.says(0).disk.as_mut().unwrap().slots[0].payload = Some(payload("3").into());
    scene.objects.rollouts[first].status = serde_json::from_value(json!({ "denied": "it eats files" })).unwrap();
    assert!(matches!(&steps(&scene)[..], [Action::Grant { node, .. }] if node.uid == "uid-0"), "{:?}", steps(&scene));
    scene.objects.rollouts[other].status = serde_json::from_value(json!({ "denied": "no boot" })).unwrap();
    assert_eq!(steps(&scene), []);
    let stays = "it keeps the payload that is denied: its other slot holds a payload that was denied, too: no boot";
    assert_eq!(why(&scene, 0), stays);
    let message = report::headline(scene.round().pools["p"].as_ref().unwrap()).message;
    assert_eq!(message, "it eats files; 1 keep it, and say why", "no node goes back");
    // Nor may it with an etcd that could not read its data there.
    scene.says(0).no_way_back = Some("etcd 3.4 cannot read it".to_owned());
    for any_etcd in [false, true] {
        scene.pool("p", json!({ "rollback": {}, "allowAnyEtcd": any_etcd }));
        assert_eq!((steps(&scene), why(&scene, 0)), (vec![], stays.to_owned()));
    }
    scene.says(0).no_way_back = None;
    // Another pool's is no business of this one.
    scene.objects.rollouts[other].spec.plan.pool = "q".to_owned();
    assert_eq!(steps(&scene).len(), 1);
    scene.objects.rollouts[other].spec.plan.pool = "p".to_owned();
    // The other one can.
    reaches(&mut scene, 1);
    let message = report::headline(scene.round().pools["p"].as_ref().unwrap()).message;
    assert_eq!(message, "it eats files; nodes go back, and 1 still run it; 1 keep it, and say why");
}

#[test]
fn what_people_gave_up_stays_so_although_the_target_changes_at_once() {
    let mut scene = staged(2);
    let uid = scene.objects.rollouts[0].metadata.uid.clone();
    let abort = json!({ "rolloutUID": uid, "who": "eve", "why": "the wrong image" });
    let target = json!({ "image": "docker://registry.example/os:3", "payload": payload("3") });
    scene.pool("p", json!({ "abort": abort, "target": target }));
    let round = scene.round();
    let [aside] = &round.aside[..] else { panic!("{:?}", round.aside) };
    let status = report::aside(aside, now());
    assert_eq!((status.state.as_str(), status.aborted.as_deref()), ("Superseded", Some("eve: the wrong image")));
    // It was the target again, and nothing of it begins.
    scene.objects.rollouts[0].status = Some(status);
    scene.pool("p", json!({}));
    assert_eq!(steps(&scene), []);
    assert_eq!(why(&scene, 0), "the rollout is aborted: eve: the wrong image");
    // Of another one it says nothing.
    scene.objects.rollouts[0].status = None;
    let abort = json!({ "rolloutUID": "another", "who": "eve", "why": "the wrong image" });
    scene.pool("p", json!({ "abort": abort, "target": target }));
    assert_eq!(report::aside(&scene.round().aside[0], now()).aborted, None);
}

#[test]
fn what_people_gave_up_is_not_begun_while_the_pool_goes_to_another_target() {
    let mut scene = staged(2);
    let round = scene.round();
    scene.ledger.status = Some(round.ledger);
    let uid = scene.objects.rollouts[0].metadata.uid.clone();
    let abort = json!({ "rolloutUID": uid, "who": "eve", "why": "the wrong image" });
    let target = json!({ "image": "docker://registry.example/os:3", "payload": payload("3") });
    scene.pool("p", json!({ "target": target }));
    let begins = |scene: &Scene| steps(scene).iter().any(|step| matches!(step, Action::Begin { .. }));
    assert!(begins(&scene), "what was granted before goes on to its end");
    scene.pool("p", json!({ "target": target, "abort": abort }));
    assert_eq!(steps(&scene), []);
    let round = scene.round();
    let pool_round = round.pools["p"].as_ref().unwrap();
    let status = report::rollout(pool_round.rollout.as_ref().unwrap(), pool_round, now());
    assert_eq!(status.aborted.as_deref(), Some("eve: the wrong image"));
}

#[test]
fn a_pool_that_cannot_be_understood_says_that_nobody_acts_on_its_abort() {
    let mut scene = staged(2);
    let uid = scene.objects.rollouts[0].metadata.uid.clone();
    let abort = json!({ "rolloutUID": uid, "who": "eve", "why": "the wrong image" });
    scene.pool("p", json!({ "abort": abort, "policies": ["gone"] }));
    let message = |scene: &Scene| {
        let pool = scene.objects.pools["p"].as_ref().ok();
        let round = scene.round();
        report::invalid(pool, 2, &scene.objects.rollouts, round.pools["p"].as_ref().unwrap_err(), now()).message
    };
    let missing = "spec.policies names the UpgradePolicy \"gone\", which is not there: apply it, or take its name out";
    let waits = "; until that is mended, spec.abort is not acted on: no node is asked to go back";
    assert_eq!(message(&scene), format!("{missing}{waits}"));
    scene.objects.rollouts[0].status = serde_json::from_value(json!({ "state": "Superseded" })).unwrap();
    assert_eq!(message(&scene), missing);
    scene.objects.rollouts[0].status = None;
    scene.pool("p", json!({ "policies": ["gone"] }));
    assert_eq!(message(&scene), missing);
}

#[test]
fn that_it_goes_now_is_told_while_it_does() {
    let mut scene = staged(1);
    let uid = scene.objects.rollouts[0].metadata.uid.clone();
    let told = |scene: &Scene| {
        let before = scene.ledger.status.clone().unwrap_or_default();
        let all = events(&scene.round(), &before, now());
        all.iter().map(|told| told.reason).collect::<Vec<_>>()
    };
    let word = |until: &str| json!({ "runNow": { "rolloutUID": uid, "until": until, "who": "eve", "why": "a hole" } });
    scene.pool("p", word("2026-06-01T12:00:01Z"));
    assert_eq!(told(&scene), ["GrantGiven", "RunsNow"]);
    scene.pool("p", word("2026-06-01T12:00:00Z"));
    assert_eq!(told(&scene), ["GrantGiven"], "its time is over");
}

/// Two nodes, whose pool goes to the payload with a canary and approvals. Its rollout was finished months ago, and since then
/// both were upgraded to another one.
fn wanted_again(more: serde_json::Value) -> Scene {
    wanted_again_by(2, more)
}

fn wanted_again_by(nodes: usize, more: serde_json::Value) -> Scene {
    let mut scene = Scene::new(nodes);
    scene.policy("x", json!({ "approval": "EachWave", "steps": [{ "nodes": 1, "soak": "1h" }] }));
    scene.pool("p", json!({ "policies": ["x"] }));
    scene.roll();
    let word = json!({ "wave": 2, "at": "2026-01-01T12:00:00Z", "who": "eve", "why": "the canary is well" });
    let mut status = json!({ "state": "Superseded", "finished": true, "passed": 2, "approvals": [word] });
    status.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    scene.objects.rollouts[0].status = Some(serde_json::from_value(status).unwrap());
    for n in 0..nodes {
        let says = scene.says(n);
        says.staged = Some(payload(NEW).into());
        let disk = says.disk.as_mut().unwrap();
        (disk.running, disk.slots[1].payload) = (Slot::B.into(), Some(payload("3").into()));
    }
    scene
}

#[test]
fn an_earlier_target_that_is_wanted_again_is_a_new_rollout() {
    let mut scene = wanted_again(json!({}));
    let round = scene.round();
    assert!(round.ledger.grants.is_empty(), "nobody has approved that: {:?}", round.ledger.grants);
    assert_eq!(round.new.len(), 1);
    scene.roll();
    let name = |scene: &Scene, n: usize| scene.objects.rollouts[n].metadata.name.clone().unwrap();
    assert!(name(&scene, 1).ends_with("-2"));
    assert!(why(&scene, 0).contains("approval") || why(&scene, 1).contains("approval"));
    assert_eq!(scene.objects.rollouts[1].spec.plan.waves.len(), 2, "it has its own canary");
    // It is followed by its name, and the one before it is history.
    let round = scene.round();
    assert!(round.new.is_empty() && round.expired.is_empty());
    let status = report::pool(round.pools["p"].as_ref().unwrap(), None, now());
    assert_eq!(status.rollout, Some(name(&scene, 1)));
    scene.pool("p", json!({ "policies": ["x"], "revisionHistoryLimit": 0 }));
    let expired: Vec<_> = scene.round().expired.into_iter().map(|of| of.metadata.name.unwrap()).collect();
    assert_eq!(expired, [name(&scene, 0)]);
    // Once it is over, too, the next number follows, whether or not the first one is still there.
    scene.objects.rollouts[1].status = scene.objects.rollouts[0].status.clone();
    for _ in 0..2 {
        let new = scene.round().new;
        assert!(new.len() == 1 && new[0].metadata.name.as_ref().unwrap().ends_with("-3"), "{new:?}");
        scene.objects.rollouts.swap_remove(0);
    }
    assert!(scene.round().new[0].metadata.name.as_ref().unwrap().ends_with("-1"));
}

#[test]
fn what_nodes_did_in_a_rollout_that_is_over_says_nothing_of_the_next_one() {
    let mut scene = wanted_again(json!({}));
    // They went back by hand: the last that they obeyed is that rollout's.
    for n in 0..2 {
        reaches(&mut scene, n);
        scene.says(n).disk.as_mut().unwrap().running = Slot::A.into();
    }
    scene.pool("p", json!({}));
    scene.roll();
    assert_eq!(scene.objects.rollouts.len(), 2);
    let round = scene.round();
    let decision = &round.pools["p"].as_ref().unwrap().decision;
    assert!(matches!(decision.steps[..], [Action::Grant { .. }]), "{:?}", decision.steps);
}

#[test]
fn a_target_that_is_wanted_again_and_that_all_nodes_run_needs_no_rollout() {
    let mut scene = wanted_again(json!({}));
    (0..2).for_each(|n| reaches(&mut scene, n));
    let round = scene.round();
    assert!(round.new.is_empty());
    let status = report::pool(round.pools["p"].as_ref().unwrap(), None, now());
    let first = scene.objects.rollouts[0].metadata.name.clone();
    assert_eq!((status.state.as_str(), status.done, status.rollout), ("UpToDate", 2, first));
}

#[test]
fn who_looks_at_another_target_and_comes_back_has_no_node_tried_again() {
    let mut scene = wanted_again(json!({}));
    reaches(&mut scene, 0);
    scene.says(1).denied = vec![v1::Denied { payload: payload(NEW).into(), why: "no boot".to_owned() }];
    assert!(scene.round().new.is_empty(), "it would be the canary, and deny the payload for all");
    scene.says(1).denied.clear();
    scene.pool("p", json!({ "policies": ["x"], "skip": [{ "node": "n1", "who": "eve", "why": "on loan" }] }));
    assert!(scene.round().new.is_empty(), "it would never end: no canary");
}

#[test]
fn a_finished_rollout_that_most_nodes_still_run_goes_on_and_knows_what_failed() {
    let mut scene = wanted_again_by(4, json!({}));
    (0..4).for_each(|n| reaches(&mut scene, n));
    scene.says(3).disk.as_mut().unwrap().running = Slot::A.into();
    let round = scene.round();
    assert!(round.new.is_empty(), "what failed is not tried again by itself: {:?}", round.new);
    let followed = round.pools["p"].as_ref().unwrap().rollout.as_ref();
    assert_eq!(followed.unwrap().metadata.name, scene.objects.rollouts[0].metadata.name);
    assert_eq!(why(&scene, 3), "it failed: it ran the payload, and does so no more");
    // The same if another one was there since, of nodes that came later.
    scene.node(4);
    scene.pool("p", json!({}));
    tell(&mut scene);
    scene.roll();
    assert_eq!(scene.objects.rollouts[1].spec.plan.nodes().map(|(_, node)| &node.name).collect::<Vec<_>>(), ["n4"]);
    scene.says(4).disk.as_mut().unwrap().slots[0].payload = Some(payload(NEW).into());
    for n in 0..2 {
        let status = json!({ "state": "Superseded", "finished": true, "passed": 2 - n });
        scene.objects.rollouts[n].status = Some(serde_json::from_value(status).unwrap());
    }
    for state in ["Superseded", "Finished"] {
        scene.objects.rollouts[1].status.as_mut().unwrap().state = state.to_owned();
        let round = scene.round();
        assert!(round.new.is_empty(), "{state}: {:?}", round.new);
    }
}

#[test]
fn a_rollout_that_was_over_says_nothing_once_its_nodes_have_come_back_by_the_next_one() {
    let mut scene = wanted_again_by(3, json!({}));
    // This one went back by hand.
    reaches(&mut scene, 2);
    scene.says(2).disk.as_mut().unwrap().running = Slot::A.into();
    scene.pool("p", json!({}));
    scene.roll();
    assert_eq!(scene.objects.rollouts[1].spec.plan.nodes().count(), 3);
    for n in 0..2 {
        scene.says(n).disk.as_mut().unwrap().slots[1].payload = Some(payload(NEW).into());
    }
    let steps = steps(&scene);
    assert!(matches!(&steps[..], [Action::Grant { node, .. }] if node.uid == "uid-2"), "{steps:?}");
}

#[test]
fn a_look_that_sees_no_node_makes_no_new_rollout_and_one_that_sees_few_has_canaries() {
    let mut scene = wanted_again(json!({}));
    (0..2).for_each(|n| scene.silence(n));
    let round = scene.round();
    assert!(round.new.is_empty() && round.ledger.grants.is_empty());
    let mut scene = wanted_again(json!({ "finished": false, "passed": 1 }));
    let canary = scene.objects.rollouts[0].spec.plan.waves[0].nodes[0].uid.clone();
    scene.silence(canary.strip_prefix("uid-").unwrap().parse().unwrap());
    let round = scene.round();
    assert!(round.ledger.grants.is_empty(), "nobody knows that the canary still runs it: {:?}", round.ledger.grants);
    assert_eq!(round.new[0].spec.plan.waves.len(), 2);
    // Nor if another one answers in its place.
    let mut scene = wanted_again(json!({ "finished": false, "passed": 1 }));
    let n = canary.strip_prefix("uid-").unwrap().parse().unwrap();
    reaches(&mut scene, n);
    scene.says(n).node = "another".to_owned();
    assert_eq!(scene.round().new.len(), 1);
}

#[test]
fn a_rollout_that_was_put_aside_half_way_denied_or_given_up_is_no_new_one_when_its_target_comes_back() {
    let half_way = json!({ "finished": false, "passed": 1 });
    for more in [half_way.clone(), json!({ "denied": "no boot" }), json!({ "aborted": "eve: no" })] {
        let mut scene = wanted_again(more.clone());
        let canary = scene.objects.rollouts[0].spec.plan.waves[0].nodes[0].uid.clone();
        if more == half_way {
            reaches(&mut scene, canary.strip_prefix("uid-").unwrap().parse().unwrap());
        }
        let round = scene.round();
        assert!(round.new.is_empty(), "{more}");
        let followed = round.pools["p"].as_ref().unwrap().rollout.as_ref();
        assert_eq!(followed.unwrap().metadata.name, scene.objects.rollouts[0].metadata.name, "{more}");
        assert_eq!(round.ledger.grants.is_empty(), more != half_way, "{more}");
    }
    // Its canary has left it: approvals and soaks of that time are none for what comes now.
    let round = wanted_again(half_way).round();
    assert!(round.ledger.grants.is_empty(), "{:?}", round.ledger.grants);
    assert_eq!(round.new.len(), 1);
    // Without a wave that was over it has its canaries yet to come.
    assert!(wanted_again(json!({ "finished": false, "passed": 0 })).round().new.is_empty());
}

#[test]
fn a_rollout_that_was_put_aside_in_its_soak_soaks_anew() {
    let mut scene = Scene::new(2);
    scene.policy("x", json!({ "steps": [{ "nodes": 1, "soak": "1h" }] }));
    scene.pool("p", json!({ "policies": ["x"] }));
    scene.roll();
    let canary = scene.objects.rollouts[0].spec.plan.waves[0].nodes[0].uid.clone();
    let n = canary.strip_prefix("uid-").unwrap().parse().unwrap();
    reaches(&mut scene, n);
    scene.says(1 - n).staged = Some(payload(NEW).into());
    scene.says(n).health.as_mut().unwrap().seconds = 10_000;
    let since = json!({ "state": "Waiting", "soakingSince": "2026-06-01T10:30:00Z" });
    scene.objects.rollouts[0].status = Some(serde_json::from_value(since).unwrap());
    let soak = |scene: &Scene| {
        let round = scene.round();
        let decision = &round.pools["p"].as_ref().unwrap().decision;
        (decision.passed, decision.soaking_since)
    };
    assert_eq!(soak(&scene), (1, None));
    let target = json!({ "image": "docker://registry.example/os:3", "payload": payload("3") });
    scene.pool("p", json!({ "policies": ["x"], "target": target }));
    scene.objects.rollouts[0].status = Some(report::aside(&scene.round().aside[0], now()));
    scene.pool("p", json!({ "policies": ["x"] }));
    assert_eq!(soak(&scene), (0, Some(now())), "nobody has watched it meanwhile");
}

/// It is no news that nodes go back while none does.
#[test]
fn a_way_back_that_is_held_back_says_by_what() {
    let mut scene = staged(3);
    let message = |scene: &Scene| report::headline(scene.round().pools["p"].as_ref().unwrap()).message;
    (0..2).for_each(|n| reaches(&mut scene, n));
    scene.objects.rollouts[0].status = serde_json::from_value(json!({ "denied": "it eats files" })).unwrap();
    scene.pool("p", json!({ "rollback": {} }));
    assert_eq!(message(&scene), "it eats files; nodes go back, and 2 still run it");
    let held = "it eats files; nodes are to go back, 2 still run it, and none goes now; n";
    scene.pool("p", json!({ "rollback": {}, "paused": { "who": "eve", "why": "lunch" } }));
    let paused = message(&scene);
    assert!(paused.starts_with(held) && paused.ends_with(": the rollout is paused: eve: lunch"), "{paused}");
    scene.policy("nights", json!({ "windows": [{ "start": "22:00", "lasts": "1h", "zone": "UTC" }] }));
    scene.pool("p", json!({ "rollback": {}, "policies": ["nights"] }));
    let closed = message(&scene);
    assert!(closed.starts_with(held) && closed.contains("no window of policy \"nights\" is open"), "{closed}");
    // One is under way: it reboots, and the other one waits for its place.
    scene.pool("p", json!({ "rollback": {} }));
    let ledger = scene.round().ledger;
    let goes = ledger.grants[0].node.name[1..].parse().unwrap();
    scene.ledger.status = Some(ledger);
    scene.silence(goes);
    assert_eq!(message(&scene), "it eats files; nodes go back, and 1 still run it");
}

/// A person's pause is taken back by that person, and the other one stays.
#[test]
fn both_pauses_are_told_and_one_of_the_controllers_own_is_an_event() {
    let mut scene = staged(3);
    reaches(&mut scene, 0);
    scene.says(0).disk.as_mut().unwrap().running = Slot::A.into();
    let round = scene.round();
    let all = events(&round, &Default::default(), now());
    let told = all.iter().find(|told| told.reason == "RolloutPaused").map(|told| (told.is_warning, told.text()));
    let name = scene.objects.rollouts[0].metadata.name.clone().unwrap();
    let own = "1 of 3 nodes failed, and 1 are enough; n0: it ran the payload, and does so no more";
    let how = format!("; mend that, and to have it tried again: kubectl delete rollout.fleet.slipway.dev/{name}");
    assert_eq!(told, Some((true, format!("it stops by itself: {own}{how}"))));
    tell(&mut scene);
    let message = |scene: &Scene| report::headline(scene.round().pools["p"].as_ref().unwrap()).message;
    assert_eq!(message(&scene), own);
    scene.pool("p", json!({ "paused": { "who": "eve", "why": "lunch" } }));
    assert_eq!(message(&scene), format!("eve: lunch; and it has stopped by itself: {own}"));
    scene.pool("p", json!({ "paused": { "who": "eve", "why": "x".repeat(1024) } }));
    assert!(message(&scene).contains(own) && message(&scene).len() <= 1000, "{}", message(&scene));
    // What is denied is one event.
    scene.objects.rollouts[0].status = None;
    scene.pool("p", json!({}));
    scene.says(1).denied = vec![v1::Denied { payload: payload(NEW).into(), why: "it was ill".to_owned() }];
    let told = events(&scene.round(), &Default::default(), now());
    let stops = told.iter().filter(|told| matches!(told.reason, "RolloutPaused" | "PayloadDenied"));
    assert_eq!(stops.map(|told| told.reason).collect::<Vec<_>>(), ["PayloadDenied"]);
    // Nor is one more when the denial is written: to have it tried again is no advice.
    scene.objects.rollouts[0].status = serde_json::from_value(json!({ "denied": "n1: it was ill" })).unwrap();
    let told = events(&scene.round(), &Default::default(), now());
    assert!(told.iter().all(|told| told.reason != "RolloutPaused"));
}

#[test]
fn a_rollout_that_is_put_aside_waits_for_no_approval() {
    let mut scene = staged(2);
    scene.policy("careful", json!({ "approval": "EachWave" }));
    scene.pool("p", json!({ "policies": ["careful"] }));
    tell(&mut scene);
    assert_eq!(scene.objects.rollouts[0].status.as_ref().unwrap().awaiting_approval, Some(1));
    let target = json!({ "image": "docker://registry.example/os:3", "payload": payload("3") });
    scene.pool("p", json!({ "policies": ["careful"], "target": target }));
    assert_eq!(report::aside(&scene.round().aside[0], now()).awaiting_approval, None);
}

/// A person deletes it, as is said of one that has stopped by itself, and it is made anew with other canaries.
#[test]
fn who_has_not_begun_for_a_rollout_that_is_gone_is_not_before_the_canaries_of_the_next_one() {
    let mut scene = Scene::new(3);
    scene.policy("x", json!({ "maxUnavailable": 2, "steps": [{ "nodes": 1, "soak": "1h" }] }));
    scene.pool("p", json!({ "policies": ["x"] }));
    scene.roll();
    (0..3).for_each(|n| scene.says(n).staged = Some(payload(NEW).into()));
    let planned = scene.objects.rollouts[0].spec.plan.nodes().map(|(_, node)| node.clone()).collect::<Vec<_>>();
    let later = planned[2].clone();
    let ledger = json!({ "epoch": 5, "grants": [{ "node": later, "token": 5, "since": now() }] });
    scene.ledger.status = Some(serde_json::from_value(ledger).unwrap());
    let told = |scene: &Scene| {
        let round = scene.round();
        let pool_round = round.pools["p"].as_ref().unwrap();
        let steps = pool_round.decision.steps.clone();
        let of = report::nodes(pool_round, &scene.readings, &Default::default())[later.uid.as_str()].clone();
        (steps, of.reason, of.message)
    };
    let begins = |steps: &[Action]| steps.iter().any(|step| matches!(step, Action::Begin { .. }));
    let (steps, reason, message) = told(&scene);
    let how = format!(": slipwayctl fleet unblock {} --reason WHY", later.name);
    assert!(!begins(&steps) && reason == "EarlierWave" && message.ends_with(&how), "{steps:?} {message}");
    assert!(matches!(&steps[..], [Action::Grant { node, .. }] if node.uid == planned[0].uid), "{steps:?}");
    // Its wave has come.
    scene.objects.rollouts[0].status = serde_json::from_value(json!({ "passed": 1 })).unwrap();
    assert!(begins(&told(&scene).0));
    // Where the controllers have paused it, a person frees it.
    scene.objects.rollouts[0].status = serde_json::from_value(json!({ "passed": 1, "paused": "n1 ran it" })).unwrap();
    let (steps, reason, message) = told(&scene);
    assert_eq!((begins(&steps), reason.as_str()), (false, "Paused"));
    assert_eq!(message, format!("the rollout is paused: n1 ran it{how}"));
    let target = json!({ "image": "docker://registry.example/os:3", "payload": payload("3") });
    scene.pool("p", json!({ "policies": ["x"], "target": target }));
    let message = report::headline(scene.round().pools["p"].as_ref().unwrap()).message;
    assert!(message.contains("the new target waits for") && message.ends_with(&how), "{message}");
}
