//! Conclusions from a failure about the payload: each kind has its rule.

use jiff::{Timestamp, ToSpan};
use slipway_rollout::{
    decide::{Action, decide},
    duration::PositiveDuration,
    facts::{Facts, Failure, FailureEvidence, Interruption, Retry, RollbackPolicy},
    int_or_percent::IntOrPercent,
    policy::{CanaryStep, Policy},
    window::{Blackout, Zone},
};

use crate::{
    decide::{arrive, canary, fall_ill, four, granted, hold, look, name, report, two_at_once, why},
    noon,
    window::window,
};

const BLOCKED: &str = "evict the pods: pod default/db-0 is protected by the PodDisruptionBudget db (after 900 s)";

fn failure(evidence: FailureEvidence) -> Option<Failure> {
    Some(Failure { evidence, why: BLOCKED.to_owned() })
}

fn stops(step: &Action) -> bool {
    matches!(step, Action::Deny { .. } | Action::Pause { .. } | Action::Return { .. })
}

#[test]
fn what_ends_before_the_reboot_or_before_staging_stops_nothing() {
    for evidence in [FailureEvidence::BeforeReboot, FailureEvidence::NotStaged] {
        for policy in [two_at_once(), canary()] {
            let mut fleet = four(policy);
            fleet.rollback = Some(RollbackPolicy { control_plane: false, any_etcd: false });
            (0..4).for_each(|n| report(&mut fleet, n).failed = failure(evidence));
            let decision = look(&fleet);
            assert!(!decision.steps.iter().any(stops), "{evidence:?}: {:?}", decision.steps);
        }
    }
}

#[test]
fn an_attempt_that_ended_before_the_reboot_is_repeated_in_the_next_window_and_not_before() {
    let hours = window(&[], "10:00", 240, "UTC");
    let mut fleet = four(Policy { windows: vec![hours], ..two_at_once() });
    let token = hold(&mut fleet, 0);
    (report(&mut fleet, 0).token, report(&mut fleet, 0).failed) = (token, failure(FailureEvidence::BeforeReboot));
    let decision = look(&fleet);
    let next = noon() + 22.hours();
    assert_eq!(decision.retry, Some(Retry { below: 0, from: next }), "{decision:?}");
    let told = format!("its last attempt ended before the payload ran, and is repeated from {next} on: {BLOCKED}");
    assert_eq!((why(&fleet, 0), granted(&fleet)), (told, vec![1, 2]), "others go on, and its own grant is free");
    // The same window, an hour later: the memory holds. The next one: it goes, and is deferred by another failure.
    fleet.retry = decision.retry;
    fleet.ledger.grants.clear();
    assert_eq!(decide(&fleet, noon() + 1.hours()).retry, fleet.retry);
    let decision = decide(&fleet, next);
    let goes = |step: &Action| matches!(step, Action::Grant { node, .. } if node.name == name(&fleet, 0));
    assert!(decision.steps.iter().any(goes), "{decision:?}");
    fleet.retry = decision.retry;
    let token = hold(&mut fleet, 0);
    report(&mut fleet, 0).token = token;
    let decision = decide(&fleet, next + 1.hours());
    let reason = decision.blocked.iter().find(|of| of.node.name == name(&fleet, 0)).unwrap().why.reason();
    assert_eq!(reason, "RetriesLater");
}

#[test]
fn without_windows_it_is_repeated_after_an_hour() {
    let mut fleet = four(two_at_once());
    report(&mut fleet, 0).failed = failure(FailureEvidence::BeforeReboot);
    assert_eq!(look(&fleet).retry.unwrap().from, noon() + 1.hours());
    // A blackout is no window. It is waited for only where it holds in an hour.
    for (from, until, next) in [
        ("2026-12-23T18:00", "2027-01-04T06:00", Some(noon() + 1.hours())),
        ("2026-06-01T12:30", "2026-06-01T17:00", Some(noon() + 5.hours())),
        ("2026-06-01T12:30", "9999-01-01T00:00", None),
    ] {
        let utc = Zone::named("UTC").unwrap();
        let blackout = Blackout::new(from.parse().unwrap(), until.parse().unwrap(), utc, String::new()).unwrap();
        let mut fleet = four(Policy { blackouts: vec![blackout], ..two_at_once() });
        let token = hold(&mut fleet, 0);
        (report(&mut fleet, 0).token, report(&mut fleet, 0).failed) = (token, failure(FailureEvidence::BeforeReboot));
        assert_eq!(look(&fleet).retry.unwrap().from, next.unwrap_or(Timestamp::MAX), "{from}");
        let told =
            "its last attempt ended before the payload ran, and is not repeated, because no time within 400 days";
        assert_eq!(why(&fleet, 0).starts_with(told), next.is_none(), "{}", why(&fleet, 0));
    }
}

#[test]
fn what_is_not_known_pauses_and_denies_nothing_and_what_was_booted_denies() {
    for (evidence, denies) in [(FailureEvidence::Unknown, false), (FailureEvidence::AfterReboot, true)] {
        let mut fleet = four(two_at_once());
        report(&mut fleet, 0).failed = failure(evidence);
        let steps = look(&fleet).steps;
        assert_eq!(steps.iter().any(|step| matches!(step, Action::Deny { .. })), denies, "{steps:?}");
        assert!(steps.iter().any(|step| matches!(step, Action::Pause { .. })), "{steps:?}");
        assert_eq!(granted(&fleet), Vec::<usize>::new());
    }
}

/// A canary that lies, or that nobody knows anything of, shields no payload.
#[test]
fn an_unknown_fate_of_one_canary_saves_no_payload_that_another_one_denies() {
    let denial = |fleet: &Facts| {
        let steps = look(fleet).steps;
        steps.iter().find_map(|step| if let Action::Deny { why, .. } = step { Some(why.clone()) } else { None })
    };
    let steps = vec![CanaryStep { nodes: IntOrPercent::Nodes(2), soak: PositiveDuration::minutes(60) }];
    let policy = Policy { steps, failure_budget: Some(IntOrPercent::Nodes(2)), ..two_at_once() };
    for is_ill in [false, true] {
        let mut fleet = four(policy.clone());
        report(&mut fleet, 0).failed = failure(FailureEvidence::Unknown);
        assert_eq!(denial(&fleet), None);
        if is_ill {
            arrive(&mut fleet, 1);
            fall_ill(&mut fleet, 1);
        } else {
            report(&mut fleet, 1).failed = failure(FailureEvidence::AfterReboot);
        }
        let canary = format!("the canary {} ", name(&fleet, 1));
        assert!(denial(&fleet).is_some_and(|why| why.starts_with(&canary)), "{:?}", denial(&fleet));
        // It was paused for the first one before.
        fleet.stopped = Some("the canary failed".to_owned());
        assert!(denial(&fleet).is_some());
    }
    // Nor does it save it from the failure budget; nor do canaries that do not stay well.
    for does_not_stay_well in [false, true] {
        let mut fleet = four(policy.clone());
        if does_not_stay_well {
            let node = name(&fleet, 0);
            fleet.interruption = Some(Interruption { node, at: noon(), times: Interruption::MANY });
        } else {
            report(&mut fleet, 0).failed = failure(FailureEvidence::Unknown);
        }
        report(&mut fleet, 2).failed = failure(FailureEvidence::AfterReboot);
        assert_eq!(denial(&fleet), None);
        report(&mut fleet, 3).failed = failure(FailureEvidence::AfterReboot);
        assert!(denial(&fleet).is_some_and(|why| why.contains("2 are enough")), "{:?}", denial(&fleet));
    }
}

/// Its kubelet was started anew, or an API server was away: nobody else is to pay for a look at that moment.
#[test]
fn a_canary_that_is_ill_for_a_moment_denies_nothing_and_holds_back_the_others() {
    let mut fleet = four(canary());
    arrive(&mut fleet, 0);
    (fleet.soaking_since, report(&mut fleet, 0).well) = (Some(noon() - 30.minutes()), false);
    for seconds in [0, 119] {
        report(&mut fleet, 0).since = noon() - seconds.seconds();
        let decision = look(&fleet);
        assert_eq!((decision.steps, decision.soaks, decision.soaking_since), (vec![], None, None), "{seconds}");
        assert_eq!(decision.interruption.map(|of| of.times), Some(1), "its soak begins anew");
    }
    report(&mut fleet, 0).since = noon() - 120.seconds();
    assert!(matches!(look(&fleet).steps[0], Action::Deny { .. }));
    // A clock that is behind denies nothing before its time.
    report(&mut fleet, 0).since = noon() + 1.hours();
    assert_eq!(look(&fleet).steps, []);
}
