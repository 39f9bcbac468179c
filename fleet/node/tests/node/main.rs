//! Size: quick
//!
//! The upgrade of one node, proven: the sequence in every order of faults, three members of etcd, and the laws of the
//! parts. No test here needs root, a cluster, or a clock.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod cordon;
mod drain;
mod etcd;
mod etcd_data;
mod journal;
mod later;
mod plan;
mod quorum;
mod world;

use slipway_node::{
    journal::Journal,
    operation::{Operation, Tried},
    request::{Goal, Request},
};
use uuid::Uuid;

/// The request of these tests.
fn request(goal: Goal, preserve: bool, token: Option<u64>) -> Request {
    Request {
        source: if goal.writes() { "registry/installer:2".to_owned() } else { String::new() },
        preserve,
        token,
        ..Request::new(Uuid::from_u128(1), goal, "test")
    }
}

/// The step of the operation under way ended like this.
fn settle(journal: &mut Journal, tried: Tried) {
    if let Some(id) = journal.operation.as_ref().map(Operation::id) {
        journal.settle(id, tried);
    }
}

/// The number of the boot after this one: the first that nothing refers to, so that there is an end of them.
fn next_boot(boot: u8, op: Option<&Operation>) -> u8 {
    let is_known = |op: &Operation, n: &str| {
        op.boot == n
            || op.asked_in == n
            || [&op.stopped_in, &op.renewed_in].into_iter().any(|boot| boot.as_deref() == Some(n))
            || op.as_is.as_ref().is_some_and(|as_is| as_is.boot == n)
    };
    let is_free = |n: &u8| *n != boot && !op.is_some_and(|op| is_known(op, &n.to_string()));
    (0..=u8::MAX).find(is_free).unwrap()
}
