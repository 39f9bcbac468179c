//! A node that the labels of two pools name: it is the older one's, and nothing else of either pool stops. A kubelet may give
//! its own Node most labels, and an operator may mistype a selector.

use std::collections::BTreeSet;

use serde_json::json;
use slipway_fleet::{
    pools::{Members, Problem},
    readable::Readable,
    report,
    round::Round,
};
use slipway_fleet_objects::pool::NodePool;
use slipway_node_api::v1::HealthState;

use super::{
    attacks::arrive,
    scene::{NEW, Scene, now, payload},
};

/// Nodes 0 to 2 are of the pool `first`, 3 to 5 of the younger one `second`, whatever their names; all are staged. The
/// nodes `shared` are of the older one, and have the label of the younger one, too.
fn scene((first, second): (&str, &str), shared: &[usize]) -> Scene {
    let mut scene = Scene::new(6);
    scene.objects.pools.clear();
    for n in 0..6 {
        scene.label(n, "pool", if n < 3 { "old" } else { "none" });
        if n > 2 || shared.contains(&n) {
            scene.label(n, "young", "");
        }
        scene.says(n).staged = Some(payload(NEW).into());
    }
    for (name, selector, made) in [
        (first, json!({ "pool": "old" }), "2026-01-01T00:00:00Z"),
        (second, json!({ "young": "" }), "2026-02-01T00:00:00Z"),
    ] {
        scene.pool(name, json!({ "nodeSelector": selector }));
        let pool = scene.objects.pools.get_mut(name).unwrap().as_mut().unwrap();
        pool.metadata.creation_timestamp = Some(serde_json::from_value(json!(made)).unwrap());
    }
    scene.roll();
    scene
}

/// In both orders of names: that is the order in which pools are decided.
const NAMES: [(&str, &str); 2] = [("a", "b"), ("b", "a")];

fn held(round: &Round) -> BTreeSet<usize> {
    round.ledger.grants.iter().map(|grant| grant.node.uid[4..].parse().unwrap()).collect()
}

fn reason(scene: &Scene, round: &Round, pool: &str, n: usize) -> (String, String) {
    let pool_round = round.pools[pool].as_ref().unwrap();
    let of = report::nodes(pool_round, &scene.readings, &Default::default())[format!("uid-{n}").as_str()].clone();
    (of.reason, of.message)
}

/// A slip in the older one's spec gives its nodes to nobody else's payload.
#[test]
fn a_pool_that_cannot_be_understood_keeps_its_nodes() {
    for (old, young) in NAMES {
        let mut scene = scene((old, young), &[0, 1, 2]);
        let pool = scene.objects.pools[old].as_ref().unwrap();
        let mut value = serde_json::to_value(pool).unwrap();
        value["spec"]["runNow"] = json!({ "until": "2026-06-01T22:00:00+99:99" });
        let Readable::No(of) = serde_json::from_value::<Readable<NodePool>>(value).unwrap() else { panic!() };
        scene.objects.pools.insert(old.to_owned(), Err(of.why.clone()));
        scene.objects.unreadable_pools.push(*of);
        let round = scene.round();
        assert!(held(&round).iter().all(|n| *n > 2), "{:?}", round.ledger);
        let nodes = |pool: &str| Members::new(&scene.objects).in_pool(pool).len();
        assert_eq!([nodes(old), nodes(young)], [3, 3]);
        assert!(matches!(round.pools[old], Err(Problem::Pool(_))));
    }
}

#[test]
fn one_label_stops_neither_pool_and_both_say_whose_the_node_is() {
    for (old, young) in NAMES {
        let scene = scene((old, young), &[1]);
        let round = scene.round();
        let held = held(&round);
        assert!(
            held.iter().filter(|n| **n < 3).count() == 1 && held.iter().filter(|n| **n > 2).count() == 1,
            "{held:?}"
        );
        let pool_round = round.pools[young].as_ref().unwrap();
        assert!(scene.objects.rollouts.iter().filter(|of| of.spec.plan.pool == young).all(|of| {
            of.spec.plan.nodes().count() == 3 && of.spec.plan.nodes().all(|(_, node)| node.uid != "uid-1")
        }));
        let status = report::pool(pool_round, None, now());
        let told = format!("n1 stays in the pool {old}: an older pool keeps a node that its labels name");
        assert!(status.nodes == 3 && status.state == "Running" && status.message.ends_with(&told), "{status:?}");
        let shared = status.conditions.iter().find(|of| of.type_ == "NodesShared").unwrap();
        assert_eq!((shared.status.as_str(), &shared.message), ("True", &told));
        let status = report::pool(round.pools[old].as_ref().unwrap(), None, now());
        let shared = status.conditions.iter().find(|of| of.type_ == "NodesShared").unwrap();
        assert_eq!((shared.status.as_str(), status.nodes), ("False", 3));
        let members = Members::new(&scene.objects);
        assert_eq!((members.pool_of("uid-1"), members.in_pool(young).len()), (Some(old), 3));
    }
}

/// Never two of the nodes that the labels of either pool name, and all of them are done in the end.
#[test]
fn the_budgets_of_both_pools_hold_to_the_end() {
    for names in NAMES {
        for shared in [&[0][..], &[1, 2], &[0, 1, 2]] {
            let mut scene = scene(names, shared);
            let (mut done, mut rounds) = (BTreeSet::new(), 0);
            while done.len() < 6 {
                rounds += 1;
                assert!(rounds < 30, "{names:?} {shared:?}: {done:?}");
                let round = scene.round();
                let held = held(&round);
                let of_young = held.iter().filter(|n| **n > 2 || shared.contains(n)).count();
                let of_old = held.iter().filter(|n| **n < 3).count();
                assert!(of_young <= 1 && of_old <= 1, "{names:?} {shared:?}: {held:?}");
                // The last of those at work is done; a place that one has is taken by no other in the meantime.
                let grant = round.ledger.grants.last().cloned();
                scene.ledger.status = Some(round.ledger);
                let Some(grant) = grant else { continue };
                let n: usize = grant.node.uid[4..].parse().unwrap();
                scene.says(n).token = grant.token;
                arrive(&mut scene, n);
                done.insert(n);
            }
        }
    }
}

#[test]
fn a_shared_node_that_is_away_takes_a_place_of_the_younger_pool() {
    for (old, young) in NAMES {
        let mut scene = scene((old, young), &[1]);
        scene.says(1).health.as_mut().unwrap().set_state(HealthState::Ill);
        let round = scene.round();
        assert!(held(&round).iter().all(|n| *n == 1), "an ill node may go itself: {:?}", held(&round));
        // The first in the plan says it, and others that it is before them.
        let told: Vec<_> = (3..6).map(|n| reason(&scene, &round, young, n)).collect();
        let (_, message) = told.iter().find(|(reason, _)| reason == "Budget").unwrap_or_else(|| panic!("{told:?}"));
        assert!(message.ends_with("these are: n1"), "{message}");
        // The younger pool's own place is not one more.
        assert!(message.starts_with(&format!("1 of the 3 nodes of pool {young} may be")), "{message}");
    }
}

/// It waits, with the reason, and the others of its own pool overtake it: a node that labels itself harms itself.
#[test]
fn a_shared_node_waits_for_room_in_both_pools_and_nobody_waits_for_it() {
    for (old, young) in NAMES {
        let mut scene = scene((old, young), &[0, 1, 2]);
        scene.label(2, "young", "not");
        scene.says(4).health.as_mut().unwrap().set_state(HealthState::Unknown);
        let round = scene.round();
        assert!(
            held(&round).contains(&2) && !held(&round).contains(&0) && !held(&round).contains(&1),
            "{:?}",
            held(&round)
        );
        let told = [0, 1].map(|n| reason(&scene, &round, old, n));
        // The other one is behind it.
        let shared = told.iter().find(|(word, _)| word == "Shared").unwrap_or_else(|| panic!("{told:?}"));
        assert!(told.iter().any(|(word, _)| word == "After"), "{told:?}");
        let wanted = format!("the labels of the younger pool {young} name it, too, and it counts there: ");
        assert!(shared.1.starts_with(&wanted) && shared.1.ends_with("these are: n4"), "{shared:?}");
    }
}

/// A status is a write: where all nodes of a pool wait for another pool's place, few of them change when that is taken.
#[test]
fn a_place_that_is_taken_changes_few_statuses() {
    let mut scene = Scene::new(100);
    scene.pool("q", json!({ "nodeSelector": { "young": "" } }));
    scene.policy("many", json!({ "maxUnavailable": 10 }));
    scene.pool("p", json!({ "policies": ["many"] }));
    (0..100).for_each(|n| scene.label(n, "young", ""));
    (98..100).for_each(|n| scene.label(n, "pool", "none"));
    scene.roll();
    (0..100).for_each(|n| scene.says(n).staged = Some(payload(NEW).into()));
    let statuses = |scene: &Scene| -> Vec<String> {
        let round = scene.round();
        let told = report::nodes(round.pools["p"].as_ref().unwrap(), &scene.readings, &Default::default());
        told.into_iter().map(|(uid, status)| format!("{uid} {status:?}")).collect()
    };
    let before = statuses(&scene);
    assert_eq!(before.len(), 98);
    scene.says(99).health.as_mut().unwrap().set_state(HealthState::Ill);
    let after = statuses(&scene);
    let changed = before.iter().zip(&after).filter(|(a, b)| a != b).count();
    assert!((1..=3).contains(&changed), "{changed} of 98 changed");
    assert!(held(&scene.round()).iter().all(|n| *n == 99), "no place is left there");
}

/// An operator's slip: the labels of a new pool name all nodes of an older one.
#[test]
fn a_pool_whose_nodes_are_all_an_older_ones_says_so_and_stops_nothing() {
    for (old, young) in NAMES {
        let mut scene = scene((old, young), &[0, 1, 2]);
        (3..6).for_each(|_| _ = scene.objects.nodes.pop());
        scene.policy("tenth", json!({ "maxUnavailable": "10%" }));
        let pool = scene.objects.pools.get_mut(young).unwrap().as_mut().unwrap();
        pool.spec.policies = vec!["tenth".to_owned()];
        scene.objects.rollouts.retain(|of| of.spec.plan.pool == old);
        let round = scene.round();
        assert_eq!(held(&round).len(), 1, "{:?}", round.ledger);
        let status = report::pool(round.pools[young].as_ref().unwrap(), None, now());
        assert_eq!((status.state.as_str(), status.nodes), ("Waiting", 0));
        let first = &status.message;
        assert!(first.starts_with("it has no node of its own; 3 nodes stay in other pools, n0 in "), "{first}");
        assert!(round.new.iter().all(|of| of.spec.plan.pool != young));
    }
}

#[test]
fn a_younger_pool_that_cannot_be_understood_holds_nothing_back() {
    for (old, young) in NAMES {
        let mut scene = scene((old, young), &[0, 1, 2]);
        scene.says(4).health.as_mut().unwrap().set_state(HealthState::Ill);
        let pool = scene.objects.pools.get_mut(young).unwrap().as_mut().unwrap();
        pool.spec.policies = vec!["gone".to_owned()];
        let round = scene.round();
        assert_eq!(round.pools[young].as_ref().unwrap_err(), &Problem::PolicyMissing("gone".to_owned()));
        assert_eq!(held(&round).len(), 1);
    }
}
