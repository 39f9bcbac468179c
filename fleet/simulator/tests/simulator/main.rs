//! Size: quick
//!
//! Rollouts of random fleets with faults of every kind, in virtual time, each from its seed. What is checked is in the
//! crate, at every step. `SLIPWAY_ROLLOUTS` says how many; `SLIPWAY_FIRST` is the first seed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod mutants;

use std::env;

use slipway_fleet_simulator::{
    campaign::{describe_failure, many, replay, run},
    mutant::Mutant,
};

fn number(name: &str, default: u64) -> u64 {
    env::var(name).map_or(default, |number| number.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

#[test]
fn no_rollout_breaks_a_law() {
    let (first, rollouts) = (number("SLIPWAY_FIRST", 1), number("SLIPWAY_ROLLOUTS", 1000));
    let (counts, failure) = many(first, rollouts, None, Mutant::None);
    eprintln!("{rollouts} rollouts: {counts:?}");
    if let Some(failure) = failure {
        panic!("{}", describe_failure(&failure, None, Mutant::None));
    }
    // Otherwise nothing was tried.
    let each = [counts.grants, counts.reached, counts.came_back, counts.cuts, counts.crashes, counts.conflicts];
    let others = [counts.faults, counts.denied, counts.went_back, counts.finished, counts.claimed, counts.by_hand];
    assert!(rollouts < 500 || each.iter().chain(&others).all(|count| *count > rollouts / 20), "{counts:?}");
}

/// A person freed a grant; the controller wrote that this attempt does not count, and died before it freed the grant. Later
/// the grant was freed for another reason.
#[test]
fn an_attempt_that_was_deferred_before_a_crash_does_not_count() {
    let failure = run(48_490, None, Mutant::None).1;
    assert_eq!(failure, None);
}

/// A person deleted the ledger. A grant in it that no controller had seen counts as no attempt; a node that has obeyed it may
/// hold a lower one by now, which a person frees.
#[test]
fn a_ledger_that_was_deleted_breaks_no_law() {
    for seed in [24_641, 25_181] {
        assert_eq!(run(seed, None, Mutant::None).1, None);
    }
}

/// A person paused a pool whose payload was denied, and another one deleted that rollout.
#[test]
fn a_pause_of_a_person_outlives_a_rollout_that_is_deleted() {
    let failure = run(9_837, None, Mutant::None).1;
    assert_eq!(failure, None);
}

/// A person wrote a node a grant with a higher token than any before, and took it out when the node had obeyed it.
#[test]
fn nobody_waits_for_a_node_that_obeyed_a_grant_of_a_person() {
    let failure = run(48_423, None, Mutant::None).1;
    assert_eq!(failure, None);
}

#[test]
fn a_seed_gives_the_same_run_each_time() {
    for seed in 1..30 {
        let (lines, failure) = replay(seed, None, Mutant::None);
        assert_eq!((lines, failure.clone()), replay(seed, None, Mutant::None));
        assert_eq!(run(seed, None, Mutant::None).1, failure);
    }
}
