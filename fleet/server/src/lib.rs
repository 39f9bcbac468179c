//! Serves `slipway.node.v1`. What a node does is behind the trait [`Node`](node::Node).
//!
//! ```text
//! TCP ─► TLS 1.3, both sides with certificates ─┐
//!                                               ├─► role and limits ─► Node
//! Unix socket ─► uid 0 ─────────────────────────┘                ▲
//!                                     EventLog ─► Watch ─────────┘ what it tells
//! ```
//!
//! ```no_run
//! # use std::{path::Path, sync::Arc};
//! # use slipway_node_server::{
//! #     accept, events::EventLog, limits::Limits, node::Node, serve::{Listeners, serve}, tls::{Files, Trust},
//! # };
//! # use tokio::net::TcpListener;
//! # type Failure = Box<dyn std::error::Error>;
//! # async fn run<S>(node: Arc<impl Node>, log: EventLog, stop: S) -> Result<(), Failure>
//! # where
//! #     S: Future<Output = ()> + Send,
//! # {
//! let pki = Path::new("/etc/slipway/pki");
//! let files = Files {
//!     certificate: pki.join("node.crt"),
//!     key: pki.join("node.key"),
//!     ca: pki.join("ca.crt"),
//!     revoked: Some(pki.join("revoked.pem")),
//! };
//! let tcp = TcpListener::bind(("::", 50000)).await?;
//! let socket = accept::bind(Path::new("/run/slipway/node.sock"))?;
//! // The log is the one that the node tells into.
//! let listeners = Listeners { tcp: Some((tcp, Trust::load(files, log.clone())?)), socket: Some(socket) };
//! serve(node, log, listeners, Limits::default(), stop).await?;
//! # Ok(())
//! # }
//! ```
//!
//! * [`node`]: what the API asks of a node
//! * [`role`]: which call needs which role, in one table
//! * [`peer`]: who calls
//! * [`tls`]: certificates, which may change while the service runs
//! * [`accept`]: connections, as many as there may be; `handshakes`, `places`: who gets in when there are too many
//! * [`events`]: the log of events: bounded, numbered, and never waiting for a reader
//! * [`limits`]: how much there may be at once
//! * [`service`]: the calls
//! * [`facade`]: a part of Talos' machine API, for its clients
//! * [`serve`]: all of it together

pub mod accept;
pub mod events;
mod expiry;
pub mod facade;
mod handshakes;
pub mod limits;
pub mod node;
pub mod peer;
mod places;
pub mod role;
pub mod serve;
pub mod service;
pub mod tls;
