//! A part of Talos' machine API beside our own, so that a client made from Talos' own files can upgrade a node. Roles are
//! ours, and what is refused is refused for our reasons.
//!
//! * `machine`: Version, Upgrade, Rollback, Reboot, Events, Read, Logs, Dmesg, and what etcd says
//! * `events`: our events in Talos' words
//! * `lifecycle`: an upgrade, and the pull of an image, whose caller is told how it goes until it is over
//!
//! What is to be known of them:
//!
//! * `stage` of an upgrade means nothing here: every payload is written and verified while the old system runs.
//! * `preserve` neither: EPHEMERAL is kept. Talos has stopped to make it anew, and a client that leaves the word out says
//!   `false`. Who wants that asks our own API.
//! * `force` gives up the checks of etcd, and is `allow_outage`.
//! * A name or address in the metadata `node` or `nodes` must be this node. Talos would pass the call on; to upgrade this
//!   node in place of another would be worse than to refuse.
//! * A call that is not here is refused by its name.

mod events;
mod lifecycle;
mod machine;

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
    Code, Request, Status,
    body::Body,
    codegen::{Service as Serve, http},
};
use uuid::Uuid;

use crate::{
    limits::Limits,
    node::Node,
    service::{Service, peer},
};

/// Our own API, and Talos'.
#[derive(Debug)]
pub(crate) struct Both<N: Node> {
    own: NodeServiceServer<Service<N>>,
    machine: MachineServiceServer<Service<N>>,
    lifecycle: LifecycleServiceServer<Service<N>>,
    image: ImageServiceServer<Service<N>>,
}

impl<N: Node> Both<N> {
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

impl<N: Node> Clone for Both<N> {
    fn clone(&self) -> Self {
        let Self { own, machine, lifecycle, image } = self;
        Self { own: own.clone(), machine: machine.clone(), lifecycle: lifecycle.clone(), image: image.clone() }
    }
}

type Answer = Pin<Box<dyn Future<Output = Result<http::Response<Body>, Infallible>> + Send>>;

impl<N: Node> Serve<http::Request<Body>> for Both<N> {
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

/// What refuses a call that is not here says no word about it.
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

impl<N: Node> Service<N> {
    /// Whether the call is for this node.
    async fn is_for_us<T>(&self, request: &Request<T>) -> Result<(), Status> {
        let at = peer(request)?.at.map(|at| at.to_string());
        let metadata = request.metadata();
        for name in metadata.get_all("node").iter().chain(metadata.get_all("nodes")) {
            let name = name.to_str().unwrap_or_default();
            if at.as_deref() != Some(name) && self.look(request).await?.node != name {
                return Err(Reason::OtherNode.status(format!("{name:?} is not this node, and calls are not passed on")));
            }
        }
        Ok(())
    }
}

fn id() -> String {
    Uuid::new_v4().to_string()
}

/// The source that the name of an image in a registry is: theirs is always one.
fn source(image: &str) -> String {
    if image.is_empty() { String::new() } else { format!("docker://{image}") }
}
