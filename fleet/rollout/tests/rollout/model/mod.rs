//! Two controllers at once, each with the real decisions, and three nodes, in every order.
//!
//! A controller may crash between any two steps; what it has written may still arrive. What a node says may arrive late, or
//! again after something newer, or never, and so may requests to begin. The API server is one object with a version, and
//! a write that names another version fails. A node reads its grant before it begins, as `slipwayd` will.
//!
//! With a node that lies there is one controller: what a liar may say makes a hundred times as many views.
//!
//! Time stands still: no law here may depend on it. One write of a crashed controller comes late, none where the budget is
//! two; with `SLIPWAY_FLEET_STATES` set, one more.

mod cluster;
mod look;
mod said;
mod state;

use std::time::Instant;

use cluster::Cluster;
use slipway_rollout::ledger::Node;
use state::Mutant;
use stateright::{Checker as _, HasDiscoveries, Model as _};

use crate::{control_plane, worker};

/// Forbidden states.
const BUDGET: &str = "never more nodes than the budget, nor two of the control plane";
const ONE: &str = "no node has a grant, or is at work, while Kubernetes is upgraded";
const HOLDS: &str = "each disturbed node holds the grant that it obeys";
const TOKENS: &str = "tokens rise";
const GOES_ON: &str = "one node stops no rollout";
const ENDS: &str = "without faults all nodes are done in the end";
const REACHED: &str = "all nodes reach it";

/// The laws that are broken.
fn broken(nodes: &[Node], budget: u32, tokens: u64, mutant: Mutant) -> Vec<&'static str> {
    broken_by(Cluster::new(nodes, budget, tokens, mutant), nodes, mutant)
}

/// The same, where the first node lies.
fn broken_with_liar(nodes: &[Node], tokens: u64, mutant: Mutant) -> Vec<&'static str> {
    broken_by(Cluster::new(nodes, 2, tokens, mutant).with_liar(), nodes, mutant)
}

fn broken_by(model: Cluster, nodes: &[Node], mutant: Mutant) -> Vec<&'static str> {
    let start = Instant::now();
    let checker = model.checker().threads(1).finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    eprintln!(
        "{} nodes, {mutant:?}: {} states, {} distinct, depth {}, {:.1} s",
        nodes.len(),
        checker.state_count(),
        checker.unique_state_count(),
        checker.max_depth(),
        start.elapsed().as_secs_f64()
    );
    let found = checker.discoveries();
    assert!(mutant != Mutant::None || found.contains_key(REACHED));
    for (name, path) in found.iter().filter(|(name, _)| **name != REACHED && mutant == Mutant::None) {
        eprintln!("BROKEN: {name}");
        for (state, step) in path.clone().into_vec() {
            eprintln!("    {:?} {step:?}", state.ledger);
        }
    }
    found.into_keys().filter(|name| *name != REACHED).collect()
}

/// The same, where Kubernetes is upgraded once, at any time.
fn broken_with_upgrade(nodes: &[Node], mutant: Mutant) -> Vec<&'static str> {
    broken_by(Cluster::new(nodes, 1, 4, mutant).with_upgrade(), nodes, mutant)
}

/// The same, where all nodes but the first are a younger pool's, whose labels name the first one, too.
fn broken_with_younger_pool(mutant: Mutant) -> Vec<&'static str> {
    broken_by(Cluster::new(&workers(), 1, 4, mutant).with_younger_pool(), &workers(), mutant)
}

const NONE: [&str; 0] = [];

fn workers() -> [Node; 3] {
    ["a-1", "a-2", "a-3"].map(worker)
}

#[test]
fn two_controllers_never_overdraw_a_budget_of_one() {
    assert_eq!(broken(&workers(), 1, 3, Mutant::None), NONE);
}

#[test]
fn a_node_that_is_granted_again_because_it_was_seen_late_is_harmless() {
    assert_eq!(broken(&workers()[..2], 1, 4, Mutant::None), NONE);
}

#[test]
fn two_controllers_never_overdraw_a_budget_of_two() {
    assert_eq!(broken(&workers(), 2, 3, Mutant::None), NONE);
}

#[test]
fn two_controllers_never_take_two_nodes_of_the_control_plane() {
    assert_eq!(broken(&["a-1", "a-2", "a-3"].map(control_plane), 2, 3, Mutant::None), NONE);
}

#[test]
fn kubernetes_and_nodes_are_never_upgraded_at_once() {
    assert_eq!(broken_with_upgrade(&workers()[..2], Mutant::None), NONE);
}

#[test]
fn a_grant_beside_a_claim_and_a_claim_beside_a_grant_are_noticed() {
    for mutant in [Mutant::GrantsBesideClaim, Mutant::ClaimsBesideGrants] {
        let broken = broken_with_upgrade(&workers()[..2], mutant);
        assert!(broken.contains(&ONE), "{mutant:?}: {broken:?}");
    }
}

/// The younger pool names all of them: its budget is that of the model.
#[test]
fn a_node_that_two_pools_name_counts_in_the_budgets_of_both() {
    assert_eq!(broken_with_younger_pool(Mutant::None), NONE);
    let broken = broken_with_younger_pool(Mutant::CountsInOnePool);
    assert!(broken.contains(&BUDGET), "{broken:?}");
}

/// The fault of such grants: a reason never to add them.
#[test]
fn a_grant_that_ends_by_itself_is_noticed() {
    let broken = broken(&workers(), 1, 3, Mutant::Expires);
    assert!(broken.contains(&HOLDS) || broken.contains(&BUDGET), "{broken:?}");
}

#[test]
fn a_budget_from_an_older_ledger_is_noticed() {
    let broken = broken(&workers(), 1, 3, Mutant::OldBudget);
    assert!(broken.contains(&BUDGET), "{broken:?}");
}

#[test]
fn a_report_whose_token_is_not_looked_at_is_noticed() {
    let broken = broken(&workers(), 1, 3, Mutant::AnyToken);
    assert!(broken.contains(&HOLDS) || broken.contains(&BUDGET), "{broken:?}");
}

/// It may take one place of the budget, and one failure; so there are two of each. All others are done, whatever it says.
#[test]
fn a_node_that_lies_harms_its_own_progress_only() {
    assert_eq!(broken_with_liar(&workers(), 3, Mutant::None), NONE);
}

#[test]
fn an_epoch_that_a_node_raises_is_noticed() {
    let broken = broken_with_liar(&workers(), 3, Mutant::BelievesTokens);
    assert!(broken.contains(&ENDS) || broken.contains(&TOKENS), "{broken:?}");
}

#[test]
fn a_token_that_is_remembered_before_the_ledger_is_read_is_noticed() {
    assert!(broken_with_liar(&workers(), 3, Mutant::UnreadToken).contains(&ENDS));
}

#[test]
fn a_node_that_speaks_for_another_one_is_noticed() {
    let broken = broken_with_liar(&workers(), 3, Mutant::BelievesNames);
    assert!(!broken.is_empty(), "{broken:?}");
}

#[test]
fn a_node_that_is_waited_for_without_end_is_noticed() {
    assert!(broken_with_liar(&workers(), 3, Mutant::WaitsForAll).contains(&ENDS));
}
