//! A part of Talos' machine API beside our own, so that a client made from Talos' own files can upgrade a node: Version,
//! Upgrade, Rollback, Reboot. Roles are ours, and what is refused is refused for our reasons.
//!
//! * `stage` of an upgrade means nothing here: every payload is written and verified while the old system runs.
//! * `force` gives up the checks of etcd, and is `allow_outage`.
//! * A name or address in the metadata `node` or `nodes` must be this node. Talos would pass the call on; to upgrade this
//!   node in place of another would be worse than to refuse.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use slipway_node_api::{
    machine::{
        FeaturesInfo, Metadata, PlatformInfo, Reboot, RebootRequest, RebootResponse, Rollback, RollbackRequest,
        RollbackResponse, Upgrade, UpgradeRequest, UpgradeResponse, Version, VersionInfo, VersionRequest,
        VersionResponse,
        machine_service_server::{MachineService, MachineServiceServer},
    },
    reason::Reason,
    v1::{self, node_service_server::NodeServiceServer, plan_request::Goal},
};
use tonic::{
    Request, Response, Status,
    body::Body,
    codegen::{Service as Serve, http},
};
use uuid::Uuid;

use crate::{
    limits::Limits,
    node::Node,
    role::Call,
    service::{Service, peer},
};

/// Reboot without stopping anything.
const FORCE: i32 = 2;

/// Our own API, and Talos'.
#[derive(Debug)]
pub(crate) struct Both<N: Node> {
    own: NodeServiceServer<Service<N>>,
    machine: MachineServiceServer<Service<N>>,
}

impl<N: Node> Both<N> {
    pub(crate) fn new(service: Service<N>, limits: Limits) -> Self {
        let own = NodeServiceServer::new(service.clone()).max_decoding_message_size(limits.message);
        Self { own, machine: MachineServiceServer::new(service).max_decoding_message_size(limits.message) }
    }
}

impl<N: Node> Clone for Both<N> {
    fn clone(&self) -> Self {
        Self { own: self.own.clone(), machine: self.machine.clone() }
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
        if request.uri().path().starts_with("/machine.MachineService/") {
            self.machine.call(request)
        } else {
            self.own.call(request)
        }
    }
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

#[tonic::async_trait]
impl<N: Node> MachineService for Service<N> {
    async fn version(&self, request: Request<VersionRequest>) -> Result<Response<VersionResponse>, Status> {
        self.is_for_us(&request).await?;
        let status = self.look(&request).await?;
        let arch = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        };
        let version = VersionInfo { tag: status.version, os: "linux".to_owned(), arch: arch.to_owned() };
        let version = Version {
            metadata: Some(Metadata { hostname: status.node }),
            version: Some(version),
            platform: Some(PlatformInfo { name: "slipway".to_owned(), mode: "metal".to_owned() }),
            features: Some(FeaturesInfo { rbac: true }),
        };
        Ok(Response::new(VersionResponse { messages: vec![version] }))
    }

    async fn upgrade(&self, request: Request<UpgradeRequest>) -> Result<Response<UpgradeResponse>, Status> {
        self.is_for_us(&request).await?;
        let UpgradeRequest { image, preserve, force, .. } = request.get_ref().clone();
        // Theirs is always the name of an image in a registry.
        let source = if image.is_empty() { image } else { format!("docker://{image}") };
        let goal = v1::UpgradeRequest {
            id: id(),
            source,
            payload: String::new(),
            token: None,
            discard: !preserve,
            allow_outage: force,
            allow_any_version: false,
        };
        let actor_id = self.begin(&request, Call::Upgrade, Goal::Upgrade(goal)).await?.id;
        let upgrade = Upgrade { metadata: None, ack: "Upgrade request received".to_owned(), actor_id };
        Ok(Response::new(UpgradeResponse { messages: vec![upgrade] }))
    }

    async fn rollback(&self, request: Request<RollbackRequest>) -> Result<Response<RollbackResponse>, Status> {
        self.is_for_us(&request).await?;
        let goal = v1::RollbackRequest { id: id(), token: None, allow_outage: false };
        let actor_id = self.begin(&request, Call::Rollback, Goal::Rollback(goal)).await?.id;
        Ok(Response::new(RollbackResponse { messages: vec![Rollback { metadata: None, actor_id }] }))
    }

    async fn reboot(&self, request: Request<RebootRequest>) -> Result<Response<RebootResponse>, Status> {
        self.is_for_us(&request).await?;
        if request.get_ref().mode == FORCE {
            let what = "a reboot that stops nothing is for the node's own console";
            return Err(Reason::Invalid.status(what));
        }
        let goal = v1::RebootRequest { id: id(), token: None, allow_outage: false };
        let actor_id = self.begin(&request, Call::Reboot, Goal::Reboot(goal)).await?.id;
        Ok(Response::new(RebootResponse { messages: vec![Reboot { metadata: None, actor_id }] }))
    }
}
