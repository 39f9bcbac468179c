//! The metrics of pools.

use std::collections::{BTreeMap, BTreeSet};

use slipway_rollout::{
    blocked::Blocked,
    decide::BlockedNode,
    facts::{FailureEvidence, ObservedNode},
};

use crate::{
    certificate_events,
    metrics::PoolMetrics,
    nodes::Answer,
    observed_node::NodeReading,
    pools::{Members, Problem},
    report,
    round::{PoolRound, Round},
};

/// The metrics of each pool, by name. The words are those of its status and of its nodes' status; `answers` has what came of
/// requests by node, `refused` what could not be written by pool.
pub fn of(
    round: &Round,
    members: &Members<'_>,
    readings: &BTreeMap<String, NodeReading>,
    (answers, refused): (&BTreeMap<String, Answer>, &BTreeMap<String, String>),
) -> BTreeMap<String, PoolMetrics> {
    let pools = round.pools.iter().map(|(name, pool_round)| {
        let mut figures = match pool_round {
            Ok(pool_round) => of_round(pool_round, readings, answers),
            Err(problem) => of_problem(problem, members.in_pool(name).len()),
        };
        figures.refused = refused.contains_key(name);
        figures.grants = round.ledger.grants.iter().filter(|grant| grant.node.pool == *name).count();
        (name.clone(), figures)
    });
    pools.collect()
}

fn of_round(
    pool_round: &PoolRound,
    readings: &BTreeMap<String, NodeReading>,
    answers: &BTreeMap<String, Answer>,
) -> PoolMetrics {
    let (mut nodes, mut fetched, mut reused, mut written) = (BTreeMap::new(), 0_u64, 0_u64, 0_u64);
    for status in report::nodes(pool_round, readings, answers).into_values() {
        fetched = fetched.saturating_add(status.bytes_fetched.unwrap_or_default());
        reused = reused.saturating_add(status.bytes_reused.unwrap_or_default());
        written = written.saturating_add(status.bytes_written.unwrap_or_default());
        *nodes.entry(status.reason).or_default() += 1;
    }
    // Who is gone with a grant is no Node any more, and has no NodeUpgrade.
    let there: BTreeSet<&str> = pool_round.facts.nodes.iter().map(|observed| observed.node.uid.as_str()).collect();
    for blocked in pool_round.decision.blocked.iter().filter(|of| !there.contains(of.node.uid.as_str())) {
        *nodes.entry(blocked.why.reason().to_owned()).or_default() += 1;
    }
    if !pool_round.shared.is_empty() {
        nodes.insert("NodesShared".to_owned(), pool_round.shared.len());
    }
    let limits = &pool_round.decision.limits;
    let state = report::state(pool_round).to_owned();
    PoolMetrics {
        stopped: state == "Paused" && pool_round.facts.stopped.is_some(),
        state,
        budget: Some(limits.max_unavailable.unavailable(limits.size)),
        failures: pool_round.decision.blocked.iter().filter(|of| has_failed(pool_round, of)).count(),
        certificate_expiry: certificate_expiry(pool_round, readings),
        moved: [("registry", fetched), ("slots", reused)],
        written,
        nodes,
        ..PoolMetrics::default()
    }
}

/// It failed for good. As long as it is not well it keeps its grant, and its status has that for a reason.
fn has_failed(pool_round: &PoolRound, of: &BlockedNode) -> bool {
    let facts = &pool_round.facts;
    let is_final = |observed: &ObservedNode| {
        let failure = observed.failure().filter(|_| !observed.runs(facts.plan.payload));
        failure.is_some_and(|failure| failure.evidence != FailureEvidence::BeforeReboot)
    };
    let has_grant = || facts.ledger.held(&of.node.uid).is_some() && !facts.is_left_out(&of.node.uid);
    let observed = || facts.nodes.iter().find(|observed| observed.node.uid == of.node.uid);
    matches!(of.why, Blocked::Failed(_)) || (has_grant() && observed().is_some_and(is_final))
}

/// When the first certificate expires: of each node's the one that an event names.
fn certificate_expiry(pool_round: &PoolRound, readings: &BTreeMap<String, NodeReading>) -> Option<i64> {
    let readings =
        pool_round.facts.nodes.iter().filter_map(|observed| readings.get(&observed.node.uid)?.status.as_ref().ok());
    readings.filter_map(certificate_events::first_of).map(|certificate| certificate.expires).min()
}

fn of_problem(problem: &Problem, members: usize) -> PoolMetrics {
    let nodes = BTreeMap::from([(problem.reason().to_owned(), members)]);
    PoolMetrics { state: "Invalid".to_owned(), nodes, ..PoolMetrics::default() }
}
