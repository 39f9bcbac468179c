//! What a machine that upgrades itself decides, from facts alone; and its example file.

use std::fs;

use proptest::prelude::*;
use slipway_core::{
    boot::{
        env::BootEnv,
        running::Running,
        slot::{PerSlot, Slot, SlotState},
    },
    config::update::{RebootPolicy, UpdateConfig},
    digest::Sha256,
    plan::{
        Plan, Refusal, Refusals, SystemFacts,
        auto_upgrade::{Advance, Reboot, advance, advance_with, pending, reboot},
    },
};
use slipway_test_support::{
    project,
    system::{self, random::random_system, states},
};

fn image(n: u8) -> Sha256 {
    Sha256::of(&[n])
}

/// With the images that the slots were written from.
fn from_images(mut system: SystemFacts, a: Option<u8>, b: Option<u8>) -> SystemFacts {
    for (slot, n) in [(Slot::A, a), (Slot::B, b)] {
        if let Some(manifest) = &mut system.slots[slot].manifest {
            manifest.image = n.map(image);
        }
    }
    system
}

#[test]
fn what_comes_next() {
    let registry = |n: u8| Some(image(n));
    let a = from_images(states::healthy(), Some(0), None);
    assert_eq!(advance(&a, None), Advance::Ask);
    assert_eq!(advance(&a, registry(0)), Advance::UpToDate { slot: Slot::A });
    assert_eq!(advance(&a, registry(1)), Advance::Upgrade);
    // A disk of an earlier version, or installed from a directory: only the payload can tell.
    assert_eq!(advance(&states::healthy(), registry(0)), Advance::Upgrade);

    let staged = from_images(states::staged(), Some(0), Some(1));
    assert_eq!(advance(&staged, registry(1)), Advance::Upgrade, "it is activated");
    let armed = from_images(states::pending(), Some(0), Some(1));
    assert_eq!(advance(&armed, None), Advance::Ask);
    assert_eq!(advance(&armed, registry(1)), Advance::Reboot { slot: Slot::B });
    assert_eq!(advance(&armed, registry(2)), Advance::Upgrade, "newer than what waits");
    assert_eq!(advance(&armed, registry(0)), Advance::Upgrade, "taken back: the trial is cancelled");

    let failed = from_images(states::tried(), Some(0), Some(1));
    assert_eq!(advance(&failed, registry(1)), Advance::KnownBad);
    assert_eq!(advance(&failed, registry(2)), Advance::Upgrade, "mended");
    let runs = SystemFacts { running: Running::This { slot: Slot::B, trial: true }, ..failed };
    assert_eq!(advance(&runs, None), Advance::Unconfirmed { slot: Slot::B });
    // Its command line still says that it is a trial.
    let confirmed =
        states::with_env(runs, |env| BootEnv { states: PerSlot { b: SlotState::Good, ..env.states }, ..env });
    assert_eq!(advance(&confirmed, registry(1)), Advance::UpToDate { slot: Slot::B });
}

#[test]
fn the_same_payload_under_another_digest() {
    let plan = slipway_core::plan::rollback(&system::base(1), &states::pending()).unwrap();
    let nothing = Plan { steps: vec![], ..plan.clone() };
    let said = |system: &SystemFacts, planned| advance_with(system, planned).ok();
    assert_eq!(said(&states::healthy(), Ok(nothing.clone())), Some(Advance::UpToDate { slot: Slot::A }));
    assert_eq!(said(&states::pending(), Ok(nothing)), Some(Advance::Reboot { slot: Slot::B }));
    assert_eq!(said(&states::healthy(), Ok(plan)), Some(Advance::Upgrade));
    let bad = Refusals(vec![Refusal::KnownBad { version: None }]);
    assert_eq!(said(&states::healthy(), Err(bad)), Some(Advance::KnownBad));
    // The upgrade would say the same.
    assert_eq!(said(&states::healthy(), Err(Refusals(vec![Refusal::NoBootEnv]))), None);
}

#[test]
fn when_it_reboots() {
    for (policy, open, held, decision) in [
        (RebootPolicy::Never, true, false, Reboot::Never),
        (RebootPolicy::Window, false, false, Reboot::WaitsForWindow),
        (RebootPolicy::Window, false, true, Reboot::WaitsForWindow),
        (RebootPolicy::Window, true, true, Reboot::HeldBack),
        (RebootPolicy::Window, true, false, Reboot::Now),
        (RebootPolicy::Now, false, true, Reboot::HeldBack),
        (RebootPolicy::Now, false, false, Reboot::Now),
    ] {
        assert_eq!(reboot(policy, open, held), decision, "{policy:?} {open} {held}");
    }
}

proptest! {
    /// Whatever is on the disk: an unconfirmed trial is left alone and asks no registry, and what is said of a slot is true.
    #[test]
    fn laws_of_the_decision(system in random_system(), a in 0u8..3, b in 0u8..3, tag in 0u8..3) {
        let system = from_images(system, Some(a), Some(b));
        let first = advance(&system, None);
        let then = advance(&system, Some(image(tag)));
        let env = system.env.as_ref();
        match system.running {
            Running::This { slot, trial: true } if env.is_some_and(|env| env.states[slot] != SlotState::Good) => {
                prop_assert_eq!((first, then), (Advance::Unconfirmed { slot }, Advance::Unconfirmed { slot }));
            }
            _ => prop_assert_eq!(first, Advance::Ask),
        }
        let holds = |slot: Slot| system.slots[slot].manifest.as_ref().and_then(|m| m.image) == Some(image(tag));
        match then {
            Advance::UpToDate { slot } => {
                prop_assert!(holds(slot) && system.running.slot() == Some(slot) && pending(&system).is_none());
            }
            Advance::Reboot { slot } => prop_assert!(holds(slot) && pending(&system) == Some(slot)),
            Advance::KnownBad => {
                let other = !system.running.slot().unwrap();
                prop_assert!(holds(other) && env.unwrap().came_back(other));
            }
            Advance::Unconfirmed { .. } | Advance::Upgrade => (),
            Advance::Ask | Advance::NothingWaits => prop_assert!(false, "it was asked for an upgrade, and the registry has answered"),
        }
    }
}

#[test]
fn the_example_and_the_page_explain_every_key() {
    let page = fs::read_to_string(project().join("docs/auto-upgrade.md")).unwrap();
    let text = fs::read_to_string(project().join("assets/update.toml")).unwrap();
    let parsed = UpdateConfig::parse(text.as_bytes()).unwrap();
    assert_eq!(parsed.source.unwrap().to_string(), "registry.example/os:stable");
    // Uncommented, the examples are right, too. Prose is what has a space behind the number sign.
    let line = |line: &str| match line.strip_prefix('#') {
        Some(key) if !key.starts_with(' ') => format!("{key}\n"),
        _ => format!("{line}\n"),
    };
    let all: String = text.lines().map(line).collect();
    let parsed = UpdateConfig::parse(all.as_bytes()).unwrap();
    assert_eq!((parsed.reboot, parsed.mirrors.len()), (RebootPolicy::Window, 1));
    for key in UpdateConfig::KEYS {
        assert_eq!(all.lines().filter(|line| line.starts_with(&format!("{key} = "))).count(), 1, "{key}");
        assert!(page.contains(&format!("\n| `{key}` | ")), "{key} has no row in docs/auto-upgrade.md");
    }
}
