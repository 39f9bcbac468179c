//! Writes of one pool that the API server refuses, and pools that cannot be understood: others go on, and nothing that has
//! to stay is lost.

use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};
use slipway_fleet::{
    cluster_api::Found,
    pools::Problem,
    readable::{Readable, Unreadable},
    reconcile, report,
    round::Round,
};
use slipway_fleet_objects::rollout::{Rollout, RolloutStatus};
use slipway_node_api::v1::{Ended, Goal, Outcome};
use slipway_rollout::{
    decide::Action,
    facts::Machine,
    ledger::{Grant, Ledger},
};
use uuid::Uuid;

use crate::scene::{NEW, Scene, now, payload};

const WHY: &str = "rollout p-1: the API server says 403: no";

/// The pools `p` and `q`, with two nodes each, all of them staged and with this label.
fn two_pools(label: &str) -> Scene {
    let mut scene = Scene::new(4);
    (0..4).for_each(|n| scene.label(n, label, ""));
    for n in [2, 3] {
        scene.label(n, "pool", "q");
    }
    scene.pool("q", json!({ "nodeSelector": { "pool": "q" } }));
    scene.roll();
    (0..4).for_each(|n| scene.says(n).staged = Some(payload(NEW).into()));
    scene
}

fn refuse(scene: &mut Scene, pool: &str) {
    scene.refused.rollouts.insert(pool.to_owned(), WHY.to_owned());
}

/// Why a node does not go.
fn why(scene: &Scene, pool: &str, n: usize) -> String {
    let round = scene.round();
    let pool_round = round.pools[pool].as_ref().unwrap();
    report::nodes(pool_round, &scene.readings, &Default::default())[format!("uid-{n}").as_str()].reason.clone()
}

fn held(ledger: &Ledger) -> Vec<&str> {
    ledger.grants.iter().map(|grant| grant.node.uid.as_str()).collect()
}

/// As it is read of somebody who wrote it by hand.
fn rollout(name: &str, plan: Value) -> Unreadable {
    let object = json!({ "metadata": { "name": name, "uid": name }, "spec": { "image": "i", "plan": plan } });
    match serde_json::from_value(object).unwrap() {
        Readable::<Rollout>::Yes(of) => panic!("{of:?}"),
        Readable::No(of) => *of,
    }
}

/// Somebody wrote one that no controller would write: its pool says so, and the others go on.
#[test]
fn a_rollout_that_cannot_be_understood_stops_its_own_pool_alone() {
    let mut scene = two_pools("other");
    let by_hand = rollout("q-1", json!({ "pool": "q", "payload": "abc" }));
    let nobodys = rollout("other", json!({}));
    scene.objects.unreadable = vec![by_hand, nobodys];
    let round = scene.round();
    let pools: Vec<&str> = round.ledger.grants.iter().map(|grant| grant.node.pool.as_str()).collect();
    assert_eq!(pools, ["p"], "it goes on");
    let problem = round.pools["q"].as_ref().unwrap_err();
    let problem = (problem.reason(), problem.to_string());
    assert!(
        problem.0 == "RolloutInvalid" && problem.1.starts_with("its Rollout q-1 cannot be understood: "),
        "{problem:?}"
    );
    assert!(problem.1.ends_with(": delete it, and a new one is made"), "{problem:?}");
    // Each says so of itself, also the one that no pool speaks of.
    let told: Vec<_> = scene.objects.not_understood().map(|of| (of.kind, of.name, of.is_warning)).collect();
    assert_eq!(told, [("Rollout", "q-1".to_owned(), true), ("Rollout", "other".to_owned(), true)]);
}

#[test]
fn a_pool_whose_rollout_cannot_be_written_begins_nothing_and_others_do() {
    let mut scene = two_pools("any");
    assert_eq!(held(&scene.round().ledger), ["uid-0", "uid-2"]);
    refuse(&mut scene, "p");
    let round = scene.round();
    assert_eq!(held(&round.ledger), ["uid-2"]);
    let pool_round = round.pools["p"].as_ref().unwrap();
    assert_eq!((pool_round.decision.steps.len(), why(&scene, "p", 0).as_str()), (0, "Unwritten"));
    let status = report::pool(pool_round, Some(WHY), now());
    assert_eq!(status.message, format!("nothing begins: {WHY}"));
    // Its new grants, and no more: what holds one is asked as ever.
    scene.refused.rollouts.clear();
    scene.refused.grants.insert("p".to_owned(), "too large".to_owned());
    assert_eq!((held(&scene.round().ledger), why(&scene, "p", 0)), (vec!["uid-2"], "Unwritten".to_owned()));
    scene.refused.grants.clear();
    scene.ledger.status = Some(scene.round().ledger);
    scene.refused.grants.insert("p".to_owned(), "too large".to_owned());
    assert_eq!(
        (scene.round().pools["p"].as_ref().unwrap().decision.steps.len(), why(&scene, "p", 0)),
        (1, "Begins".to_owned())
    );
}

#[test]
fn a_pool_of_which_no_node_answers_is_not_finished() {
    let mut scene = Scene::new(2);
    scene.pool("p", json!({}));
    (0..2).for_each(|n| scene.silence(n));
    let status = |scene: &Scene| {
        let round = scene.round();
        let status = report::pool(round.pools["p"].as_ref().unwrap(), None, now());
        (status.state, status.message, status.done)
    };
    let (state, message, done) = status(&scene);
    assert_eq!((state.as_str(), done), ("Waiting", 0), "{message}");
    assert!(message.contains("it does not answer"), "{message}");
}

/// The operation, and the source, of the stage that the first node is asked for.
fn asked(scene: &Scene) -> Option<(Uuid, String)> {
    let round = scene.round();
    let pool_round = round.pools["p"].as_ref().unwrap();
    let is_stage = |step: &&Action| matches!(step, Action::Stage { uid, .. } if uid == "uid-0");
    let step = pool_round.decision.steps.iter().find(is_stage)?;
    let request = reconcile::request(pool_round, step, scene.readings.get("uid-0"))?;
    Some((request.id, request.source))
}

/// A stage that has failed for good.
fn not_staged((id, source): (Uuid, String), why: &str) -> Ended {
    let outcome = Some(Outcome { came_back: Some(why.to_owned()), ..Outcome::default() });
    let (goal, payload) = (Goal::Stage.into(), payload(NEW).into());
    Ended { id: id.to_string(), goal, source, payload, failed: true, outcome, ..Ended::default() }
}

/// The payload is right and the image was mistyped: the rollout goes on, and its nodes are asked for the right image at once.
#[test]
fn a_corrected_image_is_asked_for_in_the_same_rollout() {
    let image = "docker://registry.example/right:2";
    // While it waits for the mistyped one, and once it has given up.
    for has_ended in [false, true] {
        let mut scene = Scene::new(2);
        scene.pool("p", json!({}));
        scene.roll();
        let before = asked(&scene).unwrap();
        assert_eq!(asked(&scene), Some(before.clone()));
        if has_ended {
            scene.says(0).ended = vec![not_staged(before.clone(), "manifest 2: 404 Not Found")];
            assert_eq!(asked(&scene), None, "it is not asked for the same once more");
        }
        scene.objects.pools.get_mut("p").unwrap().as_mut().unwrap().spec.target.image = Some(image.to_owned());
        let (id, source) = asked(&scene).unwrap();
        assert_eq!(source, image);
        assert_ne!(id, before.0, "else the node says that it is at it already");
    }
}

#[test]
fn what_could_not_be_staged_is_asked_for_again_by_a_new_rollout_and_with_other_rights() {
    let failed = |why: &str| {
        let mut scene = Scene::new(2);
        scene.roll();
        let before = asked(&scene).unwrap();
        scene.says(0).ended = vec![not_staged(before.clone(), why)];
        assert_eq!(asked(&scene), None, "it is not asked for the same once more");
        (scene, before)
    };
    // The image is there by now; a person deletes the rollout, and the controller makes another one.
    let (mut scene, before) = failed("manifest 2: 404 Not Found");
    scene.objects.rollouts[0].metadata.uid = Some("another".to_owned());
    let (id, source) = asked(&scene).unwrap();
    assert!(source == before.1 && id != before.0);
    // The pool allows it by now.
    let (mut scene, before) = failed("1.0 is older than what runs: --allow-any-version");
    scene.pool("p", json!({ "allowAnyVersion": true }));
    assert_ne!(asked(&scene).unwrap().0, before.0);
    // That failed, too: it is not asked for the same once more.
    let (id, source) = asked(&scene).unwrap();
    scene.says(0).ended.insert(0, not_staged((id, source), "no room"));
    assert_eq!(asked(&scene), None);
    // What a person could not have staged by hand says nothing about the rollout.
    scene.says(0).ended[0].id = "00000000-0000-4000-8000-000000000000".to_owned();
    assert_eq!(asked(&scene).map(|of| of.0), Some(id));
}

#[test]
fn what_is_not_written_frees_nothing_that_others_would_get() {
    let mut scene = two_pools("node-role.kubernetes.io/control-plane");
    scene.ledger.status = Some(scene.round().ledger);
    assert_eq!(held(scene.ledger.status.as_ref().unwrap()), ["uid-0"], "one of the control plane");
    // Its pool is done. That is to be remembered before it is free.
    (0..2).for_each(|n| scene.says(n).disk.as_mut().unwrap().slots[0].payload = Some(payload(NEW).into()));
    scene.says(0).token = 1;
    assert_eq!(held(&scene.round().ledger), ["uid-2"], "it is free, and the other pool's is next");
    refuse(&mut scene, "p");
    let round = scene.round();
    assert_eq!((held(&round.ledger), round.freed.len()), (vec!["uid-0"], 0));
    assert_eq!((why(&scene, "p", 0), why(&scene, "q", 2)), ("Unwritten".to_owned(), "ControlPlane".to_owned()));
    // A person's word frees it all the same.
    scene.ledger.spec.release = serde_json::from_value(json!([{ "token": 1, "who": "a", "why": "b" }])).unwrap();
    assert_eq!(held(&scene.round().ledger), ["uid-2"]);
}

fn machine(n: usize, created: &str) -> Found {
    let machine = Machine {
        uid: format!("machine-{n}"),
        name: format!("default/m{n}"),
        node: Some(format!("uid-{n}")),
        set: Ok("MachineSet default/ms".to_owned()),
        created: created.parse().unwrap(),
        is_deleting: false,
    };
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("cluster.x-k8s.io", "v1beta1", "Machine"));
    Found { machine, namespace: "default".to_owned(), name: format!("m{n}"), version: "1".to_owned(), kind }
}

/// Node 0 was replaced by node 2, which is well with the payload; the grant is still held.
fn replaced() -> (Scene, Grant) {
    let mut scene = Scene::new(2);
    scene.pool("p", json!({ "strategy": "Replace" }));
    scene.replacement_facts.found = Ok((0..2).map(|n| machine(n, "2026-06-01T11:00Z")).collect());
    scene.roll();
    scene.ledger.status = Some(scene.round().ledger);
    let grant = scene.ledger.status.as_ref().unwrap().grants[0].clone();
    assert_eq!(grant.node.uid, "uid-0");
    scene.objects.nodes.remove(0);
    scene.node(2);
    scene.says(2).disk.as_mut().unwrap().slots[0].payload = Some(payload(NEW).into());
    scene.replacement_facts.found = Ok(vec![machine(1, "2026-06-01T11:00Z"), machine(2, "2026-06-01T11:30Z")]);
    (scene, grant)
}

#[test]
fn who_succeeded_whom_outlives_a_pool_that_cannot_be_understood_or_written() {
    let (mut scene, grant) = replaced();
    let succeeded = |scene: &Scene| scene.round().pools["p"].as_ref().unwrap().decision.succeeded.clone();
    assert_eq!((succeeded(&scene)["uid-0"].as_str(), held(&scene.round().ledger)), ("uid-2", vec!["uid-1"]));
    let stays = |scene: &Scene, why: &str| {
        let round = scene.round();
        assert!(
            round.freed.is_empty() && round.ledger.grants == std::slice::from_ref(&grant),
            "{why}: {:?}",
            round.freed
        );
    };
    scene.pool("p", json!({ "strategy": "Replace", "policies": ["gone"] }));
    stays(&scene, "there is no such policy");
    scene.pool("p", json!({ "strategy": "Replace" }));
    refuse(&mut scene, "p");
    stays(&scene, "its rollout cannot be written");
    scene.refused.rollouts.clear();
    assert_eq!((succeeded(&scene)["uid-0"].as_str(), held(&scene.round().ledger)), ("uid-2", vec!["uid-1"]));
}

#[test]
fn a_plan_is_no_larger_than_one_object_and_the_others_get_a_further_one() {
    let mut scene = Scene::new(4500);
    scene.pool("p", json!({ "strategy": "Replace" }));
    for n in 0..4500 {
        let name = format!("{n:0200}");
        scene.objects.nodes[n].metadata.name = Some(name.clone());
        scene.says(n).node = name;
    }
    scene.roll();
    let mut rollout = scene.objects.rollouts[0].clone();
    let planned: Vec<String> = rollout.spec.plan.nodes().map(|(_, node)| node.uid.clone()).collect();
    assert!((4000..4500).contains(&planned.len()) && rollout.spec.plan.is_whole(), "{}", planned.len());
    // All of them are replaced by now, and that is remembered. So long are the UIDs of an API server.
    let uid = |uid: &String| format!("{uid:0>36}");
    let succeeded = planned.iter().map(|of| (uid(of), uid(of))).collect();
    rollout.status = Some(RolloutStatus { succeeded, state: "Finished".to_owned(), ..RolloutStatus::default() });
    let size = serde_json::to_vec(&rollout).unwrap().len();
    assert!(size < 3 << 19, "{size}");
    scene.objects.rollouts[0].status = Some(RolloutStatus { succeeded: Default::default(), ..rollout.status.unwrap() });
    let round = scene.round();
    let others: Vec<_> = round.new[0].spec.plan.nodes().map(|(_, node)| node.uid.clone()).collect();
    assert!(others.len() == 4500 - planned.len() && others.iter().all(|uid| !planned.contains(uid)));
}

/// Somebody wrote one that has the name of the pool's next one: of another pool, after the last number, or of nonsense.
#[test]
fn a_rollout_whose_name_is_taken_is_not_made_and_the_pool_says_so() {
    let scenes: [fn(&mut Scene); 3] = [
        |scene| {
            scene.roll();
            scene.objects.rollouts[0].spec.plan.pool = "other".to_owned();
        },
        |scene| {
            scene.roll();
            let of = &mut scene.objects.rollouts[0];
            of.metadata.name = of.metadata.name.as_ref().map(|name| format!("{}{}", &name[..name.len() - 1], u32::MAX));
            of.status = Some(serde_json::from_value(json!({ "state": "Finished", "finished": true })).unwrap());
            scene.node(7);
        },
        |scene| {
            let name = scene.round().new[0].metadata.name.clone().unwrap();
            scene.objects.unreadable.push(rollout(&name, json!({})));
        },
    ];
    for of in scenes {
        let mut scene = Scene::new(2);
        of(&mut scene);
        let round = scene.round();
        assert!(round.new.is_empty(), "{:?}", round.new);
        let why = round.taken["p"].as_str();
        assert!(why.starts_with("the Rollout p-") && why.ends_with(": delete it"), "{why}");
        let told = report::pool(round.pools["p"].as_ref().unwrap(), Some(why), now()).message;
        assert!(told.starts_with("nothing begins: the Rollout p-"), "{told}");
        scene.objects.rollouts.clear();
        scene.objects.unreadable.clear();
        assert_eq!((scene.round().new.len(), scene.round().taken.len()), (1, 0));
    }
}

/// One that cannot be understood stops no round: every pool says what is wrong, and no node is asked for anything.
#[test]
fn a_ledger_that_cannot_be_understood_is_said_by_every_pool() {
    let scene = two_pools("any");
    let round = Round::stuck(&scene.objects, &Problem::Ledger("missing field `token`".to_owned()));
    assert!(round.ledger.grants.is_empty() && round.new.is_empty());
    for pool in ["p", "q"] {
        let problem = round.pools[pool].as_ref().unwrap_err();
        let status = report::invalid(scene.objects.pools[pool].as_ref().ok(), 2, &[], problem, now());
        let why = "the DisruptionLedger cluster cannot be understood: missing field `token`: correct it; until then no pool \
                   goes on";
        assert_eq!((status.state.as_str(), status.message.as_str()), ("Invalid", why));
        assert_eq!(report::stuck(problem).reason, "LedgerInvalid");
    }
}
