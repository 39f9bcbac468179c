//! Size: gate
//! Needs: programs etcd kube
//!
//! The controller as a program, with the rights that the manifests give it, against a real API server and etcd, and nodes
//! that speak the real protocol and keep the real journal. One part is a stand-in: [`node`].
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod back;
mod channels;
mod doors;
mod enforced;
mod failures;
mod many;
mod memory;
mod metrics;
mod monitoring;
mod node;
mod program;
mod relay;
mod releases;
mod replace;
mod rights;
mod rollouts;
mod site;
mod v1alpha1;
mod watches;
