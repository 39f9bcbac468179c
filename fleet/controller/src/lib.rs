//! Upgrades the nodes of a cluster. What may be done now is decided by [`slipway_rollout`]; this crate looks, has it
//! decided, and does it.
//!
//! ```text
//! ledger, then objects, then nodes ─► Snapshot of each pool ─► decide ─┬─► what stays: waves passed, payload denied
//!    ▲                                                                 ├─► ledger, by compare-and-set
//!    │                                                                 ├─► nodes: stage, begin
//!    └─────────────────────── again: it is the same for any    ◄──────┴─► why not: statuses, events
//! ```
//!
//! Beside that, channels are looked into, and what they choose is written into their status, which pools follow:
//!
//! ```text
//! channels ─► registries ─► choices ─► status, by compare-and-set
//! ```
//!
//! No leader is needed: two of these at once are harmless. Every grant is computed from the ledger that is written, and a
//! write fails if it was written since it was read. The ledger is read before all else: a release of a grant makes each write
//! fail that has not seen what its node says since. Names of operations follow from their purpose: asked twice, a node
//! does it once.
//!
//! * [`names`]: of operations and rollouts
//! * [`cluster`]: objects of the API server, read and written
//! * [`nodes`]: nodes, looked at and asked
//! * [`observed`]: what decisions need of a node
//! * [`pools`]: what decisions need of a pool
//! * [`plans`]: which rollout is followed, and when there is a new one
//! * [`machines`]: machines of nodes, where nodes are replaced: found, and deleted
//! * [`volumes`]: what a node would lose with its machine
//! * [`stock`]: both, as they are now
//! * [`round`]: what follows from one look
//! * [`keep`]: what stays of it, written
//! * [`turn`]: one look, and what follows from it
//! * [`channels`]: channels, looked into and written
//! * [`places`]: how many registries are looked into at once
//! * [`choices`]: what follows for channels from what was found
//! * [`follow`]: what a pool gets that follows a channel
//! * [`report`]: what people read
//! * [`events`]: what happened, for people
//! * [`figures`]: what pools are like, counted
//! * [`metrics`]: numbers for Prometheus
//! * [`watch`]: changes in the cluster, which start a turn before its time
//! * [`wake`]: who is woken by them
//! * [`serve`]: who asks for them, and whether it is well

pub mod channel_status;
pub mod channel_target;
pub mod channels;
pub mod cluster;
pub mod events;
pub mod inventory;
pub mod machines;
pub mod metrics;
pub mod names;
pub mod node_report;
pub mod nodes;
pub mod observed_node;
pub mod persist;
pub mod plans;
pub mod pool_metrics;
pub mod pools;
pub mod reconcile;
pub mod registry_concurrency;
pub mod report;
pub mod round;
pub mod serve;
pub mod trigger;
pub mod volumes;
pub mod watch;
