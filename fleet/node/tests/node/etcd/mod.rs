//! Three voters of etcd on three nodes that are upgraded at once, each by the real sequence, with one lock that has no
//! end of its own, and the real arithmetic.
//!
//! A member answers at once or not at all: what members that see different leaders say is in the laws of the arithmetic.

mod model;
mod nodes;

use std::time::Instant;

use nodes::Nodes;
use stateright::{Checker as _, HasDiscoveries, Model as _};

/// The law for every operation.
const LAW: &str = "no operation takes the quorum away, or another node's lock";

const QUORUM: &str = "without a fault, etcd has a quorum";

/// The laws that are broken.
fn broken(model: Nodes) -> Vec<&'static str> {
    let start = Instant::now();
    let what = format!("{:?}, {} faults, lock with an end {}", model.preserve, model.faults, model.ttl);
    let is_ttl = model.ttl;
    let checker = model.checker().threads(1).finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    eprintln!(
        "{what}: {} states, {} distinct, depth {}, {:.1} s",
        checker.state_count(),
        checker.unique_state_count(),
        checker.max_depth(),
        start.elapsed().as_secs_f64()
    );
    let is_broken = |name: &&str| *name != "all nodes reach it";
    let found = checker.discoveries();
    assert!(is_ttl || found.contains_key("all nodes reach it"));
    for (name, path) in found.iter().filter(|(name, _)| is_broken(name) && !is_ttl) {
        let path = path.clone().into_vec();
        eprintln!("BROKEN: {name} ({:?})", path.last().unwrap().0.broken);
        for (state, action) in path {
            let at = |node: &nodes::Node| node.journal.operation.as_ref().map(|op| (op.at, op.done));
            eprintln!("    {:?} {action:?}", state.nodes.iter().map(at).collect::<Vec<_>>());
        }
    }
    found.into_keys().filter(is_broken).collect()
}

const NONE: [&str; 0] = [];

/// One more in a large run.
fn faults() -> u8 {
    1 + u8::from(crate::world::states().is_some())
}

#[test]
fn two_nodes_never_take_the_quorum() {
    assert_eq!(broken(Nodes { preserve: vec![true, true], faults: faults(), ttl: false }), NONE);
}

#[test]
fn two_nodes_of_which_one_leaves_never_take_the_quorum() {
    assert_eq!(broken(Nodes { preserve: vec![true, false], faults: faults(), ttl: false }), NONE);
}

#[test]
fn three_nodes_never_take_the_quorum() {
    assert_eq!(broken(Nodes { preserve: vec![true, false, true], faults: faults() - 1, ttl: false }), NONE);
}

/// The fault of such a lock: a reason never to add one.
#[test]
fn a_lock_that_ends_by_itself_is_noticed() {
    let broken = broken(Nodes { preserve: vec![true, true], faults: 0, ttl: true });
    assert!(broken.contains(&LAW) && broken.contains(&QUORUM), "{broken:?}");
}
