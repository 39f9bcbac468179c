//! What `status` reads of the slots, and what it says of those that it did not read.

use slipway_core::{
    boot::{running::Running, slot::Slot},
    plan::SystemFacts,
    report::doubtful,
};
use slipway_test_support::system::states::{
    cancelled, confirmed, from_outside, healthy, on_trial, pending, settled, staged, with_env, without_boot_state,
};

use super::next_step::{advice, read};

/// Whose root file systems `status` reads unasked: those that nothing else vouches for.
#[test]
fn what_is_read() {
    let menu = SystemFacts { running: Running::This { slot: Slot::A, trial: false }, ..confirmed() };
    let given_up = with_env(on_trial(), |env| env.given_up(Slot::B, None, 9));
    let copy_lost = SystemFacts { env_copies: [confirmed().env, None], ..confirmed() };
    let esp_lost = SystemFacts { esp_lost: true, ..confirmed() };
    for (name, facts, expected) in [
        ("the default runs", confirmed(), &[][..]),
        ("a trial waits, which was just written", pending(), &[]),
        ("a trial runs, which is not to wait", on_trial(), &[]),
        ("the trial was given up, and the default boots next", given_up, &[]),
        ("a system was staged", staged(), &[Slot::B]),
        ("its trial was cancelled", cancelled(), &[]),
        ("a copy of the boot state is lost", copy_lost, &Slot::BOTH),
        ("the ESP is lost", esp_lost, &Slot::BOTH),
        ("the boot state is lost", without_boot_state(healthy()), &Slot::BOTH),
        ("the default does not come up, and somebody chose the other slot in the boot menu", menu, &[Slot::B]),
        ("from a rescue system", from_outside(confirmed()), &[Slot::A, Slot::B]),
        ("from a rescue system, one slot is empty", from_outside(healthy()), &[Slot::A]),
        ("from a rescue system, the boot state is lost", without_boot_state(from_outside(healthy())), &Slot::BOTH),
    ] {
        assert_eq!(doubtful(&facts), expected, "{name}");
    }
}

/// What is unread may be damaged, and the command that is named reads it before it does anything.
#[test]
fn what_was_not_read_is_told() {
    let unread = "`installer verify --disk /dev/sda` reads the root file systems, too";
    let copy_lost = SystemFacts { env_copies: [confirmed().env, None], ..confirmed() };
    for (name, facts) in [
        ("all is well", confirmed()),
        ("a trial runs", on_trial()),
        ("the trial was cancelled", cancelled()),
        ("the same, from a rescue system", from_outside(cancelled())),
        ("a system was staged", staged()),
        ("a copy of the boot state is lost", copy_lost),
    ] {
        let why = advice(&facts).why;
        assert!(why.ends_with(unread), "{name}: {why}");
        let why = advice(&read(facts)).why;
        assert!(!why.contains("installer verify"), "{name}: {why}");
    }
}

/// A disk in use, of which nothing is left that boots: only elsewhere anything helps, and `repair` refuses.
#[test]
fn a_lost_esp_beside_a_damaged_slot_is_no_circle() {
    let mut facts = without_boot_state(healthy());
    (facts.esp_lost, facts.env_at) = (true, [None; 2]);
    facts.slots.a.whole = Some(Err("rootfs.squashfs: damaged".to_owned()));
    facts.slots.b.whole = Some(Err("no file system".to_owned()));
    let step = advice(&settled(facts));
    assert!(step.command.is_none() && step.why.contains("start a live medium"), "{step:?}");
}
