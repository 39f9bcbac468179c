//! The calls: role, limits, the node, and its answer.

use std::{future::Future, sync::Arc};

use slipway_node::request::Request as NodeRequest;
use slipway_node_api::{
    bound::cut,
    reason::Reason,
    request,
    v1::{
        AbortRequest, AbortResponse, AskResponse, CompleteStaticPodsRequest, CompleteStaticPodsResponse,
        ConfirmRequest, ConfirmResponse, Event, LogsRequest, LogsResponse, PlanRequest, PlanResponse,
        PullImagesRequest, PullImagesResponse, RebootRequest, ReplaceStaticPodRequest, ReplaceStaticPodResponse,
        RollbackRequest, SnapshotEtcdRequest, SnapshotEtcdResponse, StageRequest, StaticPodsRequest,
        StaticPodsResponse, StatusRequest, StatusResponse, UpgradeRequest, WatchRequest,
        node_service_server::NodeService, plan_request::Goal,
    },
};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};
use uuid::Uuid;

use crate::{
    events::{EventLog, Reader},
    limits::Limits,
    node::{Error, Lines, Log, Node},
    peer::Peer,
    places::{Place, Places},
    role::Call,
    tls::Trust,
};

/// Answers the calls for a node.
#[derive(Debug)]
pub(crate) struct Service<N> {
    node: Arc<N>,
    log: EventLog,
    /// The certificates of the API on the network, if it is there.
    trust: Option<Trust>,
    calls: Places,
    watches: Places,
}

impl<N> Clone for Service<N> {
    fn clone(&self) -> Self {
        let Self { node, log, trust, calls, watches } = self;
        let (node, log, trust) = (node.clone(), log.clone(), trust.clone());
        Self { node, log, trust, calls: calls.clone(), watches: watches.clone() }
    }
}

impl<N: Node> Service<N> {
    pub(crate) fn new(node: Arc<N>, log: EventLog, trust: Option<Trust>, limits: Limits) -> Self {
        Self { node, log, trust, calls: Places::new(limits.calls), watches: Places::new(limits.watches) }
    }

    /// The caller, and its place among the calls.
    fn admit<T>(&self, request: &Request<T>, call: Call) -> Result<(Peer, Place), Status> {
        let peer = peer(request)?;
        peer.may(call)?;
        let full = |why| Reason::TooManyCalls.status(format!("calls that are answered at once: {why}"));
        let place = self.calls.take(peer.name(), peer.role()).map_err(full)?;
        Ok((peer, place))
    }

    /// A client requests an operation.
    pub(crate) async fn begin<T>(&self, request: &Request<T>, call: Call, goal: Goal) -> Result<AskResponse, Status> {
        let (peer, place) = self.admit(request, call)?;
        let request = decode(goal, &peer)?;
        peer.may_begin(call, &request)?;
        let (node, id) = (self.node.clone(), request.id);
        let asked = to_its_end(place, async move { node.ask(request).await }).await?;
        Ok(AskResponse::of(id, &asked))
    }

    async fn ask<T: Clone>(
        &self,
        request: Request<T>,
        call: Call,
        goal: impl FnOnce(T) -> Goal,
    ) -> Result<Response<AskResponse>, Status> {
        let goal = goal(request.get_ref().clone());
        self.begin(&request, call, goal).await.map(Response::new)
    }

    /// The node's own status, as far as the caller may read it.
    pub(crate) async fn look<T>(&self, request: &Request<T>) -> Result<StatusResponse, Status> {
        let (_, place) = self.admit(request, Call::Status)?;
        // The position first: what happens between the two is told again, and is not missed.
        let events = Some(self.log.newest());
        let node = self.node.clone();
        let certificates = self.trust.as_ref().map(Trust::certificates).unwrap_or_default();
        let status = to_its_end(place, async move { node.status().await }).await?;
        let mut status = StatusResponse { events, certificates, ..status };
        // The facade sends parts of it in messages of its own.
        cut(&mut status);
        Ok(status)
    }

    /// Ask the node, for a caller who may make this call.
    pub(crate) async fn put<T, A, F>(
        &self,
        request: &Request<T>,
        call: Call,
        ask: impl FnOnce(Arc<N>) -> F,
    ) -> Result<A, Status>
    where
        A: Send + 'static,
        F: Future<Output = Result<A, Error>> + Send + 'static,
    {
        let (_, place) = self.admit(request, call)?;
        to_its_end(place, ask(self.node.clone())).await
    }

    /// The caller, if it may make this call, and its two places among the watches: its connection's and the node's.
    pub(crate) fn watcher<T>(&self, request: &Request<T>, call: Call) -> Result<Watcher, Status> {
        let peer = peer(request)?;
        peer.may(call)?;
        let full = |_| Reason::TooManyWatches.status("this connection has as many watches as it may have");
        let stream = peer.streams.clone().try_acquire_owned().map_err(full)?;
        let full = |why| Reason::TooManyWatches.status(format!("watches of this node: {why}"));
        let place = self.watches.take(peer.name(), peer.role()).map_err(full)?;
        Ok(Watcher { peer, places: (stream, place) })
    }

    /// A log of the machine, for a caller who may read it; `piece` is how one piece of it is sent.
    pub(crate) async fn read_log<T: Sync, I: Send + 'static>(
        &self,
        request: &Request<T>,
        call: Call,
        log: Log,
        piece: fn(Vec<u8>) -> I,
    ) -> Result<Response<Sent<I>>, Status> {
        let watcher = self.watcher(request, call)?;
        let lines = self.put(request, call, |node| async move { node.log(log).await }).await?;
        Ok(watcher.read(LogReader { lines, events: self.log.clone(), piece }))
    }

    /// The log of events.
    pub(crate) fn event_log(&self) -> &EventLog {
        &self.log
    }
}

/// The items of a stream, one at a time.
pub(crate) trait Source: Send + 'static {
    /// The items.
    type Item: Send + 'static;
    /// The next one; waits for it. `None` if no more come, an error is the last.
    fn next(&mut self) -> impl Future<Output = Option<Result<Self::Item, Status>>> + Send;
}

impl Source for Reader {
    type Item = Event;

    async fn next(&mut self) -> Option<Result<Event, Status>> {
        Self::next(self).await.map(Ok)
    }
}

/// An item of a stream.
pub(crate) type Sent<T> = ReceiverStream<Result<T, Status>>;

/// Reads a log of the machine.
struct LogReader<I> {
    lines: Lines,
    /// A log that is followed has no end of its own: it ends with the service.
    events: EventLog,
    piece: fn(Vec<u8>) -> I,
}

impl<I: Send + 'static> Source for LogReader<I> {
    type Item = I;

    async fn next(&mut self) -> Option<Result<I, Status>> {
        let piece = tokio::select! {
            piece = self.lines.recv() => piece?,
            () = self.events.closed() => return Some(Err(Reason::GoesDown.status("the log goes on"))),
        };
        Some(piece.map(self.piece).map_err(Status::from))
    }
}

/// The reader of a stream.
pub(crate) struct Watcher {
    peer: Peer,
    places: (OwnedSemaphorePermit, Place),
}

impl Watcher {
    /// Give it what `source` has, as fast as it takes it.
    pub(crate) fn read<S: Source>(self, source: S) -> Response<Sent<S::Item>> {
        let (to, items) = mpsc::channel(1);
        tokio::spawn(async move {
            let Self { peer, places: _places } = self;
            forward(source, peer, to).await;
        });
        Response::new(ReceiverStream::new(items))
    }
}

pub(crate) fn peer<T>(request: &Request<T>) -> Result<Peer, Status> {
    let peer = request.extensions().get::<Peer>().cloned();
    peer.ok_or_else(|| Reason::Failed.status("the connection does not say who calls"))
}

fn decode(goal: Goal, peer: &Peer) -> Result<NodeRequest, Status> {
    request::from_wire(goal, peer.name().to_owned()).map_err(|e| Reason::Malformed.status(e))
}

/// Do `work`, also when the caller goes away meanwhile: the journal is written in whole, or not at all.
async fn to_its_end<T: Send + 'static>(
    place: Place,
    work: impl Future<Output = Result<T, Error>> + Send + 'static,
) -> Result<T, Status> {
    let task = tokio::spawn(async move {
        let _place = place;
        work.await
    });
    let outcome = task.await.map_err(|e| Reason::Failed.status(format!("the call did not end: {e}")))?;
    outcome.map_err(Status::from)
}

async fn forward<S: Source>(mut source: S, peer: Peer, to: mpsc::Sender<Result<S::Item, Status>>) {
    loop {
        let item = tokio::select! {
            item = source.next() => item,
            () = to.closed() => return,
        };
        let Some(item) = item else { return };
        // A watch may outlive its certificate.
        let item = item.and_then(|item| peer.trusted().map(|()| item));
        let is_last = item.is_err();
        if to.send(item).await.is_err() || is_last {
            return;
        }
    }
}

#[tonic::async_trait]
impl<N: Node> NodeService for Service<N> {
    async fn plan(&self, request: Request<PlanRequest>) -> Result<Response<PlanResponse>, Status> {
        let (peer, place) = self.admit(&request, Call::Plan)?;
        let no_goal = || Reason::Malformed.status(request::Malformed::NoGoal);
        let request = decode(request.into_inner().goal.ok_or_else(no_goal)?, &peer)?;
        let node = self.node.clone();
        to_its_end(place, async move { node.plan(request).await }).await.map(Response::new)
    }

    async fn stage(&self, request: Request<StageRequest>) -> Result<Response<AskResponse>, Status> {
        self.ask(request, Call::Stage, Goal::Stage).await
    }

    async fn upgrade(&self, request: Request<UpgradeRequest>) -> Result<Response<AskResponse>, Status> {
        self.ask(request, Call::Upgrade, Goal::Upgrade).await
    }

    async fn rollback(&self, request: Request<RollbackRequest>) -> Result<Response<AskResponse>, Status> {
        self.ask(request, Call::Rollback, Goal::Rollback).await
    }

    async fn reboot(&self, request: Request<RebootRequest>) -> Result<Response<AskResponse>, Status> {
        self.ask(request, Call::Reboot, Goal::Reboot).await
    }

    async fn abort(&self, request: Request<AbortRequest>) -> Result<Response<AbortResponse>, Status> {
        let (peer, place) = self.admit(&request, Call::Abort)?;
        let AbortRequest { id, why, as_is } = request.into_inner();
        if as_is {
            // An admin accepts a system that was not found well, as with a confirmation by hand.
            peer.may(Call::Confirm)?;
        }
        let id = request::id(&id).map_err(|e| Reason::Malformed.status(e))?;
        let (node, caller) = (self.node.clone(), peer.name().to_owned());
        to_its_end(place, async move { node.abort(id, why, as_is, caller).await }).await?;
        Ok(Response::new(AbortResponse {}))
    }

    async fn confirm(&self, request: Request<ConfirmRequest>) -> Result<Response<ConfirmResponse>, Status> {
        let (peer, place) = self.admit(&request, Call::Confirm)?;
        let (node, caller) = (self.node.clone(), peer.name().to_owned());
        let warning = to_its_end(place, async move { node.confirm(caller).await }).await?;
        Ok(Response::new(ConfirmResponse { warning }))
    }

    async fn status(&self, request: Request<StatusRequest>) -> Result<Response<StatusResponse>, Status> {
        self.look(&request).await.map(Response::new)
    }

    type WatchStream = Sent<Event>;

    async fn watch(&self, request: Request<WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let watcher = self.watcher(&request, Call::Watch)?;
        let after = request.into_inner().after;
        let reader = self.log.read(after.as_ref()).map_err(|e| Reason::AheadOfLog.status(e))?;
        Ok(watcher.read(reader))
    }

    type LogsStream = Sent<LogsResponse>;

    async fn logs(&self, request: Request<LogsRequest>) -> Result<Response<Self::LogsStream>, Status> {
        let LogsRequest { service, follow, lines } = request.get_ref().clone();
        let (call, log) = match service.is_empty() {
            true => (Call::Dmesg, Log::Kernel { follow, only_new: false }),
            false => (Call::Logs, Log::Service { name: service, follow, lines }),
        };
        self.read_log(&request, call, log, |text| LogsResponse { text }).await
    }
    async fn static_pods(&self, request: Request<StaticPodsRequest>) -> Result<Response<StaticPodsResponse>, Status> {
        let look = |node: Arc<N>| async move { node.static_pods().await };
        self.put(&request, Call::StaticPods, look).await.map(Response::new)
    }

    async fn replace_static_pod(
        &self,
        request: Request<ReplaceStaticPodRequest>,
    ) -> Result<Response<ReplaceStaticPodResponse>, Status> {
        let (peer, what) = (peer(&request)?, request.get_ref().clone());
        peer.may_with(Call::ReplaceStaticPod, what.token)?;
        let caller = peer.name().to_owned();
        let ask = |node: Arc<N>| async move { node.replace_static_pod(what, caller).await };
        self.put(&request, Call::ReplaceStaticPod, ask).await.map(Response::new)
    }

    async fn pull_images(&self, request: Request<PullImagesRequest>) -> Result<Response<PullImagesResponse>, Status> {
        let (peer, what) = (peer(&request)?, request.get_ref().clone());
        peer.may_with(Call::PullImages, what.token)?;
        let caller = peer.name().to_owned();
        let ask = |node: Arc<N>| async move { node.pull_images(what, caller).await };
        self.put(&request, Call::PullImages, ask).await.map(|()| Response::new(PullImagesResponse {}))
    }

    async fn snapshot_etcd(
        &self,
        request: Request<SnapshotEtcdRequest>,
    ) -> Result<Response<SnapshotEtcdResponse>, Status> {
        let (peer, SnapshotEtcdRequest { id, token }) = (peer(&request)?, request.get_ref().clone());
        peer.may_with(Call::SnapshotEtcd, token)?;
        let id = Uuid::try_parse(&id).map_err(|_| Reason::Invalid.status(format!("{id:?} is no UUID")))?;
        let caller = peer.name().to_owned();
        let ask = |node: Arc<N>| async move { node.snapshot_etcd(id, token, caller).await };
        self.put(&request, Call::SnapshotEtcd, ask).await.map(|()| Response::new(SnapshotEtcdResponse {}))
    }

    async fn complete_static_pods(
        &self,
        request: Request<CompleteStaticPodsRequest>,
    ) -> Result<Response<CompleteStaticPodsResponse>, Status> {
        let (peer, token) = (peer(&request)?, request.get_ref().token);
        peer.may_with(Call::CompleteStaticPods, token)?;
        let caller = peer.name().to_owned();
        let ask = |node: Arc<N>| async move { node.complete_static_pods(token, caller).await };
        self.put(&request, Call::CompleteStaticPods, ask).await.map(|()| Response::new(CompleteStaticPodsResponse {}))
    }
}
