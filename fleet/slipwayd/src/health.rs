//! How the node is, as looks in between have found it. Whoever asks does not wait for a look.
//!
//! * A look counts only between the operations between which it was made: one that disturbs makes it worthless.
//! * What could not be looked at is neither well nor ill.
//! * A time is counted from the look that ended it, and from no earlier one: it is never longer than what is known.

use slipway_node::{goal::Goal, journal::Journal, operation::Operation};
use slipway_node_api::v1::{self, HealthState};
use uuid::Uuid;

/// Seconds after which a look says nothing any more. The looker hangs, or the machine slept.
const STALE: u64 = 240;

/// What a look found, as sentences. Without any the node is well.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// What is not well.
    pub ill: Vec<String>,
    /// What could not be looked at.
    pub unknown: Vec<String>,
}

impl Look {
    fn state(&self) -> HealthState {
        match (self.ill.is_empty(), self.unknown.is_empty()) {
            (false, _) => HealthState::Ill,
            (true, false) => HealthState::Unknown,
            (true, true) => HealthState::Well,
        }
    }
}

/// A time in which nothing disturbs the node: after this operation, or since it has a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Calm(Option<Uuid>);

impl Calm {
    /// The one that it is now; `None` if an operation disturbs the node.
    pub fn of(journal: &Journal) -> Option<Self> {
        let disturbs = |op: &Operation| op.request.goal != Goal::Stage;
        if journal.operation.as_ref().is_some_and(disturbs) {
            return None;
        }
        let last = journal.ended.iter().find(|ended| ended.request.goal != Goal::Stage);
        Some(Self(last.map(|ended| ended.request.id)))
    }
}

/// The last look.
#[derive(Debug)]
struct Seen {
    look: Look,
    calm: Calm,
    at: u64,
    /// Since when looks have found the same.
    since: u64,
}

/// What looks have found. Times are seconds since the kernel started.
#[derive(Debug, Default)]
pub struct Health(Option<Seen>);

impl Health {
    /// A look that began and ended within `calm`, and ended `at`.
    pub fn saw(&mut self, look: Look, calm: Calm, at: u64) {
        let goes_on = |seen: &&Seen| seen.counts(Some(calm), at) && seen.look.state() == look.state();
        let since = self.0.as_ref().filter(goes_on).map_or(at, |seen| seen.since);
        self.0 = Some(Seen { look, calm, at, since });
    }

    /// What is known at this time, with this journal.
    pub fn tell(&self, journal: &Journal, now: u64) -> v1::Health {
        let calm = Calm::of(journal);
        match self.0.as_ref().filter(|seen| seen.counts(calm, now)) {
            Some(Seen { look, since, .. }) => v1::Health {
                state: look.state().into(),
                seconds: now.saturating_sub(*since),
                reasons: look.ill.iter().chain(&look.unknown).cloned().collect(),
            },
            None => {
                let why = match calm {
                    None => "an operation is under way",
                    Some(_) => "nobody has looked lately, or since the last operation",
                };
                v1::Health { state: HealthState::Unknown.into(), seconds: 0, reasons: vec![why.to_owned()] }
            }
        }
    }
}

impl Seen {
    fn counts(&self, calm: Option<Calm>, now: u64) -> bool {
        calm == Some(self.calm) && now.saturating_sub(self.at) <= STALE
    }
}
