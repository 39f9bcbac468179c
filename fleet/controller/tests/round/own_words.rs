//! What a node itself says that keeps it is shown of it, of its rollout and of its pool.

use serde_json::{Value, json};
use slipway_fleet::{nodes::Answer, report};
use slipway_node_api::v1::{self, HealthState, Operation};

use super::{
    attacks::{arrive, keep, told, with_a_canary},
    scene::{NEW, Scene, now, payload},
    staged,
};

/// How a scene becomes what is tested; the operation is there to be used.
type Set = fn(&mut Scene, Operation);

/// The messages of the node, of its rollout and of its pool.
fn messages(scene: &Scene, n: usize) -> [String; 3] {
    let round = scene.round();
    let pool_round = round.pools["p"].as_ref().unwrap();
    let rollout = report::rollout(&scene.objects.rollouts[0], pool_round, now());
    let pool = report::pool(pool_round, None, now());
    [told(scene, &round, n).message, rollout.message, pool.message]
}

#[test]
fn what_blocks_a_node_is_shown_of_it_of_its_rollout_and_of_its_pool() {
    let operation = |goal: v1::Goal, step: v1::Step| Operation {
        goal: goal.into(),
        step: step.into(),
        blocked: Some("what the node says".to_owned()),
        ..Operation::default()
    };
    let set: [(&str, Set); 5] = [
        ("Staging", |scene, operation| scene.says(1).operation = Some(operation)),
        ("Staging", |scene, _| {
            let refused = "the node refuses (denied): what the node says".to_owned();
            scene.readings.get_mut("uid-1").unwrap().refused = Some(refused);
        }),
        ("Busy", |scene, operation| {
            let goal = v1::Goal::Reboot.into();
            scene.says(1).operation = Some(Operation { goal, step: v1::Step::Drain.into(), ..operation });
        }),
        ("NotWell", |scene, _| {
            arrive(scene, 1);
            let reasons = vec!["what the node says".to_owned()];
            scene.says(1).health = Some(v1::Health { state: HealthState::Ill.into(), seconds: 90, reasons });
        }),
        ("Begins", |scene, _| {
            (0..2).for_each(|n| scene.says(n).staged = Some(payload(NEW).into()));
            scene.pool("p", json!({ "skip": [{ "node": "n0", "who": "a", "why": "b" }] }));
            let round = scene.round();
            keep(scene, &round);
            let refused = "the node refuses (invalid): what the node says".to_owned();
            scene.readings.get_mut("uid-1").unwrap().refused = Some(refused);
        }),
    ];
    for (reason, set) in set {
        let mut scene = Scene::new(2);
        scene.roll();
        set(&mut scene, operation(v1::Goal::Stage, v1::Step::Stage));
        assert_eq!(told(&scene, &scene.round(), 1).reason, reason);
        for message in messages(&scene, 1) {
            assert!(message.contains("(") && message.contains("what the node says"), "{reason}: {message}");
        }
    }
}

/// The denial says that it is not well; what is wrong with it, only the node knows.
#[test]
fn what_is_wrong_with_a_canary_is_shown_beside_the_denial() {
    let (mut scene, canary) = with_a_canary(3);
    let reasons = vec!["the unit app.service failed".to_owned()];
    scene.says(canary).health = Some(v1::Health { state: HealthState::Ill.into(), seconds: 120, reasons });
    for _ in 0..2 {
        let [_, rollout, pool] = messages(&scene, canary);
        for message in [rollout, pool] {
            assert!(message.starts_with(&format!("the canary n{canary}")), "{message}");
            assert!(message.contains("(the unit app.service failed)"), "{message}");
        }
        let round = scene.round();
        keep(&mut scene, &round);
    }
}

/// A node that is at it is asked for nothing: what it said before that is over.
#[test]
fn a_refusal_is_shown_as_long_as_the_node_is_asked() {
    let mut scene = Scene::new(1);
    scene.roll();
    scene.readings.get_mut("uid-0").unwrap().refused = Some("the node refuses (busy)".to_owned());
    assert!(messages(&scene, 0).iter().all(|message| message.contains("refuses (busy)")));
    // What it says in this round is said once, and not beside what it said in the one before.
    let round = scene.round();
    let answers = [("uid-0".to_owned(), Answer::Refused("the node refuses (denied)".to_owned()))].into();
    let pool_round = round.pools["p"].as_ref().unwrap();
    let message = report::nodes(pool_round, &scene.readings, &answers)["uid-0"].message.clone();
    assert!(message.matches("refuses").count() == 1 && message.contains("refuses (denied)"), "{message}");
    // Nor is that shown of a node that does now what it is asked for.
    let answers = [("uid-0".to_owned(), Answer::New)].into();
    let message = report::nodes(pool_round, &scene.readings, &answers)["uid-0"].message.clone();
    assert!(!message.contains("refuses"), "{message}");
    arrive(&mut scene, 0);
    assert_eq!(told(&scene, &scene.round(), 0).message, "it runs the payload, and is well");
}

/// It is asked to end what it stages for a rollout that was given up, whatever else is said of it.
#[test]
fn a_refusal_of_a_node_that_is_passed_over_is_shown_in_each_round() {
    let why = "the node refuses (denied)";
    let mut scene = Scene::new(2);
    scene.roll();
    let rollout = scene.objects.rollouts[0].metadata.uid.clone().unwrap();
    let abort = json!({ "rolloutUID": rollout, "who": "eve", "why": "the wrong image" });
    scene.pool("p", json!({ "abort": abort, "skip": [{ "node": "n0", "who": "a", "why": "b" }] }));
    let status = |scene: &Scene, why: &str| {
        let (round, answers) = (scene.round(), [("uid-0".to_owned(), Answer::Refused(why.to_owned()))].into());
        report::nodes(round.pools["p"].as_ref().unwrap(), &scene.readings, &answers)["uid-0"].clone()
    };
    let first = status(&scene, why);
    assert!(first.reason == "Skipped" && first.message.ends_with(&format!(" ({why})")), "{first:?}");
    scene.readings.get_mut("uid-0").unwrap().refused = Some(why.to_owned());
    assert_eq!(status(&scene, why), first);
    let other = status(&scene, "the node refuses (busy)");
    assert!(other.message.ends_with(" (the node refuses (busy))") && !other.message.contains(why), "{other:?}");
    assert!(!told(&scene, &scene.round(), 0).message.contains("refuses"), "it is not asked any more");
}

/// Who types the name of a Rollout, or the UID of one that is gone, must hear that nothing follows.
#[test]
fn a_persons_word_about_no_rollout_is_told() {
    let mut scene = staged(2);
    scene.policy("careful", json!({ "approval": "EachWave" }));
    let metadata = scene.objects.rollouts[0].metadata.clone();
    let (uid, name) = (metadata.uid.unwrap(), metadata.name.unwrap());
    let plan = scene.objects.rollouts[0].spec.plan.hash;
    let with = |uid: &str, until: &str| {
        let word = |more: Value| {
            let mut word = json!({ "rolloutUID": uid, "who": "eve", "why": "the wrong image" });
            word.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            word
        };
        [
            ("abort", word(json!({}))),
            ("runNow", word(json!({ "until": until }))),
            ("approval", word(json!({ "plan": plan, "wave": 1 }))),
        ]
    };
    let message = |scene: &Scene| report::pool(scene.round().pools["p"].as_ref().unwrap(), None, now()).message;
    let (open, over) = ("2026-06-01T13:00:00Z", "2026-06-01T11:00:00Z");
    for (field, word) in with(&name, open) {
        scene.pool("p", json!({ "policies": ["careful"], field: word }));
        let told = format!("spec.{field} names {name:?}, which is the UID of no Rollout of this pool: ");
        assert!(message(&scene).contains(&told), "{}", message(&scene));
        // It is the Rollout of another pool.
        let other = scene.objects.rollouts[0].clone();
        scene.objects.rollouts.push(other);
        scene.objects.rollouts[1].metadata.uid = Some(name.clone());
        scene.objects.rollouts[1].spec.plan.pool = "q".to_owned();
        assert!(message(&scene).contains(&told), "{}", message(&scene));
        scene.objects.rollouts.pop();
    }
    // It is one of this pool's; or it would have no effect any more.
    let none = with(&name, over).into_iter().filter(|(field, _)| *field == "runNow");
    for (field, word) in with(&uid, open).into_iter().chain(none) {
        scene.pool("p", json!({ "policies": ["careful"], field: word }));
        assert!(!message(&scene).contains("of no Rollout"), "{}", message(&scene));
    }
    scene.pool("p", json!({ "approval": with(&name, open)[2].1 }));
    assert!(!message(&scene).contains("of no Rollout"), "no policy asks for it: {}", message(&scene));
}
