//! Needs: nothing
//!
//! The decisions of a fleet, proven: the laws of the parts, rollouts of random fleets with random policies and faults, and
//! two controllers in every order. No test here needs a cluster, a clock, or a network.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod amount;
mod ledger;
mod policy;
mod window;

use jiff::Timestamp;
use slipway_rollout::{
    amount::Amount,
    ledger::{Limits, Node, Role},
};

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

/// What is allowed, if nobody says more.
fn limits(size: u32, max_unavailable: u32) -> Limits {
    Limits {
        size,
        max_unavailable: Amount::Nodes(max_unavailable),
        max_domains: None,
        rates: Vec::new(),
        from: noon(),
        until: None,
        down: Vec::new(),
    }
}
