//! A part of Talos' machine API beside our own, so that a client made from Talos' own files can upgrade a node. Roles and
//! refusals are ours.
//!
//! * `machine`: Version, Upgrade, Rollback, Reboot, Events, Read, Logs, Dmesg, and etcd
//! * `events`: our events in Talos' words
//! * `lifecycle`: LifecycleService and ImageService, whose streams tell how it goes until it is over
//! * `target`: which node a call is for
//!
//! Where the two differ:
//!
//! * `stage` of an upgrade means nothing here: every payload is written and verified while the old system runs.
//! * Without `preserve`, EPHEMERAL is made anew, and a member of etcd leaves its cluster first: as with Talos.
//! * `force` gives up the checks of etcd, and is `allow_outage`.
//! * A name or address in the metadata `node` or `nodes` must be this node. Talos would pass the call on; to upgrade this
//!   node in place of another would be worse than to refuse.
//! * A call that is not here is refused by its name.

mod events;
mod lifecycle;
mod machine;
mod target;

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use slipway_node_api::{
    machine::{
        image_service_server::ImageServiceServer, lifecycle_service_server::LifecycleServiceServer,
        machine_service_server::MachineServiceServer,
    },
    reason::Reason,
    v1::node_service_server::NodeServiceServer,
};
use tonic::{
    Code, Status,
    body::Body,
    codegen::{Service as Serve, http},
};
use uuid::Uuid;

use crate::{limits::Limits, node::Node, service::Service};

/// Our own API, and Talos'.
#[derive(Debug)]
pub(crate) struct Services<N: Node> {
    own: NodeServiceServer<Service<N>>,
    machine: MachineServiceServer<Service<N>>,
    lifecycle: LifecycleServiceServer<Service<N>>,
    image: ImageServiceServer<Service<N>>,
}

impl<N: Node> Services<N> {
    pub(crate) fn new(service: Service<N>, limits: Limits) -> Self {
        let most = limits.message;
        Self {
            own: NodeServiceServer::new(service.clone()).max_decoding_message_size(most),
            machine: MachineServiceServer::new(service.clone()).max_decoding_message_size(most),
            lifecycle: LifecycleServiceServer::new(service.clone()).max_decoding_message_size(most),
            image: ImageServiceServer::new(service).max_decoding_message_size(most),
        }
    }
}

impl<N: Node> Clone for Services<N> {
    fn clone(&self) -> Self {
        let Self { own, machine, lifecycle, image } = self;
        Self { own: own.clone(), machine: machine.clone(), lifecycle: lifecycle.clone(), image: image.clone() }
    }
}

type Answer = Pin<Box<dyn Future<Output = Result<http::Response<Body>, Infallible>> + Send>>;

impl<N: Node> Serve<http::Request<Body>> for Services<N> {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Answer;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Answer {
        let path = request.uri().path().to_owned();
        let service = path.strip_prefix('/').and_then(|path| path.split('/').next());
        let answer = match service {
            Some("machine.MachineService") => self.machine.call(request),
            Some("machine.LifecycleService") => self.lifecycle.call(request),
            Some("machine.ImageService") => self.image.call(request),
            _ => self.own.call(request),
        };
        Box::pin(async move { answer.await.map(|response| with_a_name(response, &path)) })
    }
}

/// The refusal of a missing call has no text.
fn with_a_name(response: http::Response<Body>, path: &str) -> http::Response<Body> {
    let headers = response.headers();
    let is_bare =
        headers.get(Status::GRPC_STATUS).is_some_and(|of| Code::from_bytes(of.as_bytes()) == Code::Unimplemented)
            && !headers.contains_key(Status::GRPC_MESSAGE);
    if !is_bare {
        return response;
    }
    Reason::NotHere.status(format!("this node does not answer the call {path}")).into_http()
}

/// A name for an operation.
fn id() -> String {
    Uuid::new_v4().to_string()
}

/// The source that the name of an image in a registry is: theirs is always one.
fn source(image: &str) -> String {
    if image.is_empty() { String::new() } else { format!("docker://{image}") }
}
