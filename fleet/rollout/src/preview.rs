//! What a rollout would do: its plan, the earliest times, and what blocks it now.
//!
//! The times come from the same ledger and the same policies, in a world where every node takes as long as is said, none
//! fails, and nobody else is disturbed. So a node may begin later than it says here, and not before.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    decide::{Waiting, decide},
    facts::Snapshot,
    ledger::{Ledger, Node, Refused},
    plan::Plan,
    policy::Rules,
    span::Span,
};

/// What a rollout would do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Preview {
    /// The plan; its hash is what is agreed to.
    pub plan: Plan,
    /// When each node of each wave begins at the earliest; `None` if it never does.
    pub begins: Vec<Vec<Option<Timestamp>>>,
    /// When the last soak is over, at the earliest.
    pub ends: Option<Timestamp>,
    /// Why nodes do not go now.
    pub waiting: Vec<Waiting>,
}

/// What the plan of this snapshot would do from now on, if each node takes so long.
pub fn preview(snapshot: &Snapshot, takes: Span, now: Timestamp) -> Preview {
    let size = u32::try_from(snapshot.nodes.len()).unwrap_or(u32::MAX);
    let mut clock = Clock { rules: &snapshot.rules, size, takes, ledger: Ledger::default(), ends: Vec::new() };
    let mut at = Some(now);
    let mut begins = Vec::new();
    for wave in &snapshot.plan.waves {
        let mut times = Vec::new();
        for node in &wave.nodes {
            at = at.and_then(|at| clock.begins(node, at));
            times.push(at);
        }
        begins.push(times);
        // The wave is over when its last node is.
        at = at.map(|at| clock.all_end(at)).map(|at| wave.soak.map_or(at, |soak| soak.after(at)));
    }
    Preview { plan: snapshot.plan.clone(), begins, ends: at, waiting: decide(snapshot, now).waiting }
}

struct Clock<'a> {
    rules: &'a Rules,
    size: u32,
    takes: Span,
    ledger: Ledger,
    /// When which grant ends.
    ends: Vec<(Timestamp, u64)>,
}

impl Clock<'_> {
    /// When a node begins, from `at` on.
    fn begins(&mut self, node: &Node, mut at: Timestamp) -> Option<Timestamp> {
        loop {
            at = self.rules.opens(at)?;
            self.end_until(at);
            let limits = self.rules.limits(self.size, Vec::new(), at, None);
            let refused = match self.ledger.give(node, &limits, at) {
                Ok(token) => {
                    self.ends.push((self.takes.after(at), token));
                    return Some(at);
                }
                Err(refused) => refused,
            };
            let again = if let Refused::Rate { again, .. } = refused { again } else { None };
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
