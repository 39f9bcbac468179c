//! Needs: nothing
//!
//! The decisions of a fleet, proven: the laws of the parts, rollouts of random fleets with random policies and faults, and
//! two controllers in every order. No test here needs a cluster, a clock, or a network.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod amount;
mod window;

use jiff::Timestamp;

/// A time, as people write it.
fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}
