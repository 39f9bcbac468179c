//! The upgrade of Kubernetes itself, as data: which static pod of the control plane is replaced next, when, and why not
//! now. No I/O, no clock, no randomness. `slipwayctl kubernetes` runs it with a cluster; tests run it with faults.
//!
//! ```text
//! cluster ─► Facts ─► decide ─┬─► Do(Step) ─► a node: Replacement ─► Next: write, wait, end
//!    ▲                        ├─► Wait: for what
//!    │                        ├─► Blocked: why
//!    └──── one step ◄─────────┴─► Finished
//! ```
//!
//! * [`add_ons`]: kube-proxy and CoreDNS, if people give them to the upgrade
//! * [`component`]: the parts of a control plane that run as static pods
//! * [`version`]: versions, and the version that an image says
//! * [`images`]: images that people pin by their digests
//! * [`command_line`]: the flags that a component is started with
//! * [`removals`]: what a version does not know any more
//! * [`skew`]: which kubelet goes with the API server
//! * [`facts`]: what is seen of the cluster, and what is wanted
//! * [`plan`]: the steps and their order, with a hash
//! * [`decide`]: from facts to the next step
//! * [`blocked`]: why nothing goes on, as a word and a sentence
//! * [`manifest`]: a static pod's manifest with another image
//! * [`replacement`]: one static pod of one node: what its node does next

pub mod add_ons;
pub mod blocked;
pub mod command_line;
pub mod component;
pub mod decide;
pub mod facts;
pub mod images;
pub mod manifest;
pub mod plan;
pub mod removals;
pub mod replacement;
pub mod skew;
pub mod version;
