//! The way back from a payload that is denied.

use jiff::ToSpan;
use proptest::{collection::vec, prelude::*};
use slipway_rollout::{
    attempts::{Attempts, History},
    decide::{Action, decide},
    facts::{Facts, Failure, FailureEvidence, Retry, RollbackPolicy, RollbackState, WindowOverride},
    ledger::Proof,
    places::Places,
    plan::Order,
    policy::Policy,
};

use crate::{
    OLD, control_plane,
    decide::{arrive, four, granted, hold, look, outside, report, rollout, two_at_once, why},
    failed, noon, worker,
    world::{Fate, World, fate, fleet, hours, policies},
};

/// The first two of four run it, and it was denied; nodes go back.
fn denied(policy: Policy) -> Facts {
    let mut fleet = four(policy);
    let why = "2 of 4 nodes failed".to_owned();
    (fleet.denied, fleet.stopped) = (Some(why.clone()), Some(why));
    fleet.rollback = Some(RollbackPolicy { control_plane: false, any_etcd: false });
    for n in [0, 1] {
        arrive(&mut fleet, n);
        report(&mut fleet, n).rollback = RollbackState::Available;
    }
    fleet
}

#[test]
fn nodes_go_back_under_the_same_budget_where_people_want_it() {
    assert_eq!(granted(&denied(Policy::default())), [0]);
    let mut fleet = denied(two_at_once());
    assert_eq!(granted(&fleet), [0, 1]);
    assert_eq!(why(&fleet, 2), "the payload is denied: 2 of 4 nodes failed");
    // One more is ill: it counts.
    report(&mut fleet, 3).well = false;
    assert_eq!(granted(&fleet), [0]);
    // One that is ill with the payload goes back all the same: that takes nothing away.
    report(&mut fleet, 0).well = false;
    assert_eq!(granted(&fleet), [0]);
    report(&mut fleet, 0).well = true;
    report(&mut fleet, 3).well = true;
    fleet.rollback = None;
    assert_eq!((look(&fleet).steps, why(&fleet, 0)), (vec![], String::new()));
}

/// A member of etcd that would not run is not asked to go back, keeps no grant busy, and is said to wait: etcd may be
/// downgraded meanwhile.
#[test]
fn no_member_of_etcd_is_stranded() {
    let mut fleet = denied(two_at_once());
    let told = "etcd 3.6 in slot A cannot read the data";
    report(&mut fleet, 0).rollback = RollbackState::Stranding(told.to_owned());
    assert_eq!(granted(&fleet), [1]);
    assert_eq!(why(&fleet, 0), format!("it does not go back: {told}; or set spec.allowAnyEtcd"));
    assert!(!look(&fleet).finished, "it may go later");
    // It has a grant already: it is not asked either.
    let mut holding = fleet.clone();
    hold(&mut holding, 0);
    assert!(look(&holding).steps.iter().all(|step| !matches!(step, Action::Return { .. })));
    // A person says so, or etcd was downgraded.
    fleet.rollback = Some(RollbackPolicy { control_plane: false, any_etcd: true });
    assert_eq!(granted(&fleet), [0, 1]);
    fleet.rollback = Some(RollbackPolicy { control_plane: false, any_etcd: false });
    report(&mut fleet, 0).rollback = RollbackState::Available;
    assert_eq!(granted(&fleet), [0, 1]);
}

/// The system of the other slot may have a kubelet that the API server has left behind.
#[test]
fn the_way_back_is_held_to_the_version_skew() {
    let mut fleet = denied(two_at_once());
    fleet.api_server = Some("v1.35.0".to_owned());
    for (n, kubelet) in [(0, "1.31.2"), (1, "1.32.0")] {
        report(&mut fleet, n).other_kubelet = Some(kubelet.to_owned());
    }
    assert_eq!(granted(&fleet), [1]);
    assert!(
        why(&fleet, 0).starts_with("its kubelet 1.31 would be more than 3 minor versions older"),
        "{}",
        why(&fleet, 0)
    );
    hold(&mut fleet, 0);
    assert!(look(&fleet).steps.iter().all(|step| !matches!(step, Action::Return { .. })));
}

#[test]
fn nobody_goes_back_before_the_denial_is_written() {
    let mut fleet = denied(two_at_once());
    (fleet.denied, fleet.stopped) = (None, None);
    report(&mut fleet, 3).failed = failed("no boot");
    assert!(matches!(&look(&fleet).steps[..], [Action::Deny { .. }, Action::Pause { .. }]));
    // Nor after people have given it up, nor by a plan that was edited.
    let mut fleet = denied(two_at_once());
    fleet.aborted = Some("eve: enough".to_owned());
    assert_eq!(look(&fleet).steps, []);
    let mut fleet = denied(two_at_once());
    fleet.plan.waves[0].nodes.swap(0, 3);
    assert_eq!(look(&fleet).steps, []);
}

#[test]
fn a_node_with_a_grant_is_asked_to_go_back_and_freed_when_it_has() {
    let mut fleet = denied(two_at_once());
    let token = hold(&mut fleet, 0);
    let uid = fleet.nodes[0].node.uid.clone();
    let asked = Action::Return { uid: uid.clone(), token };
    assert!(look(&fleet).steps.contains(&asked));
    assert_eq!((why(&fleet, 0), granted(&fleet)), ("it has the grant 1, and is asked to go back".to_owned(), vec![1]));
    (report(&mut fleet, 0).token, report(&mut fleet, 0).busy) = (token, true);
    assert!(!look(&fleet).steps.contains(&asked));
    let rollback = report(&mut fleet, 0);
    (rollback.runs, rollback.busy, rollback.rollback) = (OLD, false, RollbackState::Available);
    rollback.failed = failed("it went back");
    assert_eq!(look(&fleet).steps[0], Action::Free { uid, proof: Proof::Well { token } });
    assert_eq!((why(&fleet, 0), granted(&fleet)), ("it failed: it went back".to_owned(), vec![1]));
    // It was granted before the denial, and runs the old system: it begins nothing.
    let mut fleet = denied(two_at_once());
    hold(&mut fleet, 2);
    assert_eq!(why(&fleet, 2), "the payload is denied: 2 of 4 nodes failed");
    assert!(!look(&fleet).steps.iter().any(|step| matches!(step, Action::Begin { .. } | Action::Return { .. })));
}

/// It says at once that it has obeyed and is well, which frees its grant, and it runs the payload all the same.
#[test]
fn who_obeys_and_stays_as_it_is_does_not_keep_others_from_going_back() {
    let mut fleet = denied(Policy::default());
    let token = hold(&mut fleet, 0);
    report(&mut fleet, 0).token = token;
    let uid = fleet.nodes[0].node.uid.clone();
    assert_eq!(look(&fleet).steps[0], Action::Free { uid, proof: Proof::Well { token } });
    assert_eq!(granted(&fleet), [1]);
    report(&mut fleet, 1).runs = OLD;
    assert_eq!(granted(&fleet), [0], "it has its turn again");
}

/// A person has freed its grant. Where it does not go back at all, the next window is no promise.
#[test]
fn who_returns_later_is_told_so_only_if_it_does() {
    let mut fleet = denied(two_at_once());
    let of = Attempts { count: 0, token: 1, deferred: true };
    fleet.attempts = History::new([(fleet.nodes[0].node.uid.clone(), of)].into(), Places::default());
    fleet.ledger.epoch = 1;
    assert_eq!(granted(&fleet), [1]);
    assert!(why(&fleet, 0).starts_with("a person has freed the grant"), "{}", why(&fleet, 0));
    let mut skipped = fleet.clone();
    skipped.skip.insert(fleet.nodes[0].node.uid.clone());
    assert_eq!(why(&skipped, 0), "it is left out by a person's word");
    let mut busy = fleet.clone();
    report(&mut busy, 0).busy = true;
    assert_eq!(why(&busy, 0), "another client's operation is under way on it");
    let mut paused = fleet.clone();
    paused.paused = Some("eve: lunch".to_owned());
    assert_eq!(why(&paused, 0), "the rollout is paused: eve: lunch");
    // It has obeyed that grant, and says itself what came of it.
    report(&mut fleet, 0).token = 1;
    assert_eq!(granted(&fleet), [1, 0]);
}

/// A PodDisruptionBudget keeps a pod until the time for the drain is over: it is repeated as on the way forward, and others have
/// their turn meanwhile.
#[test]
fn who_ended_before_the_reboot_goes_back_in_the_next_window() {
    let mut fleet = denied(Policy::default());
    let uid = fleet.nodes[0].node.uid.clone();
    let mut token = hold(&mut fleet, 0);
    for _ in 0..7 {
        let kept = Failure { evidence: FailureEvidence::BeforeReboot, why: "default/db-0".to_owned() };
        (report(&mut fleet, 0).token, report(&mut fleet, 0).failed) = (token, Some(kept));
        let decision = look(&fleet);
        assert_eq!(decision.steps[0], Action::Free { uid: uid.clone(), proof: Proof::Well { token } });
        assert!(decision.attempts.nodes[&uid].deferred && !decision.finished);
        assert_eq!(granted(&fleet), [1], "others go first");
        fleet.ledger = fleet.ledger.free(&uid, &Proof::Well { token }).unwrap();
        (fleet.attempts, fleet.retry) = (decision.attempts, decision.retry);
        assert_eq!(granted(&fleet), [1], "it is remembered");
        let told = "its last attempt to go back ended before its reboot, and is repeated from 2026-06-01T13:00:00Z on: \
                    default/db-0";
        assert_eq!(why(&fleet, 0), told);
        // The other one cannot: then nobody goes before that time.
        let mut alone = fleet.clone();
        report(&mut alone, 1).rollback = RollbackState::Unavailable;
        assert_eq!(granted(&alone), Vec::<usize>::new());
        // The time has come.
        alone.retry = fleet.retry.map(|retry| Retry { from: noon(), ..retry });
        assert_eq!(granted(&alone), [0]);
        fleet.retry = look(&alone).retry;
        token = hold(&mut fleet, 0);
        let again = Action::Return { uid: uid.clone(), token };
        assert!(look(&fleet).steps.contains(&again), "{:?}", look(&fleet).steps);
    }
    // It goes back at last.
    (report(&mut fleet, 0).token, report(&mut fleet, 0).runs, report(&mut fleet, 0).failed) = (token, OLD, None);
    assert_eq!(look(&fleet).steps[0], Action::Free { uid, proof: Proof::Well { token } });
}

#[test]
fn who_does_not_go_back_says_why() {
    let nodes = [worker("a-1"), worker("a-2"), control_plane("b-1")];
    let mut fleet = rollout(&nodes, two_at_once());
    (fleet.denied, fleet.rollback) =
        (Some("bad".to_owned()), Some(RollbackPolicy { control_plane: false, any_etcd: false }));
    for n in 0..3 {
        arrive(&mut fleet, n);
        report(&mut fleet, n).rollback = RollbackState::Available;
    }
    report(&mut fleet, 0).rollback = RollbackState::Failed("no boot".to_owned());
    report(&mut fleet, 1).rollback = RollbackState::Unavailable;
    assert_eq!(granted(&fleet), Vec::<usize>::new());
    let mut denied = fleet.clone();
    report(&mut denied, 0).rollback = RollbackState::Denied("it eats files".to_owned());
    let other =
        "it keeps the payload that is denied: its other slot holds a payload that was denied, too: it eats files";
    assert_eq!((granted(&denied), why(&denied, 0)), (vec![], other.to_owned()));
    let stays = [
        "it was asked to go back, and did not: no boot",
        "its other slot holds no system that was ever confirmed",
        "it is of the control plane, and its rollback was not asked for",
    ];
    for (n, stays) in stays.into_iter().enumerate() {
        assert_eq!(why(&fleet, n), format!("it keeps the payload that is denied: {stays}"));
    }
    fleet.rollback = Some(RollbackPolicy { control_plane: true, any_etcd: false });
    assert_eq!(granted(&fleet), [2]);
    fleet.skip.insert(fleet.nodes[2].node.uid.clone());
    assert_eq!(why(&fleet, 2), "it is left out by a person's word");
}

#[test]
fn windows_and_people_hold_the_way_back_too() {
    let mut fleet = denied(outside());
    assert!(why(&fleet, 0).starts_with("no window of policy \"late\" is open"));
    let token = hold(&mut fleet, 1);
    assert_eq!(look(&fleet).steps, []);
    let later = decide(&fleet, noon() + 1.minutes());
    let uid = fleet.nodes[1].node.uid.clone();
    assert!(later.steps.contains(&Action::Return { uid, token }));
    fleet.window_override = Some(WindowOverride { until: noon() + 1.hours(), soak: None });
    assert_eq!(granted(&fleet), [0]);
    // The controllers had paused it for another reason before.
    fleet.stopped = Some("the canary a-9 failed: it ran the payload, and does so no more".to_owned());
    assert_eq!(granted(&fleet), [0]);
    fleet.paused = Some("eve: lunch".to_owned());
    assert_eq!((look(&fleet).steps, why(&fleet, 0)), (vec![], "the rollout is paused: eve: lunch".to_owned()));
}

#[test]
fn what_people_do_to_nodes_of_a_finished_rollout_denies_nothing() {
    let mut fleet = four(two_at_once());
    fleet.rollback = Some(RollbackPolicy { control_plane: true, any_etcd: false });
    for n in 0..4 {
        arrive(&mut fleet, n);
        report(&mut fleet, n).rollback = RollbackState::Available;
    }
    assert!(look(&fleet).finished);
    (report(&mut fleet, 0).runs, report(&mut fleet, 0).failed) = (OLD, failed("a person had it go back"));
    assert!(matches!(look(&fleet).steps[0], Action::Deny { .. }));
    fleet.finished = true;
    let decision = look(&fleet);
    assert_eq!((decision.steps, decision.finished), (vec![], true));
    // One that was left out goes along again. Too many failures hold it back, and say so.
    report(&mut fleet, 1).runs = OLD;
    assert_eq!(look(&fleet).steps, []);
    let held = "the rollout is paused: it was finished, and by now 1 of 4 nodes failed, and 1 are enough";
    assert!(why(&fleet, 1).starts_with(held), "{}", why(&fleet, 1));
    fleet.skip.insert(fleet.nodes[0].node.uid.clone());
    assert_eq!(granted(&fleet), [1]);
    // A payload that was denied before stays denied, and nodes go back.
    fleet.skip.clear();
    fleet.denied = Some("bad".to_owned());
    assert_eq!(granted(&fleet), [2, 3]);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn on_the_way_back_no_law_is_broken(
        fleet in fleet(), fates in vec((fate(), 1_u8..5), 8), policies in policies(), hours in hours(), control_plane in any::<bool>()
    ) {
        let nodes: Vec<_> = fleet.into_iter().zip(fates).map(|(node, (fate, takes))| (node, fate, takes)).collect();
        let mut world = World::new(&nodes, policies, hours, Order::default(), 9);
        world.facts.rollback = Some(RollbackPolicy { control_plane, any_etcd: false });
        world.run(500);
    }

    /// Whatever people do to its nodes later: nothing is denied, and no other node goes back.
    #[test]
    fn what_was_finished_is_denied_no_more(
        fleet in fleet(), fates in vec((fate(), 1_u8..5), 8), policies in policies(), leaves in vec(any::<bool>(), 8)
    ) {
        let nodes: Vec<_> = fleet.into_iter().zip(fates).map(|(node, (fate, takes))| (node, fate, takes)).collect();
        let mut world = World::new(&nodes, policies, None, Order::default(), 9);
        world.facts.rollback = Some(RollbackPolicy { control_plane: true, any_etcd: false });
        world.run(500);
        if world.facts.finished {
            let tokens = world.facts.ledger.epoch;
            world.leave(&leaves);
            for looks in 0..20 {
                world.run(501 + looks);
            }
            prop_assert_eq!((&world.facts.denied, world.facts.ledger.epoch), (&None, tokens));
        }
    }

    /// No node that can go back is left behind.
    #[test]
    fn all_who_can_go_back_do(
        fleet in fleet(), kinds in vec((0_u8..4, 1_u8..5), 8), policies in policies(), control_plane in any::<bool>()
    ) {
        let fate = |kind| match kind {
            0 => Fate::ComesBack,
            1 => Fate::Deaf(3),
            _ => Fate::Reaches,
        };
        let nodes: Vec<_> =
            fleet.into_iter().zip(kinds).map(|(node, (kind, takes))| (node, fate(kind), takes)).collect();
        let mut world = World::new(&nodes, policies, None, Order::default(), 9);
        world.facts.rollback = Some(RollbackPolicy { control_plane, any_etcd: false });
        world.run(1000);
        if world.facts.denied.is_some() {
            // A request that no node has answered may still be on its way. Its grant stays until a person frees it.
            let held: Vec<_> = world.facts.ledger.grants.iter().map(|grant| grant.node.uid.clone()).collect();
            let word = Proof::Word { who: "eve".to_owned(), why: "it never began".to_owned() };
            for uid in held {
                world.facts.ledger = world.facts.ledger.free(&uid, &word).unwrap();
            }
            world.run(2000);
            prop_assert!(!world.is_left_behind(), "{:?}", world.facts);
        }
    }
}
