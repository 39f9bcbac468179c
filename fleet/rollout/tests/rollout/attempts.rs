//! A node that is granted again and again, and comes back to the old payload each time.

use std::collections::BTreeMap;

use jiff::ToSpan as _;
use slipway_rollout::{
    attempts::{Attempts, History, MOST, REMEMBERED},
    decide::{Action, decide},
    facts::{Evidence, Facts, Failure, FailureEvidence, Retry},
    int_or_percent::IntOrPercent,
    ledger::{Ledger, Proof},
    places::Places,
    policy::Policy,
};

use crate::{
    decide::{arrive, canary, four, granted, hold, look, report, why},
    noon,
};

fn one_at_once(failures: u32) -> Policy {
    let one = Some(IntOrPercent::Nodes(1));
    Policy { max_unavailable: one, failure_budget: Some(IntOrPercent::Nodes(failures)), ..Policy::default() }
}

/// A controller's look and all that follows. `comes_back` has its own way with a grant: it says at once that it obeyed it, and
/// is as it was. All others come up with the payload. How many grants were given, by the node's place.
fn round(fleet: &mut Facts, comes_back: usize) -> Vec<usize> {
    let decision = look(fleet);
    fleet.attempts.clone_from(&decision.attempts);
    let mut given = Vec::new();
    for step in &decision.steps {
        match step {
            Action::Free { uid, proof } => fleet.ledger = fleet.ledger.free(uid, proof).unwrap(),
            Action::Grant { node, .. } => {
                let place = fleet.nodes.iter().position(|observed| observed.node == *node).unwrap();
                let (ledger, token) = fleet.ledger.grant(node, &decision.limits, noon()).unwrap();
                fleet.ledger = ledger;
                report(fleet, place).token = token;
                if place != comes_back {
                    arrive(fleet, place);
                }
                given.push(place);
            }
            _ => {}
        }
    }
    given
}

#[test]
fn who_always_comes_back_is_set_aside_and_the_others_go_on() {
    let mut fleet = four(one_at_once(2));
    let given: Vec<usize> = (0..20).flat_map(|_| round(&mut fleet, 0)).collect();
    assert_eq!(given, [0, 0, 0, 0, 0, 1, 2, 3]);
    assert_eq!(why(&fleet, 0), "it failed: 5 attempts ended without the payload; of the last one: it does not say why");
    let decision = look(&fleet);
    assert!(decision.finished && decision.blocked.len() == 1, "{decision:?}");
    // The record of that node alone is enough: another look changes nothing.
    assert_eq!(decision.attempts.nodes.keys().collect::<Vec<_>>(), [&fleet.nodes[0].node.uid]);
    assert_eq!(decision.attempts.tried.to_string(), "0-3");
    assert_eq!(decision.attempts, fleet.attempts);
    // Forgotten, it is tried anew: that is how a person has it tried again, by a new rollout.
    fleet.attempts = History::default();
    assert_eq!(granted(&fleet), [0]);
}

#[test]
fn it_counts_as_failed_and_denies_nothing() {
    let mut fleet = four(one_at_once(1));
    let given: Vec<usize> = (0..20).flat_map(|_| round(&mut fleet, 0)).collect();
    assert_eq!(given, [0; MOST as usize]);
    let steps = look(&fleet).steps;
    assert!(matches!(&steps[..], [Action::Pause { why }] if why.contains("1 of 4 nodes failed")), "{steps:?}");
    // As a canary, too.
    let mut fleet = four(canary());
    while !round(&mut fleet, 0).is_empty() {}
    let steps = look(&fleet).steps;
    assert!(matches!(&steps[..], [Action::Pause { why }] if why.starts_with("the canary ")), "{steps:?}");
    // Left out by a person it counts no more.
    fleet.skip.insert(fleet.nodes[0].node.uid.clone());
    assert_eq!((look(&fleet).steps.len(), why(&fleet, 0).as_str()), (0, "it is left out by a person's word"));
}

/// The node obeys a grant, and says how its attempt ended. The grant is freed.
fn attempt(fleet: &mut Facts, says: Option<FailureEvidence>) {
    let token = hold(fleet, 0);
    let why = "pod default/db-0 is protected by the PodDisruptionBudget db".to_owned();
    report(fleet, 0).token = token;
    report(fleet, 0).failed = says.map(|evidence| Failure { evidence, why });
    let decision = look(fleet);
    assert!(decision.steps.iter().any(|step| matches!(step, Action::Free { .. })), "{decision:?}");
    (fleet.attempts, fleet.retry) = (decision.attempts, decision.retry);
    fleet.ledger.grants.clear();
}

/// The next window.
fn opens(fleet: &mut Facts) {
    fleet.retry = Some(Retry { below: fleet.ledger.highest() + 1, from: noon() + 1.hours() });
}

#[test]
fn what_ends_before_the_reboot_is_repeated_window_after_window_and_the_pod_is_named() {
    let mut fleet = four(one_at_once(2));
    for n in 1..=3 * MOST {
        opens(&mut fleet);
        assert_eq!(granted(&fleet), [0], "attempt {n}");
        attempt(&mut fleet, Some(FailureEvidence::BeforeReboot));
        assert!(why(&fleet, 0).ends_with("pod default/db-0 is protected by the PodDisruptionBudget db"), "attempt {n}");
        // Others go on.
        assert_eq!(granted(&fleet), [1], "attempt {n}");
    }
    // The pod is gone: it goes, and is done.
    opens(&mut fleet);
    assert_eq!(granted(&fleet), [0]);
    report(&mut fleet, 0).failed = None;
    arrive(&mut fleet, 0);
    assert_eq!((why(&fleet, 0).as_str(), look(&fleet).attempts), ("", History::default()));
}

#[test]
fn who_does_not_say_it_any_more_waits_for_the_next_window_all_the_same() {
    let mut fleet = four(one_at_once(2));
    attempt(&mut fleet, Some(FailureEvidence::BeforeReboot));
    report(&mut fleet, 0).failed = None;
    assert_eq!(granted(&fleet), [1]);
    assert!(why(&fleet, 0).starts_with("its last attempt ended before the payload ran"), "{}", why(&fleet, 0));
    opens(&mut fleet);
    assert_eq!(granted(&fleet), [0]);
}

#[test]
fn only_attempts_that_do_not_end_before_the_reboot_count() {
    let mut fleet = four(one_at_once(2));
    for n in 1..=MOST {
        for says in [Some(FailureEvidence::BeforeReboot), None] {
            opens(&mut fleet);
            assert_eq!(granted(&fleet), [0], "{n}: {says:?}");
            attempt(&mut fleet, says);
        }
    }
    opens(&mut fleet);
    assert_eq!(granted(&fleet), [1]);
    assert!(why(&fleet, 0).starts_with("it failed: 5 attempts ended"), "{}", why(&fleet, 0));
    // What it says when that attempt is over, of an older attempt, or while it is at work, is not of the last one.
    let early = || Some(Failure { evidence: FailureEvidence::BeforeReboot, why: "an older one".to_owned() });
    report(&mut fleet, 0).failed = early();
    assert!(why(&fleet, 0).starts_with("it failed: 5 attempts ended"), "{}", why(&fleet, 0));
    let mut fleet = four(one_at_once(2));
    let token = hold(&mut fleet, 0);
    let is_deferred = |fleet: &Facts| look(fleet).attempts.nodes.values().any(|of| of.deferred);
    (report(&mut fleet, 0).failed, report(&mut fleet, 0).token) = (early(), token - 1);
    assert!(!is_deferred(&fleet));
    (report(&mut fleet, 0).busy, report(&mut fleet, 0).token) = (true, token);
    assert!(!is_deferred(&fleet));
    report(&mut fleet, 0).busy = false;
    assert!(is_deferred(&fleet));
    // Nor is what it says while its grant is held on: it could say so once, and end otherwise.
    report(&mut fleet, 0).well = false;
    assert!(!is_deferred(&fleet));
}

#[test]
fn a_grant_that_a_person_freed_is_no_attempt() {
    let mut fleet = four(one_at_once(2));
    for n in 1..=2 * MOST {
        opens(&mut fleet);
        assert_eq!(granted(&fleet), [0], "{n}");
        hold(&mut fleet, 0);
        let proof = Proof::Word { who: "eve".to_owned(), why: "it never began".to_owned() };
        fleet.evidence = vec![Evidence { uid: fleet.nodes[0].node.uid.clone(), proof }];
        fleet.attempts = look(&fleet).attempts;
        fleet.evidence.clear();
        fleet.ledger.grants.clear();
        fleet.retry = look(&fleet).retry;
        assert_eq!(granted(&fleet), [1], "{n}: in the next window");
    }
}

#[test]
fn who_says_that_it_is_done_and_is_not_does_not_begin_at_one_again() {
    let mut fleet = four(one_at_once(2));
    let mut given = 0;
    while granted(&fleet) == [0] {
        given += 1;
        let token = hold(&mut fleet, 0);
        arrive(&mut fleet, 0);
        report(&mut fleet, 0).token = token;
        fleet.attempts = look(&fleet).attempts;
        fleet.ledger.grants.clear();
        fleet.attempts = look(&fleet).attempts;
        report(&mut fleet, 0).runs = crate::OLD;
    }
    assert_eq!(given, MOST);
    assert!(why(&fleet, 0).starts_with("it failed: 5 attempts ended"), "{}", why(&fleet, 0));
}

#[test]
fn what_it_says_of_the_payload_itself_counts_for_more() {
    let mut fleet = four(one_at_once(2));
    for _ in 0..MOST {
        attempt(&mut fleet, None);
    }
    let ran = Failure { evidence: FailureEvidence::AfterReboot, why: "a unit failed".to_owned() };
    report(&mut fleet, 0).failed = Some(ran);
    assert_eq!(why(&fleet, 0), "it failed: a unit failed");
    // And if it comes up after all, it is done.
    report(&mut fleet, 0).failed = None;
    arrive(&mut fleet, 0);
    assert_eq!(why(&fleet, 0), "");
}

#[test]
fn a_lie_keeps_no_payload_from_being_denied() {
    let mut fleet = four(one_at_once(2));
    fleet.attempts.nodes.insert(fleet.nodes[0].node.uid.clone(), Attempts { count: MOST, token: 9, deferred: false });
    let ran = || Some(Failure { evidence: FailureEvidence::AfterReboot, why: "a unit failed".to_owned() });
    report(&mut fleet, 1).failed = ran();
    assert!(matches!(&look(&fleet).steps[..], [Action::Pause { .. }]), "one that is known, and one that is not");
    report(&mut fleet, 2).failed = ran();
    assert!(matches!(&look(&fleet).steps[..], [Action::Deny { .. }, Action::Pause { .. }]), "two that are known");
}

#[test]
fn a_grant_counts_once_however_often_it_is_seen() {
    let mut fleet = four(one_at_once(2));
    let token = hold(&mut fleet, 0);
    let uid = fleet.nodes[0].node.uid.clone();
    let of = |count| Attempts { count, token, deferred: false };
    let once = History::new(BTreeMap::from([(uid.clone(), of(1))]), Places::default());
    for _ in 0..3 {
        fleet.attempts = decide(&fleet, noon()).attempts;
        assert_eq!(fleet.attempts, once);
    }
    // Of another pool, or to go back from a denied payload: no attempt.
    let mut other = History::default();
    fleet.ledger.grants[0].node.pool = "other".to_owned();
    other.count(&fleet.plan, &fleet.ledger);
    assert_eq!(other, History::default());
    fleet.ledger.grants[0].node.pool = fleet.plan.pool.clone();
    (fleet.denied, fleet.attempts) = (Some("bad".to_owned()), History::default());
    assert_eq!(look(&fleet).attempts, History::default());
    // Of a node that is done at its first attempt, as most are, the place stays; of one that was tried twice, the number.
    (fleet.denied, fleet.attempts) = (None, once);
    (report(&mut fleet, 0).token, report(&mut fleet, 0).runs) = (token, crate::NEW);
    for _ in 0..3 {
        // As long as its grant is in the ledger that was read: to free it may fail.
        fleet.attempts = look(&fleet).attempts;
        assert_eq!((fleet.attempts.nodes.len(), fleet.attempts.tried.is_empty()), (1, true));
    }
    fleet.ledger.grants.clear();
    let done = look(&fleet).attempts;
    assert_eq!((done.nodes.len(), done.tried.to_string().as_str()), (0, "0"));
    fleet.attempts = History::new(BTreeMap::from([(uid, of(2))]), Places::default());
    assert_eq!(look(&fleet).attempts.nodes, fleet.attempts.nodes);
}

/// Only the ledger counts. People may delete it, or take a grant out of it, before a controller has seen that grant.
#[test]
fn a_grant_that_nobody_has_seen_in_the_ledger_is_no_attempt() {
    let mut fleet = four(one_at_once(2));
    let uid = fleet.nodes[0].node.uid.clone();
    let count = |fleet: &Facts| look(fleet).attempts.nodes.get(&uid).map(|of| (of.count, of.token));
    for token in 1..=2 {
        assert_eq!(hold(&mut fleet, 0), token);
        fleet.attempts = look(&fleet).attempts;
        fleet.ledger.grants.clear();
    }
    assert_eq!(count(&fleet), Some((2, 2)));
    // The third one is lost with the ledger, and the node has never obeyed it.
    assert_eq!(hold(&mut fleet, 0), 3);
    fleet.ledger = Ledger { epoch: 2, ..Ledger::default() };
    assert_eq!(count(&fleet), Some((2, 2)));
    // Its token is given again, and counts once.
    assert_eq!(hold(&mut fleet, 0), 3);
    for _ in 0..2 {
        assert_eq!(count(&fleet), Some((3, 3)));
        fleet.attempts = look(&fleet).attempts;
    }
}

#[test]
fn what_is_remembered_has_a_limit_and_those_at_it_and_the_most_tried_stay() {
    let plan = four(one_at_once(2)).plan;
    let of = |n: u64| {
        let count = if n.is_multiple_of(2) { 2 } else { 1 };
        (format!("u{n:04}"), Attempts { count, token: n + 1, deferred: false })
    };
    let mut history = History::new((0..1400).map(of).collect(), Places::default());
    let mut fleet = four(one_at_once(2));
    hold(&mut fleet, 0);
    fleet.ledger.grants[0].node.uid = "u0001".to_owned();
    history.count(&fleet.plan, &fleet.ledger);
    history.remember(&plan, |_| false);
    let twice = history.nodes.values().filter(|of| of.count == 2).count();
    assert_eq!((history.nodes.len(), twice, history.nodes.contains_key("u0001")), (REMEMBERED, 700, true));
}

#[test]
fn places_are_written_as_ranges_and_read_back() {
    for text in ["", "0", "0-41,43", "1,3,5-7,99999"] {
        assert_eq!(text.parse::<Places>().unwrap().to_string(), text);
    }
    // As a person may write it.
    assert_eq!("5,3-4,4".parse::<Places>().unwrap().to_string(), "3-5");
    for wrong in ["a", "1-", "-1", "1-2-3", "100000", "99999999999", "0-99999,5"] {
        assert!(wrong.parse::<Places>().is_err(), "{wrong}");
    }
    // A plan of the largest size, every second node of it: as the schema allows.
    let mut worst = Places::default();
    (0..7500).step_by(2).for_each(|place| worst.insert(place));
    assert!(worst.to_string().len() <= 65_536);
}
