//! The decisions of a fleet, as data: which node may be disturbed, when, in which order, and why not now. No I/O, no
//! clock, no randomness, no threads. `slipway-fleet` runs it with the objects of a cluster; tests and the model checker
//! run it, too.
//!
//! ```text
//! nodes, rules ─► Plan ─► people agree to its hash
//!                   │
//! nodes, ledger, rules, plan ─► Facts ─► decide ─► actions ─► stage, begin, pause, deny
//!                                 ▲        │          └────► grant, free ─► Ledger, by compare-and-set ─┐
//!                                 │        └─► blocked: a reason for each node that is not done         │
//!                                 └────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! * [`int_or_percent`]: a number of nodes or a percentage, and how it is rounded
//! * [`duration`]: a length of time
//! * [`window`]: maintenance windows and blackouts in local time
//! * [`node`]: a node, as plans and grants name it
//! * [`limits`]: what policies allow now, and why a node may not go
//! * [`ledger`]: the nodes that may be disturbed; the budget; the end of a grant. This is the safety argument
//! * [`claim`]: the claim of an upgrade of Kubernetes, beside which no grant is given
//! * [`policy`]: what people allow, and how several policies hold together
//! * [`plan`]: which nodes, in which wave, in which order, with a hash
//! * [`facts`]: observations of nodes, and wishes
//! * [`replace`]: nodes that are replaced: by whom, and why not
//! * [`blocked`]: why a node waits, as a sentence
//! * [`places`]: nodes by their places in the plan
//! * [`attempts`]: how often a node was granted
//! * [`action`]: the actions that follow
//! * [`decide`]: from facts to actions
//! * `view`: failed and finished nodes, and the progress of waves
//! * `halt`: what stops a rollout
//! * [`preview`]: a plan with its earliest times, and what blocks it

pub mod action;
pub mod attempts;
pub mod blocked;
pub mod claim;
pub mod decide;
pub mod duration;
pub mod facts;
mod halt;
pub mod int_or_percent;
pub mod ledger;
pub mod limits;
pub mod node;
pub mod places;
pub mod plan;
pub mod policy;
pub mod preview;
pub mod replace;
mod view;
pub mod window;
