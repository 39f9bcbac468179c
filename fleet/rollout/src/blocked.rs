//! Why a node that is not done does not go now. One sentence each: "why is nothing happening" has an answer.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use slipway_core::digest::Sha256;
use slipway_kubernetes::skew::Skew;

use crate::{facts::Interruption, ledger::Refusal, policy::Closed};

/// Why a node that is not done does not go now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "kebab-case")]
pub enum Blocked {
    /// The plan is not the one that was shown.
    #[error("the plan is not the one that was made, its hash says: delete the rollout, and a new one is made")]
    PlanChanged,
    /// It is paused.
    #[error("the rollout is paused: {0}")]
    Paused(String),
    /// The payload is denied.
    #[error("the payload is denied: {0}")]
    Denied(String),
    /// People have given it up.
    #[error("the rollout is aborted: {0}")]
    Aborted(String),
    /// People have given it up, and it holds a grant without having begun.
    #[error(
        "the rollout is aborted, and it holds the grant {token} without having begun: a person frees it, unless it begins"
    )]
    AbortedHolder { token: u64 },
    /// People have given it up, and it is at it.
    #[error("the rollout is aborted: it is asked to end what it began with the grant {token}")]
    Aborts { token: u64 },
    /// It runs a payload that is denied, and does not go back.
    #[error("it keeps the payload that is denied: {0}")]
    Stays(String),
    /// It would lose its member of etcd.
    #[error("it does not go back: {0}; or set spec.allowAnyEtcd")]
    StrandsMember(String),
    /// Its kubelet would not go with the API server.
    #[error("{0}")]
    KubeletSkew(Skew),
    /// It holds a grant and is to be asked to go back.
    #[error("it has the grant {token}, and is asked to go back")]
    Returns { token: u64 },
    /// It came after the plan was made.
    #[error("it is not in the plan: it comes with the next rollout")]
    NotInPlan,
    /// A person left it out.
    #[error("it is left out by a person's word")]
    Skipped,
    /// It was tried.
    #[error("it failed: {0}")]
    Failed(String),
    /// Its last attempt ended before the payload ran. That says nothing about the payload.
    #[error("its last attempt ended before the payload ran, and is {}: {why}", again(.from))]
    RetriesLater { from: Timestamp, why: String },
    /// A person freed its grant before it went back, or that ended before its reboot: by what. Others are before it.
    #[error("{}", returns_later(.from, .kept.as_deref()))]
    ReturnsLater { from: Timestamp, kept: Option<String> },
    /// It says that it obeyed a token that was never given.
    #[error(
        "it says that it obeyed the token {token}, and the ledger has given none above {highest}: it gets no grant, and \
         others do not wait for it; find out what answers there"
    )]
    TokenAhead { token: u64, highest: u64 },
    /// It does not answer.
    #[error("it does not answer")]
    Silent,
    /// It does not answer, and may be in the middle of it.
    #[error(
        "it does not answer, and holds the grant {token}, which stays in use until it answers and is well, its machine is \
         gone, or a person frees it"
    )]
    SilentHolder { token: u64 },
    /// It holds a grant and is at it, or is not well yet.
    #[error("it is being upgraded, with the grant {token}")]
    UnderWay { token: u64 },
    /// It holds a grant and is to be asked.
    #[error("it has the grant {token}, and is asked to begin")]
    Begins { token: u64 },
    /// It may go as of now.
    #[error("it is granted now")]
    Granted,
    /// It holds a grant, and what it says does not fit.
    #[error(
        "it holds the grant {token}, and says that it obeyed the later one {obeyed}: one of the two is wrong, and a person \
         frees the grant"
    )]
    Overtaken { token: u64, obeyed: u64 },
    /// There is no such node any more.
    #[error("its Node is gone, and it holds the grant {token} until that is proven, for etcd's member, too")]
    Gone { token: u64 },
    /// Its Node is there, and is not this pool's any more.
    #[error("its Node is not in this pool any more, and holds the grant {token} of it until it is well with that")]
    Moved { token: u64 },
    /// It came from another pool. It has a grant of that pool, and has not begun with it.
    #[error("it came with the grant {token} of the pool {pool}, with which it has not begun: a person frees that")]
    ForeignGrant { token: u64, pool: String },
    /// It may not be replaced.
    #[error("it is not replaced: {0}")]
    NotReplaced(String),
    /// It would lose volumes.
    #[error("it is not replaced: {0}; move that elsewhere, or set spec.replace.allowLocalVolumes")]
    LocalVolumes(String),
    /// The machines are unknown.
    #[error("machines cannot be read: {0}")]
    NoMachines(String),
    /// It holds a grant, and its machine is to be deleted.
    #[error("it has the grant {token}, and its machine {machine} is deleted")]
    Deletes { token: u64, machine: String },
    /// Its machine goes.
    #[error("its machine {machine} is being deleted, with the grant {token}: its provider drains the node first")]
    MachineGoes { token: u64, machine: String },
    /// No successor came.
    #[error(
        "its machine {machine} is gone, and {set} has not made another one: the grant {token} stays until that is well, \
         or a person frees it"
    )]
    NoSuccessor { token: u64, machine: String, set: String },
    /// A successor comes.
    #[error("its successor, machine {machine}, has no Node yet; the grant is {token}")]
    SuccessorJoins { token: u64, machine: String },
    /// The successor is not in the pool.
    #[error(
        "its successor, machine {machine}, has a Node that is not in this pool: have the template give it the labels; the \
         grant is {token}"
    )]
    SuccessorElsewhere { token: u64, machine: String },
    /// The successor is not well.
    #[error("its successor {node} does not answer, or is not well; the grant is {token}")]
    SuccessorNotWell { token: u64, node: String },
    /// The successor runs another payload.
    #[error(
        "its successor {node} runs another payload, {runs}: have the template name the right image; the grant {token} stays \
         until a machine comes that is well with it, or a person frees it"
    )]
    SuccessorDiffers { token: u64, node: String, runs: Sha256 },
    /// It runs the payload.
    #[error("it runs the payload, and is not well")]
    NotWell,
    /// It is busy without us.
    #[error("another client's operation is under way on it")]
    Busy,
    /// It is being staged.
    #[error("the payload is being written into its other slot")]
    Staging,
    /// No node goes before all that answer have the payload.
    #[error("{left} nodes are not staged yet, {first} among them")]
    AllStaged { left: usize, first: String },
    /// An earlier wave is not over.
    #[error("wave {wave} is not over: it waits for {first}")]
    Wave { wave: usize, first: String },
    /// An earlier wave soaks.
    #[error("{}", soak(*.wave, *.until, .interruption.as_ref()))]
    Soak { wave: usize, until: Timestamp, interruption: Option<Interruption> },
    /// No node tried it, or those that did are gone.
    #[error("{}; delete the rollout, and a new one is made", no_canary(*.wave, *.gone))]
    NoCanary { wave: usize, gone: bool },
    /// A policy wants a person's word first.
    #[error("wave {wave} waits for approval: slipwayctl fleet approve {pool} --reason WHY")]
    Approval { wave: usize, pool: String },
    /// Not at this time.
    #[error("{0}")]
    Closed(Closed),
    /// The ledger says no.
    #[error("{0}")]
    Refused(Refusal),
    /// Its state cannot be written.
    #[error("nothing of its pool begins: {0}")]
    Unwritten(String),
    /// Another one is before it.
    #[error("{0} is before it, and cannot go yet")]
    After(String),
}

/// Until when a wave soaks, and whom that hangs on if it began anew.
pub fn soak(wave: usize, until: Timestamp, interruption: Option<&Interruption>) -> String {
    let anew = interruption.map_or_else(String::new, |Interruption { node, at, times }| {
        let how_often = if *times == 1 { "once".to_owned() } else { format!("{times} times") };
        format!("; that began anew {how_often}: {node} was not seen well at {at:.0}")
    });
    format!("wave {wave} must be well until {until:.0}{anew}")
}

fn no_canary(wave: usize, gone: bool) -> String {
    if gone {
        return format!("wave {wave} cannot soak: its canaries are gone, and one of them had begun");
    }
    format!("no node of wave {wave} tried the payload: each failed before, is gone, or is left out")
}

fn returns_later(from: &Timestamp, kept: Option<&str>) -> String {
    match kept {
        Some(why) => format!("its last attempt to go back ended before its reboot, and is {}: {why}", again(from)),
        None => format!("a person has freed the grant with which it was to go back, and that is {}", again(from)),
    }
}

/// The command that frees the grant of the node of this name.
pub fn unblock(node: &str) -> String {
    format!("slipwayctl fleet unblock {node} --reason WHY")
}

/// How a rollout of this name that goes no further is tried again. Other projects have a kind of the same name.
pub fn try_again(rollout: &str) -> String {
    format!("to have it tried again: kubectl delete rollout.fleet.slipway.dev/{rollout}")
}

/// The same of one that the controllers have paused themselves: no person has paused it, and none can resume it.
pub fn mend(rollout: &str) -> String {
    format!("mend that, and {}", try_again(rollout))
}

fn again(from: &Timestamp) -> String {
    if *from == Timestamp::MAX {
        return "not repeated, because no time within 400 days is allowed".to_owned();
    }
    format!("repeated from {from:.0} on")
}

impl Blocked {
    /// A [`Self::TokenAhead`] whose words stay: the highest token rises with each grant of any node, and each node that waits says
    /// this.
    pub fn token_ahead(token: u64) -> Self {
        Self::TokenAhead { token, highest: token - 1 }
    }

    /// The command for the node of this name, where only a person may know that its grant can be freed. `holds` is whether
    /// it holds one.
    pub fn remedy(&self, node: &str, holds: bool) -> Option<String> {
        let is_stuck = match self {
            Self::AbortedHolder { .. }
            | Self::SilentHolder { .. }
            | Self::Overtaken { .. }
            | Self::ForeignGrant { .. }
            | Self::Gone { .. }
            | Self::NoSuccessor { .. }
            | Self::SuccessorDiffers { .. } => true,
            Self::Skipped | Self::NotReplaced(_) | Self::LocalVolumes(_) => holds,
            // It has not begun. Those before it may wait for its place.
            Self::Wave { .. } => holds,
            // It has not begun, and will not be asked to any more.
            Self::Denied(_) | Self::Stays(_) | Self::StrandsMember(_) => holds,
            _ => false,
        };
        is_stuck.then(|| unblock(node))
    }

    /// The reason in one word, which stays the same: for conditions, and for programs.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::PlanChanged => "PlanChanged",
            Self::Paused(_) => "Paused",
            Self::Denied(_) => "PayloadDenied",
            Self::Aborted(_) => "Aborted",
            Self::AbortedHolder { .. } => "AbortedWithGrant",
            Self::Aborts { .. } => "Aborts",
            Self::Stays(_) => "KeepsDenied",
            Self::StrandsMember(_) => "StrandsMember",
            Self::KubeletSkew(_) => "KubeletSkew",
            Self::Returns { .. } => "Returns",
            Self::NotInPlan => "NotInPlan",
            Self::Skipped => "Skipped",
            Self::Failed(_) => "Failed",
            Self::RetriesLater { .. } => "RetriesLater",
            Self::ReturnsLater { .. } => "ReturnsLater",
            Self::TokenAhead { .. } => "TokenAhead",
            Self::Silent => "Silent",
            Self::SilentHolder { .. } => "SilentWithGrant",
            Self::UnderWay { .. } => "UnderWay",
            Self::Begins { .. } => "Begins",
            Self::Granted => "Granted",
            Self::Overtaken { .. } => "Overtaken",
            Self::Gone { .. } => "GoneWithGrant",
            Self::Moved { .. } => "MovedWithGrant",
            Self::ForeignGrant { .. } => "ForeignGrant",
            Self::NotReplaced(_) => "NotReplaced",
            Self::LocalVolumes(_) => "LocalVolumes",
            Self::NoMachines(_) => "NoMachines",
            Self::Deletes { .. } => "Deletes",
            Self::MachineGoes { .. } => "MachineGoes",
            Self::NoSuccessor { .. } => "NoSuccessor",
            Self::SuccessorJoins { .. } => "SuccessorJoins",
            Self::SuccessorElsewhere { .. } => "SuccessorElsewhere",
            Self::SuccessorNotWell { .. } => "SuccessorNotWell",
            Self::SuccessorDiffers { .. } => "SuccessorDiffers",
            Self::NotWell => "NotWell",
            Self::Busy => "Busy",
            Self::Staging => "Staging",
            Self::AllStaged { .. } => "OthersStage",
            Self::Wave { .. } => "EarlierWave",
            Self::Soak { .. } => "Soak",
            Self::NoCanary { .. } => "NoCanary",
            Self::Approval { .. } => "Approval",
            Self::Closed(_) | Self::Refused(Refusal::Closed) => "WindowClosed",
            Self::Refused(Refusal::Holds { .. }) => "HoldsGrant",
            Self::Refused(Refusal::Kubernetes { .. }) => "KubernetesUpgrade",
            Self::Refused(Refusal::Budget { .. }) => "Budget",
            Self::Refused(Refusal::ControlPlane { .. }) => "ControlPlane",
            Self::Refused(Refusal::Zone { .. }) => "Zone",
            Self::Refused(Refusal::NoZone) => "NoZone",
            Self::Refused(Refusal::Shared { .. }) => "Shared",
            Self::Refused(Refusal::Rate { .. }) => "Rate",
            Self::Refused(Refusal::Full { .. }) => "LedgerFull",
            Self::Refused(Refusal::Spent) => "LedgerSpent",
            Self::Refused(Refusal::Newer { .. }) => "LedgerNewer",
            Self::Unwritten(_) => "Unwritten",
            Self::After(_) => "After",
        }
    }
}
