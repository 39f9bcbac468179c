//! Upgrades the nodes of a cluster. [`slipway_rollout`] decides; this crate looks, has it
//! decided, and does it.
//!
//! ```text
//! ledger, then objects, then nodes ─► Facts of each pool ─► decide ─┬─► rollouts: waves passed, payload denied
//!    ▲                                                              ├─► ledger, by compare-and-set
//!    │                                                              ├─► nodes: stage, begin
//!    └──────────────────── again: each round is complete   ◄───────┴─► blocked nodes: statuses, events
//! ```
//!
//! Beside that, channels are looked into, and what they choose is written into their status, which pools follow:
//!
//! ```text
//! channels ─► registries ─► choices ─► status, by compare-and-set
//! ```
//!
//! And the version of Kubernetes is followed, by a Job that replaces static pods while no node has a grant:
//!
//! ```text
//! KubernetesUpgrade, Jobs, nodes ─► decision ─► status, by compare-and-set ─► Job: made, followed, deleted
//! ```
//!
//! No leader is needed: two of these at once are harmless. Every grant is computed from the ledger that is written, and a
//! write fails if it was written since it was read. The ledger is read before all else: a release of a grant makes each write
//! fail that has not seen what its node says since. Names of operations follow from their purpose: asked twice, a node
//! does it once.
//!
//! * [`names`]: of operations and rollouts
//! * [`cluster`]: objects of the API server, read and written
//! * `read_objects`: the objects of a round
//! * `object_cache`: objects that were read before
//! * `readable`: an object that may not be understood
//! * [`nodes`]: nodes, looked at and asked
//! * `slow_nodes`: those that did not answer in time, for which no round waits
//! * [`observed_node`]: the input of decisions about a node
//! * [`node_report`]: a node's answer as that input
//! * [`pools`]: what decisions need of a pool
//! * `observation`: what a round begins with
//! * `pool_facts`: the input of the decision about one pool
//! * [`plans`]: which rollout is followed, and when there is a new one
//! * [`cluster_api`]: Machines of Cluster API, where nodes are replaced: found, and deleted
//! * [`volumes`]: what a node would lose with its machine
//! * [`replacement_facts`]: machines and volumes as they are now, where nodes are replaced
//! * [`round`]: the decisions of one round, for all pools together
//! * [`persist`]: writes the state of a round: rollouts, then the ledger
//! * [`reconcile`]: one round: read, decide, write, ask nodes
//! * [`channels`]: channels, looked into and written
//! * [`registry_concurrency`]: how many registries are asked at once
//! * [`channel_status`]: a channel's choice and status, from the images found
//! * [`channel_target`]: the target of a pool that follows a channel
//! * [`kubernetes`]: the KubernetesUpgrade, looked at and written; its Job, made and deleted
//! * [`kubernetes_decision`]: what becomes of a KubernetesUpgrade
//! * [`older_kubelets`]: which kubelets are older than the version that was reached
//! * [`kubernetes_job`]: the Job as an object
//! * [`upgrade_kubernetes`]: what the Job runs
//! * [`report`]: what people read
//! * `sentences`: why a node does not go
//! * [`events`]: Kubernetes Events
//! * `round_events`: those of a round
//! * [`certificate_events`]: those before certificates expire
//! * [`page`]: the same as a page, to read in a browser
//! * [`pool_metrics`]: the metrics of pools
//! * [`metrics`]: metrics for Prometheus
//! * [`watch`]: changes in the cluster, which start a round early
//! * [`trigger`]: starts a round early
//! * [`serve`]: HTTP: metrics and health

pub mod certificate_events;
pub mod channel_status;
pub mod channel_target;
pub mod channels;
pub mod cluster;
pub mod cluster_api;
pub mod events;
pub mod kubernetes;
pub mod kubernetes_decision;
pub mod kubernetes_job;
pub mod metrics;
pub mod names;
pub mod node_report;
pub mod nodes;
mod object_cache;
mod observation;
pub mod observed_node;
pub mod older_kubelets;
pub mod page;
pub mod persist;
pub mod plans;
mod pool_facts;
pub mod pool_metrics;
pub mod pools;
mod read_objects;
pub mod readable;
pub mod reconcile;
pub mod registry_concurrency;
pub mod replacement_facts;
pub mod report;
pub mod round;
mod round_events;
mod sentences;
pub mod serve;
mod slow_nodes;
pub mod trigger;
pub mod upgrade_kubernetes;
pub mod volumes;
pub mod watch;
