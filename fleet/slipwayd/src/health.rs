//! The node's health, as regular checks found it. A client gets the last result and does not wait for a check.
//!
//! * A result counts only within its quiet period: an operation that disturbs the node makes it worthless.
//! * What could not be checked is neither well nor ill. Nor is a system with faults that may still be starting.
//! * The time in a state is counted from the end of the first check that found it, so it is never longer than what is known.

use std::mem;

use slipway_node::{journal::Journal, operation::Operation, request::Goal};
use slipway_node_api::v1::{self, HealthState};
use uuid::Uuid;

/// Seconds after which a result does not count any more: the checker hangs, or the machine slept.
const STALE: u64 = 240;

/// The findings of a check, as sentences. Without any the node is well.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// The faults.
    pub ill: Vec<String>,
    /// The parts that could not be looked at.
    pub unknown: Vec<String>,
    /// Why the system of the other slot would strand this node's member of etcd. The node is well all the same.
    pub no_way_back: Option<String>,
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

/// A time without an operation that disturbs the node: after this operation, or since there is a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuietPeriod(Option<Uuid>);

impl QuietPeriod {
    /// The current one; `None` if an operation disturbs the node.
    pub fn after_operation(journal: &Journal) -> Option<Self> {
        let disturbs = |op: &Operation| op.request.goal != Goal::Stage;
        if journal.operation.as_ref().is_some_and(disturbs) {
            return None;
        }
        let last = journal.ended.iter().find(|ended| ended.request.goal != Goal::Stage);
        Some(Self(last.map(|ended| ended.request.id)))
    }
}

/// The last check.
#[derive(Debug)]
struct Seen {
    look: Look,
    quiet: QuietPeriod,
    at: u64,
    /// Since when checks have found the same.
    since: u64,
}

/// The results of checks. Times are seconds since the kernel started.
#[derive(Debug, Default)]
pub struct Health(Option<Seen>);

impl Health {
    /// A check began and ended within `quiet`, and ended `at`. Until `started` the system may still be starting.
    pub fn saw(&mut self, mut look: Look, quiet: QuietPeriod, at: u64, started: u64) {
        if at < started {
            let not_yet = mem::take(&mut look.ill);
            look.unknown.splice(0..0, not_yet);
        }
        let goes_on = |seen: &&Seen| seen.counts(Some(quiet), at) && seen.look.state() == look.state();
        let since = self.0.as_ref().filter(goes_on).map_or(at, |seen| seen.since);
        self.0 = Some(Seen { look, quiet, at, since });
    }

    /// Why there is no way back, by the last check that counts.
    pub fn no_way_back(&self, journal: &Journal, now: u64) -> Option<String> {
        let seen = self.0.as_ref().filter(|seen| seen.counts(QuietPeriod::after_operation(journal), now))?;
        seen.look.no_way_back.clone()
    }

    /// The health at this time, with this journal.
    pub fn report(&self, journal: &Journal, now: u64) -> v1::Health {
        let quiet = QuietPeriod::after_operation(journal);
        match self.0.as_ref().filter(|seen| seen.counts(quiet, now)) {
            Some(Seen { look, since, .. }) => v1::Health {
                state: look.state().into(),
                seconds: now.saturating_sub(*since),
                reasons: look.ill.iter().chain(&look.unknown).cloned().collect(),
            },
            None => {
                let why = match quiet {
                    None => "an operation is under way",
                    Some(_) => "no check has ended since the last operation, or lately",
                };
                v1::Health { state: HealthState::Unknown.into(), seconds: 0, reasons: vec![why.to_owned()] }
            }
        }
    }
}

impl Seen {
    fn counts(&self, quiet: Option<QuietPeriod>, now: u64) -> bool {
        quiet == Some(self.quiet) && now.saturating_sub(self.at) <= STALE
    }
}
