//! The laws of every state.

use slipway_core::boot::slot::SlotState;
use slipway_node::{
    facts::Facts,
    journal::{Asked, Refusal},
    operation::Operation,
    request::{Goal, Request},
    sequence::{Limits, Next, Outcome, next},
    step::Step,
};
use stateright::Property;
use uuid::Uuid;

use super::{
    disk::{TARGET, digest},
    machine::{Machine, is_back},
    state::State,
};

pub const BROKEN: &str = "no step breaks a law";

pub fn all() -> Vec<Property<Machine>> {
    vec![
        Property::always(BROKEN, |_: &Machine, state: &State| state.broken.is_none()),
        Property::always(
            "the next boot is safe, and so is what a trial falls back to",
            |_: &Machine, state: &State| state.disk.is_safe(),
        ),
        Property::always("a fair run ends, or names its blocker", |machine: &Machine, state: &State| {
            machine.ends(state)
        }),
        Property::always("what was not done has a reason", |_: &Machine, state: &State| {
            let names = |op: &Operation| op.blocker.is_some() || is_back(state);
            !state.unsettled || state.op().is_none_or(names)
        }),
        Property::always("who cannot see waits, and says for what", waits_when_blind),
        Property::always("one operation at a time, and none twice", asks),
        Property::sometimes("an operation reaches its end", |_: &Machine, state: &State| {
            state.journal.ended.first().is_some_and(|ended| ended.outcome == Outcome::Reached)
        }),
        Property::sometimes("an operation comes back", |_: &Machine, state: &State| {
            state.journal.ended.first().is_some_and(|ended| matches!(ended.outcome, Outcome::CameBack(_)))
        }),
        Property::sometimes("a node is taken as it is", |machine: &Machine, state: &State| {
            let is_left = state.journal.ended.first().is_some_and(|ended| matches!(ended.outcome, Outcome::Left(_)));
            is_left || machine.goal == Goal::Stage
        }),
    ]
}

fn waits_when_blind(_: &Machine, state: &State) -> bool {
    let sees = |facts: &Facts| state.op().map(|op| next(op, facts, Limits::default()));
    let facts = state.facts(0);
    let no_disk = sees(&Facts { disk: None, ..facts.clone() });
    let no_cluster = sees(&Facts { node: None, member: None, ..facts });
    let waits = |next: &Option<Next>| matches!(next, Some(Next::Wait(why)) if !why.is_empty());
    let needs = state.op().is_some_and(|op| {
        let misses = |step: Step| match step {
            Step::Cordon => op.cordon.is_none(),
            Step::Leave => op.left.is_none(),
            _ => false,
        };
        matches!(no_cluster, Some(Next::Begin(step)) if misses(step))
    });
    state.op().is_none() || (waits(&no_disk) && !needs)
}

/// The same request again, another one, and an old token.
fn asks(machine: &Machine, state: &State) -> bool {
    if state.to_do.is_some() {
        return true;
    }
    let same = crate::request(machine.goal, machine.preserve, machine.token);
    let other = Request { id: Uuid::from_u128(99), token: None, ..same.clone() };
    let ask = |request: Request| {
        let mut journal = (*state.journal).clone();
        let asked = journal.ask(request, machine.shape, &state.facts(0));
        (asked.clone(), journal == *state.journal)
    };
    let again = ask(same.clone());
    if state.op().is_some() {
        return again == (Ok(Asked::UnderWay), true) && ask(other) == (Err(Refusal::Busy(same.id)), true);
    }
    let Some(ended) = state.journal.ended.first() else { return false };
    let stale = ask(Request { token: machine.token, ..other.clone() });
    let is_stale = machine.token.is_none() || matches!(stale, (Err(Refusal::StaleToken { .. }), true));
    let denied = state.journal.denial(digest(TARGET)).is_some();
    let names = Request { payload: other.goal.writes().then(|| digest(TARGET)), ..other };
    let is_free = match ask(names.clone()) {
        (Err(Refusal::Denied { .. }), true) => denied,
        (Err(Refusal::OnTrial), true) => state.disk.is_trial(),
        (Err(Refusal::Invalid(_)), true) => state.disk.states[!state.disk.running] != SlotState::Good,
        (Ok(Asked::New), false) => !(denied && names.payload.is_some()),
        _ => false,
    };
    again == (Ok(Asked::Ended(ended.outcome.clone())), true) && is_stale && is_free
}
