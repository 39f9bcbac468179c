//! Many rollouts, one after the other, each from its seed.

use crate::{
    clock::Trace,
    mutant::Mutant,
    scenario::Scenario,
    world::{Counts, World},
};

/// A law that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// By this seed.
    pub seed: u64,
    /// The broken law.
    pub law: String,
}

/// One rollout. Returns the counts, and the law that was broken, if one was.
pub fn run(seed: u64, nodes: Option<usize>, mutant: Mutant) -> (Counts, Option<Failure>) {
    let mut world = World::new(Scenario::new(seed, nodes), mutant, Trace::default());
    let failure = world.run().map(|law| Failure { seed, law });
    (world.counts, failure)
}

/// The same again, with everything that happened.
pub fn replay(seed: u64, nodes: Option<usize>, mutant: Mutant) -> (Vec<String>, Option<Failure>) {
    let mut world = World::new(Scenario::new(seed, nodes), mutant, Trace::kept());
    let failure = world.run().map(|law| Failure { seed, law });
    (world.trace.lines().to_vec(), failure)
}

/// The data for the analysis of a failure: the law, the last that happened, and the command that replays it.
pub fn describe_failure(failure: &Failure, nodes: Option<usize>, mutant: Mutant) -> String {
    let (lines, _) = replay(failure.seed, nodes, mutant);
    let from = lines.len().saturating_sub(40);
    let command = Scenario::new(failure.seed, nodes).command(nodes.is_some());
    format!("{}\nBROKEN by seed {}: {}\nreplay: {command}", lines[from..].join("\n"), failure.seed, failure.law)
}

/// Many rollouts: the counts, and the first law that was broken.
pub fn many(first: u64, rollouts: u64, nodes: Option<usize>, mutant: Mutant) -> (Counts, Option<Failure>) {
    let mut sum = Counts::default();
    for seed in first..first.saturating_add(rollouts) {
        let (counts, failure) = run(seed, nodes, mutant);
        sum.add(&counts);
        if failure.is_some() {
            return (sum, failure);
        }
    }
    (sum, None)
}
