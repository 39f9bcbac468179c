//! Who goes back, and who does not.

use serde_json::json;
use slipway_fleet::{names, report};
use slipway_node::goal::Goal;
use slipway_node_api::v1::{Ended, Outcome};
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
    (disk.running, disk.slots[1].payload) = ("B".to_owned(), Some(payload(NEW).into()));
    says.ended = vec![Ended { id, goal: "upgrade".to_owned(), outcome: Some(Outcome::default()), ..Ended::default() }];
}

/// What a round says of the first rollout is written.
fn tell(scene: &mut Scene) {
    let round = scene.round();
    let status = report::rollout(&scene.objects.rollouts[0], round.pools["p"].as_ref().unwrap(), now());
    scene.objects.rollouts[0].status = Some(status);
}

fn actions(scene: &Scene) -> Vec<Action> {
    scene.round().pools["p"].as_ref().unwrap().decision.actions.clone()
}

/// Why node `n` does not go.
fn why(scene: &Scene, n: usize) -> String {
    let round = scene.round();
    let waiting = round.pools["p"].as_ref().unwrap().waiting();
    waiting.get(format!("uid-{n}").as_str()).map(|of| of.why.to_string()).unwrap_or_default()
}

#[test]
fn who_leaves_the_payload_of_a_finished_rollout_sends_nobody_back() {
    let mut scene = staged(2);
    scene.pool("p", json!({ "rollback": {} }));
    (0..2).for_each(|n| reaches(&mut scene, n));
    tell(&mut scene);
    assert_eq!(scene.objects.rollouts[0].status.as_ref().unwrap().state, "Finished");
    // A person has it go back, by hand.
    scene.says(0).disk.as_mut().unwrap().running = "A".to_owned();
    for _ in 0..3 {
        assert_eq!(actions(&scene), []);
        tell(&mut scene);
    }
    let status = scene.objects.rollouts[0].status.as_ref().unwrap();
    assert_eq!((status.denied.as_deref(), status.state.as_str()), (None, "Finished"));
    assert_eq!(why(&scene, 0), "it failed: it ran the payload, and does so no more");
    // Meanwhile the other one was ill: that is no reason either.
    scene.says(1).health.as_mut().unwrap().state = "ill".to_owned();
    tell(&mut scene);
    scene.says(1).health.as_mut().unwrap().state = "well".to_owned();
    assert_eq!(actions(&scene), []);
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
    assert!(matches!(&actions(&scene)[..], [Action::Grant { node }] if node.uid == "uid-0"), "{:?}", actions(&scene));
    scene.objects.rollouts[other].status = serde_json::from_value(json!({ "denied": "no boot" })).unwrap();
    assert_eq!(actions(&scene), []);
    let stays = "it keeps the payload that is denied: its other slot holds a payload that was denied, too: no boot";
    assert_eq!(why(&scene, 0), stays);
    // Another pool's is no business of this one.
    scene.objects.rollouts[other].spec.plan.pool = "q".to_owned();
    assert_eq!(actions(&scene).len(), 1);
}
