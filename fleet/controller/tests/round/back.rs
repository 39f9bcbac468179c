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
