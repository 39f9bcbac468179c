//! Size: gate
//! Needs: boot-assets programs etcd kube helm
//!
//! `slipwayctl fleet`, the program, against a real API server and etcd, with the controller's own turns and nodes that
//! speak the real protocol: those of the controller's tests.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod chart;
mod day_two;
mod failures;
mod first_hour;
mod kubectl;
#[allow(dead_code, reason = "the controller's tests use more of it")]
#[path = "../../../controller/tests/fleet/node.rs"]
mod node;
mod program;
#[allow(dead_code, reason = "the controller's tests use more of it")]
#[path = "../../../controller/tests/fleet/releases.rs"]
mod releases;
#[allow(dead_code, reason = "the controller's tests use more of it")]
#[path = "../../../controller/tests/fleet/site.rs"]
mod site;
mod support;
mod words;
mod zero_to_fleet;
