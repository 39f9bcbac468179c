//! What is said to a node over the wire.
//!
//! * [`v1`]: the calls and messages, made from `proto/slipway/node/v1/node.proto`
//! * [`goal`]: requests to and from the node's own [`Request`](slipway_node::goal::Request)
//! * [`show`]: plans, operations and events from the node's own types
//! * [`reason`]: why a call is refused: one stable word each, its gRPC code, and what to do

pub mod goal;
pub mod reason;
pub mod show;

/// Messages, the client and the server, made from the .proto file.
#[allow(missing_docs, clippy::all, clippy::pedantic)]
pub mod v1 {
    tonic::include_proto!("slipway.node.v1");
}
