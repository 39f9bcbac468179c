//! Power cuts and I/O errors during every verb, at every instant: the real probe, planner and executor on a recording
//! disk, every disk a cut could leave judged by independent code.
//!
//! `SLIPWAY_CRASH_STATES` sets how many states are visited, over all verbs together (default 3,000);
//! `hack/crash --states N` runs any number, from 100,000 on also every fault.

mod cuts;
mod disk;
mod faults;
mod grow;
mod grub;
mod half_dead;
mod history;
mod install;
mod judge;
mod lasting;
mod loader;
mod loader_mutants;
mod meddling;
mod menu;
mod mutants;
mod pages;
mod read;
mod renewal;
mod same;
mod scenario;
mod sweep;
mod system;
mod upgrades;
mod world;

/// A sweep and a fault sweep for each: its name in `scenario`, its share of all states (an install has two of its own, and a growth one),
/// and of how many reads one fails: where others read the same, not each.
macro_rules! verbs {
    ($($name:ident $share:literal $stride:literal,)*) => {
        const SHARES: usize = 2 * install::SHARE + grow::SHARE $(+ $share)*;
        $(mod $name {
            #[test]
            fn power_cuts() {
                super::scenario::$name().run(stringify!($name)).survives_cuts(super::states($share));
            }

            #[test]
            fn faults() {
                super::scenario::$name().run(stringify!($name)).survives_faults($stride);
            }

            #[test]
            fn others_meddle() {
                super::scenario::$name().run(stringify!($name)).survives_meddling();
            }

            #[test]
            fn lasting_faults() {
                super::scenario::$name().run(stringify!($name)).survives_lasting_faults();
            }
        })*
    };
}

verbs! {
    upgrade_fresh 4 1,
    upgrade_repeated 4 1,
    upgrade_over_pending_trial 4 5,
    upgrade_over_tried 4 1,
    upgrade_retry_bad 4 5,
    upgrade_wipe 6 5,
    upgrade_wipe_encrypted 6 5,
    upgrade_after_rollback_without_marker 4 5,
    upgrade_after_confirm_without_marker 4 5,
    upgrade_with_a_copy_lost 4 5,
    upgrade_with_both_copies_lost 4 5,
    upgrade_at_the_last_number 4 5,
    upgrade_without_a_history 1 5,
    upgrade_over_one_cut_before_its_commit 4 5,
    from_medium_fresh 4 1,
    from_medium_over_older 4 5,
    from_medium_over_tried 4 5,
    from_medium_nothing_new 1 5,
    upgrade_offline 4 5,
    upgrade_offline_repeated 4 5,
    activate_offline 1 5,
    rollback_offline 1 1,
    rollback_offline_pending_trial 1 5,
    stage 4 1,
    stage_repeated 4 5,
    activate 1 1,
    activate_wipe 3 5,
    activate_again_wipe 3 5,
    confirm 1 1,
    rollback 1 1,
    rollback_running_trial 1 1,
    rollback_pending_trial 1 1,
    rollback_with_both_copies_lost 1 5,
    confirm_with_both_copies_lost 1 5,
    repair 1 1,
    repair_two_systems 1 5,
    repair_in_a_trial 1 5,
    repair_with_a_copy_lost 1 5,
    menu_off 1 1,
    menu_off_over_pending_trial 1 5,
    menu_on_in_a_trial 1 5,
    menu_off_with_a_copy_lost 1 5,
    meta_set 1 1,
    meta_delete 1 1,
    record_a_failed_check 1 1,
    record_it_again 1 1,
    upgrade_renews 4 5,
    activate_renews 4 5,
    bootloader_update 4 1,
    bootloader_update_again 4 1,
    bootloader_update_over_one_cut 2 5,
    bootloader_update_mends 2 5,
    wipe_state 2 1,
    wipe_ephemeral 2 5,
}

/// States to visit over all verbs.
fn all_states() -> usize {
    let value = std::env::var("SLIPWAY_CRASH_STATES").unwrap_or_else(|_| "3000".to_owned());
    value.parse().expect("SLIPWAY_CRASH_STATES is a number")
}

/// States to visit with this many shares.
fn states(shares: usize) -> usize {
    (all_states() * shares).div_ceil(SHARES)
}

/// Whether to take the time for what is tried in samples else.
fn thorough() -> bool {
    all_states() >= 100_000
}
