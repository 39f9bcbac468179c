//! Serves `slipway.node.v1`. What a node does is behind the trait [`Node`](node::Node).
//!
//! ```text
//! TCP ─► TLS 1.3, both sides with certificates ─┐
//!                                               ├─► role and limits ─► Node
//! Unix socket ─► uid 0 ─────────────────────────┘                ▲
//!                                     EventLog ─► Watch ─────────┘ what it tells
//! ```
//!
//! * [`node`]: what the API asks of a node
//! * [`role`]: which call needs which role, in one table
//! * [`peer`]: who calls
//! * [`tls`]: certificates, which may change while the service runs
//! * [`accept`]: connections, as many as there may be
//! * [`events`]: the log of events: bounded, numbered, and never waiting for a reader
//! * [`limits`]: how much there may be at once
//! * [`service`]: the calls
//! * [`facade`]: a part of Talos' machine API, for its clients
//! * [`serve`]: all of it together

pub mod accept;
pub mod events;
pub mod facade;
pub mod limits;
pub mod node;
pub mod peer;
pub mod role;
pub mod serve;
pub mod service;
pub mod tls;
