//! What must hold in every state.

use slipway_core::boot::{
    env::BootEnv,
    slot::{Slot, SlotState},
};
use stateright::Property;

use super::{
    grub::{self, End},
    installer::{Verb, Write, verbs},
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
        Property::always("what nobody confirmed is booted as a trial only, or by hand", |_, state: &State| {
            state.by_hand || !runs_unconfirmed(state)
        }),
        Property::always("a slot is written only while nothing boots it and another system is good", spares_the_good),
        Property::always("no write and no power cut loses the boot state", |_, state: &State| {
            state.medium.copies != [None, None] || state.fault == Fault::Both
        }),
        Property::always("the default is good, and is never to be tried", default_is_good),
        Property::always("from two good systems, rollback leads to the other", rolls_back),
        Property::always("a trial that works can be confirmed, and is the default then", confirms),
        Property::always("a machine that came up takes an upgrade", takes_an_upgrade),
        Property::always(
            "a verb called again finishes what was interrupted, and then finds nothing to do",
            is_finished,
        ),
        Property::sometimes("a trial runs", |_, state: &State| matches!(state.at, At::Runs { trial: true, .. })),
        Property::sometimes("what nobody confirmed runs, by hand, and the boot state is lost", |_, state: &State| {
            runs_unconfirmed(state) && state.medium.copies == [None, None]
        }),
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
        Property::sometimes("a disk at rest is written", |_, state: &State| {
            state.at == At::Off && matches!(state.pending.first(), Some(Write::Payload(..)))
        }),
        Property::sometimes("both systems are good", |_, state: &State| {
            Slot::BOTH.into_iter().all(|slot| state.medium.slots[slot].sound())
        }),
    ]
}

fn env(medium: &Medium) -> Option<&BootEnv> {
    BootEnv::pick(&medium.copies)
}

/// And not as a trial.
fn runs_unconfirmed(state: &State) -> bool {
    matches!(state.at, At::Runs { slot, trial: false } if !state.medium.slots[slot].confirmed)
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
    let mut medium = state.medium.clone();
    let writes = machine.installer.decide(&medium, state.at.host(), verb).ok()?;
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
    let decide = |host| machine.installer.decide(&medium, host, verb).is_ok();
    // In the system; and of the disk once it is at rest, where what boots is the default.
    let is_default = env(&medium).is_some_and(|env| env.default == slot) && medium.slots[slot].whole();
    decide(Some((slot, false))) && (!is_default || decide(None))
}

/// The purpose of a verb.
fn achieved(medium: &Medium) -> impl PartialEq + use<> {
    let content = |slot: Slot| medium.slots[slot].content;
    let good = |slot: Slot| medium.slots[slot].marker.as_ref().is_some_and(|m| m.state == SlotState::Good);
    let env = env(medium).map(|env| BootEnv { seq: 0, ..env.clone() });
    (env, Slot::BOTH.map(content), Slot::BOTH.map(good), medium.copies[0] == medium.copies[1])
}

fn is_finished(machine: &Machine, state: &State) -> bool {
    // Where numbers do not grow any more, no marker can be made to lead.
    if machine.first_seq != 1 || !state.pending.is_empty() || state.fault != Fault::None {
        return true;
    }
    let decide = |medium: &Medium, verb| machine.installer.decide(medium, state.at.host(), verb);
    let finished = |verb: Verb| {
        let Ok(writes) = decide(&state.medium, verb) else { return true };
        // To leave a damaged default is a change of mind once the other is the default: back into the damage.
        // From outside, what was left is known by its digest, which this model does not keep.
        let is_back = match state.at {
            At::Runs { slot, .. } => env(&state.medium).is_some_and(|env| env.default != slot),
            At::Off => true,
        };
        if verb == Verb::Rollback && is_back {
            return true;
        }
        let mut medium = state.medium.clone();
        let mut left = vec![medium.clone()];
        for write in writes {
            write.apply(&mut medium);
            left.push(medium.clone());
        }
        let lost_its_place = |medium: &Medium| {
            let Ok(writes) = decide(medium, verb) else { return true };
            let mut again = medium.clone();
            writes.iter().for_each(|write| write.apply(&mut again));
            achieved(&again) != achieved(&left[left.len() - 1])
        };
        let preserves = !matches!(verb, Verb::Upgrade { preserve: false, .. } | Verb::Activate { preserve: false });
        let goes_on = preserves && decide(&medium, verb) != Ok(vec![]);
        !goes_on && !left.iter().any(lost_its_place)
    };
    // A marker is ahead when the copy that counted when it was written is lost.
    let seq = env(&state.medium).map_or(0, |env| env.seq);
    let ahead = Slot::BOTH.into_iter().filter_map(|s| state.medium.slots[s].marker.as_ref()).any(|m| m.seq > seq);
    ahead || verbs().into_iter().all(finished)
}
