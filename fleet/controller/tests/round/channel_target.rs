//! Pools that follow a channel.

use serde_json::{Value, json};
use slipway_fleet::{observed_node::NoReport, report};
use slipway_node_api::v1::{Denied, HealthState, Slot, SlotState};
use slipway_rollout::decide::Action;

use crate::scene::{Scene, now, payload};

fn latest(version: &str) -> Value {
    let digest = payload(&format!("image {version}"));
    let image = format!("docker://registry.example/os@sha256:{digest}");
    json!({ "version": version, "digest": format!("sha256:{digest}"), "image": image, "payload": payload(version) })
}

/// The status of a channel that has found these versions and chosen the last.
fn status(versions: &[&str], floors: Value) -> Value {
    let candidate = |version: &&str| {
        let mut candidate = latest(version);
        candidate["firstSeen"] = "2026-01-01T00:00:00Z".into();
        candidate["says"] = json!({});
        candidate
    };
    let candidates: Vec<_> = versions.iter().map(candidate).collect();
    json!({ "candidates": candidates, "latest": latest(versions.last().unwrap()), "floors": floors })
}

/// The pool `p` follows a channel with this status; its nodes run these versions.
fn scene(status: Value, run: &[&str]) -> Scene {
    let mut scene = Scene::new(run.len());
    scene.pool("p", json!({ "target": { "channel": "stable" } }));
    let spec = json!({ "repository": "registry.example/os", "select": { "label": "stable" } });
    let channel = json!({ "metadata": { "name": "stable" }, "spec": spec, "status": status });
    scene.objects.channels.insert("stable".to_owned(), Ok(serde_json::from_value(channel).unwrap()));
    for (n, version) in run.iter().enumerate() {
        runs(&mut scene, n, version);
    }
    scene
}

fn runs(scene: &mut Scene, n: usize, version: &str) {
    scene.says(n).disk.as_mut().unwrap().slots[0].payload = Some(payload(version).into());
}

/// The channel is another one now, or says other things.
fn says(scene: &mut Scene, status: Value) {
    let channel = scene.objects.channels.get_mut("stable").unwrap().as_mut().unwrap();
    channel.status = Some(serde_json::from_value(status).unwrap());
}

/// The nodes of the rollouts that are to be made.
fn planned(scene: &Scene) -> Vec<(String, Vec<String>)> {
    let of = |rollout: &slipway_fleet_objects::rollout::Rollout| {
        let mut nodes: Vec<_> = rollout.spec.plan.nodes().map(|(_, node)| node.name.clone()).collect();
        nodes.sort();
        (rollout.spec.plan.payload.to_string(), nodes)
    };
    scene.round().new.iter().map(of).collect()
}

fn to(version: &str, nodes: &[&str]) -> Vec<(String, Vec<String>)> {
    vec![(payload(version).to_string(), nodes.iter().map(|name| (*name).to_owned()).collect())]
}

fn said(scene: &Scene, n: usize) -> String {
    let round = scene.round();
    let pool_round = round.pools["p"].as_ref().unwrap();
    report::nodes(pool_round, &scene.readings, &Default::default())[format!("uid-{n}").as_str()].message.clone()
}

#[test]
fn a_pool_goes_to_the_choice_and_nobody_goes_back() {
    let mut scene = scene(status(&["1.0.0", "3.0.0", "2.0.0"], json!([])), &["1.0.0", "2.0.0", "3.0.0", "unknown"]);
    assert_eq!(planned(&scene), to("2.0.0", &["n0", "n3"]));
    scene.roll();
    assert_eq!(
        said(&scene, 2),
        "it runs 3.0.0, and the channel's choice is 2.0.0: a channel takes no node back to an older version"
    );
    let round = scene.round();
    let pool_round = round.pools["p"].as_ref().unwrap();
    assert_eq!(pool_round.rollout.as_ref().unwrap().spec.image, latest("2.0.0")["image"].as_str().unwrap());
    // The tag was moved to another build of the same version.
    let mut moved = status(&["1.0.0", "2.0.0"], json!([]));
    let mut before = latest("2.0.0");
    before["digest"] = format!("sha256:{}", payload("image built before")).into();
    before["payload"] = json!(payload("built before"));
    (before["from"], before["until"]) = ("2026-01-01T00:00:00Z".into(), "2026-02-01T00:00:00Z".into());
    moved["held"] = json!([before]);
    let mut moved = self::scene(moved, &["1.0.0", "built before"]);
    assert_eq!(planned(&moved), to("2.0.0", &["n0"]));
    moved.roll();
    let why = said(&moved, 1);
    assert!(why.starts_with("it runs 2.0.0, and the channel's choice is another build of that version"), "{why}");
    // If all nodes are newer there is no rollout.
    let newer = self::scene(status(&["1.0.0", "3.0.0", "2.0.0"], json!([])), &["3.0.0"]);
    assert_eq!(planned(&newer), []);
}

#[test]
fn who_runs_what_the_channel_took_once_does_not_go_back_when_the_registry_has_it_no_more() {
    let mut status = status(&["1.0.0", "2.0.0"], json!([]));
    let mut taken = latest("2.1.0");
    (taken["from"], taken["until"]) = ("2026-01-01T00:00:00Z".into(), "2026-02-01T00:00:00Z".into());
    status["held"] = json!([taken]);
    let mut scene = scene(status, &["1.0.0", "2.1.0"]);
    assert_eq!(planned(&scene), to("2.0.0", &["n0"]));
    scene.roll();
    assert_eq!(
        said(&scene, 1),
        "it runs 2.1.0, and the channel's choice is 2.0.0: a channel takes no node back to an older version"
    );
}

#[test]
fn who_runs_what_a_rollout_brought_does_not_go_back_by_another_channel() {
    let mut scene = scene(status(&["2.1.0"], json!([])), &["old", "old"]);
    assert_eq!(planned(&scene), to("2.1.0", &["n0", "n1"]), "these nodes have no target yet");
    scene.roll();
    runs(&mut scene, 0, "2.1.0");
    // Now it is a channel that knows the same image, and never needed its payload.
    let mut stable = status(&["2.1.0", "2.0.0"], json!([]));
    stable["candidates"][0].as_object_mut().unwrap().remove("payload");
    says(&mut scene, stable);
    assert_eq!(planned(&scene), to("2.0.0", &["n1"]));
    let newer = "it runs 2.1.0, and the channel's choice is 2.0.0: a channel takes no node back to an older version";
    scene.roll();
    assert_eq!(said(&scene, 0), newer);
    // Nor by one that knows nothing of it.
    says(&mut scene, status(&["1.9.0"], json!([])));
    assert_eq!(planned(&scene), to("1.9.0", &["n1"]), "it never ran anything that a rollout brought");
    scene.roll();
    assert!(said(&scene, 0).contains("name image and payload in spec.target"), "{}", said(&scene, 0));
    // A node that comes later with an unknown version may run a newer one.
    scene.node(2);
    runs(&mut scene, 2, "made by hand");
    assert!(said(&scene, 2).contains("name image and payload in spec.target"), "{}", said(&scene, 2));
}

#[test]
fn a_pool_goes_through_the_floors_together() {
    let floors = json!([{ "version": "1.4.0", "image": latest("1.4.0") }]);
    let mut scene = scene(status(&["1.0.0", "1.4.0", "2.0.0"], floors), &["1.0.0", "1.4.0", "2.0.0", "unknown"]);
    assert_eq!(planned(&scene), to("1.4.0", &["n0"]));
    scene.roll();
    assert_eq!(said(&scene, 1), "it runs the payload, and is well");
    assert_eq!(said(&scene, 2), "it runs 2.0.0, the channel's choice; others of its pool go through 1.4.0 first");
    assert!(said(&scene, 3).starts_with("the channel does not know the version that it runs"), "{}", said(&scene, 3));
    runs(&mut scene, 0, "1.4.0");
    assert_eq!(planned(&scene), to("2.0.0", &["n0", "n1"]));
    // A silent node holds no other back.
    runs(&mut scene, 0, "1.0.0");
    scene.silence(0);
    assert_eq!(planned(&scene), to("2.0.0", &["n0", "n1"]));
}

#[test]
fn who_is_skipped_or_has_failed_at_a_floor_holds_nobody_there() {
    let floors = json!([{ "version": "1.4.0", "image": latest("1.4.0") }]);
    let status = status(&["1.0.0", "1.4.0", "2.0.0"], floors);
    let mut scene = scene(status, &["1.0.0", "1.4.0", "1.4.0"]);
    assert_eq!(planned(&scene), to("1.4.0", &["n0"]));
    let skip = json!([{ "node": "n0", "who": "a", "why": "its disk is old" }]);
    scene.pool("p", json!({ "target": { "channel": "stable" }, "skip": skip }));
    // It has its place there, and does not go while it is skipped.
    assert_eq!(planned(&scene), to("2.0.0", &["n0", "n1", "n2"]));
    assert!(scene.round().pools["p"].as_ref().unwrap().desired.skip.contains("uid-0"));
    // The same if its rollout of the floor did not last, or it denies the floor's payload.
    scene.pool("p", json!({ "target": { "channel": "stable" } }));
    scene.roll();
    scene.came_back(0, "the drain was blocked");
    assert_eq!(planned(&scene), to("2.0.0", &["n1", "n2"]));
    scene.says(0).ended.clear();
    let denied = Denied { payload: payload("1.4.0").into(), why: "it was ill".to_owned() };
    scene.says(0).denied = vec![denied];
    assert_eq!(planned(&scene), to("2.0.0", &["n1", "n2"]));
    scene.roll();
    assert_eq!(said(&scene, 0), "it must go through 1.4.0 first, and failed there: it was ill");
    // Each node that has not failed there still goes through it. The failure counts there.
    runs(&mut scene, 1, "1.0.0");
    let round = scene.round();
    let desired = &round.pools["p"].as_ref().unwrap().desired;
    assert_eq!((desired.payload, desired.left_as_is.contains_key("uid-0")), (payload("1.4.0"), false));
    // Nor does the pool leave a floor at which all have failed.
    let failed = scene.says(0).denied.clone();
    (1..3).for_each(|n| {
        runs(&mut scene, n, "1.0.0");
        scene.says(n).denied = failed.clone();
    });
    assert_eq!(scene.round().pools["p"].as_ref().unwrap().desired.payload, payload("1.4.0"));
}

/// It gets no grant any more, or never got one: the others would wait for it for ever.
#[test]
fn who_comes_back_from_a_floor_without_a_word_or_lies_about_its_token_holds_nobody_there() {
    let floors = json!([{ "version": "1.4.0", "image": latest("1.4.0") }]);
    let mut scene = scene(status(&["1.0.0", "1.4.0", "2.0.0"], floors), &["1.0.0", "1.4.0", "1.4.0"]);
    scene.roll();
    let target = |scene: &Scene| scene.round().pools["p"].as_ref().unwrap().desired.payload;
    let attempts = |count: u32| json!({ "attempts": { "uid-0": { "count": count, "token": 5 } } });
    scene.objects.rollouts[0].status = Some(serde_json::from_value(attempts(4)).unwrap());
    assert_eq!(target(&scene), payload("1.4.0"), "one is left");
    scene.objects.rollouts[0].status = Some(serde_json::from_value(attempts(5)).unwrap());
    assert_eq!(planned(&scene), to("2.0.0", &["n1", "n2"]));
    let node = json!({ "uid": "uid-0", "name": "n0", "pool": "p", "role": "worker" });
    let ledger = json!({ "epoch": 5, "grants": [{ "node": node, "token": 5, "since": now() }] });
    scene.ledger.status = Some(serde_json::from_value(ledger).unwrap());
    assert_eq!(target(&scene), payload("1.4.0"), "it is at the last one");
    scene.ledger.status.as_mut().unwrap().grants.clear();
    scene.roll();
    let why = "it must go through 1.4.0 first, and failed there: 5 attempts ended without the payload";
    assert_eq!(said(&scene, 0), why);
    // Its rollout knows of that as long as the node is there.
    let with = |limit: u32| json!({ "target": { "channel": "stable" }, "revisionHistoryLimit": limit });
    scene.pool("p", with(0));
    scene.objects.rollouts[0].status.as_mut().unwrap().state = "Superseded".to_owned();
    assert_eq!((target(&scene), scene.round().expired.len()), (payload("2.0.0"), 0));
    runs(&mut scene, 0, "1.4.0");
    assert_eq!(scene.round().expired.len(), 1);
    runs(&mut scene, 0, "1.0.0");
    scene.pool("p", with(10));
    // A person has freed its grant.
    scene.objects.rollouts.truncate(1);
    let deferred = json!({ "attempts": { "uid-0": { "count": 0, "token": 5, "deferred": true } } });
    scene.objects.rollouts[0].status = Some(serde_json::from_value(deferred).unwrap());
    assert_eq!(target(&scene), payload("2.0.0"));
    // A token that was never given.
    scene.objects.rollouts[0].status = None;
    scene.says(0).token = 6;
    assert_eq!(planned(&scene), to("2.0.0", &["n1", "n2"]));
    // The ledger was lost, most nodes say: nobody has lied.
    (1..3).for_each(|n| scene.says(n).token = 6);
    assert_eq!((target(&scene), planned(&scene)), (payload("1.4.0"), vec![]));
}

/// It would begin anew, and nobody would count that.
#[test]
fn a_soak_is_followed_to_its_end_whatever_one_look_sees_of_those_who_wait_for_it() {
    let floors = json!([{ "version": "1.4.0", "image": latest("1.4.0") }]);
    let with = |floors: &Value| status(&["1.0.0", "1.4.0", "2.0.0"], floors.clone());
    let soaking = |run: &[&str], to: &str| {
        let mut scene = scene(with(&floors), run);
        scene.policy("x", json!({ "steps": [{ "nodes": 1, "soak": "1h" }] }));
        scene.pool("p", json!({ "target": { "channel": "stable" }, "policies": ["x"] }));
        scene.roll();
        let plan = &scene.objects.rollouts[0].spec.plan;
        let [canary, other] = [0, 1].map(|wave| plan.waves[wave].nodes[0].name[1..].parse::<usize>().unwrap());
        runs(&mut scene, canary, to);
        let soaks = json!({ "state": "Waiting", "soakingSince": now() });
        scene.objects.rollouts[0].status = Some(serde_json::from_value(soaks).unwrap());
        (scene, other)
    };
    let target = |scene: &Scene| {
        let round = scene.round();
        (round.pools["p"].as_ref().unwrap().desired.payload, round.aside.len())
    };
    let at_the_floor = || soaking(&["1.0.0", "1.0.0", "2.0.0"], "1.4.0");
    type Lie = fn(&mut Scene, usize);
    let blind: Lie = |scene, _| {
        for look in scene.readings.values_mut() {
            look.status = Err(NoReport::Unasked("the CA is away".to_owned()));
        }
    };
    let lies: [Lie; 3] = [|scene, n| scene.silence(n), |scene, n| scene.says(n).token = 99, blind];
    for lie in lies {
        let (mut scene, other) = at_the_floor();
        lie(&mut scene, other);
        assert_eq!(target(&scene), (payload("1.4.0"), 0));
    }
    // Nor does one that says that it needs the floor stop the soak of the choice.
    let (mut scene, other) = soaking(&["1.4.0", "1.4.0", "1.4.0"], "2.0.0");
    runs(&mut scene, other, "1.0.0");
    assert_eq!(target(&scene), (payload("2.0.0"), 0));
    // It has an end, is for somebody, and holds nobody at a floor that the channel has no more.
    let free: [Lie; 6] = [
        |scene, _| scene.objects.rollouts[0].status = serde_json::from_value(json!({ "passed": 1 })).unwrap(),
        |scene, _| scene.objects.rollouts[0].status.as_mut().unwrap().paused = Some("n1 ran it".to_owned()),
        |scene, _| scene.objects.rollouts[0].status.as_mut().unwrap().state = "Superseded".to_owned(),
        |scene, n| scene.objects.nodes.retain(|node| node.metadata.name != Some(format!("n{n}"))),
        |scene, n| {
            let skip = json!([{ "node": format!("n{n}"), "who": "eve", "why": "on loan" }]);
            scene.pool("p", json!({ "target": { "channel": "stable" }, "policies": ["x"], "skip": skip }));
        },
        |scene, _| says(scene, status(&["1.0.0", "1.4.0", "2.0.0"], json!([]))),
    ];
    for (n, free) in free.into_iter().enumerate() {
        let (mut scene, other) = at_the_floor();
        scene.silence(other);
        free(&mut scene, other);
        assert_eq!(target(&scene).0, payload("2.0.0"), "{n}");
    }
}

#[test]
fn a_floor_that_is_missing_holds_back_who_needs_it() {
    let scene = scene(status(&["1.0.0", "1.5.0", "2.0.0"], json!([{ "version": "1.4.0" }])), &["1.0.0", "1.5.0"]);
    assert_eq!(planned(&scene), to("2.0.0", &["n1"]));
}

#[test]
fn a_channel_without_an_image_begins_nothing() {
    let condition = json!({ "type": "Ready", "status": "False", "reason": "NothingChosen", "message": "there is no image",
        "lastTransitionTime": "2026-01-01T00:00:00Z" });
    let scene = scene(json!({ "conditions": [condition] }), &["1.0.0"]);
    let round = scene.round();
    let problem = round.pools["p"].as_ref().unwrap_err();
    assert_eq!(
        (problem.reason(), problem.to_string().as_str()),
        ("NoTarget", "the Channel \"stable\" has no image: there is no image")
    );
}

#[test]
fn who_has_the_choice_already_is_done_while_others_go_through_a_floor() {
    let floors = json!([{ "version": "2.0.0", "image": latest("2.0.0") }]);
    let mut scene = scene(status(&["1.0.0", "2.0.0", "3.0.0"], floors), &["1.0.0", "3.0.0", "3.0.0"]);
    scene.roll();
    let pool = |scene: &Scene| {
        let round = scene.round();
        let status = report::pool(round.pools["p"].as_ref().unwrap(), None, now());
        (status.payload.unwrap(), status.done, status.nodes, status.state == "UpToDate")
    };
    assert_eq!(pool(&scene), (payload("2.0.0"), 2, 3, false));
    scene.says(2).health.as_mut().unwrap().set_state(HealthState::Ill);
    assert_eq!(pool(&scene), (payload("2.0.0"), 1, 3, false), "not if it is not well");
    runs(&mut scene, 0, "2.0.0");
    assert_eq!((pool(&scene).0, pool(&scene).3), (payload("3.0.0"), false));
}

#[test]
fn a_channel_that_goes_back_to_a_finished_choice_leaves_nothing_to_wait_for() {
    let mut scene = scene(status(&["1.0.0"], json!([])), &["old", "old", "old"]);
    scene.roll();
    (0..3).for_each(|n| runs(&mut scene, n, "1.0.0"));
    says(&mut scene, status(&["1.0.0", "2.0.0"], json!([])));
    scene.roll();
    (0..2).for_each(|n| runs(&mut scene, n, "2.0.0"));
    for (n, status) in [
        json!({ "state": "Superseded", "finished": true, "passed": 1 }),
        json!({ "state": "Denied", "denied": "it eats files" }),
    ]
    .into_iter()
    .enumerate()
    {
        scene.objects.rollouts[n].status = Some(serde_json::from_value(status).unwrap());
    }
    says(&mut scene, status(&["2.0.0", "1.0.0"], json!([])));
    assert_eq!(planned(&scene), []);
    let pool = |scene: &Scene| report::pool(scene.round().pools["p"].as_ref().unwrap(), None, now());
    let status = pool(&scene);
    let stays = "it runs 2.0.0, and the channel's choice is 1.0.0: a channel takes no node back to an older version";
    assert_eq!((status.state.as_str(), status.message.as_str()), ("Finished", format!("n0: {stays}").as_str()));
    // One that is silent is none of them.
    scene.silence(2);
    assert_eq!(pool(&scene).state, "Waiting");
}

/// The pool's nodes have 2.0.0, which was denied, in slot B. The pool has its nodes go back.
fn denied(more: Value) -> Scene {
    let all = &["1.0.0", "2.0.0"];
    let mut scene = scene(status(all, json!([])), &["1.0.0"; 3]);
    let mut spec = json!({ "target": { "channel": "stable" }, "rollback": {} });
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    scene.pool("p", spec);
    scene.roll();
    for n in 0..2 {
        let disk = scene.says(n).disk.as_mut().unwrap();
        (disk.running, disk.slots[1].payload) = (Slot::B.into(), Some(payload("2.0.0").into()));
    }
    let status = json!({ "denied": "it eats files", "state": "Denied" });
    scene.objects.rollouts[0].status = Some(serde_json::from_value(status).unwrap());
    scene
}

fn decided(scene: &Scene) -> Vec<Action> {
    scene.round().pools["p"].as_ref().unwrap().decision.steps.clone()
}

/// As the README says. The choice is older then than what nodes run.
#[test]
fn who_denies_the_bad_version_in_the_channel_does_not_end_the_way_back() {
    let mut scene = denied(json!({}));
    let goes = |scene: &Scene| decided(scene).iter().any(|step| matches!(step, Action::Grant { .. }));
    assert!(goes(&scene), "{:?}", decided(&scene));
    says(&mut scene, status(&["2.0.0", "1.0.0"], json!([])));
    // It was put aside in the meantime, or was not.
    for state in ["Denied", "Superseded"] {
        scene.objects.rollouts[0].status.as_mut().unwrap().state = state.to_owned();
        let round = scene.round();
        assert!(goes(&scene) && round.aside.is_empty() && round.new.is_empty(), "{state}: {:?}", decided(&scene));
    }
    // One that is about to go is asked to.
    let ledger = scene.round().ledger;
    let n: usize = ledger.grants[0].node.uid[4..].parse().unwrap();
    scene.ledger.status = Some(ledger);
    assert!(matches!(&decided(&scene)[..], [Action::Return { .. }]), "{}", said(&scene, n));
    let message = report::headline(scene.round().pools["p"].as_ref().unwrap()).message;
    assert!(message.starts_with("it eats files; nodes go back, and 2 still run it"), "{message}");
    // They are back, and the pool is what the channel says.
    scene.ledger.status = None;
    (0..2).for_each(|n| scene.says(n).disk.as_mut().unwrap().running = Slot::A.into());
    let round = scene.round();
    let pool = report::pool(round.pools["p"].as_ref().unwrap(), None, now());
    assert_eq!((pool.state.as_str(), pool.done, round.ledger.grants.len()), ("UpToDate", 3, 0), "{}", pool.message);
}

/// Nobody waits for what will not be.
#[test]
fn a_way_back_that_is_none_or_that_nobody_wants_is_not_waited_for() {
    let older = || status(&["2.0.0", "1.0.0"], json!([]));
    let word = json!([{ "node": "n0", "who": "eve", "why": "x" }, { "node": "n1", "who": "eve", "why": "x" }]);
    for more in [json!({ "rollback": null }), json!({ "skip": word })] {
        let mut scene = denied(more.clone());
        says(&mut scene, older());
        assert_eq!((decided(&scene), scene.round().aside.len()), (vec![], 1), "{more}");
    }
    for spoil in [
        (|scene| scene.says(0).disk.as_mut().unwrap().slots[0].state = Some(SlotState::Bad.into())) as fn(&mut Scene),
        |scene| scene.says(0).no_way_back = Some("etcd 3.4 cannot read it".to_owned()),
        |scene| scene.label(0, "node-role.kubernetes.io/control-plane", ""),
    ] {
        let mut scene = denied(json!({}));
        says(&mut scene, older());
        scene.says(1).disk.as_mut().unwrap().running = Slot::A.into();
        assert_eq!(decided(&scene).len(), 1, "{:?}", decided(&scene));
        spoil(&mut scene);
        assert_eq!((decided(&scene), scene.round().aside.len()), (vec![], 1), "{}", said(&scene, 0));
    }
    // A mended version is wanted by those nodes: they go forward, and once.
    let mut scene = denied(json!({}));
    says(&mut scene, status(&["1.0.0", "2.0.0", "2.0.1"], json!([])));
    let round = scene.round();
    assert_eq!((round.ledger.grants.len(), round.aside.len()), (0, 1));
    assert_eq!(planned(&scene), to("2.0.1", &["n0", "n1", "n2"]));
}
