//! What people change in the middle of a rollout, and write by hand where only controllers write: no budget is overdrawn, and
//! who waits says why.

use std::collections::BTreeSet;

use jiff::{Timestamp, ToSpan as _};
use serde_json::json;
use slipway_fleet::{
    names,
    nodes::Ask,
    reconcile::{abandoned, asked},
    report,
    round::Round,
};
use slipway_node::request::Goal;
use slipway_node_api::v1::{self, HealthState, Operation};
use slipway_rollout::{decide::Action, ledger::Ledger};

use super::{
    attacks::{arrive, keep, told},
    scene::{NEW, Scene, now, payload},
    staged,
};

fn held(round: &Round) -> BTreeSet<usize> {
    round.ledger.grants.iter().filter_map(|grant| grant.node.uid.strip_prefix("uid-")?.parse().ok()).collect()
}

/// Honest nodes do what they may, each in the round after its grant.
fn obey(scene: &mut Scene, round: &Round) {
    for grant in &round.ledger.grants {
        let Some(n) = grant.node.uid.strip_prefix("uid-").and_then(|n| n.parse().ok()) else { continue };
        scene.says(n).token = grant.token;
        arrive(scene, n);
    }
}

/// A round whose result stays, and in which every node that is not done says why.
fn look(scene: &mut Scene) -> Round {
    let round = scene.round();
    let pool_round = round.pools["p"].as_ref().unwrap();
    for (uid, status) in report::nodes(pool_round, &scene.readings, &Default::default()) {
        assert!(!status.reason.is_empty() && !status.message.is_empty(), "{uid}: {status:?}");
    }
    assert_ne!(report::pool(pool_round, None, now()).message, "");
    keep(scene, &round);
    round
}

fn runs(scene: &Scene) -> usize {
    let is_new = |status: &slipway_node_api::v1::StatusResponse| {
        let disk = status.disk.as_ref().unwrap();
        disk.slots.iter().any(|of| of.slot == disk.running && of.payload == Some(payload(NEW).into()))
    };
    scene.readings.values().filter_map(|of| of.status.as_ref().ok()).filter(|of| is_new(of)).count()
}

/// The node takes the highest that it finds, and so does its controller.
#[test]
fn a_node_with_two_grants_by_hand_goes_with_the_higher_one_and_frees_both() {
    for tokens in [[5, 7], [7, 5], [7, 7]] {
        let mut scene = staged(3);
        let node = json!({ "uid": "uid-1", "name": "n1", "pool": "p", "role": "worker" });
        let grants = tokens.map(|token| json!({ "node": node, "token": token, "since": now() }));
        scene.ledger.status = Some(serde_json::from_value(json!({ "epoch": 4, "grants": grants })).unwrap());
        let round = look(&mut scene);
        let steps = &round.pools["p"].as_ref().unwrap().decision.steps;
        assert!(steps.iter().any(|of| matches!(of, Action::Begin { token: 7, .. })), "{tokens:?}: {steps:?}");
        assert_eq!(held(&round), [1].into());
        scene.says(1).token = 7;
        arrive(&mut scene, 1);
        let round = look(&mut scene);
        assert!(round.ledger.epoch == 8 && !held(&round).contains(&1), "{tokens:?}: {:?}", round.ledger);
        assert_eq!(told(&scene, &round, 1).reason, "Done");
    }
}

/// A person's word names a token, and frees no other grant.
#[test]
fn the_word_about_one_of_two_grants_of_a_node_frees_not_the_other() {
    let mut scene = staged(1);
    let node = json!({ "uid": "uid-0", "name": "n0", "pool": "p", "role": "worker" });
    let grants = [7, 5].map(|token| json!({ "node": node, "token": token, "since": now() }));
    scene.ledger.status = Some(serde_json::from_value(json!({ "epoch": 7, "grants": grants })).unwrap());
    let word = |token: u64| serde_json::from_value(json!([{ "token": token, "who": "a", "why": "b" }])).unwrap();
    scene.ledger.spec.release = word(5);
    let tokens = |scene: &Scene| scene.round().ledger.grants.iter().map(|of| of.token).collect::<Vec<_>>();
    assert_eq!(tokens(&scene), [7]);
    scene.ledger.spec.release = word(7);
    assert!(!tokens(&scene).contains(&7));
}

#[test]
fn grants_by_hand_of_nobody_are_free_or_are_named_by_who_waits() {
    let ghost = |role: &str| json!({ "uid": "ghost", "name": "ghost", "pool": "p", "role": role });
    let with = |role: &str| -> Ledger {
        let grant = json!({ "node": ghost(role), "token": 9, "since": Timestamp::MAX });
        serde_json::from_value(json!({ "epoch": 2, "grants": [grant] })).unwrap()
    };
    let mut scene = staged(3);
    scene.ledger.status = Some(with("worker"));
    let round = look(&mut scene);
    assert_eq!((held(&round).len(), round.ledger.epoch, round.ledger.grants.len()), (1, 10, 1), "{:?}", round.ledger);
    // Its member of etcd may come back: a person has to know.
    scene.ledger.status = Some(with("control-plane"));
    let round = look(&mut scene);
    let waits = told(&scene, &round, 0);
    assert!(held(&round).is_empty() && waits.message.contains("ghost"), "{waits:?}");
}

/// The highest token was lowered by hand, and nobody holds a grant.
#[test]
fn a_lowered_epoch_gives_no_node_a_token_that_it_has_obeyed() {
    let mut scene = staged(5);
    (0..5).for_each(|n| scene.says(n).token = 50 + n as u64);
    scene.ledger.status = Some(serde_json::from_value(json!({ "epoch": 1 })).unwrap());
    for _ in 0..5 {
        let round = look(&mut scene);
        let [grant] = &round.ledger.grants[..] else { panic!("{:?}", round.ledger) };
        assert!(grant.token > 54, "{grant:?}");
        obey(&mut scene, &round);
    }
    assert_eq!(runs(&scene), 5);
}

/// More are away than may be now: they end, and nobody follows until there is room.
#[test]
fn a_budget_that_is_lowered_below_what_is_in_use_gives_nothing_until_it_is_not() {
    let mut scene = staged(6);
    scene.policy("x", json!({ "maxUnavailable": 3 }));
    scene.pool("p", json!({ "policies": ["x"] }));
    let first = held(&look(&mut scene));
    assert_eq!(first.len(), 3);
    scene.policy("x", json!({ "maxUnavailable": 1 }));
    for gone in 1..=3 {
        let round = look(&mut scene);
        let steps = &round.pools["p"].as_ref().unwrap().decision.steps;
        let begun = steps.iter().filter(|of| matches!(of, Action::Begin { .. })).count();
        assert_eq!((held(&round).len(), begun), (4 - gone, 4 - gone), "{:?}", round.ledger);
        let waits: Vec<_> = (0..6).filter(|n| !first.contains(n)).map(|n| told(&scene, &round, n)).collect();
        assert!(waits.iter().all(|of| matches!(of.reason.as_str(), "Budget" | "After")), "{waits:?}");
        assert!(waits.iter().any(|of| of.message.contains("1 of the 6 nodes")), "{waits:?}");
        let n = *held(&round).first().unwrap();
        scene.says(n).token = round.ledger.held(&format!("uid-{n}")).unwrap().token;
        arrive(&mut scene, n);
    }
    for _ in 0..3 {
        let round = look(&mut scene);
        assert_eq!(held(&round).len(), 1);
        obey(&mut scene, &round);
    }
    assert_eq!((runs(&scene), look(&mut scene).ledger.grants.len()), (6, 0));
}

#[test]
fn an_approval_that_is_asked_for_in_the_middle_lets_who_goes_go_on_and_names_the_command() {
    let mut scene = staged(4);
    scene.policy("x", json!({ "maxUnavailable": 1 }));
    scene.pool("p", json!({ "policies": ["x"] }));
    let first = held(&look(&mut scene));
    scene.policy("x", json!({ "maxUnavailable": 4, "approval": "EachWave" }));
    let round = look(&mut scene);
    assert_eq!(held(&round), first, "{:?}", round.ledger);
    let waits = (0..4).filter(|n| !first.contains(n)).map(|n| told(&scene, &round, n));
    for waits in waits {
        assert!(waits.reason == "Approval" && waits.message.contains("slipwayctl fleet approve p"), "{waits:?}");
    }
    obey(&mut scene, &round);
    let round = look(&mut scene);
    assert!(held(&round).is_empty(), "{:?}", round.ledger);
    let pool = report::pool(round.pools["p"].as_ref().unwrap(), None, now());
    assert!(pool.message.contains("slipwayctl fleet approve p"), "{}", pool.message);
}

/// Three words of people in one edit, while a node is at it.
#[test]
fn paused_given_up_and_sent_elsewhere_at_once_begins_nothing() {
    let mut scene = staged(3);
    let first = look(&mut scene);
    let word = json!({ "who": "a", "why": "b" });
    let rollout = scene.objects.rollouts[0].metadata.uid.clone().unwrap();
    let abort = json!({ "rolloutUID": rollout, "who": "a", "why": "b" });
    let target = json!({ "image": "docker://registry.example/os:3", "payload": payload("3") });
    scene.pool("p", json!({ "paused": word, "abort": abort, "target": target }));
    for _ in 0..3 {
        let round = look(&mut scene);
        assert_eq!(held(&round), held(&first));
        assert!(round.new.is_empty(), "the grant of the old one is held: {:?}", round.new);
        let steps = &round.pools["p"].as_ref().unwrap().decision.steps;
        let begins = |of: &Action| matches!(of, Action::Grant { .. } | Action::Begin { .. } | Action::Stage { .. });
        assert!(!steps.iter().any(begins), "{steps:?}");
        let n = *held(&round).first().unwrap();
        let holder = told(&scene, &round, n);
        assert!(holder.message.contains("given up") || holder.reason.starts_with("Abort"), "{holder:?}");
    }
    // It never began, and is well with what it has: a person frees its grant. What follows is made, and stays paused.
    let token = first.ledger.grants[0].token;
    scene.ledger.spec.release = serde_json::from_value(json!([{ "token": token, "who": "a", "why": "b" }])).unwrap();
    let round = scene.round();
    assert!(held(&round).is_empty() && round.aside.len() == 1, "{:?}", round.aside);
    assert!(round.aside[0].aborted.is_some());
}

/// `kubectl delete nroll` in mid-upgrade, and the new rollout is given up.
#[test]
fn who_began_for_a_rollout_that_is_gone_is_asked_to_end_what_it_is_at() {
    let mut scene = staged(1);
    let token = look(&mut scene).ledger.grants[0].token;
    scene.says(0).token = token;
    let of_a_gone_one = |goal| names::operation("uid-gone", "uid-0", goal, token).to_string();
    let is_at = |scene: &mut Scene, id: String, goal: v1::Goal| {
        scene.says(0).operation = Some(Operation { id, goal: goal.into(), ..Operation::default() });
    };
    let of_this_one = scene.objects.rollouts[0].metadata.uid.clone().unwrap();
    let word = json!({ "rolloutUID": of_this_one, "who": "eve", "why": "the wrong image" });
    scene.pool("p", json!({ "abort": word }));
    let to_end = |scene: &Scene| {
        let round = scene.round();
        let pool_round = round.pools["p"].as_ref().unwrap();
        let is_abort = |step: &&Action| matches!(step, Action::Abort { .. });
        let step = pool_round.decision.steps.iter().find(is_abort).unwrap();
        let Some(Ask::Abort(id, why)) = asked(pool_round, step, scene.readings.get("uid-0")) else {
            panic!("{step:?}")
        };
        assert_eq!(why, "eve: the wrong image");
        id.to_string()
    };
    is_at(&mut scene, of_a_gone_one(Goal::Upgrade), v1::Goal::Upgrade);
    assert_eq!(to_end(&scene), of_a_gone_one(Goal::Upgrade));
    // Nor does it matter which way it was going.
    is_at(&mut scene, of_a_gone_one(Goal::Rollback), v1::Goal::Rollback);
    assert_eq!(to_end(&scene), of_a_gone_one(Goal::Rollback));
    // What a person has begun on it, with the same token from before, is theirs to end.
    let of_people = "00000000-0000-4000-8000-000000000000";
    is_at(&mut scene, of_people.to_owned(), v1::Goal::Upgrade);
    let own = names::operation(&of_this_one, "uid-0", Goal::Upgrade, token).to_string();
    assert_eq!(to_end(&scene), own);
    // Its staging ends, too.
    is_at(&mut scene, of_a_gone_one(Goal::Stage), v1::Goal::Stage);
    let round = scene.round();
    let stages = abandoned(round.pools["p"].as_ref().unwrap(), &scene.readings);
    assert!(matches!(&stages[..], [("uid-0", Ask::Abort(id, _))] if id.to_string() == of_a_gone_one(Goal::Stage)));
}

/// A node that has not begun never frees its grant, and nothing of the pool's new target begins before that.
#[test]
fn a_grant_that_is_left_of_a_denied_payload_is_named_with_the_command_that_frees_it() {
    let mut scene = staged(3);
    let n = *held(&look(&mut scene)).first().unwrap();
    let command = format!("slipwayctl fleet unblock n{n} --reason WHY");
    scene.objects.rollouts[0].status.as_mut().unwrap().denied = Some("the canary n9 failed".to_owned());
    let round = look(&mut scene);
    let holder = told(&scene, &round, n);
    assert!(holder.reason == "PayloadDenied" && holder.message.contains(&command), "{holder:?}");
    let mut others = (0..3).filter(|other| *other != n).map(|other| told(&scene, &round, other));
    assert!(others.all(|of| !of.message.contains("unblock")));
    // People do what that reason says.
    let target = json!({ "image": "docker://registry.example/os:3", "payload": payload("3") });
    scene.pool("p", json!({ "target": target }));
    let round = look(&mut scene);
    assert_eq!((held(&round), round.new.len()), ([n].into(), 0));
    let pool = report::pool(round.pools["p"].as_ref().unwrap(), None, now());
    let waits = format!("the canary n9 failed; the new target waits for n{n}: ");
    assert!(pool.message.starts_with(&waits) && pool.message.ends_with(&command), "{}", pool.message);
    // A node may have said why in many words.
    scene.objects.rollouts[0].status.as_mut().unwrap().denied = Some("no ".repeat(600));
    let pool = report::pool(scene.round().pools["p"].as_ref().unwrap(), None, now());
    assert!(pool.message.len() <= 1000 && pool.message.ends_with(&command), "{}", pool.message);
    let token = round.ledger.grants[0].token;
    scene.ledger.spec.release = serde_json::from_value(json!([{ "token": token, "who": "a", "why": "b" }])).unwrap();
    let round = scene.round();
    assert_eq!((held(&round).len(), round.new.len()), (0, 1), "{:?}", round.new);
}

/// The clock of the machine of the controller was an hour ahead.
#[test]
fn a_clock_that_goes_back_by_an_hour_neither_overdraws_nor_holds_up_for_longer_than_the_policy() {
    let mut scene = Scene::new(4);
    let steps = json!([{ "nodes": 1, "soak": "30m" }]);
    scene.policy("x", json!({ "rate": { "count": 1, "per": "30m" }, "steps": steps, "maxUnavailable": 4 }));
    scene.pool("p", json!({ "policies": ["x"] }));
    scene.roll();
    (0..4).for_each(|n| scene.says(n).staged = Some(payload(NEW).into()));
    let ahead = now() + 1.hours();
    let at = |scene: &mut Scene, at: Timestamp| {
        let round = scene.round_at(at);
        let pool_round = round.pools["p"].as_ref().unwrap();
        scene.objects.rollouts[0].status = Some(report::rollout(&scene.objects.rollouts[0], pool_round, at));
        scene.ledger.status = Some(round.ledger.clone());
        round
    };
    let round = at(&mut scene, ahead);
    assert_eq!(held(&round).len(), 1);
    obey(&mut scene, &round);
    assert!(held(&at(&mut scene, ahead)).is_empty(), "it soaks");
    for minutes in [0, 10, 29] {
        let round = at(&mut scene, now() + minutes.minutes());
        assert!(held(&round).is_empty(), "{minutes}: {:?}", round.ledger);
    }
    assert_eq!(held(&at(&mut scene, now() + 31.minutes())).len(), 1);
}

/// It says one thing, then another, for ever.
#[test]
fn a_node_that_flips_between_two_answers_stops_nobody_else() {
    type Lie = fn(&mut Scene, bool);
    let lies: [(&str, Lie); 6] = [
        ("well or ill", |scene, is_odd| {
            let state = if is_odd { HealthState::Ill } else { HealthState::Well };
            scene.says(3).health.as_mut().unwrap().set_state(state);
        }),
        ("staged or not", |scene, is_odd| scene.says(3).staged = is_odd.then(|| payload(NEW).into())),
        ("a token or none", |scene, is_odd| scene.says(3).token = if is_odd { 1 } else { 0 }),
        ("there or not", |scene, is_odd| {
            if is_odd {
                scene.silence(3);
            } else {
                let other = scene.readings["uid-9"].clone();
                scene.readings.insert("uid-3".to_owned(), other);
                scene.says(3).node = "n3".to_owned();
            }
        }),
        ("itself or another", |scene, is_odd| scene.says(3).node = if is_odd { "n1" } else { "n3" }.to_owned()),
        ("old or new", |scene, is_odd| {
            let running = if is_odd { slipway_node_api::v1::Slot::A } else { slipway_node_api::v1::Slot::B };
            let disk = scene.says(3).disk.as_mut().unwrap();
            disk.slots[1].payload = Some(payload(NEW).into());
            disk.running = running.into();
        }),
    ];
    for (what, lie) in lies {
        let mut scene = staged(4);
        // Of no pool: what an answer is made of.
        scene.node(9);
        scene.label(4, "pool", "none");
        scene.policy("two", json!({ "maxUnavailable": 2, "failureBudget": 3 }));
        scene.pool("p", json!({ "policies": ["two"] }));
        for number in 0..24 {
            lie(&mut scene, number % 2 == 1);
            let round = look(&mut scene);
            assert!(held(&round).len() <= 2, "{what}: {:?}", round.ledger);
            for grant in &round.ledger.grants {
                let n: usize = grant.node.uid[4..].parse().unwrap();
                if n != 3 {
                    scene.says(n).token = grant.token;
                    arrive(&mut scene, n);
                }
            }
        }
        let round = look(&mut scene);
        for n in 0..3 {
            assert_eq!(told(&scene, &round, n).reason, "Done", "{what}: {n}");
        }
    }
}

/// Its rollouts stay for a while, and go with the old pool.
#[test]
fn a_pool_that_is_made_anew_under_its_name_overdraws_nothing_and_ends() {
    let mut scene = staged(4);
    let first = look(&mut scene);
    let Ok(pool) = scene.objects.pools.get_mut("p").unwrap() else { panic!() };
    pool.metadata.uid = Some("another".to_owned());
    assert_eq!(held(&look(&mut scene)), held(&first), "its rollout is there");
    scene.objects.rollouts.clear();
    let round = scene.round();
    assert_eq!((held(&round), round.new.len()), (held(&first), 1));
    assert_eq!(round.new[0].metadata.owner_references.as_ref().unwrap()[0].uid, "another");
    scene.roll();
    for _ in 0..8 {
        let round = look(&mut scene);
        assert!(held(&round).len() <= 1, "{:?}", round.ledger);
        obey(&mut scene, &round);
    }
    assert_eq!((runs(&scene), look(&mut scene).ledger.grants.len()), (4, 0));
}

/// Somebody copies one, under another name.
#[test]
fn two_rollouts_of_one_pool_and_payload_overdraw_nothing_and_end() {
    for name in ["by-hand", "by-hand-9", "zzz-18446744073709551615"] {
        let mut scene = staged(4);
        look(&mut scene);
        let mut copy = scene.objects.rollouts[0].clone();
        (copy.metadata.name, copy.metadata.uid) = (Some(name.to_owned()), Some("uid-copy".to_owned()));
        copy.status = None;
        scene.objects.rollouts.push(copy);
        for _ in 0..8 {
            let round = scene.round();
            assert!(held(&round).len() <= 1, "{name}: {:?}", round.ledger);
            let pool_round = round.pools["p"].as_ref().unwrap();
            let followed = pool_round.rollout.as_ref().unwrap().metadata.uid.clone();
            let of = scene.objects.rollouts.iter_mut().find(|of| of.metadata.uid == followed).unwrap();
            of.status = Some(report::rollout(of, pool_round, now()));
            scene.ledger.status = Some(round.ledger.clone());
            obey(&mut scene, &round);
        }
        assert_eq!(runs(&scene), 4, "{name}");
        assert!(scene.round().ledger.grants.is_empty());
    }
}

/// Somebody's finalizer, or that of a deletion in the foreground, keeps it for a while.
#[test]
fn a_pool_that_is_being_deleted_begins_nothing_and_what_has_begun_ends() {
    let mut scene = staged(4);
    let first = look(&mut scene);
    let goes = |scene: &mut Scene| {
        let Ok(pool) = scene.objects.pools.get_mut("p").unwrap() else { panic!() };
        pool.metadata.deletion_timestamp = serde_json::from_value(json!(now())).unwrap();
    };
    goes(&mut scene);
    let n = *held(&first).first().unwrap();
    let how =
        format!("the rollout is paused: the NodePool is being deleted: slipwayctl fleet unblock n{n} --reason WHY");
    assert_eq!(told(&scene, &scene.round(), n).message, how, "nobody asks it to begin any more");
    obey(&mut scene, &first);
    for _ in 0..2 {
        let round = look(&mut scene);
        assert!(held(&round).is_empty() && round.pools["p"].as_ref().unwrap().decision.steps.is_empty(), "{round:?}");
    }
    let status = report::pool(scene.round().pools["p"].as_ref().unwrap(), None, now());
    assert_eq!((status.state.as_str(), status.message.as_str()), ("Paused", "the NodePool is being deleted"));
    // Its rollouts go with it, and others would follow.
    scene.objects.rollouts.clear();
    assert!(scene.round().new.is_empty());
    // Who resumes it sets nothing going.
    scene.pool("p", json!({ "paused": { "who": "eve", "why": "lunch" } }));
    goes(&mut scene);
    let status = report::pool(scene.round().pools["p"].as_ref().unwrap(), None, now());
    assert_eq!(status.message, "the NodePool is being deleted; eve: lunch");
}

/// Somebody's finalizer keeps it for a while, and what follows it would wait for its nodes.
#[test]
fn a_rollout_that_is_being_deleted_begins_nothing() {
    let mut scene = staged(2);
    scene.objects.rollouts[0].metadata.deletion_timestamp = serde_json::from_value(json!(now())).unwrap();
    let round = look(&mut scene);
    assert!(held(&round).is_empty() && round.pools["p"].as_ref().unwrap().decision.steps.is_empty(), "{round:?}");
}

/// What it says of the payload is heard all the same.
#[test]
fn a_canary_whose_node_is_being_deleted_denies_the_payload_that_was_not_well() {
    let mut scene = Scene::new(4);
    scene.policy("x", json!({ "maxUnavailable": 4, "steps": [{ "nodes": 2, "soak": "1h" }] }));
    scene.pool("p", json!({ "policies": ["x"] }));
    scene.roll();
    (0..4).for_each(|n| scene.says(n).staged = Some(payload(NEW).into()));
    let wave = &scene.objects.rollouts[0].spec.plan.waves[0].nodes;
    let [n, other] = [0, 1].map(|of| wave[of].name[1..].parse::<usize>().unwrap());
    arrive(&mut scene, other);
    scene.says(n).denied = vec![v1::Denied { payload: payload(NEW).into(), why: "it was ill".to_owned() }];
    scene.objects.nodes[n].metadata.deletion_timestamp = serde_json::from_value(json!(now())).unwrap();
    let round = look(&mut scene);
    let steps = &round.pools["p"].as_ref().unwrap().decision.steps;
    assert!(steps.iter().any(|step| matches!(step, Action::Deny { .. })), "{steps:?}");
    let round = scene.round_at(now() + 2.hours());
    assert!(held(&round).is_empty(), "the other one has soaked: {:?}", round.ledger);
}

/// Its place would be taken for nothing, and of the control plane a person would have to free it.
#[test]
fn a_node_that_is_being_deleted_gets_no_grant_and_others_do() {
    let mut scene = Scene::new(3);
    let goes = |scene: &mut Scene, n: usize| {
        scene.objects.nodes[n].metadata.deletion_timestamp = serde_json::from_value(json!(now())).unwrap();
    };
    scene.policy("x", json!({ "steps": [{ "nodes": 1, "soak": "1h" }] }));
    scene.pool("p", json!({ "policies": ["x"] }));
    let canary = scene.round().new[0].spec.plan.waves[0].nodes[0].name.clone();
    scene.roll();
    (0..3).for_each(|n| scene.says(n).staged = Some(payload(NEW).into()));
    scene.pool("p", json!({}));
    let n: usize = canary[1..].parse().unwrap();
    goes(&mut scene, n);
    let round = look(&mut scene);
    let why = "its Node is being deleted: nothing begins on it";
    let of = told(&scene, &round, n);
    assert_eq!((of.reason.as_str(), of.message.as_str()), ("Skipped", why));
    // It is in no new plan either.
    scene.objects.rollouts.clear();
    let planned = &scene.round().new[0].spec.plan;
    assert!(planned.nodes().count() == 2 && planned.nodes().all(|(_, node)| node.name != canary), "{planned:?}");
    scene.roll();
    let round = look(&mut scene);
    assert!(held(&round).len() == 1 && !held(&round).contains(&n), "{:?}", round.ledger);
    // Who is at it goes on.
    let at_it = *held(&round).first().unwrap();
    goes(&mut scene, at_it);
    scene.says(at_it).token = round.ledger.grants[0].token;
    scene.says(at_it).operation = Some(Operation { goal: v1::Goal::Upgrade.into(), ..Operation::default() });
    let round = look(&mut scene);
    assert_eq!((held(&round), told(&scene, &round, at_it).reason.as_str()), ([at_it].into(), "UnderWay"));
}
