//! A disk from outside: what pends on it is settled inside the system.

use slipway_core::{
    boot::{
        env::Marker,
        running::Running,
        slot::{Slot, SlotState},
    },
    plan::{self, RunsFrom, SystemFacts, UpgradeRequest},
    units::SectorSize,
};
use slipway_test_support::system::{self, installed, payload};

/// Slot B holds payload 1 in this state, and is to be tried at the next boot.
fn armed(state: SlotState) -> SystemFacts {
    let mut facts = installed(SectorSize::S512);
    let mut env = facts.env.unwrap().deactivated(Slot::B, 1).staged(Slot::B, 1).armed(Slot::B, 2);
    env.states.b = state;
    facts.slots.b = system::slot(&facts.gpt, Slot::B, &payload(1), Some(Marker { state, seq: 1 }));
    facts.slots.b.whole = Some(Ok(()));
    facts.env_copies = [Some(env.clone()), Some(env.clone())];
    facts.env = Some(env);
    facts.running = Running::Unknown;
    facts
}

#[test]
fn only_the_same_trial_is_armed_again() {
    let request = UpgradeRequest { runs_from: RunsFrom::Offline, ..system::upgrade() };
    let asks = |state, n| plan::upgrade(&request, &armed(state), &payload(n));
    let plan = asks(SlotState::Untried, 1).unwrap();
    assert!(plan.system.is_none() && plan.steps.is_empty(), "it pends already: {plan}");
    for (state, n) in [(SlotState::Untried, 2), (SlotState::Tried, 1), (SlotState::Bad, 1), (SlotState::Empty, 1)] {
        let refusals = asks(state, n).expect_err("a pending trial is overwritten");
        assert!(refusals.to_string().contains("slot B is to be tried at the next boot"), "{state:?}: {refusals}");
    }
}
