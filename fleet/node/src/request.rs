//! The goals of requests to a node.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use slipway_core::digest::Sha256;
use uuid::Uuid;

/// Where the sequence ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Goal {
    /// The payload is in the other slot, verified. Nothing is disturbed.
    Stage,
    /// The payload runs, is well, and is the default.
    Upgrade,
    /// The system of the other slot runs. Nothing is downloaded.
    Rollback,
    /// The system that runs was started anew.
    Reboot,
    /// Read from a journal: one that only a later version knows. Nobody can ask for it.
    #[serde(other)]
    Later,
}

impl Goal {
    /// True if a payload is written.
    pub fn writes(self) -> bool {
        matches!(self, Self::Stage | Self::Upgrade)
    }
}

/// The operation that a client requests of a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Request {
    /// Its name. The same request may come twice: the second time nothing new begins.
    pub id: Uuid,
    /// The goal.
    pub goal: Goal,
    /// The installer image or payload, as `installer --source` takes it. Empty if nothing is written.
    pub source: String,
    /// The digest that the payload must have; `None` for any.
    pub payload: Option<Sha256>,
    /// Keep EPHEMERAL. Without it, a member of etcd leaves the cluster first and comes back as a learner.
    pub preserve: bool,
    /// The fleet's grant. `None`: a person asks this node directly.
    pub token: Option<u64>,
    /// Upgrade although etcd loses its quorum meanwhile: one or two voters cannot be upgraded else.
    pub allow_outage: bool,
    /// Write the payload whatever version it has. The installer refuses an older one else.
    #[serde(default)]
    pub allow_any_version: bool,
    /// Go on although the etcd of a system would not read the data: that of the other slot, or of the one to come back to.
    #[serde(default)]
    pub allow_any_etcd: bool,
    /// Who asks: the name in the client certificate, or the user at the Unix socket.
    pub caller: String,
    /// What a later version has written beside these. It stays as it is.
    #[serde(flatten)]
    pub later: Map<String, Value>,
}

impl Request {
    /// True if `other` asks for the same. A payload is the same wherever it comes from.
    pub fn is_for_the_same(&self, other: &Self) -> bool {
        let is_source_the_same = self.payload.is_some() || self.source == other.source;
        self.goal == other.goal && self.payload == other.payload && is_source_the_same
    }

    /// A request that writes nothing, keeps EPHEMERAL, has no grant, and asks for no exception.
    pub fn new(id: Uuid, goal: Goal, caller: impl Into<String>) -> Self {
        Self {
            id,
            goal,
            source: String::new(),
            payload: None,
            preserve: true,
            token: None,
            allow_outage: false,
            allow_any_version: false,
            allow_any_etcd: false,
            caller: caller.into(),
            later: Map::new(),
        }
    }
}
