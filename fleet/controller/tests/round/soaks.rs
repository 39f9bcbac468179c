//! Soaks: how long, whom they wait for, and what a canary that is not well for long does to its rollout.

use jiff::ToSpan as _;
use serde_json::json;
use slipway_fleet::{observed_node::NoReport, report};
use slipway_node_api::v1::{HealthState, SlotState};
use slipway_rollout::decide::{Action, Decision};

use super::{
    attacks::{arrive, keep, told, with_a_canary},
    scene::{NEW, Scene, now, payload},
};

/// It may start again and again, and be well for some minutes each time.
#[test]
fn a_canary_that_does_not_stay_well_is_named_and_at_last_the_rollout_is_paused() {
    let (mut scene, canary) = with_a_canary(3);
    let mut looks = 0_i64;
    let mut look = |scene: &mut Scene, state: HealthState| {
        scene.says(canary).health.as_mut().unwrap().set_state(state);
        let round = scene.round_at(now() + (5 * looks).minutes());
        looks += 1;
        keep(scene, &round);
        let pool = report::pool(round.pools["p"].as_ref().unwrap(), None, now());
        (scene.objects.rollouts[0].status.clone().unwrap(), pool)
    };
    look(&mut scene, HealthState::Well);
    for times in 1..=5 {
        let (_, pool) = look(&mut scene, HealthState::Unknown);
        let why = format!("n{canary}: it does not know how it is: ");
        assert!(pool.state == "Waiting" && pool.message.starts_with(&why), "{pool:?}");
        let (rollout, pool) = look(&mut scene, HealthState::Well);
        let interruption = rollout.interruption.unwrap();
        assert_eq!((interruption.node, interruption.times), (format!("n{canary}"), times));
        if times < 5 {
            let how_often = if times == 1 { "once".to_owned() } else { format!("{times} times") };
            let why = format!("; that began anew {how_often}: n{canary} was not seen well at 2026-06-01T");
            assert!(pool.state == "Waiting" && pool.message.contains(&why), "{pool:?}");
        }
    }
    let (rollout, pool) = look(&mut scene, HealthState::Well);
    let why = format!("the canaries do not stay well: their soak began anew 5 times, the last time by n{canary}");
    assert_eq!((rollout.paused, rollout.denied), (Some(why.clone()), None));
    assert_eq!((pool.state.as_str(), pool.message), ("Paused", why));
}

/// Its certificates or its network are at fault. Another controller sees the canary, and its soak goes on.
#[test]
fn a_controller_that_can_ask_no_node_blames_no_canary() {
    let (mut scene, canary) = with_a_canary(3);
    let seen = scene.readings.clone();
    for look in 0..14_i64 {
        scene.readings = seen.clone();
        if look % 2 == 1 {
            let why = || NoReport::Unasked("tls.crt: no such file".to_owned());
            scene.readings.values_mut().for_each(|reading| reading.status = Err(why()));
        }
        let round = scene.round_at(now() + (5 * look).minutes());
        assert_eq!(round.pools["p"].as_ref().unwrap().decision.passed, 0);
        keep(&mut scene, &round);
        let status = scene.objects.rollouts[0].status.clone().unwrap();
        assert_eq!((status.soaking_since, status.paused, status.interruption), (Some(now()), None, None));
    }
    // One node alone that does not answer is another thing.
    scene.readings = seen;
    scene.silence(canary);
    let round = scene.round_at(now() + 2.hours());
    keep(&mut scene, &round);
    assert_eq!(scene.objects.rollouts[0].status.as_ref().unwrap().interruption.as_ref().unwrap().times, 1);
}

/// A canary may say at each look that it has been well since now: its soak gets longer, and nothing else changes.
#[test]
fn what_a_canary_says_of_its_time_changes_no_status_of_a_node_that_waits() {
    let (mut scene, canary) = with_a_canary(20);
    scene.says(canary).health.as_mut().unwrap().seconds = 0;
    let mut before: Option<Vec<String>> = None;
    for look in 0..3_i64 {
        let at = now() + (10 * look).seconds();
        scene.readings.values_mut().for_each(|reading| reading.at = at);
        let round = scene.round_at(at);
        keep(&mut scene, &round);
        let pool_round = round.pools["p"].as_ref().unwrap();
        let told = report::nodes(pool_round, &scene.readings, &Default::default());
        assert_eq!(told.values().filter(|status| status.reason == "Soak").count(), 19);
        let statuses: Vec<String> = told.into_iter().map(|(uid, status)| format!("{uid} {status:?}")).collect();
        assert_eq!(*before.get_or_insert_with(|| statuses.clone()), statuses);
        let rollout = scene.objects.rollouts[0].status.as_ref().unwrap();
        assert!(rollout.message.contains(&format!("must be well until {:.0}", at + 24.hours())), "{}", rollout.message);
    }
}

/// It starts its service again and again, so that no look sees it ill; or it lies.
#[test]
fn a_canary_that_is_never_well_for_long_is_named_and_at_last_the_rollout_is_paused() {
    let (mut scene, canary) = with_a_canary(3);
    let mut look = |seconds: i64| {
        let at = now() + seconds.seconds();
        scene.readings.values_mut().for_each(|reading| reading.at = at);
        scene.says(canary).health.as_mut().unwrap().seconds = 0;
        let round = scene.round_at(at);
        keep(&mut scene, &round);
        let pool = report::pool(round.pools["p"].as_ref().unwrap(), None, at);
        (scene.objects.rollouts[0].status.clone().unwrap(), pool)
    };
    let last = (0..=36).map(|n| look(10 * n)).find(|(rollout, _)| rollout.interruption.is_some());
    let (rollout, pool) = last.unwrap();
    assert_eq!(rollout.interruption.unwrap().node, format!("n{canary}"));
    assert!(pool.message.contains(&format!("; that began anew once: n{canary} was not seen well at ")), "{pool:?}");
    assert!((37..80).map(|n| look(10 * n)).any(|(rollout, _)| rollout.paused.is_some()));
    let why = format!("the canaries do not stay well: their soak began anew 5 times, the last time by n{canary}");
    let (rollout, pool) = look(1000);
    assert_eq!((rollout.paused, rollout.denied), (Some(why.clone()), None));
    assert_eq!((pool.state.as_str(), pool.message), ("Paused", why));
}

/// Their service gets another configuration, one after the other. Each of them is well.
#[test]
fn canaries_whose_service_is_started_anew_one_after_the_other_pause_nothing() {
    let mut scene = Scene::new(8);
    scene.policy("x", json!({ "steps": [{ "nodes": 7, "soak": "24h" }] }));
    scene.pool("p", json!({ "policies": ["x"] }));
    scene.roll();
    (0..8).for_each(|n| scene.says(n).staged = Some(payload(NEW).into()));
    let plan = scene.objects.rollouts[0].spec.plan.clone();
    let canaries: Vec<usize> = plan.waves[0].nodes.iter().map(|of| of.uid[4..].parse().unwrap()).collect();
    canaries.iter().for_each(|n| arrive(&mut scene, *n));
    // Seconds after the beginning.
    let mut since = [-90_i64; 8];
    for look in 0..=7_usize {
        let at = 600 * i64::try_from(look).unwrap();
        let anew = look.checked_sub(1).map(|of| canaries[of]);
        anew.into_iter().for_each(|n| since[n] = at - 30);
        scene.readings.values_mut().for_each(|reading| reading.at = now() + at.seconds());
        (0..8).for_each(|n| scene.says(n).health.as_mut().unwrap().seconds = (at - since[n]).unsigned_abs());
        let round = scene.round_at(now() + at.seconds());
        keep(&mut scene, &round);
        let told = scene.objects.rollouts[0].status.clone().unwrap();
        let interruption = told.interruption.map(|of| (of.node, of.at, of.times));
        assert_eq!(interruption, anew.map(|n| (format!("n{n}"), now() + (at - 30).seconds(), 1)));
        assert_eq!(told.paused, None);
    }
}

/// Two controllers whose clocks differ by an hour, and a canary that stays well.
#[test]
fn clocks_that_differ_blame_no_canary_for_more_than_once() {
    let (mut scene, _) = with_a_canary(3);
    for look in 0..200_i64 {
        let ahead = if look % 2 == 0 { 0 } else { 3600 };
        let at = now() + (10 * look + ahead).seconds();
        for reading in scene.readings.values_mut() {
            reading.at = at;
            reading.status.as_mut().unwrap().health.as_mut().unwrap().seconds = 90 + 10 * look.unsigned_abs();
        }
        let round = scene.round_at(at);
        keep(&mut scene, &round);
    }
    let status = scene.objects.rollouts[0].status.clone().unwrap();
    assert!(status.paused.is_none() && status.interruption.is_none_or(|of| of.times == 1));
}

fn decision(scene: &Scene) -> Decision {
    scene.round().pools["p"].as_ref().unwrap().decision.clone()
}

fn denies(scene: &Scene) -> bool {
    decision(scene).steps.iter().any(|step| matches!(step, Action::Deny { .. }))
}

/// A kubelet that was started anew, or a Node that is `Unknown` until its kubelet has posted again.
#[test]
fn a_canary_that_is_ill_in_one_look_begins_its_soak_anew_and_denies_nothing() {
    let (mut scene, canary) = with_a_canary(3);
    let round = scene.round();
    keep(&mut scene, &round);
    assert!(scene.objects.rollouts[0].status.as_ref().unwrap().soaking_since.is_some());
    let health = scene.says(canary).health.as_mut().unwrap();
    health.set_state(HealthState::Ill);
    (health.seconds, health.reasons) = (0, vec!["the Node is not ready".to_owned()]);
    assert!(!denies(&scene), "{:?}", decision(&scene).steps);
    assert_eq!(decision(&scene).interruption.map(|of| of.times), Some(1));
    // Who stays ill is bad.
    scene.says(canary).health.as_mut().unwrap().seconds = 120;
    assert!(denies(&scene));
}

/// After a denial that people do not believe they upgrade a node by hand, and confirm it when it is well.
#[test]
fn a_trial_that_a_person_has_begun_denies_no_payload() {
    let (mut scene, canary) = with_a_canary(3);
    scene.says(canary).disk.as_mut().unwrap().slots[1].state = Some(SlotState::Tried.into());
    let health = scene.says(canary).health.as_mut().unwrap();
    health.set_state(HealthState::Ill);
    (health.seconds, health.reasons) = (600, vec!["the system that runs is on trial".to_owned()]);
    assert!(!denies(&scene), "{:?}", decision(&scene).steps);
    let round = scene.round();
    let told = told(&scene, &round, canary);
    assert!(told.reason == "Busy" && told.message.contains("on trial"), "{told:?}");
    assert!(round.ledger.grants.is_empty(), "the others wait for it");
    // It is confirmed, and as ill as it was.
    scene.says(canary).disk.as_mut().unwrap().slots[1].state = Some(SlotState::Good.into());
    assert!(denies(&scene));
}

/// An autoscaler takes a node away that was upgraded and well.
#[test]
fn a_canary_that_goes_in_its_soak_is_said_to_have_gone() {
    let (mut scene, canary) = with_a_canary(3);
    let message = |scene: &Scene| report::headline(scene.round().pools["p"].as_ref().unwrap()).message;
    let gone = "wave 1 cannot soak: its canaries are gone, and one of them had begun";
    scene.objects.nodes.remove(canary);
    for status in [json!({ "soakingSince": now() }), json!({ "tried": "0" })] {
        scene.objects.rollouts[0].status = serde_json::from_value(status).unwrap();
        assert!(message(&scene).contains(gone), "{}", message(&scene));
    }
    // One that never began tried nothing.
    scene.objects.rollouts[0].status = None;
    assert!(message(&scene).contains("no node of wave 1 tried the payload"), "{}", message(&scene));
}
