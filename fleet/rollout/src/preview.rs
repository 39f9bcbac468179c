//! The preview of a rollout: its plan, the earliest times, and what blocks it now.
//!
//! The times come from the same ledger and the same policies, in a world where every node takes as long as is said, none
//! fails, and no other node is disturbed. So a node may begin later than it says here, and not before.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    decide::{BlockedNode, decide},
    duration::PositiveDuration,
    facts::{Facts, ObservedNode, WindowOverride},
    ledger::{Ledger, Node, Refusal},
    plan::Plan,
    policy::Rules,
};

/// The preview of a rollout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Preview {
    /// The plan; people agree to its hash.
    pub plan: Plan,
    /// When its nodes begin at the earliest.
    pub times: Times,
    /// Why nodes do not go now.
    pub blocked: Vec<BlockedNode>,
}

/// When a node begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Begins {
    /// It has begun, or nothing more is expected of it.
    Already,
    /// Not before.
    At(Timestamp),
    /// Nothing that is allowed ever lets it begin.
    Never,
}

/// The earliest times of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Times {
    /// When each node of each wave begins.
    pub begins: Vec<Vec<Begins>>,
    /// When the last soak is over; `None` if that never comes.
    pub ends: Option<Timestamp>,
}

/// The progress of a plan when its times are computed.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// The number of nodes of the pool.
    pub size: u32,
    /// The number of finished waves.
    pub passed: usize,
    /// UIDs of nodes that have begun, or of which nothing more is expected.
    pub begun: &'a BTreeSet<&'a str>,
    /// Whether a person has it go now.
    pub window_override: Option<WindowOverride>,
}

/// The preview of this snapshot's plan from now on, if each node takes so long.
pub fn preview(facts: &Facts, takes: PositiveDuration, now: Timestamp) -> Preview {
    let Facts { plan, rules, nodes, passed, .. } = facts;
    let has_begun = |observed: &&ObservedNode| observed.runs(plan.payload) || observed.failure().is_some();
    let begun = nodes.iter().filter(has_begun).map(|observed| observed.node.uid.as_str());
    let begun = begun.chain(facts.skip.union(&facts.going).map(String::as_str)).collect();
    let size = u32::try_from(nodes.len()).unwrap_or(u32::MAX);
    let times = times(
        plan,
        rules,
        Progress { size, passed: *passed, begun: &begun, window_override: facts.window_override },
        takes,
        now,
    );
    Preview { plan: plan.clone(), times, blocked: decide(facts, now).blocked }
}

/// When the nodes of a plan begin from now on at the earliest, if each takes so long.
pub fn times(plan: &Plan, rules: &Rules, progress: Progress<'_>, takes: PositiveDuration, now: Timestamp) -> Times {
    let Progress { size, window_override, .. } = progress;
    let mut clock = Clock { rules, size, takes, window_override, ledger: Ledger::default(), ends: Vec::new() };
    let mut at = Some(now);
    let mut begins = Vec::new();
    for (n, wave) in plan.waves.iter().enumerate() {
        let mut times = Vec::new();
        for node in &wave.nodes {
            if progress.begun.contains(node.uid.as_str()) {
                times.push(Begins::Already);
                continue;
            }
            at = at.and_then(|at| clock.begins(node, at));
            times.push(at.map_or(Begins::Never, Begins::At));
        }
        // When a running soak ends is not known here, only that it is not before now. One that has not begun counts in full.
        let soak = wave.soak.filter(|_| n >= progress.passed && times.iter().any(|time| *time != Begins::Already));
        begins.push(times);
        // The wave is over when its last node is.
        at = at.map(|at| clock.all_end(at)).map(|at| {
            let is_passed_over = window_override
                .is_some_and(|window_override| window_override.soak == Some(n) && at < window_override.until);
            soak.filter(|_| !is_passed_over).map_or(at, |soak| soak.after(at))
        });
    }
    Times { begins, ends: at }
}

struct Clock<'a> {
    rules: &'a Rules,
    size: u32,
    takes: PositiveDuration,
    window_override: Option<WindowOverride>,
    ledger: Ledger,
    /// When which grant ends.
    ends: Vec<(Timestamp, u64)>,
}

impl Clock<'_> {
    /// When a node begins, from `at` on.
    fn begins(&mut self, node: &Node, mut at: Timestamp) -> Option<Timestamp> {
        loop {
            // Until then no window counts.
            if self.window_override.is_none_or(|window_override| window_override.until <= at) {
                at = self.rules.opens(at)?;
            }
            self.end_until(at);
            let limits = self.rules.limits(self.size, Vec::new(), at, None);
            let refused = match self.ledger.give(node, None, &limits, at) {
                Ok(token) => {
                    self.ends.push((self.takes.after(at), token));
                    return Some(at);
                }
                Err(refused) => refused,
            };
            let again = if let Refusal::Rate { again, .. } = refused { again } else { None };
            let ends = self.ends.iter().map(|(end, _)| *end).min();
            at = [again, ends].into_iter().flatten().filter(|later| *later > at).min()?;
        }
    }

    fn end_until(&mut self, at: Timestamp) {
        let is_over = |token: u64| self.ends.iter().any(|(end, of)| *of == token && *end <= at);
        self.ledger.grants.retain(|grant| !is_over(grant.token));
        self.ends.retain(|(end, _)| *end > at);
    }

    /// When all that have begun are done.
    fn all_end(&mut self, at: Timestamp) -> Timestamp {
        let last = self.ends.iter().map(|(end, _)| *end).max().unwrap_or(at).max(at);
        self.end_until(last);
        last
    }
}
