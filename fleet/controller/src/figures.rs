//! What pools are like, counted.

use std::collections::BTreeMap;

use crate::{
    metrics::PoolFigures,
    nodes::Answer,
    pools::{Members, Problem},
    report,
    round::{Course, Round},
    seen::Look,
};

/// What each pool is like, by name. The words are those of its status and of its nodes' status; `answers` has what came of
/// requests by node, `refused` what could not be written by pool.
pub fn of(
    round: &Round,
    members: &Members<'_>,
    looks: &BTreeMap<String, Look>,
    (answers, refused): (&BTreeMap<String, Answer>, &BTreeMap<String, String>),
) -> BTreeMap<String, PoolFigures> {
    let pools = round.pools.iter().map(|(name, course)| {
        let mut figures = match course {
            Ok(course) => of_course(course, looks, answers),
            Err(problem) => of_problem(problem, members.of(name).len()),
        };
        figures.refused = refused.contains_key(name);
        figures.grants = round.ledger.grants.iter().filter(|grant| grant.node.pool == *name).count();
        (name.clone(), figures)
    });
    pools.collect()
}

fn of_course(course: &Course, looks: &BTreeMap<String, Look>, answers: &BTreeMap<String, Answer>) -> PoolFigures {
    let mut nodes = BTreeMap::new();
    for status in report::nodes(course, looks, answers).into_values() {
        *nodes.entry(status.reason).or_default() += 1;
    }
    let limits = &course.decision.limits;
    PoolFigures {
        state: report::state(course).to_owned(),
        budget: Some(limits.max_unavailable.unavailable(limits.size)),
        failures: course.snapshot.nodes.iter().filter(|seen| seen.failure().is_some()).count(),
        nodes,
        ..PoolFigures::default()
    }
}

fn of_problem(problem: &Problem, members: usize) -> PoolFigures {
    let nodes = BTreeMap::from([(problem.word().to_owned(), members)]);
    PoolFigures { state: "Invalid".to_owned(), nodes, ..PoolFigures::default() }
}
