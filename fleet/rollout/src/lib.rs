//! The decisions of a fleet, as data: which node may be disturbed, when, in which order, and why not now. No I/O, no
//! clock, no randomness, no threads. `slipway-fleet` runs it with the objects of a cluster; tests and the model checker
//! run it, too.
//!
//! ```text
//! nodes, rules ─► Plan ─► people agree to its hash
//!                   │
//! nodes, ledger, rules, plan ─► Snapshot ─► decide ─► actions ─► stage, begin, pause, deny
//!                                   ▲          │          └────► grant, free ─► Ledger, by compare-and-set ─┐
//!                                   │          └─► why not, for each node that is not done                  │
//!                                   └───────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! * [`amount`]: a number of nodes or a percentage, and how it is rounded
//! * [`span`]: a length of time
//! * [`window`]: maintenance windows and blackouts in local time
//! * [`ledger`]: who may be disturbed; the budget; what frees a grant. This is the safety argument
//! * [`policy`]: what people allow, and how several policies hold together
//! * [`plan`]: which nodes, in which wave, in which order, with a hash
//! * [`facts`]: what is seen of nodes and wishes
//! * [`replace`]: nodes that are replaced: by whom, and why not
//! * [`why`]: why a node does not go, as a sentence
//! * [`step`]: what was decided
//! * [`decide`]: from what is seen to what is to be done
//! * `view`: who failed, who is done, how far the waves are
//! * `halt`: what stops a rollout
//! * [`preview`]: a plan with its earliest times, and what blocks it

pub mod amount;
pub mod blocked;
pub mod decide;
pub mod facts;
mod halt;
pub mod ledger;
pub mod plan;
pub mod policy;
pub mod preview;
pub mod replace;
pub mod span;
pub mod step;
mod view;
pub mod window;
