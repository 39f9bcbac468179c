//! One node, one budget or one entry of a list does not stop the rest.

use jiff::ToSpan as _;
use serde_json::json;
use slipway_fleet::{observed_node::NoReport, readable::Readable, report, round::Round};
use slipway_fleet_objects::upgrade::NodeUpgradeStatus;
use slipway_node::step::Step;
use slipway_node_api::v1::{self, HealthState, Operation, Slot, SlotState};
use slipway_rollout::{
    decide::Action,
    ledger::{HIGHEST, Ledger},
};

use super::{
    scene::{NEW, Scene, now, payload},
    staged,
};

/// The number of the node that holds the first grant.
fn holder(round: &Round) -> usize {
    round.ledger.grants[0].node.uid.strip_prefix("uid-").unwrap().parse().unwrap()
}

/// The node runs the payload, and is well.
pub fn arrive(scene: &mut Scene, n: usize) {
    let disk = scene.says(n).disk.as_mut().unwrap();
    disk.slots[1].payload = Some(payload(NEW).into());
    disk.running = Slot::B.into();
    scene.says(n).staged = None;
}

/// The canary.
pub fn first_of_the_plan(scene: &Scene) -> usize {
    scene.objects.rollouts[0].spec.plan.waves[0].nodes[0].uid.strip_prefix("uid-").unwrap().parse().unwrap()
}

/// So many nodes, of which the canary has the payload and soaks for a day.
pub fn with_a_canary(nodes: usize) -> (Scene, usize) {
    let mut scene = Scene::new(nodes);
    scene.policy("x", json!({ "steps": [{ "nodes": 1, "soak": "24h" }] }));
    scene.pool("p", json!({ "policies": ["x"] }));
    scene.roll();
    (0..nodes).for_each(|n| scene.says(n).staged = Some(payload(NEW).into()));
    let canary = first_of_the_plan(&scene);
    arrive(&mut scene, canary);
    (scene, canary)
}

pub fn told(scene: &Scene, round: &Round, n: usize) -> NodeUpgradeStatus {
    let pool_round = round.pools["p"].as_ref().unwrap();
    report::nodes(pool_round, &scene.readings, &Default::default())[format!("uid-{n}").as_str()].clone()
}

pub fn keep(scene: &mut Scene, round: &Round) {
    let pool_round = round.pools["p"].as_ref().unwrap();
    scene.objects.rollouts[0].status = Some(report::rollout(&scene.objects.rollouts[0], pool_round, now()));
    scene.ledger.status = Some(round.ledger.clone());
}

#[test]
fn a_node_that_lies_about_its_token_is_named_and_the_others_go_on_to_the_end() {
    for lie in [100, HIGHEST, u64::MAX] {
        let mut scene = staged(4);
        scene.says(3).token = lie;
        for done in 0..3 {
            let round = scene.round();
            assert_eq!((round.ledger.epoch, round.ledger.grants.len()), (done + 1, 1), "{:?}", round.ledger);
            let (n, token) = (holder(&round), round.ledger.grants[0].token);
            assert_ne!(n, 3);
            assert_eq!(told(&scene, &round, 3).reason, "TokenAhead");
            keep(&mut scene, &round);
            scene.says(n).token = token;
            arrive(&mut scene, n);
        }
        assert!(scene.ledger.status.as_ref().unwrap().epoch == 3);
    }
}

#[test]
fn a_budget_that_keeps_pods_is_named_and_sends_nobody_back() {
    for rollback in [json!({}), json!({ "rollback": {} })] {
        let mut scene = staged(4);
        scene.pool("p", rollback);
        (0..2).for_each(|n| arrive(&mut scene, n));
        scene.came_back(2, "evict the pods: pod default/db-0 is protected by the PodDisruptionBudget db (after 900 s)");
        for _ in 0..3 {
            let round = scene.round();
            let steps = &round.pools["p"].as_ref().unwrap().decision.steps;
            let stops =
                |step: &&Action| matches!(step, Action::Deny { .. } | Action::Pause { .. } | Action::Return { .. });
            assert_eq!(steps.iter().find(stops), None);
            let told = told(&scene, &round, 2);
            assert!(told.reason == "RetriesLater" && told.message.contains("default/db-0"), "{told:?}");
            assert_ne!(holder(&round), 2, "the others go on");
            keep(&mut scene, &round);
        }
        // The time has come: another attempt.
        let status = scene.objects.rollouts[0].status.as_mut().unwrap();
        let retry = status.retry.as_mut().unwrap();
        assert_eq!(retry.from, now() + 1.hours());
        retry.from = now();
        scene.policy("two", json!({ "maxUnavailable": 2 }));
        scene.pool("p", json!({ "policies": ["two"] }));
        let round = scene.round();
        assert!(round.ledger.grants.iter().any(|grant| grant.node.uid == "uid-2"), "{:?}", round.ledger);
    }
}

/// A person aborts the upgrade: before the reboot, in it, and while the payload is proved.
#[test]
fn an_abort_says_nothing_of_the_payload_only_if_that_did_not_run() {
    let abort = "aborted by alice: its database is slow";
    for (reached, state, has_run) in [
        (v1::Step::Unspecified, SlotState::Trial, false),
        (v1::Step::Drain, SlotState::Trial, false),
        // The one before has left it like this.
        (v1::Step::Drain, SlotState::Bad, false),
        (v1::Step::Reboot, SlotState::Trial, false),
        (v1::Step::Reboot, SlotState::Bad, true),
        (v1::Step::Rejoin, SlotState::Bad, true),
        (v1::Step::Prove, SlotState::Tried, true),
        (v1::Step::Prove, SlotState::Trial, true),
        (v1::Step::Confirm, SlotState::Bad, true),
        // A later version of the node's service had begun it.
        (v1::Step::furthest(Step::Later), SlotState::Trial, true),
        (v1::Step::furthest(Step::Later), SlotState::Bad, true),
    ] {
        let mut scene = staged(4);
        scene.came_back(0, abort);
        let says = scene.says(0);
        says.ended[0].reached = reached.into();
        says.ended[0].payload = payload(NEW).into();
        let other = &mut says.disk.as_mut().unwrap().slots[1];
        (other.payload, other.state) = (Some(payload(NEW).into()), Some(state.into()));
        let round = scene.round();
        let told = told(&scene, &round, 0);
        let steps = &round.pools["p"].as_ref().unwrap().decision.steps;
        let is_paused = steps.iter().any(|step| matches!(step, Action::Pause { .. }));
        assert!(!steps.iter().any(|step| matches!(step, Action::Deny { .. })), "{reached:?}: nothing is denied");
        assert_eq!(is_paused, has_run, "{reached:?} {state:?}: {steps:?}");
        let expected =
            if has_run { ("Failed", "it had booted the payload") } else { ("RetriesLater", "before the payload") };
        assert!(told.reason == expected.0 && told.message.contains(expected.1), "{reached:?} {state:?}: {told:?}");
        assert!(told.message.contains(abort), "{told:?}");
    }
}

/// Longer than a node remembers operations.
#[test]
fn a_budget_may_keep_a_pod_through_any_number_of_windows() {
    let mut scene = staged(1);
    for window in 0..40 {
        let round = scene.round();
        let token = round.ledger.grants.first().unwrap_or_else(|| panic!("no grant in window {window}")).token;
        keep(&mut scene, &round);
        scene.says(0).token = token;
        scene.came_back(0, "evict the pods: pod default/db-0 is protected by the PodDisruptionBudget db (after 900 s)");
        let round = scene.round();
        keep(&mut scene, &round);
        let told = told(&scene, &round, 0);
        assert!(told.reason == "RetriesLater" && told.message.contains("default/db-0"), "{window}: {told:?}");
        assert!(round.ledger.grants.is_empty(), "{window}: nothing is held meanwhile");
        scene.objects.rollouts[0].status.as_mut().unwrap().retry.as_mut().unwrap().from = now();
    }
    // The pod is gone.
    let round = scene.round();
    keep(&mut scene, &round);
    scene.says(0).token = round.ledger.grants[0].token;
    arrive(&mut scene, 0);
    let round = scene.round();
    assert_eq!((told(&scene, &round, 0).reason.as_str(), round.ledger.grants.len()), ("Done", 0));
}

#[test]
fn releases_of_tokens_to_come_free_nothing() {
    let mut scene = staged(3);
    let future: Vec<_> = (1..40).map(|token| json!({ "token": token, "who": "a", "why": "b" })).collect();
    scene.ledger.spec.release = serde_json::from_value(json!(future)).unwrap();
    let round = scene.round();
    assert_eq!(round.ledger.grants[0].token, 40);
    keep(&mut scene, &round);
    assert_eq!((scene.round().freed.len(), scene.round().ledger.grants.len()), (0, 1));
}

#[test]
fn a_soak_is_as_long_as_the_controllers_have_seen_it_whatever_a_node_says() {
    let (mut scene, n) = with_a_canary(3);
    for seconds in [u64::MAX, 1 << 40, 86_400] {
        scene.says(n).health.as_mut().unwrap().seconds = seconds;
        let round = scene.round();
        assert!(round.ledger.grants.is_empty());
        keep(&mut scene, &round);
        assert_eq!(scene.objects.rollouts[0].status.as_ref().unwrap().soaking_since, Some(now()));
    }
    let soaking_since = Some(now() - 24.hours());
    scene.objects.rollouts[0].status.as_mut().unwrap().soaking_since = soaking_since;
    assert_eq!(scene.round().ledger.grants.len(), 1);
}

#[test]
fn a_holder_that_is_silent_reboots_and_advice_comes_only_after_its_time() {
    let mut scene = staged(2);
    let round = scene.round();
    keep(&mut scene, &round);
    let n = holder(&round);
    scene.silence(n);
    let round = scene.round();
    let first = told(&scene, &round, n);
    assert_eq!((first.reason.as_str(), first.silent_since), ("Rebooting", Some(now())));
    assert!(!first.message.contains("unblock"), "{first:?}");
    // It is remembered since when; later a person has to look.
    let name = format!("n{n}");
    let spec = json!({ "nodeUID": format!("uid-{n}"), "pool": "p" });
    let upgrade =
        json!({ "metadata": { "name": name }, "spec": spec, "status": { "silentSince": now() - 21.minutes() } });
    scene.objects.upgrades.insert(name, Readable::Yes(serde_json::from_value(upgrade).unwrap()));
    let round = scene.round();
    let later = told(&scene, &round, n);
    assert_eq!(later.reason, "SilentWithGrant");
    assert!(later.message.contains("unblock") && later.silent_since == Some(now() - 21.minutes()), "{later:?}");
    // Where firmware takes longer the pool says so.
    scene.pool("p", json!({ "rebootDeadline": "1h" }));
    let at = |scene: &Scene, minutes: i64| told(scene, &scene.round_at(now() + minutes.minutes()), n);
    let still = at(&scene, 38);
    assert!(still.reason == "Rebooting" && still.message.contains("before 2026-06-01T12:39:00Z"), "{still:?}");
    assert!(!still.message.contains("unblock"), "{still:?}");
    assert_eq!(at(&scene, 40).reason, "SilentWithGrant");
    // Where no node can be asked, its silence says nothing, and nobody is told to free its grant.
    scene.pool("p", json!({}));
    let why = NoReport::Unasked("tls.crt: no such file".to_owned());
    scene.readings.get_mut(&format!("uid-{n}")).unwrap().status = Err(why);
    let message = told(&scene, &scene.round(), n).message;
    assert_eq!(message, "it cannot be asked: tls.crt: no such file");
}

/// The controller's certificates have expired, or the node answers what nothing can be decided from: that is no reboot.
#[test]
fn a_holder_of_which_a_look_says_nothing_is_not_said_to_reboot() {
    let mut scene = staged(2);
    scene.pool("p", json!({ "rebootDeadline": "24h" }));
    let round = scene.round();
    keep(&mut scene, &round);
    let n = holder(&round);
    let unasked = NoReport::Unasked("tls.crt expired".to_owned());
    let unclear = NoReport::Unclear("its slipwayd cannot read the disk's boot state".to_owned());
    // It was silent before, or was not.
    for before in [None, Some(now() - 5.minutes())] {
        let spec = json!({ "nodeUID": format!("uid-{n}"), "pool": "p" });
        let upgrade =
            json!({ "metadata": { "name": format!("n{n}") }, "spec": spec, "status": { "silentSince": before } });
        scene.objects.upgrades.insert(format!("n{n}"), Readable::Yes(serde_json::from_value(upgrade).unwrap()));
        for (status, words, since) in [
            (unasked.clone(), "it cannot be asked: tls.crt expired", before),
            (unclear.clone(), "cannot read the disk's boot state", None),
            (NoReport::Silent("no route".to_owned()), "rebooting since", before.or(Some(now()))),
        ] {
            let reboots = matches!(status, NoReport::Silent(_));
            scene.readings.get_mut(&format!("uid-{n}")).unwrap().status = Err(status);
            let told = told(&scene, &scene.round(), n);
            assert!((told.reason == "Rebooting") == reboots && told.message.contains(words), "{told:?}");
            assert_eq!(told.silent_since, since, "{told:?}");
            // It may have just started: nobody is told to free its grant.
            assert!(!told.message.contains("unblock"), "{told:?}");
        }
    }
    scene.readings.get_mut(&format!("uid-{n}")).unwrap().status = Err(unclear);
    let later = told(&scene, &scene.round_at(now() + 61.minutes()), n);
    assert!(later.message.contains("unblock"), "{later:?}");
}

#[test]
fn one_node_changes_few_statuses() {
    for total in [100, 400] {
        let mut scene = Scene::new(total);
        scene.policy("x", json!({ "maxUnavailable": "10%" }));
        scene.pool("p", json!({ "policies": ["x"] }));
        scene.roll();
        let statuses = |scene: &Scene| -> Vec<String> {
            let round = scene.round();
            let pool_round = round.pools["p"].as_ref().unwrap();
            let told = report::nodes(pool_round, &scene.readings, &Default::default());
            told.into_iter().map(|(uid, status)| format!("{uid} {status:?}")).collect()
        };
        let changes = |a: &[String], b: &[String]| a.iter().zip(b).filter(|(a, b)| a != b).count();
        (0..total / 2).for_each(|n| scene.says(n).staged = Some(payload(NEW).into()));
        let before = statuses(&scene);
        scene.says(total / 2).staged = Some(payload(NEW).into());
        assert!(changes(&before, &statuses(&scene)) <= 2, "one more is staged");
        (0..total).for_each(|n| scene.says(n).staged = Some(payload(NEW).into()));
        let round = scene.round();
        keep(&mut scene, &round);
        let before = statuses(&scene);
        let (n, token) = (holder(&round), round.ledger.grants[0].token);
        scene.says(n).token = token;
        arrive(&mut scene, n);
        let round = scene.round();
        keep(&mut scene, &round);
        assert!(changes(&before, &statuses(&scene)) <= 4, "one is done, and another one goes");
    }
}

/// After a ledger was restored from an older copy there may be many of them.
#[test]
fn a_grant_changes_no_status_of_those_whose_token_is_ahead() {
    let mut scene = staged(20);
    (0..8).for_each(|n| scene.says(n).token = 1000 + n as u64);
    let round = scene.round();
    keep(&mut scene, &round);
    let of = |scene: &Scene, round: &Round| (0..8).map(|n| told(scene, round, n)).collect::<Vec<_>>();
    let before = of(&scene, &round);
    assert!(before.iter().all(|of| of.reason == "TokenAhead"), "{before:?}");
    let (n, token) = (holder(&round), round.ledger.grants[0].token);
    scene.says(n).token = token;
    arrive(&mut scene, n);
    let round = scene.round();
    assert_eq!(round.ledger.epoch, 2, "another one goes");
    keep(&mut scene, &round);
    assert_eq!(of(&scene, &scene.round()), before);
}

/// Only a person's pause does.
#[test]
fn a_pause_of_the_controllers_own_holds_back_nobody_who_goes_back() {
    let (mut scene, canary) = with_a_canary(3);
    scene.pool("p", json!({ "policies": ["x"], "rollback": {} }));
    for look in 0..11_i64 {
        let state = if look % 2 == 0 { HealthState::Well } else { HealthState::Unknown };
        scene.says(canary).health.as_mut().unwrap().set_state(state);
        let round = scene.round_at(now() + (5 * look).minutes());
        keep(&mut scene, &round);
    }
    let status = scene.objects.rollouts[0].status.clone().unwrap();
    assert!(status.paused.unwrap().starts_with("the canaries do not stay well") && status.denied.is_none());
    let health = scene.says(canary).health.as_mut().unwrap();
    health.set_state(HealthState::Ill);
    health.seconds = 120;
    // It is denied; then it is granted.
    for _ in 0..2 {
        let round = scene.round_at(now() + 2.hours());
        keep(&mut scene, &round);
    }
    assert!(scene.objects.rollouts[0].status.as_ref().unwrap().denied.is_some());
    assert_eq!(scene.ledger.status.as_ref().unwrap().grants.len(), 1, "it goes back");
    scene.ledger.status.as_mut().unwrap().grants.clear();
    let paused = json!({ "who": "eve", "why": "lunch" });
    scene.pool("p", json!({ "policies": ["x"], "rollback": {}, "paused": paused }));
    assert!(scene.round_at(now() + 2.hours()).ledger.grants.is_empty());
}

/// A kubelet may take the zone off its own Node, and an operator may forget it.
#[test]
fn a_node_without_a_zone_stays_and_the_others_go_on_where_zones_count() {
    let mut scene = Scene::new(4);
    (0..4).filter(|n| *n != 1).for_each(|n| scene.label(n, "zone", "a"));
    scene.policy("x", json!({ "topology": { "key": "zone", "maxDomains": 1 } }));
    scene.pool("p", json!({ "policies": ["x"] }));
    scene.roll();
    (0..4).for_each(|n| scene.says(n).staged = Some(payload(NEW).into()));
    for _ in 0..3 {
        let round = scene.round();
        let (n, token) = (holder(&round), round.ledger.grants[0].token);
        assert_eq!(told(&scene, &round, 1).reason, "NoZone");
        keep(&mut scene, &round);
        scene.says(n).token = token;
        arrive(&mut scene, n);
    }
    let round = scene.round();
    assert!((0..4).filter(|n| *n != 1).all(|n| told(&scene, &round, n).reason == "Done"));
    let pool = report::pool(round.pools["p"].as_ref().unwrap(), None, now());
    assert!(pool.state == "Waiting" && pool.message.contains("n1: its zone is not known"), "{pool:?}");
    assert!(pool.message.ends_with("give the node the label that the policy names: zone"), "{pool:?}");
}

#[test]
fn old_rollouts_go_and_those_that_denied_a_payload_stay() {
    let mut scene = staged(1);
    let one = scene.objects.rollouts[0].clone();
    for n in 0..15 {
        let mut old = one.clone();
        old.metadata.name = Some(format!("p-old-{n:02}"));
        old.spec.plan.payload = payload(&format!("old {n}"));
        let denied = (n == 0).then(|| "it eats files".to_owned());
        old.status = Some(serde_json::from_value(json!({ "state": "Superseded", "denied": denied })).unwrap());
        scene.objects.rollouts.push(old);
    }
    let names = |scene: &Scene| -> Vec<String> {
        scene.round().expired.into_iter().filter_map(|of| of.metadata.name).collect()
    };
    assert_eq!(names(&scene), ["p-old-04", "p-old-03", "p-old-02", "p-old-01"]);
    scene.pool("p", json!({ "revisionHistoryLimit": 14 }));
    assert!(names(&scene).is_empty());
}

/// It had five, and runs the payload since the last one.
#[test]
fn a_controller_that_can_ask_no_node_says_of_none_that_its_attempts_are_used_up() {
    let (mut scene, canary) = with_a_canary(2);
    let attempts = json!({ format!("uid-{canary}"): { "count": 5, "token": 5 } });
    let status = json!({ "attempts": attempts, "retry": { "below": 3, "from": "2026-06-02T00:00:00Z" } });
    scene.objects.rollouts[0].status = Some(serde_json::from_value(status).unwrap());
    scene.ledger.status = Some(Ledger { epoch: 5, ..Ledger::default() });
    let retry = scene.objects.rollouts[0].status.clone().unwrap().retry;
    scene.readings.values_mut().for_each(|reading| reading.status = Err(NoReport::Unasked("no route".to_owned())));
    let round = scene.round();
    keep(&mut scene, &round);
    let status = scene.objects.rollouts[0].status.as_ref().unwrap();
    assert_eq!((status.paused.as_deref(), status.retry), (None, retry));
    assert!(retry.is_some());
}

#[test]
fn a_node_that_always_comes_back_without_a_word_has_five_attempts() {
    let mut scene = staged(4);
    scene.policy("some", json!({ "failureBudget": 2 }));
    scene.pool("p", json!({ "policies": ["some"] }));
    let liar = holder(&scene.round());
    let mut grants = 0;
    let round = loop {
        let round = scene.round();
        keep(&mut scene, &round);
        let (n, token) = (holder(&round), round.ledger.grants[0].token);
        if n != liar {
            break round;
        }
        grants += 1;
        // It says that it obeyed, is well, and runs what it ran before.
        scene.says(n).token = token;
        // A look between, as of the other controller, counts nothing twice.
        assert!(
            scene.round().pools["p"].as_ref().unwrap().decision.attempts.nodes.values().all(|of| of.count <= grants)
        );
    };
    assert_eq!(grants, 5);
    let told = told(&scene, &round, liar);
    let why = "it failed: 5 attempts ended without the payload; of the last one: it does not say why";
    assert_eq!((told.reason.as_str(), told.message.as_str()), ("Failed", why));
    let status = scene.objects.rollouts[0].status.clone().unwrap();
    assert_eq!(status.attempts[&format!("uid-{liar}")].count, 5);
    assert!(status.denied.is_none() && status.paused.is_none(), "{status:?}");
    // A rollout that cannot remember the attempt frees no grant.
    let mut scene = staged(4);
    let first = scene.round();
    keep(&mut scene, &first);
    scene.says(holder(&first)).token = first.ledger.grants[0].token;
    scene.refused.rollouts.insert("p".to_owned(), "it is too large".to_owned());
    assert_eq!(scene.round().ledger.grants, first.ledger.grants);
}

/// A step may fail in as many words as it likes.
#[test]
fn however_much_a_node_says_the_command_is_told_to_its_end() {
    let mut scene = staged(2);
    let round = scene.round();
    keep(&mut scene, &round);
    let n = holder(&round);
    scene.ledger.status.as_mut().unwrap().grants[0].since = now() - 2.hours();
    let blocked = Some("the pod default/db-0 is left; ".repeat(200));
    let token = round.ledger.grants[0].token;
    scene.says(n).token = token;
    scene.says(n).operation = Some(Operation { goal: v1::Goal::Upgrade.into(), blocked, ..Operation::default() });
    let how = format!("; look at the machine, and if it does not end: slipwayctl fleet unblock n{n} --reason WHY");
    let round = scene.round();
    let pool_round = round.pools["p"].as_ref().unwrap();
    let rollout = report::rollout(&scene.objects.rollouts[0], pool_round, now());
    let pool = report::pool(pool_round, None, now());
    for message in [told(&scene, &round, n).message, rollout.message, pool.message] {
        assert!(message.contains("db-0") && message.contains(&how) && message.len() <= 1000, "{message}");
    }
}
