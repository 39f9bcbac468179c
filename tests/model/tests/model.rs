//! Size: gate
//!
//! Explores the boot state machine, and what is done wrong on purpose: see the model itself.
//!
//! Subject: core/src/plan core/src/boot core/boot/src/rule.rs src/ops assets/grub/grub.cfg tests/model
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use slipway_boot_model::{Mutant, broken, machine::Machine};

const NONE: [&str; 0] = [];

#[test]
fn every_state_is_safe() {
    assert_eq!(broken(Machine::new(Mutant::None), None), NONE);
}

/// Where the sequence number does not grow any more, every state is safe, too.
#[test]
#[ignore = "campaign"]
fn every_state_is_safe_at_the_last_sequence_number() {
    let machine = Machine { first_seq: 999_999_998, ..Machine::new(Mutant::None) };
    assert_eq!(broken(machine, None), NONE);
}

/// What is done wrong is found, by the law that forbids it.
#[test]
fn mutants_are_noticed() {
    for (mutant, law) in [
        (Mutant::TryIsNotSpent, "what was activated is tried at most once"),
        (Mutant::NoDeactivation, "a slot is written only while nothing boots it and another system is good"),
        (Mutant::GoodAtOnce, "what nobody confirmed is booted as a trial only, or by hand"),
        (Mutant::OneCopy, "no write and no power cut loses the boot state"),
        (Mutant::CountingCopyFirst, "the machine always comes up in a whole system that is known to work"),
        (Mutant::MarkerIsNotMended, "the machine always comes up in a whole system that is known to work"),
        (Mutant::DamageIsNotLookedFor, "the machine always comes up in a whole system that is known to work"),
    ] {
        let broken = broken(Machine::new(mutant), Some(law));
        assert!(broken.contains(&law), "{mutant:?} breaks {broken:?}");
    }
}
