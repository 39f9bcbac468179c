//! Reports whose fields are extreme, one at a time and many at once, clocks that were wrong, and ledgers that were lost: the
//! others go on, and what is written stays small and clean.

use jiff::{Timestamp, ToSpan as _};
use serde_json::json;
use slipway_fleet::{
    nodes::Ask,
    observed_node::NoReport,
    readable::Readable,
    reconcile::{abandoned, events},
    report,
    round::Round,
};
use slipway_fleet_objects::upgrade::NodeUpgradeStatus;
use slipway_node::request::Goal;
use slipway_node_api::{
    text::is_clean,
    v1::{
        self, Certificate, Denied, Ended, HealthState, Moved, Operation, Outcome, Position, Slot, SlotContents,
        StatusResponse,
    },
};
use slipway_rollout::{
    decide::Action,
    facts::Retry,
    ledger::{Given, HIGHEST, Ledger},
};

use super::{
    attacks::{arrive, first_of_the_plan, keep, told},
    scene::{NEW, Scene, now, payload},
    staged,
};

/// A lie about node 3.
pub type Lie = (&'static str, fn(&mut StatusResponse));

/// It clears a terminal, forges a line of a log, turns text around, and is long.
pub fn worst() -> String {
    "\x1b[2J\nerror: all is well\r\u{202e}\0".repeat(1_000)
}

/// Each token of a rollout could be the next: the liar has ended them all.
fn ended(goal: v1::Goal, failed: bool, came_back: Option<String>) -> Vec<Ended> {
    let outcome = Some(Outcome { came_back, left: false });
    let one = Ended { goal: goal.into(), payload: payload(NEW).into(), failed, outcome, ..Ended::default() };
    vec![one; 1000]
}

pub const LIES: [Lie; 38] = [
    ("token 1", |of| of.token = 1),
    ("token 2^53-1", |of| of.token = HIGHEST),
    ("token 2^64-1", |of| of.token = u64::MAX),
    ("no health", |of| of.health = None),
    ("health that is none", |of| of.health.as_mut().unwrap().state = -99),
    ("well for ever", |of| of.health.as_mut().unwrap().seconds = u64::MAX),
    ("well since now", |of| of.health.as_mut().unwrap().seconds = 0),
    ("ill, in many words", |of| {
        let health = of.health.as_mut().unwrap();
        (health.state, health.reasons) = (HealthState::Ill.into(), vec![worst(); 20]);
    }),
    ("unknown, in many words", |of| {
        let health = of.health.as_mut().unwrap();
        (health.state, health.reasons) = (HealthState::Unknown.into(), vec![worst(); 20]);
    }),
    ("no disk", |of| of.disk = None),
    ("no slots", |of| of.disk.as_mut().unwrap().slots.clear()),
    ("a slot that is none runs", |of| of.disk.as_mut().unwrap().running = i32::MIN),
    ("a thousand slots", |of| {
        let slot = SlotContents { slot: Slot::B.into(), payload: Some(worst()), ..SlotContents::default() };
        of.disk.as_mut().unwrap().slots.extend(vec![slot; 1000]);
    }),
    ("a payload that is none", |of| of.disk.as_mut().unwrap().slots[0].payload = Some(worst())),
    ("a kubelet that is none", |of| of.disk.as_mut().unwrap().slots[1].kubelet = Some(worst())),
    ("a kubelet of the future", |of| of.disk.as_mut().unwrap().slots[1].kubelet = Some("1.4294967295.0".to_owned())),
    ("staged what is none", |of| of.staged = Some(worst())),
    ("never stages", |of| of.staged = None),
    ("busy for ever", |of| {
        let (id, blocked) = (worst(), Some(worst()));
        of.operation = Some(Operation { id, goal: 99, step: -1, place: u32::MAX, blocked, ..Operation::default() });
    }),
    ("upgrades for ever", |of| {
        of.operation = Some(Operation { goal: 2, blocked: Some(worst()), ..Operation::default() })
    }),
    ("stages for ever", |of| {
        of.staged = None;
        of.operation = Some(Operation { goal: 1, blocked: Some(worst()), ..Operation::default() });
    }),
    ("stagings that failed", |of| {
        of.staged = None;
        of.ended = ended(v1::Goal::Stage, true, Some(worst()));
    }),
    ("upgrades that came back", |of| of.ended = ended(v1::Goal::Upgrade, true, Some(worst()))),
    ("upgrades that came back, and why not", |of| of.ended = ended(v1::Goal::Upgrade, false, None)),
    ("denied, in many words", |of| of.denied = vec![Denied { payload: payload(NEW).into(), why: worst() }; 100]),
    ("bytes", |of| {
        let moved = Some(Moved { fetched: u64::MAX, reused: u64::MAX, written: u64::MAX });
        let payload = payload(NEW).into();
        of.ended = vec![Ended { goal: 1, payload, moved, ..Ended::default() }; 100];
    }),
    ("no way back, in many words", |of| of.no_way_back = Some(worst())),
    ("digests in capital letters", |of| {
        let capitals = |text: &mut Option<String>| *text = text.take().map(|text| text.to_uppercase());
        capitals(&mut of.staged);
        of.disk.as_mut().unwrap().slots.iter_mut().for_each(|slot| capitals(&mut slot.payload));
    }),
    ("its name in capital letters", |of| of.node = of.node.to_uppercase()),
    ("the payload runs", |of| of.disk.as_mut().unwrap().slots[0].payload = Some(payload(NEW).into())),
    ("a payload that never was runs", |of| {
        of.disk.as_mut().unwrap().slots[0].payload = Some(payload("never").into());
    }),
    ("two slots run", |of| {
        let disk = of.disk.as_mut().unwrap();
        disk.slots.insert(0, SlotContents { payload: Some(payload(NEW).into()), ..disk.slots[0].clone() });
    }),
    ("slots that are none", |of| {
        let disk = of.disk.as_mut().unwrap();
        disk.next = Some(i32::MAX);
        disk.slots.iter_mut().for_each(|slot| slot.state = Some(i32::MIN));
    }),
    ("an operation that is done and goes on", |of| {
        of.operation = Some(Operation { goal: 2, done: true, back: Some(worst()), ..Operation::default() });
    }),
    ("ends without an outcome", |of| {
        of.ended = ended(v1::Goal::Upgrade, true, None);
        of.ended.iter_mut().for_each(|ended| ended.outcome = None);
    }),
    ("denied, and runs it", |of| {
        of.disk.as_mut().unwrap().slots[0].payload = Some(payload(NEW).into());
        of.denied = vec![Denied { payload: payload(NEW).into(), why: worst() }];
    }),
    ("versions and positions", |of| {
        (of.version, of.uptime) = (worst(), u64::MAX);
        of.events = Some(Position { epoch: worst(), seq: u64::MAX });
        of.disk.as_mut().unwrap().slots.iter_mut().for_each(|slot| slot.version = Some(worst()));
    }),
    ("another name, and a certificate from before all times", |of| {
        of.node = worst();
        of.certificates = vec![Certificate { name: worst(), expires: i64::MIN, r#use: 99 }; 100];
    }),
];

/// What is written about this round is small, and is shown as it is.
fn is_small_and_clean(scene: &Scene, round: &Round, lie: &str) {
    let pool_round = round.pools["p"].as_ref().unwrap();
    let rollout = report::rollout(&scene.objects.rollouts[0], pool_round, now());
    let nodes = report::nodes(pool_round, &scene.readings, &Default::default());
    let mut texts = vec![rollout.message.clone(), report::pool(pool_round, None, now()).message];
    texts.extend(rollout.denied.iter().chain(&rollout.paused).cloned());
    texts.extend(nodes.values().map(|of| of.message.clone()));
    let ledger = scene.ledger.status.clone().unwrap_or_default();
    texts.extend(events(round, &ledger, now()).iter().map(|event| event.event(now()).message.unwrap()));
    for text in texts {
        assert!(text.len() <= 1000 && is_clean(&text), "{lie}: {} bytes: {text:.200?}", text.len());
    }
    let size = |of: serde_json::Result<Vec<u8>>| of.unwrap().len();
    let sizes =
        [size(serde_json::to_vec(&rollout)), size(serde_json::to_vec(&nodes)), size(serde_json::to_vec(&round.ledger))];
    assert!(sizes.iter().all(|size| *size < 8_000), "{lie}: {sizes:?}");
}

/// Rounds until nothing is granted any more. Honest nodes do what they are asked for; the liar lies on.
fn follow(scene: &mut Scene, liar: usize, lie: &Lie) -> Vec<NodeUpgradeStatus> {
    for _ in 0..12 {
        (lie.1)(scene.says(liar));
        let round = scene.round();
        is_small_and_clean(scene, &round, lie.0);
        keep(scene, &round);
        assert!(round.ledger.epoch <= 12, "{}: {}", lie.0, round.ledger.epoch);
        for grant in &round.ledger.grants {
            let n: usize = grant.node.uid.strip_prefix("uid-").unwrap().parse().unwrap();
            if n != liar {
                scene.says(n).token = grant.token;
                arrive(scene, n);
            }
        }
    }
    let round = scene.round();
    (0..4).map(|n| told(scene, &round, n)).collect()
}

#[test]
fn whatever_one_field_of_a_report_says_the_others_are_upgraded() {
    for lie in &LIES {
        let mut scene = Scene::new(4);
        scene.policy("two", json!({ "maxUnavailable": 2, "failureBudget": 2 }));
        scene.pool("p", json!({ "policies": ["two"], "rollback": {} }));
        scene.roll();
        // An hour ago: who has not staged by now is not waited for.
        let made = serde_json::from_value(json!(now() - 2.hours())).unwrap();
        scene.objects.rollouts[0].metadata.creation_timestamp = Some(made);
        (0..4).for_each(|n| scene.says(n).staged = Some(payload(NEW).into()));
        let told = follow(&mut scene, 3, lie);
        for of in &told[..3] {
            assert_eq!(of.reason, "Done", "{}: {of:?}", lie.0);
        }
        let status = scene.objects.rollouts[0].status.as_ref().unwrap();
        assert!(status.denied.is_none() && status.paused.is_none(), "{}: {status:?}", lie.0);
        assert_ne!(told[3].message, "", "{}", lie.0);
    }
}

#[test]
fn all_fields_at_once_are_no_worse() {
    let mut scene = staged(4);
    scene.policy("two", json!({ "maxUnavailable": 2, "failureBudget": 2 }));
    scene.pool("p", json!({ "policies": ["two"] }));
    fn all(of: &mut StatusResponse) {
        let name = of.node.clone();
        LIES.iter().filter(|(lie, _)| !lie.starts_with("no ")).for_each(|(_, lie)| lie(of));
        of.node = name;
    }
    let told = follow(&mut scene, 3, &("all at once", all));
    assert!(told[..3].iter().all(|of| of.reason == "Done"), "{told:?}");
}

/// What stops a rollout is written into its status, which is one object.
#[test]
fn a_payload_that_many_nodes_deny_in_many_words_is_denied_in_few() {
    let mut scene = staged(300);
    scene.policy("patient", json!({ "failureBudget": 100 }));
    scene.pool("p", json!({ "policies": ["patient"] }));
    for n in 0..200 {
        scene.says(n).denied = vec![Denied { payload: payload(NEW).into(), why: format!("n{n} {}", worst()) }];
    }
    let round = scene.round();
    let pool_round = round.pools["p"].as_ref().unwrap();
    let status = report::rollout(&scene.objects.rollouts[0], pool_round, now());
    let denied = status.denied.clone().unwrap();
    assert!(denied.starts_with("200 of 300 nodes failed, and 100 are enough; n"), "{denied}");
    assert!(is_clean(&denied) && status.paused.as_ref() == Some(&denied));
    let size = serde_json::to_vec(&status).unwrap().len();
    assert!(size < 10_000, "{size}");
    // It is the reason of each of them, and is not larger for more.
    keep(&mut scene, &round);
    let round = scene.round();
    assert!(round.pools["p"].as_ref().unwrap().decision.blocked.iter().all(|of| of.why.to_string().len() < 1 << 20));
    assert_eq!(told(&scene, &round, 250).reason, "PayloadDenied");
}

/// The clock of a controller was ahead, and is right again.
#[test]
fn times_to_come_stop_nothing_for_longer_than_times_of_now() {
    let ahead: Timestamp = "2042-01-01T00:00Z".parse().unwrap();
    let mut scene = Scene::new(3);
    let policy = json!({ "steps": [{ "nodes": 1, "soak": "24h" }], "rate": { "count": 1, "per": "1h" } });
    scene.policy("x", policy);
    scene.pool("p", json!({ "policies": ["x"] }));
    scene.roll();
    (0..3).for_each(|n| scene.says(n).staged = Some(payload(NEW).into()));
    let n = first_of_the_plan(&scene);
    arrive(&mut scene, n);
    let round = scene.round();
    keep(&mut scene, &round);
    // A soak.
    scene.objects.rollouts[0].status.as_mut().unwrap().soaking_since = Some(ahead);
    let round = scene.round();
    keep(&mut scene, &round);
    assert_eq!(scene.objects.rollouts[0].status.as_ref().unwrap().soaking_since, Some(now()));
    // A rate: the grant counts from now.
    let given = vec![Given { pool: "p".to_owned(), at: ahead }];
    scene.ledger.status = Some(Ledger { given, ..Ledger::default() });
    let round = scene.round();
    assert_eq!(round.ledger.given, [Given { pool: "p".to_owned(), at: now() }]);
    // An attempt that is repeated: in an hour, where there are no windows.
    let mut scene = staged(2);
    scene.came_back(0, "evict the pods: pod default/db-0 is protected by the PodDisruptionBudget db");
    for from in [ahead, Timestamp::MAX] {
        let status = scene.objects.rollouts[0].status.get_or_insert_default();
        status.retry = Some(Retry { below: 0, from });
        let round = scene.round();
        keep(&mut scene, &round);
        assert_eq!(
            scene.objects.rollouts[0].status.as_ref().unwrap().retry,
            Some(Retry { below: 0, from: now() + 1.hours() })
        );
    }
    // A reboot.
    let mut scene = staged(1);
    let round = scene.round();
    keep(&mut scene, &round);
    scene.silence(0);
    let spec = json!({ "nodeUID": "uid-0", "pool": "p" });
    let upgrade = json!({ "metadata": { "name": "n0" }, "spec": spec, "status": { "silentSince": ahead } });
    scene.objects.upgrades.insert("n0".to_owned(), Readable::Yes(serde_json::from_value(upgrade).unwrap()));
    let told = told(&scene, &scene.round(), 0);
    assert_eq!((told.reason.as_str(), told.silent_since), ("Rebooting", Some(now())));
}

#[test]
fn a_lost_ledger_gives_nothing_beside_nodes_that_are_at_it() {
    for is_silent in [false, true] {
        let mut scene = staged(4);
        scene.policy("two", json!({ "maxUnavailable": 2 }));
        scene.pool("p", json!({ "policies": ["two"] }));
        let round = scene.round();
        let held: Vec<(usize, u64)> =
            round.ledger.grants.iter().map(|of| (of.node.uid[4..].parse().unwrap(), of.token)).collect();
        assert_eq!(held.len(), 2);
        keep(&mut scene, &round);
        for (n, token) in held {
            scene.says(n).token = token;
            scene.says(n).operation = Some(Operation { goal: v1::Goal::Upgrade.into(), ..Operation::default() });
            if is_silent {
                scene.silence(n);
            }
        }
        scene.ledger.status = None;
        let round = scene.round();
        assert!(round.ledger.grants.is_empty(), "{:?}", round.ledger);
    }
}

/// A kubelet may change most labels of its Node, also while that holds a grant.
#[test]
fn a_node_that_moves_with_its_grant_counts_in_both_pools() {
    for is_well in [true, false] {
        let mut scene = staged(4);
        [2, 3].into_iter().for_each(|n| scene.label(n, "pool", "q"));
        scene.objects.rollouts.clear();
        scene.pool(
            "q",
            json!({ "nodeSelector": { "pool": "q" }, "paused": { "who": "eve", "why": "first the other" } }),
        );
        scene.roll();
        let round = scene.round();
        keep(&mut scene, &round);
        let grant = round.ledger.grants[0].clone();
        let n: usize = grant.node.uid[4..].parse().unwrap();
        assert!(n < 2, "{grant:?}");
        scene.label(n, "pool", "q");
        if !is_well {
            scene.says(n).health.as_mut().unwrap().set_state(HealthState::Ill);
        }
        scene.pool("q", json!({ "nodeSelector": { "pool": "q" } }));
        let round = scene.round();
        assert_eq!(round.ledger.grants, [grant], "one at a time, in each of the two");
        // It is at it: nobody is told that it is gone, nor to free its grant.
        let pool_round = round.pools["p"].as_ref().unwrap();
        let blocked = pool_round.blocked()[format!("uid-{n}").as_str()];
        assert_eq!(blocked.why.reason(), "MovedWithGrant");
        let sentence = report::sentence(pool_round, blocked);
        assert!(sentence.contains("not in this pool any more") && !sentence.contains("unblock"), "{sentence}");
    }
}

/// Its grant is for the payload and in the order of the pool that gave it: the other one has neither room nor a turn for it.
#[test]
fn a_node_that_moves_before_it_begins_does_not_begin_in_the_other_pool() {
    let mut scene = staged(4);
    [2, 3].into_iter().for_each(|n| scene.label(n, "pool", "q"));
    scene.objects.rollouts.clear();
    scene.pool("q", json!({ "nodeSelector": { "pool": "q" } }));
    scene.roll();
    let round = scene.round();
    scene.ledger.status = Some(round.ledger.clone());
    let of = |pool: &str| {
        let grant = round.ledger.grants.iter().find(|grant| grant.node.pool == pool).unwrap();
        (grant.node.uid[4..].parse::<usize>().unwrap(), grant.token)
    };
    let ((moves, _), (stays, token)) = (of("p"), of("q"));
    // The one place of the pool is in use.
    scene.says(stays).token = token;
    scene.says(stays).operation = Some(Operation { goal: v1::Goal::Upgrade.into(), ..Operation::default() });
    scene.label(moves, "pool", "q");
    let round = scene.round();
    let (pool_round, uid) = (round.pools["q"].as_ref().unwrap(), format!("uid-{moves}"));
    let begins = |step: &Action| matches!(step, Action::Begin { uid: of, .. } if *of == uid);
    assert!(!pool_round.decision.steps.iter().any(begins), "{:?}", pool_round.decision.steps);
    let blocked = pool_round.blocked()[uid.as_str()];
    assert_eq!(blocked.why.reason(), "ForeignGrant");
    let sentence = report::sentence(pool_round, blocked);
    assert!(sentence.ends_with(&format!(": slipwayctl fleet unblock n{moves} --reason WHY")), "{sentence}");
}

/// Fewer than half of the nodes have obeyed tokens that are lost: they wait, and are told so, until others have got as many.
#[test]
fn a_minority_with_lost_tokens_goes_as_soon_as_the_epoch_has_passed_them() {
    let mut scene = staged(5);
    (scene.says(3).token, scene.says(4).token) = (2, 3);
    let mut went = Vec::new();
    for _ in 0..5 {
        let round = scene.round();
        keep(&mut scene, &round);
        let [grant] = &round.ledger.grants[..] else { panic!("{:?}", round.ledger) };
        let n: usize = grant.node.uid[4..].parse().unwrap();
        assert!(grant.token > scene.says(n).token, "{grant:?}");
        scene.says(n).token = grant.token;
        arrive(&mut scene, n);
        went.push(n);
    }
    went.sort_unstable();
    assert_eq!(went, [0, 1, 2, 3, 4]);
}

#[test]
fn a_release_may_name_any_number() {
    let mut scene = staged(2);
    let all = [0, 1, 1, 2, HIGHEST, u64::MAX - 1, u64::MAX];
    let all: Vec<_> = all.iter().map(|token| json!({ "token": token, "who": "a", "why": "b" })).collect();
    scene.ledger.spec.release = serde_json::from_value(json!(all)).unwrap();
    let round = scene.round();
    assert_eq!((round.ledger.grants[0].token, round.ledger.epoch, round.freed.len()), (3, 3, 0));
}

#[test]
fn a_stage_of_a_rollout_that_was_given_up_is_ended_and_no_other_one() {
    let mut scene = Scene::new(3);
    scene.roll();
    let rollout = scene.objects.rollouts[0].metadata.uid.clone().unwrap();
    let id = |n: u64, of: &str| slipway_fleet::names::operation(of, "uid-0", Goal::Stage, n).to_string();
    let stages = |id: String| Some(Operation { id, goal: v1::Goal::Stage.into(), ..Operation::default() });
    let asked = |scene: &Scene| -> Vec<(String, String)> {
        let round = scene.round();
        let asked = abandoned(round.pools["p"].as_ref().unwrap(), &scene.readings);
        asked
            .into_iter()
            .map(|(uid, ask)| {
                let Ask::Abort(id, why) = ask else { panic!("{ask:?}") };
                assert_eq!(why, "eve: the wrong image");
                (uid.to_owned(), id.to_string())
            })
            .collect()
    };
    scene.says(0).operation = stages(id(0, &rollout));
    // Another client's, and a node that stages nothing.
    scene.says(1).operation = stages("00000000-0000-4000-8000-000000000000".to_owned());
    assert_eq!(asked(&scene), []);
    scene.pool("p", json!({ "abort": { "rolloutUID": rollout, "who": "eve", "why": "the wrong image" } }));
    assert_eq!(asked(&scene), [("uid-0".to_owned(), id(0, &rollout))]);
    // Its second one, and one with the image that was corrected meanwhile.
    scene.says(0).ended = vec![Ended { id: id(0, &rollout), ..Ended::default() }];
    scene.says(0).operation = stages(id(1, &rollout));
    assert_eq!(asked(&scene), [("uid-0".to_owned(), id(1, &rollout))]);
    let image = "docker://registry.example/right:2";
    let target = json!({ "image": image, "payload": payload(NEW) });
    scene.pool(
        "p",
        json!({ "target": target, "abort": { "rolloutUID": rollout, "who": "eve", "why": "the wrong image" } }),
    );
    let corrected = id(0, &format!("{rollout} {image}"));
    scene.says(0).operation = stages(corrected.clone());
    assert_eq!(asked(&scene), [("uid-0".to_owned(), corrected)]);
    // An upgrade of the same rollout ends by its own rule, with its grant.
    scene.says(0).operation.as_mut().unwrap().goal = v1::Goal::Upgrade.into();
    assert_eq!(asked(&scene), []);
    let round = scene.round();
    let steps = &round.pools["p"].as_ref().unwrap().decision.steps;
    assert!(!steps.iter().any(|step| matches!(step, Action::Stage { .. })), "{steps:?}");
}

#[test]
fn a_disk_that_slipwayd_cannot_read_is_said_with_what_to_do() {
    let mut scene = staged(2);
    scene.says(1).disk = None;
    scene.says(1).health.as_mut().unwrap().state = HealthState::Unknown.into();
    let told = told(&scene, &scene.round(), 1);
    assert!(told.reason == "Silent" && told.message.contains("`disk` in its slipwayd.toml"), "{told:?}");
    let why = scene.round().pools["p"].as_ref().unwrap().unclear["uid-1"].clone();
    assert!(matches!(why, NoReport::Unclear(_)));
}

/// As long as a controller lives its pools say so, and not in each round.
#[test]
fn a_pool_says_when_a_controller_has_looked_at_it() {
    let mut scene = staged(1);
    let seen = |scene: &Scene, at: Timestamp| {
        report::pool(scene.round().pools["p"].as_ref().unwrap(), None, at).observed_at.unwrap()
    };
    assert_eq!(seen(&scene, now()), now());
    let pool = scene.objects.pools.get_mut("p").unwrap().as_mut().unwrap();
    pool.status.get_or_insert_default().observed_at = Some(now());
    assert_eq!(seen(&scene, now() + 59.seconds()), now());
    assert_eq!(seen(&scene, now() + 60.seconds()), now() + 60.seconds());
    // Another controller's clock was ahead.
    assert_eq!(seen(&scene, now() - 1.hours()), now() - 1.hours());
}
