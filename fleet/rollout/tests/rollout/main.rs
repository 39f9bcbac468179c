//! Size: quick
//!
//! The decisions of a fleet, proven: the laws of the parts, rollouts of random fleets with random policies and faults, and
//! two controllers in every order. No test here needs a cluster, a clock, or a network.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod approval;
mod attempts;
mod claim;
mod decide;
mod evidence;
mod int_or_percent;
mod laws;
mod ledger;
mod liars;
mod machines;
mod model;
mod plan;
mod policy;
mod replace;
mod rollback;
mod skew;
mod window;
mod words;
mod world;

use jiff::Timestamp;
use slipway_core::digest::Sha256;
use slipway_rollout::{
    facts::{Failure, FailureEvidence, NodeReport, ObservedNode, RollbackState},
    int_or_percent::IntOrPercent,
    ledger::{Limits, Node, Role},
};

const OLD: Sha256 = Sha256([1; 32]);
const NEW: Sha256 = Sha256([2; 32]);

/// A time, as people write it.
fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// When most of it happens: a Monday at noon.
fn noon() -> Timestamp {
    at("2026-06-01T12:00Z")
}

fn worker(name: &str) -> Node {
    let zone = name.split('-').next().map(str::to_owned);
    Node { uid: format!("uid-{name}"), name: name.to_owned(), pool: "pool".to_owned(), zone, role: Role::Worker }
}

fn control_plane(name: &str) -> Node {
    Node { role: Role::ControlPlane, ..worker(name) }
}

/// The default policy.
fn limits(size: u32, max_unavailable: u32) -> Limits {
    Limits {
        size,
        max_unavailable: IntOrPercent::Nodes(max_unavailable),
        max_domains: None,
        rates: Vec::new(),
        from: noon(),
        until: None,
        down: Vec::new(),
        named_tokens: Default::default(),
        shared: Default::default(),
        younger: Vec::new(),
    }
}

/// A node that runs the old payload, and has the new one in its other slot.
fn staged(node: Node) -> ObservedNode {
    let report = NodeReport {
        runs: OLD,
        staged: Some(NEW),
        well: true,
        since: noon(),
        busy: false,
        token: 0,
        failed: None,
        rollback: RollbackState::Unavailable,
        other_kubelet: None,
    };
    ObservedNode { node, report: Some(report) }
}

/// The payload was booted here, and was not well.
pub fn failed(why: &str) -> Option<Failure> {
    Some(Failure { evidence: FailureEvidence::AfterReboot, why: why.to_owned() })
}
