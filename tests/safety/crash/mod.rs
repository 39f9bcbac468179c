//! Power cuts and I/O errors during every verb, at every instant: the real probe, planner and executor on a recording
//! disk, every disk a cut could leave judged by independent code.
//!
//! `SLIPWAY_CRASH_STATES` sets how many states are visited, over all verbs together (default 3,000);
//! `hack/crash --states N` runs any number. From 100,000 on every fault is tried, in every way, and other programs meddle at
//! every step; below these are samples: the same ones each time, of every scenario, and other ones for each.

mod cuts;
mod delta;
mod delta_reads;
mod disk;
mod esp;
mod faults;
mod grow;
mod grub;
mod grub_fat;
mod half_dead;
mod history;
mod install;
mod judge;
mod lasting;
mod loader;
mod loader_mutants;
mod meddling;
mod mend_table;
mod mutants;
mod pages;
mod read;
mod renewal;
mod same;
mod scenario;
mod snapshot;
mod structures;
mod sweep;
mod system;
mod table_damage;
mod upgrades;
mod world;

/// A sweep and fault sweeps for each: its name in `scenario`, its share of all states (an install has two of its own, a growth and the mend of a table one),
/// and of how many faults one is tried in the gate: where others do much the same, not each.
macro_rules! verbs {
    ($($name:ident $share:literal $one_in:literal,)*) => {
        const SHARES: usize = 2 * install::SHARE + grow::SHARE + mend_table::SHARE $(+ $share)*;
        $(mod $name {
            #[test]
            fn power_cuts() {
                super::scenario::$name().run(stringify!($name)).survives_cuts(super::states($share));
            }

            #[test]
            fn faults() {
                super::scenario::$name().run(stringify!($name)).survives_faults($one_in);
            }

            #[test]
            fn others_meddle() {
                super::scenario::$name().run(stringify!($name)).survives_meddling();
            }

            #[test]
            fn lasting_faults() {
                super::scenario::$name().run(stringify!($name)).survives_lasting_faults($one_in);
            }

            #[test]
            fn wrong_structures() {
                super::scenario::$name().run(stringify!($name)).survives_wrong_structures();
            }
        })*
    };
}

verbs! {
    upgrade_fresh 4 1,
    upgrade_repeated 4 1,
    upgrade_over_pending_trial 4 3,
    upgrade_over_tried 4 1,
    upgrade_retry_bad 4 3,
    upgrade_wipe 6 3,
    upgrade_wipe_encrypted 6 3,
    upgrade_after_rollback_without_marker 4 3,
    upgrade_after_confirm_without_marker 4 3,
    upgrade_with_a_copy_lost 4 3,
    upgrade_with_both_copies_lost 4 3,
    upgrade_at_the_last_number 4 3,
    upgrade_without_a_history 1 3,
    upgrade_over_one_cut_before_its_commit 4 3,
    from_medium_fresh 4 1,
    from_medium_over_older 4 3,
    from_medium_over_tried 4 3,
    from_medium_nothing_new 1 3,
    upgrade_by_delta 4 6,
    upgrade_by_delta_over_itself 4 6,
    upgrade_offline 4 3,
    upgrade_offline_repeated 4 3,
    activate_offline 1 3,
    rollback_offline 1 1,
    rollback_offline_pending_trial 1 3,
    stage 4 1,
    stage_repeated 4 3,
    activate 1 1,
    activate_wipe 3 3,
    activate_again_wipe 3 3,
    confirm 1 1,
    rollback 1 1,
    rollback_running_trial 1 1,
    rollback_pending_trial 1 1,
    rollback_with_both_copies_lost 1 3,
    confirm_with_both_copies_lost 1 3,
    repair 1 1,
    repair_two_systems 1 3,
    repair_in_a_trial 1 3,
    repair_with_a_copy_lost 1 3,
    repair_without_esp 2 1,
    repair_without_esp_two_systems 1 3,
    repair_without_the_directory_efi 2 3,
    repair_with_the_second_fat_lost 1 3,
    repair_with_the_first_fat_damaged 1 3,
    repair_with_the_first_sector_lost 1 3,
    repair_with_a_sector_lost_that_has_a_copy 1 3,
    repair_with_a_copy_missing 1 3,
    repair_with_both_copies_missing 1 3,
    repair_with_the_image_missing 1 3,
    repair_with_the_directory_missing 1 3,
    repair_with_the_list_missing 1 3,
    menu_off 1 1,
    menu_off_over_pending_trial 1 3,
    menu_on_in_a_trial 1 3,
    menu_off_with_a_copy_lost 1 3,
    meta_set 1 1,
    meta_delete 1 1,
    record_a_failed_check 1 1,
    record_it_again 1 1,
    upgrade_renews 4 3,
    activate_renews 4 3,
    bootloader_update 4 1,
    bootloader_update_again 4 1,
    bootloader_update_over_one_cut 2 3,
    bootloader_update_mends 2 3,
    wipe_state 2 1,
    wipe_ephemeral 2 3,
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

/// Of `all` so many, spread evenly, with the first and the last; each where there is time.
fn some<T: Clone>(all: &[T], most: usize) -> Vec<T> {
    if thorough() || all.len() <= most {
        return all.to_vec();
    }
    (0..most).map(|n| all[n * (all.len() - 1) / (most - 1)].clone()).collect()
}
