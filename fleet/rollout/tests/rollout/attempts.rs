//! A node that is granted again and again, and comes back to the old payload each time.

use std::collections::BTreeMap;

use jiff::ToSpan as _;
use slipway_rollout::{
    attempts::{Attempts, MOST, REMEMBERED, counted, remembered},
    decide::{Action, decide},
    facts::{Facts, Failure, FailureEvidence, Retry},
    int_or_percent::IntOrPercent,
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
    assert_eq!(decision.attempts.keys().collect::<Vec<_>>(), [&fleet.nodes[0].node.uid]);
    assert_eq!(decision.attempts, fleet.attempts);
    // Forgotten, it is tried anew: that is how a person has it tried again, by a new rollout.
    fleet.attempts.clear();
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

#[test]
fn what_it_says_of_each_attempt_makes_no_difference() {
    let mut fleet = four(one_at_once(2));
    let blocked = Failure { evidence: FailureEvidence::BeforeReboot, why: "PodDisruptionBudget db".to_owned() };
    report(&mut fleet, 0).failed = Some(blocked);
    for n in 1..=MOST {
        // The next window.
        fleet.retry = Some(Retry { below: fleet.ledger.highest() + 1, from: noon() + 1.hours() });
        assert_eq!(granted(&fleet), [0], "attempt {n}");
        let token = hold(&mut fleet, 0);
        report(&mut fleet, 0).token = token;
        let decision = look(&fleet);
        fleet.attempts = decision.attempts;
        fleet.ledger.grants.clear();
    }
    assert_eq!(granted(&fleet), [1]);
    assert!(why(&fleet, 0).ends_with("of the last one: PodDisruptionBudget db"), "{}", why(&fleet, 0));
    // The node's own report of the payload counts for more.
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
    fleet.attempts.insert(fleet.nodes[0].node.uid.clone(), Attempts { count: MOST, token: 9 });
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
    let once = BTreeMap::from([(uid.clone(), Attempts { count: 1, token })]);
    for _ in 0..3 {
        fleet.attempts = decide(&fleet, noon()).attempts;
        assert_eq!(fleet.attempts, once);
    }
    // Of another pool, or to go back from a denied payload: no attempt.
    assert!(counted(&BTreeMap::new(), "other", &fleet.ledger).is_empty());
    (fleet.denied, fleet.attempts) = (Some("bad".to_owned()), BTreeMap::new());
    assert!(look(&fleet).attempts.is_empty());
    // A node that is done at its first attempt is forgotten, as most are; one that was tried twice is not.
    (fleet.denied, fleet.attempts) = (None, once);
    (report(&mut fleet, 0).token, report(&mut fleet, 0).runs) = (token, crate::NEW);
    assert!(look(&fleet).attempts.is_empty());
    fleet.attempts = BTreeMap::from([(uid, Attempts { count: 2, token })]);
    assert_eq!(look(&fleet).attempts, fleet.attempts);
}

#[test]
fn what_is_remembered_has_a_limit_and_the_most_tried_stay() {
    let of = |n: u64| (format!("u{n:04}"), Attempts { count: if n.is_multiple_of(2) { 2 } else { 1 }, token: n + 1 });
    let all: BTreeMap<String, Attempts> = (0..1400).map(of).collect();
    let kept = remembered(all, |_| false);
    assert_eq!((kept.len(), kept.values().filter(|of| of.count == 2).count()), (REMEMBERED, 700));
}
