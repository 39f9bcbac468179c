//! Size: gate
//!
//! The upgrade of a control plane, proven: manifests, decisions, the node's part, and thousands of upgrades with two faults
//! anywhere. No test here needs a cluster, a clock, or a network.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod add_ons;
mod decide;
mod laws;
mod manifest;
mod removals;
mod replacement;
mod upgrades;
mod world;

use slipway_kubernetes::version::Version;

/// The version before.
const OLD: &str = "1.20.2";
/// The version that is wanted.
const NEW: &str = "1.21.2";

fn version(text: &str) -> Version {
    text.parse().unwrap()
}
