//! Upgrades: what was before, and what may be afterwards.

use slipway_core::plan::{Plan, Step};

use super::{
    read::env_block_with,
    scenario::{
        A0, B1, NEXT, Setup, Story, UPGRADE, confirmed, half_lost, lost, marked, no_marker, offline, setup, tried,
        with_env_lost,
    },
    system::System,
    world::{MEDIUM, Verb},
};

pub fn upgrade_fresh() -> Setup {
    setup(Story::installed(), UPGRADE, &[A0], &[B1])
}

/// The other slot holds the system before this one, and the default is B.
pub fn upgrade_repeated() -> Setup {
    marked(setup(confirmed(), NEXT, &[B1], &[('A', 2)]), A0)
}

/// The other slot is to be tried at the next boot.
pub fn upgrade_over_pending_trial() -> Setup {
    setup(Story::installed().run(&UPGRADE), NEXT, &[A0], &[B1, ('B', 2)])
}

/// The other slot was tried and came back.
pub fn upgrade_over_tried() -> Setup {
    setup(tried().boot('A', false), NEXT, &[A0], &[('B', 2)])
}

/// The same payload again, whose trial was given up.
pub fn upgrade_retry_bad() -> Setup {
    let verb = Verb::Upgrade { payload: 1, activate: true, preserve: true, retry_bad: true, blank: false };
    setup(tried().run(&Verb::Rollback).boot('A', false), verb, &[A0], &[B1])
}

pub fn upgrade_wipe() -> Setup {
    let verb = Verb::Upgrade { payload: 1, activate: true, preserve: false, retry_bad: false, blank: false };
    Setup { wiped: Some(7), ..setup(Story::installed(), verb, &[A0], &[B1]) }
}

/// The OS encrypts EPHEMERAL: it ends blank.
pub fn upgrade_wipe_encrypted() -> Setup {
    let verb = Verb::Upgrade { payload: 1, activate: true, preserve: false, retry_bad: false, blank: true };
    Setup { wiped: Some(7), ..setup(Story::installed(), verb, &[A0], &[B1]) }
}

/// The slot that was rolled back from has the marker with the higher number: a cut came before the other was written.
pub fn upgrade_after_rollback_without_marker() -> Setup {
    let story = confirmed().edited(&Verb::Rollback, &no_marker).boot('A', false);
    marked(setup(story, NEXT, &[A0], &[('B', 2)]), B1)
}

/// The slot that runs was confirmed, and a cut came before its marker.
pub fn upgrade_after_confirm_without_marker() -> Setup {
    let story = tried().edited(&Verb::Confirm, &no_marker).boot('B', false);
    marked(setup(story, NEXT, &[B1], &[('A', 2)]), A0)
}

pub fn upgrade_with_a_copy_lost() -> Setup {
    setup(half_lost(Story::installed()), UPGRADE, &[A0], &[B1])
}

pub fn upgrade_with_both_copies_lost() -> Setup {
    with_env_lost(setup(lost(Story::installed()), UPGRADE, &[A0], &[B1]))
}

pub fn upgrade_without_a_history() -> Setup {
    setup(Story::installed_earlier(), UPGRADE, &[A0], &[B1])
}

/// Its entry is in the history, and its change never was in force.
pub fn upgrade_over_one_cut_before_its_commit() -> Setup {
    let cut = |plan: &mut Plan| {
        let commit = plan.steps.iter().position(Step::is_commit).unwrap();
        plan.steps.truncate(commit);
    };
    setup(Story::installed().edited_and_cut(&UPGRADE, &cut), NEXT, &[A0], &[('B', 2)])
}

pub fn upgrade_at_the_last_number() -> Setup {
    let last = "999999999".to_owned();
    let story = Story::installed().with_env(|_, old| env_block_with(old, &[("seq", Some(&last))]).unwrap());
    setup(story, UPGRADE, &[A0], &[B1])
}

/// `verb` in a live system.
fn live(story: Story, payload: usize, plain: &[System], trial: &[System]) -> Setup {
    let story = Story { cmdline: format!("slipway.medium={MEDIUM} slipway.install.preserve=true"), ..story };
    let mut setup = setup(story, Verb::FromMedium { payload }, plain, trial);
    setup.expect.medium = Some(MEDIUM.to_string());
    setup
}

pub fn from_medium_fresh() -> Setup {
    live(Story::installed(), 1, &[A0], &[B1])
}

/// The other slot holds the system before this one, and the default is B.
pub fn from_medium_over_older() -> Setup {
    marked(live(confirmed(), 2, &[B1], &[('A', 2)]), A0)
}

/// The other slot was tried and came back.
pub fn from_medium_over_tried() -> Setup {
    live(tried().boot('A', false), 2, &[A0], &[('B', 2)])
}

/// The default is what the medium brings: only the medium is not known yet.
pub fn from_medium_nothing_new() -> Setup {
    live(Story::installed(), 0, &[A0], &[])
}

pub fn upgrade_offline() -> Setup {
    offline(Story::installed(), Verb::UpgradeOffline { payload: 1 }, &[A0], &[B1])
}

/// The other slot holds the system before this one, and the default is B.
pub fn upgrade_offline_repeated() -> Setup {
    marked(offline(confirmed(), Verb::UpgradeOffline { payload: 2 }, &[B1], &[('A', 2)]), A0)
}
