//! Damaged slots: the advice keeps the data where it can be kept, and `repair` tells of what it leaves.

use slipway_core::{
    boot::{
        env::BootEnv,
        slot::{PerSlot, Slot, SlotState},
    },
    disk::{
        meta::{ADV_BYTES, Meta},
        volume_fault::Format,
    },
    plan::{self, SystemFacts},
    report::{StatusFacts, next_step},
};
use slipway_test_support::system::{
    base,
    states::{confirmed, damaged, from_outside, healthy, on_trial, pending, tried, with_env, without_boot_state},
};

use super::{
    lost_volume::lost,
    next_step::{advice, status_facts},
};

fn both(facts: SystemFacts) -> SystemFacts {
    damaged(damaged(facts, Slot::A), Slot::B)
}

/// While a system runs, its disk is in use. From elsewhere a slot can be written, and all data stays.
#[test]
fn nothing_is_erased_for_damage_that_is_mended_from_outside() {
    for facts in [both(on_trial()), without_boot_state(damaged(healthy(), Slot::A))] {
        let inside = advice(&facts);
        let sends = "start a live medium; `installer status --disk PATH` names there what helps";
        assert!(inside.command.is_none() && inside.why.contains(sends), "{inside:?}");
        let outside = advice(&from_outside(facts)).command.unwrap();
        assert!(!outside.starts_with("installer install"), "{outside}");
    }
    // The tags of META are less than all data.
    let meta_lost = SystemFacts { meta: Meta::decode(&[7; 4 * ADV_BYTES]), ..from_outside(both(confirmed())) };
    assert_eq!(advice(&meta_lost).command.unwrap(), "installer meta set KEY=VALUE --disk /dev/sda");
}

/// Its guard may reset the machine, which then finds no boot loader.
#[test]
fn the_boot_chain_comes_before_a_trial_that_runs() {
    for facts in [on_trial(), damaged(on_trial(), Slot::A), damaged(on_trial(), Slot::B)] {
        let step = next_step(&facts, &StatusFacts { chain_damaged: true, ..status_facts() });
        assert_eq!(step.command.as_deref(), Some("installer bootloader update --disk /dev/sda"));
        assert!(step.why.ends_with("a live medium that has boot loaders does it, with --offline; all data stays"));
    }
}

/// The damage may be why it failed.
#[test]
fn what_failed_its_trial_needs_a_flag() {
    let flag = "with what failed its trial there, give --retry-bad";
    for (facts, slot, is_told) in [(tried(), Slot::B, true), (confirmed(), Slot::A, false)] {
        let why = advice(&damaged(facts, slot)).why;
        assert!(why.contains("writes it again, with any payload but") && why.ends_with(flag) == is_told, "{why}");
    }
}

#[test]
fn a_repair_tells_of_what_it_leaves() {
    const REMEDY: &str = "`installer verify` says what mends it";
    let plan = |facts: SystemFacts| plan::repair(&base(9), &facts, None, false).unwrap();
    for (facts, slot) in
        [(pending(), Slot::A), (pending(), Slot::B), (tried(), Slot::B), (confirmed(), Slot::A), (confirmed(), Slot::B)]
    {
        let plan = plan(damaged(facts, slot));
        let told = format!("slot {slot} is damaged (vmlinuz: damaged: its SHA-256 is not the one listed): {REMEDY}");
        assert!(plan.left.is_empty() && plan.warnings.contains(&told), "{plan}");
        // The result is all that some readers see.
        assert!(plan.result.ends_with(&format!("damaged: {REMEDY}")), "{}", plan.result);
    }
    assert!(!plan(confirmed()).result.contains("damaged"), "{}", plan(confirmed()).result);
    // The boot rule starts the default in any state, if the other slot is not good.
    for state in [SlotState::Empty, SlotState::Untried, SlotState::Tried, SlotState::Bad] {
        let states = |states| PerSlot { a: state, ..states };
        let facts = with_env(tried(), |env| BootEnv { states: states(env.states), ..env });
        let plan = plan(damaged(facts, Slot::B));
        let is_told = plan.warnings.iter().any(|told| told.starts_with("slot B is damaged") && told.ends_with(REMEDY));
        assert!(plan.left.is_empty() && is_told, "{state:?}: {plan}");
    }
    // An upgrade does not write the slot that runs.
    for facts in [damaged(on_trial(), Slot::A), damaged(tried(), Slot::A), both(on_trial()), both(confirmed())] {
        let left = plan(facts).left;
        assert!(
            left.iter().any(|left| left.contains("no slot boots that is whole") && left.ends_with(REMEDY)),
            "{left:?}"
        );
    }
    let told = plan(lost(Format::Xfs)).warnings;
    assert!(told.iter().any(|told| told.starts_with("STATE: the superblock is damaged: `xfs_repair`")), "{told:?}");
}
