//! The upgrade of one node of a cluster, as data. No I/O, no clock, no randomness, no threads: `slipwayd` does what this
//! crate decides, and tests and the model checker decide with it, too.
//!
//! ```text
//!             request ─► Operation ─┐
//! the node looks at itself ─► Facts ─┼─► next ─► begin a step ─► Journal (on the medium) ─► do it ─► settle ─┐
//!                                    └───────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! * [`request`]: the requests that a node takes
//! * [`step`]: the steps of the sequence, what each does, and what its abort does
//! * [`operation`]: one request and how far it came
//! * [`journal`]: what a node keeps on its disk; two copies, the newer one that is whole counts
//! * [`facts`]: what a node sees of itself
//! * [`sequence`]: from operation and facts to the next step; the order is the safety argument
//! * [`quorum`]: whether etcd keeps its quorum without this member
//! * [`etcd_data`]: whether the etcd of a system reads the data that is there
//! * [`drain`]: which pods are evicted, and which block
//! * [`cordon`]: the change of a Node, and its undoing

pub mod cordon;
pub mod drain;
pub mod etcd_data;
pub mod facts;
pub mod journal;
pub mod operation;
pub mod quorum;
pub mod request;
pub mod sequence;
pub mod step;
