//! Size: gate
//! Needs: talos
//!
//! The API over real TLS on the loopback and real Unix sockets. What stands behind it is in [`recorder`].
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod calls;
mod certificates;
mod doors;
mod facade;
mod facade_events;
mod facade_reads;
mod foreign;
mod limits;
mod recorder;
mod roles;
mod site;
mod tls;
mod watch;
