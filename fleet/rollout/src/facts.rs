//! Observations of the nodes, and of people's wishes. An unknown fact is `None`, and never good news.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use slipway_core::digest::Sha256;

use crate::{
    attempts::History,
    duration::PositiveDuration,
    ledger::{Ledger, Limits, Node, Proof},
    plan::Plan,
    policy::{Closed, Rules},
};

/// A node of the pool, as it was seen.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ObservedNode {
    /// Which.
    pub node: Node,
    /// The report of its own service; `None` if it does not answer.
    pub report: Option<NodeReport>,
}

/// A node's own report, all of it at one time: a token without its outcome would free a node at work.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NodeReport {
    /// The payload that runs.
    pub runs: Sha256,
    /// The payload that is verified in the other slot.
    pub staged: Option<Sha256>,
    /// It is well: system, kubelet, member of etcd, and what else is checked.
    pub well: bool,
    /// Since when it is as well, or as ill, as it is.
    pub since: Timestamp,
    /// An operation that disturbs it is under way.
    pub busy: bool,
    /// The highest token that it obeyed; 0 if there was none.
    pub token: u64,
    /// The failure of the rollout's payload here, if it failed. Of a node that runs it: the end of its last attempt to go back,
    /// if that came before its reboot.
    pub failed: Option<Failure>,
    /// Its way back.
    pub rollback: RollbackState,
    /// The version of the kubelet in the system of its other slot, if the payload there names it.
    pub other_kubelet: Option<String>,
}

/// The failure of an attempt to have the payload run.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Failure {
    /// Its meaning for the payload.
    pub evidence: FailureEvidence,
    /// The node's own words.
    pub why: String,
}

/// The meaning of a failure for the payload. Each kind has its rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailureEvidence {
    /// The payload could not be written. Nothing was disturbed and nothing was tried: the node is left out of the rollout,
    /// and no other node is held back.
    NotStaged,
    /// The attempt ended before the reboot into the payload: a PodDisruptionBudget, an abort, a grant that was taken back,
    /// an API server that was away. That says nothing about the payload. The node is tried again in the next window.
    BeforeReboot,
    /// The payload was booted, and was not well. This counts against it: the payload may be denied.
    AfterReboot,
    /// The payload does not run any more, and the node does not say why, or a person has aborted it while it ran; or a successor
    /// runs another one. That pauses a rollout, and denies nothing.
    Unknown,
}

/// A node's way back to the system of its other slot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RollbackState {
    /// The other slot holds no system that was ever confirmed.
    #[default]
    Unavailable,
    /// The other slot holds a confirmed system.
    Available,
    /// The other slot holds a confirmed system whose etcd does not read the data. Has the reason.
    Stranding(String),
    /// The payload of the other slot was denied, too. Has the reason of that denial.
    Denied(String),
    /// The node was asked to go back, and still runs the payload, although it may have booted the other system. Has the reason.
    Failed(String),
}

impl ObservedNode {
    /// The payload runs, whether the node is well or not.
    pub fn runs(&self, payload: Sha256) -> bool {
        self.report.as_ref().is_some_and(|report| report.runs == payload)
    }

    /// It answers, is well, and nothing disturbs it.
    pub fn is_well(&self) -> bool {
        self.report.as_ref().is_some_and(|report| report.well && !report.busy)
    }

    /// Why its last attempt to go back from `payload` ended before its reboot.
    pub(crate) fn kept(&self, payload: Sha256) -> Option<&str> {
        let failure = self.failure().filter(|_| self.runs(payload))?;
        (failure.evidence == FailureEvidence::BeforeReboot).then_some(failure.why.as_str())
    }

    /// Its failure.
    pub fn failure(&self) -> Option<&Failure> {
        self.report.as_ref()?.failed.as_ref()
    }
}

/// A proof that frees the grant of a node, from elsewhere than from the node.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Evidence {
    /// The node's UID.
    pub uid: String,
    /// The proof.
    pub proof: Proof,
}

/// A person's word that nodes begin now, whatever windows and blackouts say. Budgets, rates, zones and order hold as ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct WindowOverride {
    /// Until then.
    pub until: Timestamp,
    /// The wave, counted from 0, whose soak is passed over. Its nodes must be well all the same.
    pub soak: Option<usize>,
}

/// A person's word that the waves of a plan may begin, as far as policies ask for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Approval {
    /// The hash of the plan that the person saw. It is none for another plan.
    pub plan: Sha256,
    /// Number of waves, from the first one on.
    pub waves: usize,
}

/// Which attempts are repeated, where an attempt ended before the reboot. Tokens tell old attempts from new ones, so one
/// entry is enough for all nodes of a rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Retry {
    /// Attempts with a token below this one may be repeated now.
    #[schemars(range(min = 0, max = 9_007_199_254_740_991_u64))]
    pub below: u64,
    /// From this time on, all others may be, too: the next window has opened.
    pub from: Timestamp,
}

/// A soak that did not last: a node that was well was so no more.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Interruption {
    /// The name of that node, the last time.
    pub node: String,
    /// When that was, the last time.
    pub at: Timestamp,
    /// How often it came to that, in this wave.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub times: u32,
}

impl Interruption {
    /// So many show that it does not come to an end by itself.
    pub const MANY: u32 = 5;

    /// It says itself that it was well only since then. Others that say the same, one after the other, count as one: a service
    /// may be started anew on all of them.
    pub(crate) fn told(before: Option<Self>, node: &Node, since: Timestamp) -> Self {
        match before {
            Some(before) if before.node != node.name => Self { node: node.name.clone(), at: since, ..before },
            before => Self::once_more(before, node, since),
        }
    }

    /// Now by this node. It counts once a minute: two controllers may see a node differently for a while.
    pub(crate) fn once_more(before: Option<Self>, node: &Node, now: Timestamp) -> Self {
        match before {
            Some(before) if now.duration_since(before.at).abs() < SignedDuration::from_mins(1) => before,
            before => {
                let times = before.map_or(0, |before| before.times).saturating_add(1);
                Self { node: node.name.clone(), at: now, times }
            }
        }
    }
}

/// Nodes go back from a payload that is denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RollbackPolicy {
    /// Those of the control plane, too.
    pub control_plane: bool,
    /// Those whose member of etcd would not run then, too.
    pub any_etcd: bool,
}

/// A machine that is a node, or will be: what its provider says of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Machine {
    /// Its UID.
    pub uid: String,
    /// Its name, for people.
    pub name: String,
    /// The UID of its Node; `None` if it has none.
    pub node: Option<String>,
    /// The set that makes another one when it goes; the error says why none does.
    pub set: Result<String, String>,
    /// When it was made, by the clock of the API server. Seconds are enough.
    pub created: Timestamp,
    /// It is being deleted.
    pub is_deleting: bool,
}

/// The facts of nodes that are replaced.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Replacing {
    /// Nodes of this pool are replaced, not upgraded.
    pub wanted: bool,
    /// The pool's target by now, if that is not the plan's payload.
    pub target: Option<Sha256>,
    /// All machines, read after the ledger; the error says why they are unknown.
    pub machines: Result<Vec<Machine>, String>,
    /// The volumes that nodes would lose, by UID.
    pub local_volumes: BTreeMap<String, String>,
    /// The successors of the plan's nodes: UIDs of Nodes, by the UID that the plan has.
    pub succeeded: BTreeMap<String, String>,
}

impl Default for Replacing {
    fn default() -> Self {
        let machines = Err("machines were not looked at".to_owned());
        Self { wanted: false, target: None, machines, local_volumes: BTreeMap::new(), succeeded: BTreeMap::new() }
    }
}

/// The input of one decision.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Facts {
    /// The plan.
    pub plan: Plan,
    /// Number of its waves that are over, as the last decision said. It only rises.
    pub passed: usize,
    /// The pool's policies.
    pub rules: Rules,
    /// All nodes of the pool, whether they are in the plan or not.
    pub nodes: Vec<ObservedNode>,
    /// Nodes outside of the pool that are not well: those of the control plane, and those of `shared`.
    pub elsewhere: Vec<Node>,
    /// UIDs of nodes that hold a grant of this pool, and are in another one, or in none, by now.
    pub moved: BTreeSet<String>,
    /// Nodes that the labels of the pool name, and that an older pool has, by name, as this pool would have them.
    pub shared: BTreeMap<String, Node>,
    /// The limits of younger pools whose labels name nodes of this one.
    pub younger: Vec<Limits>,
    /// UIDs of nodes that were not asked, because the controller can ask none at all. That says nothing of them: another
    /// controller may see them.
    pub unasked: BTreeSet<String>,
    /// The ledger, as it was read.
    pub ledger: Ledger,
    /// The proofs that free grants.
    pub evidence: Vec<Evidence>,
    /// UIDs of nodes that are left out, by a person or by a channel. Nothing that they say counts.
    pub skip: BTreeSet<String>,
    /// UIDs of nodes whose Node is being deleted: nothing begins on them. What they say of the payload counts.
    pub going: BTreeSet<String>,
    /// Why a person has paused the rollout; or it, or its pool, is being deleted.
    pub paused: Option<String>,
    /// Why the controllers have paused it themselves. That stays, and holds back nobody who goes back.
    pub stopped: Option<String>,
    /// Why its payload is denied.
    pub denied: Option<String>,
    /// It was finished once, and its payload was not denied until then.
    pub finished: bool,
    /// The rollback of nodes if its payload is denied.
    pub rollback: Option<RollbackPolicy>,
    /// Why people have given it up. It stays so.
    pub aborted: Option<String>,
    /// The override, if it goes now.
    pub window_override: Option<WindowOverride>,
    /// The approvals of people, of this plan or of others.
    pub approvals: Vec<Approval>,
    /// Facts for replacements, if nodes are replaced.
    pub replacing: Replacing,
    /// When the rollout was made; `None` if it was not made yet.
    pub created: Option<Timestamp>,
    /// Since when the controllers have seen the nodes of the wave `passed` well, all the time and by their own clock. What
    /// nodes say can make a soak longer, and never shorter.
    pub soaking_since: Option<Timestamp>,
    /// The interruptions of that soak, if there were any.
    pub interruption: Option<Interruption>,
    /// Which attempts are repeated now.
    pub retry: Option<Retry>,
    /// Number of grants of each node in this rollout, as the last decision said.
    pub attempts: History,
    /// Tokens that people have named in releases. A token that was named before it was given is never given: else the
    /// grant would be free at once.
    pub named_tokens: BTreeSet<u64>,
    /// The version of the API server; `None` if it is not known.
    pub api_server: Option<String>,
}

impl Facts {
    /// The facts before any event and without special wishes.
    pub fn new(plan: Plan, rules: Rules, nodes: Vec<ObservedNode>) -> Self {
        Self {
            plan,
            passed: 0,
            rules,
            nodes,
            elsewhere: Vec::new(),
            moved: BTreeSet::new(),
            shared: BTreeMap::new(),
            younger: Vec::new(),
            unasked: BTreeSet::new(),
            ledger: Ledger::default(),
            evidence: Vec::new(),
            skip: BTreeSet::new(),
            going: BTreeSet::new(),
            paused: None,
            stopped: None,
            denied: None,
            finished: false,
            rollback: None,
            aborted: None,
            window_override: None,
            approvals: Vec::new(),
            replacing: Replacing::default(),
            created: None,
            soaking_since: None,
            interruption: None,
            retry: None,
            attempts: History::default(),
            named_tokens: BTreeSet::new(),
            api_server: None,
        }
    }

    /// Nothing begins on this node, and no other node waits for it.
    pub fn is_left_out(&self, uid: &str) -> bool {
        self.skip.contains(uid) || self.going.contains(uid)
    }

    /// Why it is paused, by a person or by the controllers themselves.
    pub fn pause(&self) -> Option<&String> {
        self.paused.as_ref().or(self.stopped.as_ref())
    }

    /// Until when nodes may begin; `None` for ever.
    pub fn hours(&self, now: Timestamp) -> Result<Option<Timestamp>, Closed> {
        let open = self.rules.open(now);
        match self.override_at(now) {
            Some(WindowOverride { until, .. }) => Ok(open.unwrap_or(Some(until)).map(|closes| closes.max(until))),
            None => open,
        }
    }

    /// A person's word that it goes now, while that holds.
    pub fn override_at(&self, now: Timestamp) -> Option<WindowOverride> {
        self.window_override.filter(|window_override| now < window_override.until)
    }

    /// When an attempt that is not to be repeated in this window may be: with the next window, or after an hour where no
    /// policy has windows; a blackout months ahead is no end of a window.
    pub fn next_window(&self, now: Timestamp) -> Timestamp {
        let opens = match self.rules.open(now) {
            Err(Closed { opens, .. }) => opens,
            Ok(Some(closes)) if self.rules.has_windows() => self.rules.opens(closes),
            Ok(_) => self.rules.opens(PositiveDuration::minutes(60).after(now)),
        };
        opens.unwrap_or(Timestamp::MAX)
    }

    /// The pools' targets, by name.
    pub fn targets(&self) -> BTreeMap<String, Sha256> {
        let target = self.replacing.target.unwrap_or(self.plan.payload);
        BTreeMap::from([(self.plan.pool.clone(), target)])
    }
}
