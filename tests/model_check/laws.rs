//! What must hold in every state.

use slipway::model::{
    bootenv::BootEnv,
    slot::{Slot, SlotState},
};
use stateright::Property;

use super::{
    grub::{self, End},
    installer::{Verb, Write},
    machine::{At, Fault, Machine, State},
    medium::{Medium, PAYLOADS},
};

/// What firmware may do with GRUB's saves, every time.
const SAVES: [grub::Saves; 4] = [[true, true], [false, false], [true, false], [false, true]];

/// All of them.
pub fn all() -> Vec<Property<Machine>> {
    vec![
        Property::always("the machine always comes up in a whole system that is known to work", comes_up),
        Property::always("what was activated is tried at most once", |_, state: &State| state.tries <= 1),
        Property::always("what nobody confirmed is booted as a trial only", |_, state: &State| match state.at {
            At::Runs { slot, trial: false } => state.medium.slots[slot].confirmed,
            _ => true,
        }),
        Property::always("a slot is written only while nothing boots it and another system is good", spares_the_good),
        Property::always("no write and no power cut loses the boot state", |_, state: &State| {
            state.medium.copies != [None, None] || state.fault == Fault::Both
        }),
        Property::always("the default is good, and is never to be tried", default_is_good),
        Property::always("from two good systems, rollback leads to the other", rolls_back),
        Property::always("a trial that works can be confirmed, and is the default then", confirms),
        Property::always("a machine that came up takes an upgrade", takes_an_upgrade),
        Property::sometimes("a trial runs", |_, state: &State| matches!(state.at, At::Runs { trial: true, .. })),
        Property::sometimes("B is the default", |_, state: &State| {
            env(&state.medium).is_some_and(|e| e.default == Slot::B)
        }),
        Property::sometimes("a damaged default is passed over", |_, state: &State| {
            let runs = |slot| state.at == At::Runs { slot, trial: false };
            env(&state.medium).is_some_and(|e| runs(!e.default) && !state.medium.slots[e.default].whole())
        }),
        Property::sometimes("a boot state is rebuilt", |_, state: &State| {
            state.medium.copies == [None, None] && matches!(state.pending.first(), Some(Write::Env(..)))
        }),
        Property::sometimes("both systems are good", |_, state: &State| {
            Slot::BOTH.into_iter().all(|slot| state.medium.slots[slot].sound())
        }),
    ]
}

fn env(medium: &Medium) -> Option<&BootEnv> {
    BootEnv::pick(&medium.copies)
}

fn comes_up(machine: &Machine, state: &State) -> bool {
    SAVES.into_iter().all(|saves| {
        grub::settles(&state.medium, saves, machine.mutant()).is_some_and(|(slot, after)| after.slots[slot].sound())
    })
}

fn spares_the_good(machine: &Machine, state: &State) -> bool {
    let Some(slot) = state.pending.first().and_then(Write::overwrites) else { return true };
    let runs = matches!(state.at, At::Runs { slot: s, .. } if s == slot);
    let boots = SAVES.into_iter().any(|saves| {
        let end = grub::run(&mut state.medium.clone(), saves, machine.mutant());
        matches!(end, End::Boots { slot: s, .. } if s == slot)
    });
    !runs && !boots && state.medium.slots[!slot].confirmed
}

fn default_is_good(_: &Machine, state: &State) -> bool {
    state
        .medium
        .copies
        .iter()
        .flatten()
        .all(|env| env.states[env.default] == SlotState::Good && env.once.is_none_or(|once| once != env.default))
}

/// Carry out a verb without a hitch; `None` where it is refused.
fn done(machine: &Machine, state: &State, verb: Verb) -> Option<Medium> {
    let At::Runs { slot, trial } = state.at else { return None };
    let mut medium = state.medium.clone();
    let writes = machine.installer.decide(&medium, (slot, trial), verb).ok()?;
    writes.iter().for_each(|write| write.apply(&mut medium));
    Some(medium)
}

fn boots_next(machine: &Machine, mut medium: Medium) -> End {
    grub::run(&mut medium, [true, true], machine.mutant())
}

fn rolls_back(machine: &Machine, state: &State) -> bool {
    let (At::Runs { slot, .. }, Some(env)) = (state.at, env(&state.medium)) else { return true };
    let other = &state.medium.slots[!slot];
    let both = Slot::BOTH.into_iter().all(|slot| env.states[slot] == SlotState::Good);
    if !both || !other.sound() || env.default != slot || env.once.is_some() || !state.pending.is_empty() {
        return true;
    }
    done(machine, state, Verb::Rollback)
        .is_some_and(|medium| boots_next(machine, medium) == End::Boots { slot: !slot, trial: false })
}

fn confirms(machine: &Machine, state: &State) -> bool {
    let (At::Runs { slot, trial: true }, Some(env)) = (state.at, env(&state.medium)) else { return true };
    let here = &state.medium.slots[slot];
    if env.states[slot] != SlotState::Tried || !here.whole() || env.once.is_some() || !state.pending.is_empty() {
        return true;
    }
    done(machine, state, Verb::Confirm)
        .is_some_and(|medium| boots_next(machine, medium) == End::Boots { slot, trial: false })
}

fn takes_an_upgrade(machine: &Machine, state: &State) -> bool {
    let Some((slot, medium)) = grub::settles(&state.medium, [true, true], machine.mutant()) else { return true };
    let new = (0..PAYLOADS).find(|n| medium.slots[slot].payload() != Some(*n)).unwrap_or_default();
    let verb = Verb::Upgrade { payload: new, preserve: true };
    machine.installer.decide(&medium, (slot, false), verb).is_ok()
}
