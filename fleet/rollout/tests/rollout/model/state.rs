//! One state of the model: the ledger, the controllers, the nodes, and the messages between them.

use std::{
    collections::BTreeSet,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use slipway_rollout::{
    decide::Action,
    ledger::{Ledger, Limits},
};

use super::said::Said;

/// The planted fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    None,
    /// Grants end by time.
    Expires,
    /// A grant is added to the newest ledger, and the budget is of an older one.
    OldBudget,
    /// Whatever token a node names, it frees its grant.
    AnyToken,
    /// The ledger goes on above whatever any node says that it obeyed.
    BelievesTokens,
    /// A node remembers the token of a request before it looks into the ledger.
    UnreadToken,
    /// A report counts for the node that it names, and not for the one that was asked.
    BelievesNames,
    /// A node that does not stage is waited for, however long it takes.
    WaitsForAll,
    /// Grants are given whatever the claim of an upgrade of Kubernetes says.
    GrantsBesideClaim,
    /// An upgrade of Kubernetes claims the ledger whatever grants there are.
    ClaimsBesideGrants,
    /// A node that the labels of two pools name counts in its own only.
    CountsInOnePool,
}

/// An upgrade of Kubernetes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Upgrade {
    /// There is none.
    Never,
    /// It has not read the ledger.
    Begins,
    /// Its write is on its way.
    Claims(Write),
    /// It replaces static pods.
    Works,
    Over,
}

/// A node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Body {
    pub runs: bool,
    /// The token with which it is at work.
    pub work: Option<u64>,
    /// The highest token that it obeyed.
    pub obeyed: u64,
}

/// The ledger as it is to be, if it still is what it was.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Write {
    pub version: u8,
    pub from: Arc<Ledger>,
    pub to: Arc<Ledger>,
}

/// A controller.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Controller {
    pub todo: Vec<Action>,
    pub limits: Option<Limits>,
    /// The objects that it read, and their version.
    pub version: u8,
    pub read: Arc<Ledger>,
    /// A write to which there was no answer yet.
    pub sent: Option<Write>,
}

/// One state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub ledger: Arc<Ledger>,
    pub version: u8,
    pub controllers: [Controller; 2],
    pub nodes: Vec<Body>,
    /// All reports of each node: a controller may see any of them.
    pub said: Vec<BTreeSet<Said>>,
    /// Requests to begin that were ever sent: each may arrive at any time, and again.
    pub begins: BTreeSet<(usize, u64)>,
    /// Writes of controllers that crashed since.
    pub late: Vec<Write>,
    /// The number of writes that may still come late.
    pub may_be_late: u8,
    /// Tokens fell.
    pub fell: bool,
    /// The rollout was paused, or its payload denied.
    pub stopped: bool,
    pub upgrade: Upgrade,
}

impl Body {
    /// The truth.
    pub fn says(&self) -> Said {
        let busy = self.work.is_some();
        Said::Report { runs: self.runs, staged: true, well: true, busy, token: self.obeyed, failed: None }
    }
}

impl Controller {
    /// Forget the view when there is nothing left to do.
    pub fn rests(&mut self) {
        if self.todo.is_empty() && self.sent.is_none() {
            *self = Self::default();
        }
    }
}

impl State {
    pub fn put(&mut self, ledger: Arc<Ledger>, mutant: Mutant) {
        let tokens: BTreeSet<u64> = ledger.grants.iter().map(|grant| grant.token).collect();
        let claimed = ledger.kubernetes.as_ref().map(|claim| claim.token);
        let is_twice = tokens.len() < ledger.grants.len();
        let is_new = |token: &u64| !self.ledger.grants.iter().any(|grant| grant.token == *token);
        let is_old = tokens.iter().filter(|token| is_new(token)).any(|token| *token <= self.ledger.epoch);
        let given = tokens.iter().copied().chain(claimed).fold(self.ledger.epoch, u64::max);
        self.fell |= is_twice || is_old || ledger.epoch < self.ledger.epoch || ledger.epoch > given;
        self.ledger = ledger;
        self.version += 1;
        // These fail whenever they arrive.
        self.late.retain(|late| late.version == self.version || mutant == Mutant::OldBudget);
    }
}

/// One controller is as good as the other: this orders them.
pub fn hash(controller: &Controller) -> u64 {
    let mut hasher = DefaultHasher::new();
    controller.hash(&mut hasher);
    hasher.finish()
}
