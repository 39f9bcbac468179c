//! The interface from the API to a node.

use std::future::Future;

use slipway_node::{
    journal::{Asked, Refusal},
    request::Request,
};
use slipway_node_api::{
    machine::{EtcdMember, EtcdMemberAlarm, EtcdMemberStatus},
    reason::Reason,
    v1::{
        PlanResponse, PullImagesRequest, ReplaceStaticPodRequest, ReplaceStaticPodResponse, StaticPodsResponse,
        StatusResponse,
    },
};
use tokio::sync::mpsc;
use uuid::Uuid;

/// A node. `slipwayd` is the one that is meant.
///
/// A call that changes something runs to its end, also when its caller goes away. What happens is told by
/// [`EventLog::push`](crate::events::EventLog::push).
pub trait Node: Send + Sync + 'static {
    /// The plan of `request`. Nothing is changed.
    fn plan(&self, request: Request) -> impl Future<Output = Result<PlanResponse, Error>> + Send;

    /// A client requests an operation. The answer comes when the journal has it, not when it is done.
    fn ask(&self, request: Request) -> impl Future<Output = Result<Asked, Error>> + Send;

    /// `caller` wants the operation `id` to end, for `why`; or, if it does not end because the node does not become well,
    /// takes the node `as_is`. The answer comes when the journal has it.
    fn abort(
        &self,
        id: Uuid,
        why: String,
        as_is: bool,
        caller: String,
    ) -> impl Future<Output = Result<(), Error>> + Send;

    /// `caller` wants the system on trial to be the default. An operation that is under way does this itself:
    /// [`Error::Refused`] with [`Refusal::Busy`].
    fn confirm(&self, caller: String) -> impl Future<Output = Result<Option<String>, Error>> + Send;

    /// The node's own status.
    fn status(&self) -> impl Future<Output = Result<StatusResponse, Error>> + Send;

    /// A log of the machine, as it comes. Drop the receiver to end it.
    fn log(&self, of: Log) -> impl Future<Output = Result<Lines, Error>> + Send;

    /// The members of etcd's cluster.
    fn etcd_members(&self) -> impl Future<Output = Result<Vec<EtcdMember>, Error>> + Send;

    /// The status of this node's member of etcd.
    fn etcd_status(&self) -> impl Future<Output = Result<EtcdMemberStatus, Error>> + Send;

    /// The alarms of etcd's cluster.
    fn etcd_alarms(&self) -> impl Future<Output = Result<Vec<EtcdMemberAlarm>, Error>> + Send;

    /// This node's member of etcd gives the leadership away, if it has it. Who leads then; `None` if it did not have it.
    fn etcd_forfeit(&self) -> impl Future<Output = Result<Option<String>, Error>> + Send;

    /// The static pods of the control plane.
    fn static_pods(&self) -> impl Future<Output = Result<StaticPodsResponse, Error>> + Send;

    /// `caller` wants a static pod to run with another image. The answer comes when the journal has it.
    fn replace_static_pod(
        &self,
        request: ReplaceStaticPodRequest,
        caller: String,
    ) -> impl Future<Output = Result<ReplaceStaticPodResponse, Error>> + Send;

    /// `caller` wants images to be pulled. The answer comes when it has begun.
    fn pull_images(&self, request: PullImagesRequest, caller: String)
    -> impl Future<Output = Result<(), Error>> + Send;

    /// `caller` wants a snapshot of etcd with this name. The answer comes when it has begun. The token is that of the ledger's
    /// claim.
    fn snapshot_etcd(
        &self,
        id: Uuid,
        token: Option<u64>,
        caller: String,
    ) -> impl Future<Output = Result<(), Error>> + Send;

    /// `caller` wants the manifests from before to be forgotten. The token is that of the ledger's claim.
    fn complete_static_pods(
        &self,
        token: Option<u64>,
        caller: String,
    ) -> impl Future<Output = Result<(), Error>> + Send;
}

/// A log of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Log {
    /// The kernel's log.
    Kernel {
        /// Go on with what comes.
        follow: bool,
        /// Leave out the lines that are there already.
        only_new: bool,
    },
    /// A service's log.
    Service {
        /// Its name.
        name: String,
        /// Go on with what comes.
        follow: bool,
        /// So many of the lines that are there already; `None` for all.
        lines: Option<u32>,
    },
}

/// Pieces of a log. It has ended when no more come; an error is the last that comes.
pub type Lines = mpsc::Receiver<Result<Vec<u8>, Error>>;

/// Why a node does not do what it is asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The journal says no.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The operation that is to end is not under way.
    #[error("the operation {0} is not under way")]
    NotUnderWay(Uuid),
    /// The operation that is to end has come too far.
    #[error("the operation {0} cannot be ended any more: its new system is confirmed, or it has none to go back from")]
    TooLate(Uuid),
    /// The operation ends without an admin's acceptance.
    #[error(
        "the operation {0} is not at its last look, or the system is well, or there is a way back: a node is taken as it \
         is only where nothing else ends the operation"
    )]
    TooEarly(Uuid),
    /// There is nothing to confirm.
    #[error("the system that runs is not on trial")]
    NotOnTrial,
    /// This node cannot do it as it is asked for.
    #[error("{0}")]
    Invalid(String),
    /// The node does not have the requested thing.
    #[error("{0}")]
    NotHere(String),
    /// The ledger does not have the claim of an upgrade of Kubernetes with this token: what it has.
    #[error("the token {token} is not that of the ledger's claim for this version: {has}")]
    NotClaimed { token: u64, has: String },
    /// The fleet's ledger cannot be read, so no token counts: why.
    #[error("the request has a token, and {0}")]
    NoLedger(String),
    /// etcd did not do it, or did not answer.
    #[error("{0}")]
    Etcd(String),
    /// The node could not do it: what, and why.
    #[error("{0}")]
    Failed(String),
}

impl From<&Error> for Reason {
    fn from(error: &Error) -> Self {
        match error {
            Error::Refused(refused) => refused.into(),
            Error::NotUnderWay(_) => Self::NotUnderWay,
            Error::TooLate(_) => Self::TooLate,
            Error::TooEarly(_) => Self::Busy,
            Error::NotOnTrial => Self::NotOnTrial,
            Error::Invalid(_) => Self::Invalid,
            Error::NotHere(_) => Self::NotHere,
            Error::NotClaimed { .. } => Self::NotGranted,
            Error::NoLedger(_) => Self::NoLedger,
            Error::Etcd(_) => Self::Etcd,
            Error::Failed(_) => Self::Failed,
        }
    }
}

impl From<Error> for tonic::Status {
    fn from(error: Error) -> Self {
        Reason::from(&error).status(&error)
    }
}
