//! Quantities at their ends, names in other case, clocks at the ends of time, and words of any length in specs and statuses:
//! of people who mistype, and of strangers. A round has a reason for every node, no budget is overdrawn, and others go on.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Value, json};
use slipway_fleet::{pools::Problem, reconcile::events, report, round::Round};
use slipway_fleet_objects::rollout::RolloutStatus;
use slipway_node_api::text::is_clean;
use slipway_rollout::ledger::{HIGHEST, Ledger};

use super::{
    attacks::{arrive, keep, told},
    hostile::worst,
    scene::{NEW, Scene, now, payload},
    staged,
};

fn held(round: &Round) -> BTreeSet<usize> {
    round.ledger.grants.iter().filter_map(|grant| grant.node.uid.strip_prefix("uid-")?.parse().ok()).collect()
}

/// Each node that is not done has a reason.
fn everybody_has_a_reason(scene: &Scene, round: &Round, what: &str) {
    let pool_round = round.pools["p"].as_ref().unwrap();
    for (uid, status) in report::nodes(pool_round, &scene.readings, &Default::default()) {
        assert!(!status.reason.is_empty() && !status.message.is_empty(), "{what}: {uid}: {status:?}");
    }
    assert_ne!(report::pool(pool_round, None, now()).message, "", "{what}");
}

#[test]
fn policies_at_their_ends_overdraw_nothing_and_give_a_reason() {
    let most = u32::MAX;
    let long = "9223372036854775807s";
    let policies: [(Value, usize); 14] = [
        (json!({ "maxUnavailable": 0 }), 0),
        (json!({ "maxUnavailable": most }), 4),
        (json!({ "maxUnavailable": "1%" }), 1),
        (json!({ "maxUnavailable": "100%" }), 4),
        (json!({ "failureBudget": 0 }), 1),
        (json!({ "failureBudget": most, "maxUnavailable": 2 }), 2),
        (json!({ "rate": { "count": 0, "per": "1s" } }), 0),
        (json!({ "rate": { "count": most, "per": long } }), 1),
        (json!({ "rate": { "count": 1, "per": long }, "maxUnavailable": 3 }), 1),
        (json!({ "steps": [{ "nodes": 0, "soak": long }], "maxUnavailable": 4 }), 1),
        (json!({ "steps": [{ "nodes": most, "soak": long }], "maxUnavailable": 4 }), 4),
        (json!({ "topology": { "key": "zone", "maxDomains": 0 } }), 0),
        (json!({ "topology": { "key": "zone", "maxDomains": most } }), 1),
        (json!({ "approval": "EachWave" }), 0),
    ];
    for (policy, most) in policies {
        let mut scene = Scene::new(5);
        (0..5).for_each(|n| scene.label(n, "zone", "a"));
        scene.policy("x", policy.clone());
        scene.pool("p", json!({ "policies": ["x"] }));
        scene.roll();
        (0..5).for_each(|n| scene.says(n).staged = Some(payload(NEW).into()));
        let what = policy.to_string();
        for _ in 0..8 {
            let round = scene.round();
            assert!(held(&round).len() <= most, "{what}: {:?}", round.ledger);
            everybody_has_a_reason(&scene, &round, &what);
            keep(&mut scene, &round);
            for grant in &round.ledger.grants {
                let n: usize = grant.node.uid[4..].parse().unwrap();
                scene.says(n).token = grant.token;
                arrive(&mut scene, n);
            }
        }
        if policy["maxUnavailable"] == 0 {
            let pool = report::pool(scene.round().pools["p"].as_ref().unwrap(), None, now()).message;
            assert!(pool.contains("maxUnavailable of a policy of pool p is 0"), "{pool}");
        }
        let went = scene.ledger.status.as_ref().unwrap().epoch;
        assert_eq!(went == 0, most == 0, "{what}: {went} went");
    }
}

/// Whoever writes a status can say anything there. That gives no grant beside one that is held, and nothing falls over.
#[test]
fn a_rollouts_status_at_its_ends_overdraws_nothing() {
    let (max, min) = (json!(Timestamp::MAX), json!(Timestamp::MIN));
    let attempts = |count: u32, token: u64| json!({ "uid-0": { "count": count, "token": token } });
    let statuses = [
        json!({ "passed": u32::MAX }),
        json!({ "soakingSince": max }),
        json!({ "soakingSince": min }),
        json!({ "retry": { "below": u64::MAX, "from": max } }),
        json!({ "retry": { "below": 0, "from": min } }),
        json!({ "attempts": attempts(u32::MAX, u64::MAX) }),
        json!({ "attempts": attempts(u32::MAX, 0) }),
        json!({ "attempts": attempts(0, 0) }),
        json!({ "tried": "0-99999" }),
        json!({ "approvals": [{ "wave": u32::MAX, "at": max, "who": "a", "why": "b" }] }),
        json!({ "succeeded": { "uid-0": "uid-0", "uid-1": "uid-2", "uid-2": "uid-1" } }),
        json!({ "nodes": u32::MAX, "done": u32::MAX, "waves": "x" }),
        json!({ "state": "Nonsense", "message": worst() }),
        json!({ "finished": true }),
    ];
    for status in statuses {
        let mut scene = staged(3);
        scene.came_back(1, "evict the pods: it took too long");
        let read: RolloutStatus = serde_json::from_value(status.clone()).unwrap();
        scene.objects.rollouts[0].status = Some(read);
        for _ in 0..4 {
            let round = scene.round();
            assert!(held(&round).len() <= 1, "{status}: {:?}", round.ledger);
            everybody_has_a_reason(&scene, &round, &status.to_string());
            keep(&mut scene, &round);
        }
    }
}

#[test]
fn a_ledger_at_its_ends_gives_nothing_beside_what_it_has() {
    let (max, min) = (json!(Timestamp::MAX), json!(Timestamp::MIN));
    let node = json!({ "uid": "uid-0", "name": "n0", "pool": "p", "role": "worker" });
    let grant = |token: u64, since: &Value| json!({ "node": node, "token": token, "since": since });
    let ledgers = [
        json!({ "epoch": 0, "grants": [grant(1, &max)] }),
        json!({ "epoch": u64::MAX, "grants": [grant(1, &min)] }),
        json!({ "epoch": 1, "grants": [grant(u64::MAX, &max)] }),
        json!({ "epoch": 1, "grants": [grant(HIGHEST, &min), grant(HIGHEST, &min)] }),
        json!({ "epoch": 1, "grants": [grant(1, &min)], "given": [{ "pool": "p", "at": max }, { "pool": "p", "at": min }] }),
        json!({ "epoch": 1, "grants": [grant(1, &min)], "kubernetes": { "token": u64::MAX, "version": worst(), "since": max } }),
    ];
    for ledger in ledgers {
        let mut scene = staged(3);
        let read: Ledger = serde_json::from_value(ledger.clone()).unwrap();
        scene.ledger.status = Some(read.clone());
        let round = scene.round();
        assert_eq!(round.ledger.grants, read.grants, "{ledger}");
        everybody_has_a_reason(&scene, &round, &ledger.to_string());
        // Without tokens nothing is given, and that is said.
        scene.ledger.status = Some(Ledger { grants: Vec::new(), ..read });
        let round = scene.round();
        let tokens: Vec<u64> = round.ledger.grants.iter().map(|grant| grant.token).collect();
        assert!(tokens.iter().all(|token| *token <= HIGHEST) && tokens.len() <= 1, "{ledger}: {tokens:?}");
        everybody_has_a_reason(&scene, &round, &ledger.to_string());
    }
}

/// The clock of a controller is at the beginning or at the end of all times, and so is that of its look at the nodes.
#[test]
fn a_clock_at_the_end_of_all_times_stops_no_controller() {
    for at in [Timestamp::MIN, Timestamp::UNIX_EPOCH, Timestamp::MAX] {
        let mut scene = staged(3);
        let window = json!({ "start": "22:00", "lasts": "6h", "zone": "Europe/Berlin" });
        let blackout =
            json!({ "from": "2026-12-23T18:00", "until": "2027-01-04T06:00", "zone": "UTC", "why": "holidays" });
        let rate = json!({ "count": 1, "per": "1h" });
        scene.policy("x", json!({ "windows": [window], "blackouts": [blackout], "rate": rate, "steps": [{ "nodes": 1, "soak": "1h" }] }));
        scene.policy("y", json!({ "rate": rate }));
        let until = json!({ "until": at, "rolloutUID": "uid-of-none", "who": "a", "why": "b" });
        for policies in [json!(["x"]), json!(["y"])] {
            scene.pool("p", json!({ "policies": policies, "runNow": until }));
            scene.readings.values_mut().for_each(|reading| reading.at = at);
            scene.came_back(2, "evict the pods: it took too long");
            scene.silence(1);
            let round = scene.round_at(at);
            assert!(held(&round).len() <= 1, "{at}: {:?}", round.ledger);
            let pool_round = round.pools["p"].as_ref().unwrap();
            let rollout = report::rollout(&scene.objects.rollouts[0], pool_round, at);
            assert_ne!(rollout.message, "", "{at}");
            let nodes = report::nodes(pool_round, &scene.readings, &Default::default());
            assert!(nodes.values().all(|of| !of.message.is_empty()), "{at}: {nodes:?}");
        }
    }
}

#[test]
fn a_name_in_another_case_is_another_name_and_a_slip_is_said() {
    let mut scene = staged(3);
    scene.says(1).node = "N1".to_owned();
    scene.pool(
        "p",
        json!({ "skip": [{ "node": "N0", "who": "a", "why": "on loan" }, { "node": "n9", "who": "a", "why": "b" }] }),
    );
    let round = scene.round();
    let status = report::pool(round.pools["p"].as_ref().unwrap(), None, now());
    assert!(
        status.message.ends_with("; spec.skip has \"N0\" and 1 more, which are no nodes of this pool"),
        "{}",
        status.message
    );
    let of = told(&scene, &round, 1);
    assert!(of.reason == "Silent" && of.message.contains("says that it is \"N1\""), "{of:?}");
    // Policies, and pools whose names differ by case alone: the younger one has no node, and stops nothing.
    scene.policy("Nights", json!({}));
    scene.pool("p", json!({ "policies": ["nights"] }));
    assert_eq!(scene.round().pools["p"].as_ref().unwrap_err(), &Problem::PolicyMissing("nights".to_owned()));
    let mut scene = staged(3);
    scene.pool("P", json!({ "paused": { "who": "a", "why": "a slip" } }));
    let round = scene.round();
    let of = |pool: &str| round.pools[pool].as_ref().unwrap().facts.nodes.len();
    assert_eq!((of("P") + of("p"), round.ledger.grants.len()), (3, 1.min(of("p"))));
    // A label is what it is, too.
    let mut scene = staged(2);
    scene.label(0, "pool", "P");
    assert_eq!(scene.round().pools["p"].as_ref().unwrap().facts.nodes.len(), 1);
}

/// An API server bounds them; a round does not rely on that.
#[test]
fn words_of_people_of_any_length_are_shown_in_few_and_clean() {
    let word = json!({ "who": worst(), "why": worst() });
    let with = |more: Value| {
        let mut all = word.clone();
        all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        all
    };
    let rollout = staged(1).objects.rollouts[0].clone();
    let (uid, plan) = (rollout.metadata.uid.clone(), rollout.spec.plan.hash);
    let specs = [
        json!({ "paused": word }),
        json!({ "abort": with(json!({ "rolloutUID": uid })) }),
        json!({ "runNow": with(json!({ "rolloutUID": uid, "until": Timestamp::MAX, "soakOfWave": 0 })) }),
        json!({ "runNow": with(json!({ "rolloutUID": uid, "until": Timestamp::MIN, "soakOfWave": u32::MAX })) }),
        json!({ "approval": with(json!({ "rolloutUID": uid, "plan": plan, "wave": 0 })) }),
        json!({ "approval": with(json!({ "rolloutUID": uid, "plan": plan, "wave": u32::MAX })) }),
        json!({ "skip": [with(json!({ "node": worst() })), with(json!({ "node": "n0" }))] }),
        json!({ "policies": [worst()] }),
        json!({ "target": { "channel": worst() } }),
        json!({ "target": { "image": worst(), "payload": payload(NEW) } }),
        json!({ "nodeSelector": { (worst()): worst() } }),
        json!({ "revisionHistoryLimit": u32::MAX }),
    ];
    for spec in specs {
        let mut scene = staged(1);
        scene.pool("p", spec.clone());
        scene.ledger.spec.release = serde_json::from_value(json!([with(json!({ "token": 1 }))])).unwrap();
        let what = format!("{:.60}", spec.to_string());
        let round = scene.round();
        let mut texts: Vec<String> =
            events(&round, &Ledger::default(), now()).iter().map(|of| of.event(now()).message.unwrap()).collect();
        let pool = scene.objects.pools["p"].as_ref().unwrap();
        match &round.pools["p"] {
            Ok(pool_round) => {
                texts.push(report::pool(pool_round, None, now()).message);
                texts.push(report::rollout(&scene.objects.rollouts[0], pool_round, now()).message);
                let nodes = report::nodes(pool_round, &scene.readings, &Default::default());
                texts.extend(nodes.into_values().map(|of| of.message));
            }
            Err(problem) => texts.push(report::invalid(Some(pool), 1, &scene.objects.rollouts, problem, now()).message),
        }
        for text in texts {
            assert!(text.len() <= 1000 && is_clean(&text), "{what}: {} bytes: {text:.200?}", text.len());
        }
    }
}

/// A kubelet may delete its Node and make it again, as often as it likes; and nodes come and go in fleets that scale. Each
/// new one gets a further rollout: those are not kept for ever.
#[test]
fn rollouts_of_nodes_that_come_and_go_are_not_kept_for_ever() {
    let mut scene = Scene::new(1);
    for n in 1..60 {
        scene.roll();
        let round = scene.round();
        let gone: BTreeSet<_> = round.expired.iter().map(|of| of.metadata.name.clone()).collect();
        scene.objects.rollouts.retain(|of| !gone.contains(&of.metadata.name));
        // The last rollout is over: its node is gone, or is done.
        let last = scene.objects.rollouts.len() - 1;
        scene.objects.rollouts[last].status.get_or_insert_default().state = "Finished".to_owned();
        if n % 2 == 0 {
            scene.says(n - 1).disk.as_mut().unwrap().slots[0].payload = Some(payload(NEW).into());
        } else {
            scene.objects.nodes.pop();
        }
        scene.node(n);
        assert!(scene.objects.rollouts.len() <= 12, "{} rollouts after {n} nodes", scene.objects.rollouts.len());
    }
    // One in which a node failed stays: it would be tried again.
    let mut scene = staged(2);
    scene.says(0).disk.as_mut().unwrap().slots[0].payload = Some(payload(NEW).into());
    scene.objects.rollouts[0].status.get_or_insert_default().state = "Incomplete".to_owned();
    scene.pool("p", json!({ "revisionHistoryLimit": 0 }));
    scene.node(2);
    scene.roll();
    assert_eq!(scene.objects.rollouts.len(), 2);
    assert_eq!(scene.round().expired.len(), 0, "n1 is open");
    scene.says(1).disk.as_mut().unwrap().slots[0].payload = Some(payload(NEW).into());
    assert_eq!(scene.round().expired.len(), 1);
}

/// It changes its label with every look, also while it holds a grant that it never obeys. Both pools have a place more than it
/// can take.
#[test]
fn a_node_that_changes_its_pool_with_every_look_holds_up_neither() {
    let mut scene = Scene::new(7);
    scene.policy("two", json!({ "maxUnavailable": 2 }));
    scene.pool("p", json!({ "policies": ["two"] }));
    scene.pool("q", json!({ "policies": ["two"], "nodeSelector": { "pool": "q" } }));
    (4..7).for_each(|n| scene.label(n, "pool", "q"));
    scene.roll();
    (0..7).for_each(|n| scene.says(n).staged = Some(payload(NEW).into()));
    for turn in 0..16 {
        scene.label(0, "pool", if turn % 2 == 0 { "p" } else { "q" });
        let round = scene.round();
        for (pool, own) in [("p", 1..4), ("q", 4..7)] {
            let of: BTreeSet<usize> = held(&round).into_iter().filter(|n| own.contains(n)).collect();
            let is_here = (pool == "p") == (turn % 2 == 0);
            let most = if is_here && held(&round).contains(&0) { 1 } else { 2 };
            // Grants that were given while it was elsewhere stay.
            let before = scene
                .ledger
                .status
                .as_ref()
                .map_or(0, |ledger| ledger.grants.iter().filter(|of| of.node.pool == pool).count());
            assert!(of.len() <= most.max(before), "{turn}: {pool}: {:?}", round.ledger);
        }
        for rollout in &mut scene.objects.rollouts {
            let pool_round = round.pools[&rollout.spec.plan.pool].as_ref().unwrap();
            rollout.status = Some(report::rollout(rollout, pool_round, now()));
        }
        scene.ledger.status = Some(round.ledger.clone());
        for grant in &round.ledger.grants {
            let n: usize = grant.node.uid[4..].parse().unwrap();
            if n != 0 {
                scene.says(n).token = grant.token;
                arrive(&mut scene, n);
            }
        }
    }
    let round = scene.round();
    assert!(held(&round).iter().all(|n| *n == 0), "{:?}", round.ledger);
    let runs = |n: usize| scene.readings[&format!("uid-{n}")].status.as_ref().unwrap().disk.as_ref().unwrap().running;
    assert!((1..7).all(|n| runs(n) == slipway_node_api::v1::Slot::B as i32));
}

/// The API server would refuse the status, and nothing of the pool would begin.
#[test]
fn approvals_of_more_waves_than_are_recorded_count_all_the_same() {
    let mut scene = staged(3);
    scene.policy("careful", json!({ "approval": "EachWave" }));
    let rollout = &mut scene.objects.rollouts[0];
    let (uid, plan) = (rollout.metadata.uid.clone(), rollout.spec.plan.hash);
    let given: Vec<_> = (1..=128).map(|wave| json!({ "wave": wave, "at": now(), "who": "a", "why": "b" })).collect();
    rollout.status = Some(serde_json::from_value(json!({ "approvals": given })).unwrap());
    let approval = json!({ "rolloutUID": uid, "plan": plan, "wave": 129, "who": "eve", "why": "it is well" });
    scene.pool("p", json!({ "policies": ["careful"], "approval": approval }));
    let round = scene.round();
    let status = report::rollout(&scene.objects.rollouts[0], round.pools["p"].as_ref().unwrap(), now());
    let waves: Vec<u32> = status.approvals.iter().map(|of| of.wave).collect();
    assert_eq!((waves.len(), waves.first(), waves.last()), (128, Some(&2), Some(&129)));
    assert_eq!(round.ledger.grants.len(), 1);
}
