//! Commands of people: run a rollout now, and give it up.

use jiff::ToSpan;
use slipway_rollout::{
    decide::{Action, decide},
    facts::{Failure, FailureEvidence, WindowOverride},
};

use crate::{
    decide::{arrive, canary, fall_ill, four, granted, hold, look, name, outside, report, two_at_once, why},
    failed, noon,
};

#[test]
fn windows_hold_nobody_back_until_the_time_that_somebody_names() {
    let mut fleet = four(outside());
    assert_eq!(granted(&fleet), Vec::<usize>::new());
    fleet.window_override = Some(WindowOverride { until: noon() + 30.minutes(), soak: None });
    assert_eq!(granted(&fleet), [0, 1]);
    // The grant is held to it when it is written, too.
    assert_eq!(look(&fleet).limits.until, Some(noon() + 30.minutes()));
    // Inside of a window the later end counts.
    assert_eq!(decide(&fleet, noon() + 1.minutes()).limits.until, Some(noon() + 61.minutes()));
    fleet.window_override = Some(WindowOverride { until: noon() + 3.hours(), soak: None });
    assert_eq!(decide(&fleet, noon() + 1.minutes()).limits.until, Some(noon() + 3.hours()));
    // Its time is over.
    fleet.window_override = Some(WindowOverride { until: noon(), soak: None });
    assert_eq!(granted(&fleet), Vec::<usize>::new());
    assert!(why(&fleet, 0).starts_with("no window of policy \"late\" is open"));
    // A person's pause is a word, too.
    fleet.window_override = Some(WindowOverride { until: noon() + 1.hours(), soak: None });
    fleet.paused = Some("eve: lunch".to_owned());
    assert_eq!(granted(&fleet), Vec::<usize>::new());
}

#[test]
fn the_soak_of_one_wave_is_passed_over_and_a_bad_canary_is_not() {
    let mut fleet = four(canary());
    arrive(&mut fleet, 0);
    assert_eq!(granted(&fleet), Vec::<usize>::new());
    fleet.window_override = Some(WindowOverride { until: noon() + 1.minutes(), soak: Some(1) });
    assert_eq!(granted(&fleet), Vec::<usize>::new(), "that is another wave");
    fleet.window_override = Some(WindowOverride { until: noon() + 1.minutes(), soak: Some(0) });
    assert_eq!((granted(&fleet), look(&fleet).passed), (vec![1, 2], 1));
    fall_ill(&mut fleet, 0);
    assert_eq!(granted(&fleet), Vec::<usize>::new());
    assert!(matches!(look(&fleet).steps[0], Action::Deny { .. }));
    // No node has tried it: there is nothing to pass over.
    let mut fleet = four(canary());
    fleet.nodes.remove(0);
    fleet.window_override = Some(WindowOverride { until: noon() + 1.minutes(), soak: Some(0) });
    assert_eq!(granted(&fleet), Vec::<usize>::new());
    assert!(why(&fleet, 0).starts_with("no node of wave 1 tried the payload"));
}

#[test]
fn what_is_given_up_begins_nothing_and_who_is_at_it_is_asked_to_go_back() {
    let mut fleet = four(two_at_once());
    let (first, second) = (hold(&mut fleet, 0), hold(&mut fleet, 1));
    (report(&mut fleet, 0).token, report(&mut fleet, 0).busy) = (first, true);
    report(&mut fleet, 3).staged = None;
    fleet.aborted = Some("eve: the wrong image".to_owned());
    let uid = fleet.nodes[0].node.uid.clone();
    assert_eq!(look(&fleet).steps, [Action::Abort { uid: uid.clone(), token: first }]);
    assert_eq!(why(&fleet, 0), "the rollout is aborted: it is asked to end what it began with the grant 1");
    // A request may be on its way to the second: it stays charged.
    let holds = format!("the rollout is aborted, and it holds the grant {second} without having begun");
    assert!(why(&fleet, 1).starts_with(&holds), "{}", why(&fleet, 1));
    for n in [2, 3] {
        assert_eq!(why(&fleet, n), "the rollout is aborted: eve: the wrong image");
    }
    // What it began in another pool is not this one's to end.
    fleet.ledger.grants[0].node.pool = "other".to_owned();
    assert_eq!((look(&fleet).steps, why(&fleet, 0)), (vec![], "it is being upgraded, with the grant 1".to_owned()));
    fleet.ledger.grants[0].node.pool = fleet.plan.pool.clone();
    // It came back, and is free. That is no failure of the payload, however few failures are enough.
    report(&mut fleet, 0).busy = false;
    report(&mut fleet, 0).failed = failed("aborted by fleet");
    let decision = look(&fleet);
    assert!(matches!(&decision.steps[..], [Action::Free { uid: freed, .. }] if *freed == uid), "{decision:?}");
    assert!(!decision.finished);
    assert_eq!(why(&fleet, 0), "it failed: aborted by fleet");
    // What ended before the payload ran is not repeated, and nobody says so.
    let early = Failure { evidence: FailureEvidence::BeforeReboot, why: "aborted by fleet".to_owned() };
    report(&mut fleet, 0).failed = Some(early);
    assert_eq!(why(&fleet, 0), "the rollout is aborted: eve: the wrong image");
    // A payload that was denied before stays denied.
    fleet.denied = Some("bad".to_owned());
    assert_eq!(why(&fleet, 2), "the payload is denied: bad");
    assert_eq!(name(&fleet, 0), fleet.nodes[0].node.name);
}
