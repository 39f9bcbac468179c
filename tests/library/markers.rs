//! The slots' own markers, whatever numbers they have: after a change of the default it boots by them, too, and no older one is
//! taken for it.

use proptest::prelude::*;
use slipway_core::{
    boot::{
        env::{BootEnv, Marker},
        rule::Order,
        running::Running,
        slot::{PerSlot, Slot, SlotState},
    },
    plan::{self, Plan, Step, SystemFacts},
    units::SectorSize,
};
use slipway_test_support::system::{
    self, base, installed, payload,
    random::{decide, random_system},
};

const LAST: u64 = 999_999_999;

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![0u64..9, LAST - 2..=LAST]
}

/// The disk after the plan, or after its commit alone.
fn after(facts: &SystemFacts, plan: &Plan, is_cut: bool) -> SystemFacts {
    let mut facts = facts.clone();
    let end =
        plan.steps.iter().position(Step::is_commit).filter(|_| is_cut).map_or(plan.steps.len(), |commit| commit + 1);
    for step in &plan.steps[..end] {
        match step {
            Step::WriteBootEnv { copy, env, .. } => facts.env_copies[usize::from(*copy) - 1] = Some(env.clone()),
            Step::WriteMarker { slot, marker, .. } => facts.slots[*slot].marker = Some(marker.clone()),
            _ => {}
        }
    }
    facts.env = BootEnv::pick(&facts.env_copies).cloned();
    facts
}

fn by_markers(facts: &SystemFacts) -> Slot {
    Order::by_markers(&PerSlot::new(|slot| facts.slots[slot].marker.clone())).first
}

/// Two good slots: A runs and is the default.
fn two_good(seq: u64, markers: [u64; 2]) -> SystemFacts {
    let mut facts = installed(SectorSize::S512);
    facts.slots.b = system::slot(&facts.gpt, Slot::B, &payload(1), None);
    for (slot, seq) in Slot::BOTH.into_iter().zip(markers) {
        facts.slots[slot].marker = Some(Marker { state: SlotState::Good, seq });
        facts.slots[slot].whole = Some(Ok(()));
    }
    let states = PerSlot { a: SlotState::Good, b: SlotState::Good };
    let env = BootEnv { seq, states, ..facts.env.unwrap() };
    (facts.env_copies, facts.env) = ([Some(env.clone()), Some(env.clone())], Some(env));
    facts
}

/// At the last number, and where a marker says any: back and forth, again and again.
#[test]
fn the_default_boots_by_the_markers_at_every_number() {
    for (seq, markers) in [(2, [1, 2]), (LAST, [LAST, LAST]), (LAST, [3, LAST]), (2, [LAST, 1]), (2, [1, LAST])] {
        let mut facts = two_good(seq, markers);
        for to in [Slot::B, Slot::A, Slot::B, Slot::A] {
            facts.running = Running::This { slot: !to, trial: false };
            let plan = plan::rollback(&base(5), &facts).unwrap();
            facts = after(&facts, &plan, false);
            assert_eq!(
                (facts.env.as_ref().unwrap().default, by_markers(&facts)),
                (to, to),
                "{seq}, {markers:?}: {plan}"
            );
            facts.running = Running::This { slot: to, trial: false };
            let again = plan::confirm(&base(6), &facts).unwrap();
            assert!(again.steps.is_empty(), "{seq}, {markers:?}: {again}");
        }
    }
}

/// The ESP was put back, perhaps while the system runs that was confirmed since.
#[test]
fn what_was_the_default_since_is_gone_back_to_and_not_written_over() {
    let mut facts = two_good(2, [1, 7]);
    let mut env = facts.env.unwrap();
    env.states.b = SlotState::Empty;
    (facts.env_copies, facts.env) = ([Some(env.clone()), Some(env.clone())], Some(env));
    facts.running = Running::This { slot: Slot::B, trial: false };
    // A rollback leaves what runs, unless nothing else boots.
    assert!(plan::rollback(&base(5), &facts).unwrap().steps.is_empty());
    for (slot, damage) in [(Slot::A, None), (Slot::B, Some("vmlinuz: damaged"))] {
        facts.running = Running::This { slot, trial: false };
        facts.slots.a.whole = Some(damage.map_or(Ok(()), |why| Err(why.to_owned())));
        let plan = plan::rollback(&base(5), &facts).unwrap();
        let (cut, facts) = (after(&facts, &plan, true), after(&facts, &plan, false));
        let env = facts.env.as_ref().unwrap();
        assert_eq!((env.default, env.states.b, by_markers(&facts)), (Slot::B, SlotState::Good, Slot::B), "{plan}");
        assert_eq!(cut.later_default(), None);
        assert!(slot == Slot::B || plan::upgrade(&system::upgrade(), &facts, &payload(2)).is_err(), "{plan}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_new_default_is_the_last_one(
        mut facts in random_system(),
        numbers in (number(), number()),
        verb in prop_oneof![Just(3u8), Just(4), Just(10)],
        n in 0u8..3,
    ) {
        for (slot, seq) in [(Slot::A, numbers.0), (Slot::B, numbers.1)] {
            facts.slots[slot].marker.iter_mut().for_each(|marker| marker.seq = seq);
        }
        if verb == 10 {
            facts.running = Running::Unknown;
        }
        let Ok(plan) = decide(verb, [true; 4], n, &facts) else { return Ok(()) };
        let (cut, done) = (after(&facts, &plan, true), after(&facts, &plan, false));
        let Some(env) = done.env.clone().filter(|_| plan.steps.iter().any(Step::is_commit)) else { return Ok(()) };
        // What is cancelled was no default.
        let is_cancelled = facts.env.as_ref().is_some_and(|env| env.once.is_some());
        if !is_cancelled && env.states[env.default] == SlotState::Good {
            prop_assert_eq!((cut.later_default(), done.later_default()), (None, None), "{}", plan);
            prop_assert_eq!(by_markers(&done), env.default, "{}", plan);
        }
        // What was gone back to is no place for the next system.
        if done.slots[env.default].damage().is_none() {
            let target = |verb| Some(decide(verb, [true; 4], n, &done).ok()?.system?.slot);
            for verb in [0, 1, 6, 7, 8] {
                prop_assert_ne!(target(verb), Some(env.default), "{}", plan);
            }
        }
    }
}
