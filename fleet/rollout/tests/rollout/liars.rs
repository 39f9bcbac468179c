//! Nodes that lie. A lie concerns its own node alone.

use jiff::{Timestamp, ToSpan};
use proptest::{collection::vec, prelude::*};
use slipway_rollout::{
    decide::decide,
    ledger::{HIGHEST, Ledger},
};

use crate::{
    decide::{arrive, canary, four, granted, hold, look, report, two_at_once, why},
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
