//! A fleet in virtual time. The real decisions (`slipway-rollout`) and the real sequence of every node (`slipway-node`,
//! with its journal) run; their surroundings are simulated, and fail: the API server, etcd's members, disks,
//! power, messages, clocks, people. Everything comes from a seed: the same seed, the same run.
//!
//! ```text
//! seed ─► Scenario ─► World ─┬─ controllers: read, decide, write, ask ─► API server, messages
//!                            ├─ nodes: look, decide, journal, do ─────► disk, etcd, API server
//!                            ├─ faults and people
//!                            └─ laws, at every step ─► the law that was broken, the seed, what happened
//! ```
//!
//! * [`random`]: numbers from a seed
//! * [`clock`]: virtual time, and the trace of a run
//! * [`scenario`]: a fleet, its policies, and what will go wrong
//! * [`policies`]: policies twice: as the decisions take them, and as numbers for the laws
//! * [`faults`]: the faults, and their times
//! * [`api`], [`etcd`]: what all share
//! * [`machine`], [`node`], [`steps`]: a node: its disk and journal, its loop, what the steps do
//! * [`view`], [`controller_state`], [`controller`], [`messages`]: what a controller sees, what it is at, what it does, and what is
//!   on its way
//! * [`external_events`]: faults from outside, and people
//! * [`step_laws`], [`grant_laws`], [`reasons`]: laws of every step; of every grant; of the reasons
//! * [`hands`]: what people write by hand where only controllers write
//! * [`kubernetes`]: upgrades of Kubernetes, which claim the ledger
//! * [`laws`]: what these remember of the past, and the first law that was broken
//! * [`mutant`]: planted faults
//! * [`world`]: all of it, in virtual time
//! * [`campaign`]: many runs

pub mod api;
pub mod campaign;
pub mod clock;
pub mod controller;
pub mod controller_state;
pub mod etcd;
pub mod external_events;
pub mod false_reports;
pub mod faults;
pub mod grant_laws;
pub mod hands;
pub mod kubernetes;
pub mod laws;
pub mod machine;
pub mod messages;
pub mod mutant;
pub mod node;
pub mod policies;
pub mod random;
pub mod reasons;
pub mod scenario;
pub mod step_laws;
pub mod steps;
pub mod view;
pub mod world;

use slipway_core::digest::Sha256;

/// The first payload.
pub const OLD: Sha256 = Sha256([1; 32]);
/// The payload of the rollout.
pub const NEW: Sha256 = Sha256([2; 32]);
