//! A node that holds a grant and will not say that it is well. It keeps its place until a person frees that: no time is a proof
//! that the machine is not in the middle of it. The others of its pool go on with one place less, and the command is named.

use std::collections::BTreeSet;

use jiff::ToSpan as _;
use serde_json::json;
use slipway_fleet::{names, reconcile::request, report, round::Round};
use slipway_node::request::Goal;
use slipway_node_api::v1::{self, Ended, HealthState, Operation, Outcome, Slot, StatusResponse};
use slipway_rollout::decide::Action;

use super::{
    attacks::{arrive, keep, told},
    scene::{Scene, now},
    staged,
};

/// What it says for ever, once it holds a grant with this token.
type Lie = (&'static str, fn(&mut StatusResponse, u64));

const LIES: [Lie; 4] = [
    ("Begins", |_, _| {}),
    ("UnderWay", |of, token| {
        of.token = token;
        of.operation = Some(Operation { goal: v1::Goal::Upgrade.into(), ..Operation::default() });
    }),
    ("UnderWay", |of, token| {
        of.token = token;
        of.health.as_mut().unwrap().set_state(HealthState::Ill);
    }),
    ("Begins", |of, _| {
        of.operation = Some(Operation { goal: v1::Goal::Reboot.into(), ..Operation::default() });
    }),
];

fn held(round: &Round) -> BTreeSet<usize> {
    round.ledger.grants.iter().map(|grant| grant.node.uid[4..].parse().unwrap()).collect()
}

/// Rounds in which honest nodes do what they are asked for.
fn follow(scene: &mut Scene, liar: usize, lie: &Lie, most: usize) -> Round {
    for _ in 0..8 {
        let round = scene.round();
        assert!(round.ledger.grants.len() <= most, "{}: {:?}", lie.0, round.ledger);
        keep(scene, &round);
        for grant in &round.ledger.grants {
            let n: usize = grant.node.uid[4..].parse().unwrap();
            if n == liar {
                (lie.1)(scene.says(n), grant.token);
            } else {
                scene.says(n).token = grant.token;
                arrive(scene, n);
            }
        }
    }
    scene.round()
}

#[test]
fn the_pool_goes_on_with_one_place_less_and_never_overdraws() {
    for lie in &LIES {
        let mut scene = staged(4);
        scene.policy("two", json!({ "maxUnavailable": 2 }));
        scene.pool("p", json!({ "policies": ["two"] }));
        let liar = *held(&scene.round()).first().unwrap();
        let round = follow(&mut scene, liar, lie, 2);
        assert_eq!(held(&round), [liar].into(), "{}: the others are done", lie.0);
        for n in (0..4).filter(|n| *n != liar) {
            assert_eq!(told(&scene, &round, n).reason, "Done", "{}", lie.0);
        }
        assert_eq!(told(&scene, &round, liar).reason, lie.0);
        // Nothing ends it by itself, however late it is.
        let later = scene.round_at(now() + (24 * 365).hours());
        assert_eq!(later.ledger.grants, round.ledger.grants, "{}", lie.0);
    }
}

/// With one place there is none left: nothing goes on until a person frees it, and the pool says so.
#[test]
fn with_one_place_the_pool_stands_still_and_names_the_command() {
    for lie in &LIES {
        let mut scene = staged(3);
        let liar = *held(&scene.round()).first().unwrap();
        let round = follow(&mut scene, liar, lie, 1);
        assert_eq!(held(&round), [liar].into(), "{}", lie.0);
        let command = format!("slipwayctl fleet unblock n{liar} --reason WHY");
        // At first it may well be at it.
        let message = |scene: &Scene, round: &Round| {
            let pool = report::pool(round.pools["p"].as_ref().unwrap(), None, now());
            [told(scene, round, liar).message, pool.message]
        };
        assert!(message(&scene, &round).iter().all(|of| !of.contains("unblock")), "{}", lie.0);
        scene.ledger.status.as_mut().unwrap().grants[0].since = now() - 61.minutes();
        let round = scene.round();
        for message in message(&scene, &round) {
            assert!(message.contains(", since 2026-06-01T10:59:00Z; look at the machine, and"), "{message}");
            assert!(message.ends_with(&command), "{message}");
        }
        // A clock that was ahead by a day when it gave the grant hides the command for no day.
        scene.ledger.status.as_mut().unwrap().grants[0].since = now() + 24.hours();
        let round = scene.round();
        assert!(message(&scene, &round).iter().all(|of| of.ends_with(&command)), "{:?}", message(&scene, &round));
        // That is what frees it. It waits for its turn again: the attempt was no failure.
        let token = round.ledger.grants[0].token;
        scene.ledger.spec.release =
            serde_json::from_value(json!([{ "token": token, "who": "a", "why": "it lies" }])).unwrap();
        let round = scene.round();
        assert!(round.freed.len() == 1 && !held(&round).contains(&liar), "{}: {:?}", lie.0, round.ledger);
        if !held(&round).is_empty() {
            continue;
        }
        // Who says that it is ill, or at work, is away all the same, until it has the pool's label no more.
        let others: Vec<_> = (0..3).filter(|n| *n != liar).map(|n| told(&scene, &round, n)).collect();
        let of = others.iter().find(|of| of.reason == "Budget").unwrap_or_else(|| panic!("{}: {others:?}", lie.0));
        assert!(of.message.ends_with(&format!("these are: n{liar}")), "{}: {of:?}", lie.0);
        scene.label(liar, "pool", "none");
        assert_eq!(held(&scene.round()).len(), 1, "{}", lie.0);
    }
}

/// It answers, and refuses to go back. Else it would have the place of the others again, each time that a person frees it.
#[test]
fn on_the_way_back_the_others_go_before_one_whose_grant_a_person_has_freed() {
    let mut scene = staged(3);
    scene.pool("p", json!({ "rollback": {} }));
    (0..3).for_each(|n| arrive(&mut scene, n));
    scene.objects.rollouts[0].status = serde_json::from_value(json!({ "denied": "it eats files" })).unwrap();
    let round = scene.round();
    keep(&mut scene, &round);
    let stays = *held(&round).first().unwrap();
    let word = json!([{ "token": round.ledger.grants[0].token, "who": "a", "why": "it does not go" }]);
    scene.ledger.spec.release = serde_json::from_value(word).unwrap();
    for _ in 0..2 {
        let round = scene.round();
        keep(&mut scene, &round);
        let [grant] = &round.ledger.grants[..] else { panic!("{:?}", round.ledger) };
        let n: usize = grant.node.uid[4..].parse().unwrap();
        assert_ne!(n, stays);
        let waits = told(&scene, &round, stays);
        let why = "a person has freed the grant with which it was to go back, and that is repeated from \
                   2026-06-01T13:00:00Z on";
        assert_eq!((waits.reason.as_str(), waits.message.as_str()), ("ReturnsLater", why));
        scene.says(n).token = grant.token;
        scene.says(n).disk.as_mut().unwrap().running = Slot::A.into();
    }
    let round = scene.round();
    keep(&mut scene, &round);
    assert_eq!((held(&round).len(), report::state(round.pools["p"].as_ref().unwrap())), (0, "Denied"));
    assert_eq!(held(&scene.round_at(now() + 1.hours())), [stays].into(), "it is asked once more");
}

/// It did not answer for long, and has obeyed nevertheless. Nobody waits with it for the next window.
#[test]
fn whose_grant_of_the_way_forward_a_person_has_freed_goes_back_at_once() {
    let mut scene = staged(3);
    scene.pool("p", json!({ "rollback": {} }));
    let round = scene.round();
    keep(&mut scene, &round);
    let (n, token) = (*held(&round).first().unwrap(), round.ledger.grants[0].token);
    let answers = scene.readings.clone();
    scene.silence(n);
    let word = json!([{ "token": token, "who": "a", "why": "its mainboard is dead" }]);
    scene.ledger.spec.release = serde_json::from_value(word).unwrap();
    let round = scene.round();
    keep(&mut scene, &round);
    assert!(round.freed.len() == 1 && held(&round).is_empty(), "{:?}", round.ledger);
    scene.readings = answers;
    scene.says(n).token = token;
    scene.says(n).health.as_mut().unwrap().set_state(HealthState::Ill);
    arrive(&mut scene, n);
    scene.objects.rollouts[0].status.as_mut().unwrap().denied = Some("it eats files".to_owned());
    assert_eq!(held(&scene.round()), [n].into(), "{:?}", told(&scene, &scene.round(), n));
}

/// A worker may be made a node of the control plane at any time. Its grant was given to a worker.
#[test]
fn who_becomes_one_of_the_control_plane_with_its_grant_counts_as_one() {
    let mut scene = staged(3);
    let round = scene.round();
    keep(&mut scene, &round);
    let holder = *held(&round).first().unwrap();
    scene.policy("two", json!({ "maxUnavailable": 2 }));
    scene.pool("p", json!({ "policies": ["two"] }));
    (0..3).for_each(|n| scene.label(n, "node-role.kubernetes.io/control-plane", ""));
    let round = scene.round();
    assert_eq!(held(&round), [holder].into(), "one of them at a time");
    let mut waits = (0..3).filter(|n| *n != holder).map(|n| told(&scene, &round, n).reason);
    assert!(waits.all(|reason| reason == "ControlPlane"));
    // Its Node goes, and its member of etcd may be there.
    keep(&mut scene, &round);
    scene.objects.nodes.remove(holder);
    assert_eq!(held(&scene.round()), [holder].into());
}

/// What a node says of the end of its way back, with the last token that it obeyed.
fn came_back_to_it(scene: &mut Scene, n: usize, reached: v1::Step) {
    let (rollout, token) = (scene.objects.rollouts[0].metadata.uid.clone().unwrap(), scene.says(n).token);
    let id = names::operation(&rollout, &format!("uid-{n}"), Goal::Rollback, token).to_string();
    let why = "evict the pods: default/db-0 (after 900 s)".to_owned();
    let outcome = Some(Outcome { came_back: Some(why), left: false });
    let ended = Ended { id, goal: v1::Goal::Rollback.into(), outcome, reached: reached.into(), ..Ended::default() };
    scene.says(n).ended.insert(0, ended);
}

/// As on the way forward, it is tried again in the next window, and by a name of its own: a node does what it was asked for once.
#[test]
fn a_budget_that_kept_a_pod_does_not_end_the_way_back() {
    for (reached, is_early) in [(v1::Step::Drain, true), (v1::Step::Release, true), (v1::Step::Activate, false)] {
        let mut scene = staged(2);
        scene.pool("p", json!({ "rollback": {} }));
        arrive(&mut scene, 0);
        scene.objects.rollouts[0].status = serde_json::from_value(json!({ "denied": "it eats files" })).unwrap();
        let mut asked = BTreeSet::new();
        for times in 0..3 {
            let round = scene.round_at(now() + (61 * times).minutes());
            assert_eq!(held(&round), [0].into(), "{reached:?} {times}");
            keep(&mut scene, &round);
            let round = scene.round();
            let pool_round = round.pools["p"].as_ref().unwrap();
            let returns = |step: &&Action| matches!(step, Action::Return { .. });
            let step = pool_round.decision.steps.iter().find(returns).unwrap();
            assert!(asked.insert(request(pool_round, step, None).unwrap().id), "{times}");
            scene.says(0).token = round.ledger.grants[0].token;
            came_back_to_it(&mut scene, 0, reached);
            let round = scene.round_at(now() + (61 * times).minutes());
            keep(&mut scene, &round);
            assert!(held(&round).is_empty(), "{reached:?}");
            let waits = told(&scene, &round, 0);
            assert!(waits.message.contains("default/db-0"), "{waits:?}");
            assert_eq!(waits.reason, if is_early { "ReturnsLater" } else { "KeepsDenied" });
            if !is_early {
                break;
            }
        }
    }
}
