//! The calls: role, limits, the node, and its answer.

use std::{future::Future, sync::Arc};

use slipway_node::goal::Request as NodeRequest;
use slipway_node_api::{
    goal,
    reason::Reason,
    v1::{
        AbortRequest, AbortResponse, AskResponse, ConfirmRequest, ConfirmResponse, Event, PlanRequest, PlanResponse,
        RebootRequest, RollbackRequest, StageRequest, StatusRequest, StatusResponse, UpgradeRequest, WatchRequest,
        node_service_server::NodeService, plan_request::Goal,
    },
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use crate::{
    events::{EventLog, Reader},
    limits::Limits,
    node::{Error, Node},
    peer::Peer,
    role::Call,
};

/// How much of a reason for an abort is kept.
const WHY: usize = 512;

/// Answers the calls for a node.
#[derive(Debug)]
pub(crate) struct Service<N> {
    node: Arc<N>,
    log: EventLog,
    calls: Arc<Semaphore>,
    watches: Arc<Semaphore>,
}

impl<N> Clone for Service<N> {
    fn clone(&self) -> Self {
        let Self { node, log, calls, watches } = self;
        Self { node: node.clone(), log: log.clone(), calls: calls.clone(), watches: watches.clone() }
    }
}

impl<N: Node> Service<N> {
    pub(crate) fn new(node: Arc<N>, log: EventLog, limits: Limits) -> Self {
        let places = |of| Arc::new(Semaphore::new(of));
        Self { node, log, calls: places(limits.calls), watches: places(limits.watches) }
    }

    /// Who calls, and its place among the calls.
    fn admit<T>(&self, request: &Request<T>, call: Call) -> Result<(Peer, OwnedSemaphorePermit), Status> {
        let peer = peer(request)?;
        peer.may(call)?;
        let place = self
            .calls
            .clone()
            .try_acquire_owned()
            .map_err(|_| Reason::TooManyCalls.status("the node answers as many calls as it may have at once"))?;
        Ok((peer, place))
    }

    /// Somebody asks for something.
    pub(crate) async fn begin<T>(&self, request: &Request<T>, call: Call, goal: Goal) -> Result<AskResponse, Status> {
        let (peer, place) = self.admit(request, call)?;
        let request = decode(goal, &peer)?;
        if request.allow_outage {
            peer.may(Call::Outage)?;
        }
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

    /// What the node says of itself, for who may hear it.
    pub(crate) async fn look<T>(&self, request: &Request<T>) -> Result<StatusResponse, Status> {
        let (_, place) = self.admit(request, Call::Status)?;
        // The position first: what happens between the two is told again, and is not missed.
        let events = Some(self.log.newest());
        let node = self.node.clone();
        let status = to_its_end(place, async move { node.status().await }).await?;
        Ok(StatusResponse { events, ..status })
    }

    /// Ask the node, for who may make this call.
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

    /// Who may make this call, and has its two places among the watches: its connection's and the node's.
    pub(crate) fn watcher<T>(&self, request: &Request<T>, call: Call) -> Result<Watcher, Status> {
        let peer = peer(request)?;
        peer.may(call)?;
        let take = |from: &Arc<Semaphore>, whose: &str| {
            let refused = |_| Reason::TooManyWatches.status(format!("{whose} has as many watches as it may have"));
            from.clone().try_acquire_owned().map_err(refused)
        };
        let places = [take(&peer.streams, "this connection")?, take(&self.watches, "this node")?];
        Ok(Watcher { peer, places })
    }

    /// The log of events.
    pub(crate) fn event_log(&self) -> &EventLog {
        &self.log
    }
}

/// What a stream gives to its reader, one at a time.
pub(crate) trait Source: Send + 'static {
    /// What is sent.
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

/// What is sent as a stream.
pub(crate) type Sent<T> = ReceiverStream<Result<T, Status>>;

/// Who reads a stream.
pub(crate) struct Watcher {
    peer: Peer,
    places: [OwnedSemaphorePermit; 2],
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
    goal::from_wire(goal, peer.name().to_owned()).map_err(|e| Reason::Malformed.status(e))
}

/// Do `work`, also when the caller goes away meanwhile: the journal is written in whole, or not at all.
async fn to_its_end<T: Send + 'static>(
    place: OwnedSemaphorePermit,
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
        let no_goal = || Reason::Malformed.status(goal::Malformed::NoGoal);
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
            // A system that nobody found well is taken on somebody's word, as with a confirmation by hand.
            peer.may(Call::Confirm)?;
        }
        let id = goal::id(&id).map_err(|e| Reason::Malformed.status(e))?;
        let why: String = why.chars().filter(|c| !c.is_control()).take(WHY).collect();
        let (node, caller) = (self.node.clone(), peer.name().to_owned());
        to_its_end(place, async move { node.abort(id, why, as_is, caller).await }).await?;
        Ok(Response::new(AbortResponse {}))
    }

    async fn confirm(&self, request: Request<ConfirmRequest>) -> Result<Response<ConfirmResponse>, Status> {
        let (peer, place) = self.admit(&request, Call::Confirm)?;
        let (node, caller) = (self.node.clone(), peer.name().to_owned());
        to_its_end(place, async move { node.confirm(caller).await }).await?;
        Ok(Response::new(ConfirmResponse {}))
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
}
