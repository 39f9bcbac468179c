//! Nodes that lie. A lie concerns its own node alone.

use jiff::{Timestamp, ToSpan};
use proptest::{collection::vec, prelude::*};
use slipway_rollout::{
    decide::{Action, decide},
    facts::{Failure, FailureEvidence, Retry},
    int_or_percent::IntOrPercent,
    ledger::{Given, HIGHEST, Ledger},
    policy::Policy,
};

use crate::{
    decide::{arrive, canary, four, granted, hold, look, report, rollout, two_at_once, why},
    limits, noon, worker,
};

#[test]
fn a_token_that_was_never_given_stops_the_node_that_names_it_and_nobody_else() {
    for token in [1, 41, HIGHEST, u64::MAX] {
        let mut fleet = four(canary());
        // It is the canary itself: others go without it.
        report(&mut fleet, 0).token = token;
        assert!(why(&fleet, 0).starts_with(&format!("it says that it obeyed the token {token}")), "{}", why(&fleet, 0));
        assert_eq!(
            why(&fleet, 1),
            "no node of wave 1 tried the payload: each failed before, is gone, or is left out; delete the rollout, and a new \
             one is made"
        );
        let mut fleet = four(two_at_once());
        report(&mut fleet, 0).token = token;
        assert_eq!(granted(&fleet), [1, 2]);
        let first = hold(&mut fleet, 1);
        assert_eq!(first, 1, "nothing was raised");
    }
}

#[test]
fn a_node_that_never_stages_holds_others_back_for_an_hour_and_no_longer() {
    let mut fleet = four(two_at_once());
    (fleet.created, report(&mut fleet, 0).staged) = (Some(noon() - 1.hours()), None);
    assert_eq!(granted(&fleet), Vec::<usize>::new());
    fleet.created = Some(noon() - 61.minutes());
    assert_eq!(granted(&fleet), [1, 2]);
}

#[test]
fn a_node_that_says_that_it_was_well_for_ever_does_not_shorten_a_soak() {
    let mut fleet = four(canary());
    arrive(&mut fleet, 0);
    report(&mut fleet, 0).since = Timestamp::MIN;
    let decision = look(&fleet);
    assert_eq!((decision.passed, decision.soaks, decision.soaking_since), (0, Some(noon() + 1.hours()), Some(noon())));
    fleet.soaking_since = decision.soaking_since;
    assert_eq!(decide(&fleet, noon() + 59.minutes()).passed, 0);
    assert_eq!(decide(&fleet, noon() + 60.minutes()).passed, 1);
    // Ill in between: it begins anew, whatever is remembered.
    report(&mut fleet, 0).since = noon() + 30.minutes();
    assert_eq!(decide(&fleet, noon() + 60.minutes()).passed, 0);
    report(&mut fleet, 0).busy = true;
    assert_eq!(decide(&fleet, noon() + 60.minutes()).soaking_since, None);
}

#[test]
fn a_token_that_a_release_names_beforehand_is_never_given() {
    let named_tokens = [1, 2, 4, HIGHEST].into();
    let limits = slipway_rollout::ledger::Limits { named_tokens, ..limits(9, 9) };
    let (ledger, first) = Ledger::default().grant(&worker("a-1"), &limits, noon()).unwrap();
    let (_, second) = ledger.grant(&worker("a-2"), &limits, noon()).unwrap();
    assert_eq!((first, second), (3, 5));
}

#[test]
fn a_time_to_come_is_no_longer_than_one_from_now() {
    let far = noon() + 100_000.hours();
    let mut fleet = four(canary());
    arrive(&mut fleet, 0);
    report(&mut fleet, 0).since = Timestamp::MIN;
    fleet.soaking_since = Some(far);
    let decision = look(&fleet);
    assert_eq!((decision.soaks, decision.soaking_since), (Some(noon() + 1.hours()), Some(noon())));
    // What is repeated comes with the next window as it is by now.
    let mut fleet = four(two_at_once());
    let why = "evict the pods: a budget".to_owned();
    report(&mut fleet, 0).failed = Some(Failure { evidence: FailureEvidence::BeforeReboot, why });
    for from in [far, Timestamp::MAX, noon() + 1.hours()] {
        fleet.retry = Some(Retry { below: 0, from });
        assert_eq!(look(&fleet).retry, Some(Retry { below: 0, from: noon() + 1.hours() }));
    }
    let sooner = Some(Retry { below: 0, from: noon() + 5.minutes() });
    fleet.retry = sooner;
    assert_eq!(look(&fleet).retry, sooner);
    // A rate counts a grant from the future as one of now, and no longer.
    let given = |at| Given { pool: "pool".to_owned(), at };
    let past = given(noon() - 5.minutes());
    let mut ledger = Ledger { given: vec![given(far), past.clone()], ..Ledger::default() };
    ledger.correct_times(noon());
    assert_eq!(ledger.given, [given(noon()), past]);
}

#[test]
fn however_many_nodes_fail_in_however_many_words_the_reason_is_short() {
    let names: Vec<String> = (0..200).map(|n| format!("a-{n}")).collect();
    let nodes: Vec<_> = names.iter().map(|name| worker(name)).collect();
    let policy = Policy { failure_budget: Some(IntOrPercent::Nodes(100)), ..Policy::default() };
    let mut fleet = rollout(&nodes, policy);
    let long = "x".repeat(1024);
    for n in 0..150 {
        report(&mut fleet, n).failed = Some(Failure { evidence: FailureEvidence::AfterReboot, why: long.clone() });
    }
    let decision = look(&fleet);
    let denied =
        decision.steps.iter().find_map(|step| if let Action::Deny { why, .. } = step { Some(why) } else { None });
    let why = denied.unwrap();
    assert!(
        why.starts_with("150 of 200 nodes failed, and 100 are enough; ") && why.ends_with("; and 140 more"),
        "{why}"
    );
    assert!(why.len() < 12_000, "{}", why.len());
}

proptest! {
    /// However a minority lies, and whatever the others obeyed: the ledger goes on above what most nodes obeyed, and far
    /// below the end of tokens.
    #[test]
    fn a_lost_ledger_is_rebuilt_from_what_most_nodes_say(
        honest in vec(0_u64..100_000, 2..20), lies in vec(any::<u64>(), 0..20), epoch in prop::sample::select(vec![0_u64, 50_000, 200_000])
    ) {
        let lies = &lies[..lies.len().min(honest.len() - 1)];
        let mut ledger = Ledger { epoch, ..Ledger::default() };
        ledger.rebuild(honest.iter().chain(lies).copied().collect());
        let most = honest.iter().copied().max().unwrap_or(0);
        // No node lies: each that obeyed a lost token is below.
        if lies.is_empty() && honest.iter().filter(|of| **of > epoch).count() * 2 > honest.len() {
            prop_assert!(ledger.epoch > most, "{}", ledger.epoch);
        }
        prop_assert!(ledger.epoch <= epoch.max(most + (1 << 20)), "{}", ledger.epoch);
        // A ledger that is not behind is left as it is.
        let mut whole = Ledger { epoch: most, ..Ledger::default() };
        whole.rebuild(honest.iter().chain(lies).copied().collect());
        prop_assert_eq!(whole.epoch, most);
    }
}
