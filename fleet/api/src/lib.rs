//! The protocol between a node and its clients.
//!
//! ```text
//! server ─► message ─► cut ─► wire ─► cut ─► client        answers and events
//! client ─► message ────────► wire ─► check ─► server      requests
//! ```
//!
//! * [`v1`]: the calls and messages, made from `proto/slipway/node/v1/node.proto`
//! * [`machine`]: the part of Talos' machine API that the facade has, made from `proto/machine/machine.proto`
//! * [`bound`], [`codec`]: the maxima of texts and lists, which both sides enforce
//! * [`text`]: text from elsewhere, safe to show
//! * [`enum_name`]: the protocol's enums: their names in logs and JSON, and the node's types they map to
//! * [`request`]: requests to and from the node's own [`Request`](slipway_node::request::Request)
//! * [`show`]: plans, operations and events from the node's own types
//! * [`reason`]: why a call is refused: one stable word each, its gRPC code, and what to do

pub mod bound;
pub mod codec;
pub mod enum_name;
pub mod reason;
pub mod request;
pub mod show;
pub mod text;

pub use slipway_core::pem;

/// The messages of Talos' clients, made from `proto/machine/machine.proto`.
#[allow(missing_docs, clippy::all, clippy::pedantic)]
pub mod machine {
    tonic::include_proto!("machine");
}

/// Messages, the client and the server, made from `proto/slipway/node/v1/node.proto`.
#[allow(missing_docs, clippy::all, clippy::pedantic)]
pub mod v1 {
    tonic::include_proto!("slipway.node.v1");
    include!(concat!(env!("OUT_DIR"), "/bounds.rs"));
}

impl v1::StatusResponse {
    /// The slot that runs; `None` if the node does not say.
    pub fn running_slot(&self) -> Option<&v1::SlotContents> {
        let disk = self.disk.as_ref()?;
        disk.slots.iter().find(|slot| slot.slot == disk.running)
    }

    /// The version of the OS that runs; `None` if the node does not say.
    pub fn os_version(&self) -> Option<&str> {
        self.running_slot()?.version.as_deref()
    }
}
