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

/// What each pool is like, by name. The words are those of its status and of its nodes' status.
pub fn of(
    round: &Round,
    members: &Members<'_>,
    looks: &BTreeMap<String, Look>,
    answers: &BTreeMap<String, Answer>,
) -> BTreeMap<String, PoolFigures> {
    let pools = round.pools.iter().map(|(name, course)| {
        let mut figures = match course {
            Ok(course) => of_course(course, looks, answers),
            Err(problem) => of_problem(problem, members.of(name).len()),
        };
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
        grants: 0,
    }
}

fn of_problem(problem: &Problem, members: usize) -> PoolFigures {
    let nodes = BTreeMap::from([(problem.word().to_owned(), members)]);
    PoolFigures { state: "Invalid".to_owned(), nodes, ..PoolFigures::default() }
}
