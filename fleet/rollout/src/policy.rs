//! The limits that people set. Several policies of a pool all hold: the strictest of each kind counts.
//!
//! | kind | several policies | none |
//! |---|---|---|
//! | `maxUnavailable` | the smallest, for this size of the pool | one node |
//! | `rate` | each of them | any rate |
//! | `windows` | of each policy at least one is open | always |
//! | `blackouts` | none holds | never |
//! | `topology` | the fewest zones; all must name the same label | anywhere |
//! | `steps` | a wave ends at each of them; at the same node the longer soak counts | one wave |
//! | `approval` | before each wave, if one of them says so | never |
//! | `failureBudget` | the smallest | the first failure stops it |

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    duration::PositiveDuration,
    int_or_percent::IntOrPercent,
    ledger::{Limits, Node, Rate},
    window::{Blackout, Window},
};

/// Minutes that are searched for an opening: a year and a month.
const HORIZON: u32 = 400 * 24 * 60;

/// The longest time that is searched for an opening. Windows that exclude each other never open.
const LOOKS: usize = 2000;

/// One policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Policy {
    /// Its name, for people.
    pub name: String,
    /// How many nodes of the pool may be unavailable at once.
    pub max_unavailable: Option<IntOrPercent>,
    /// How many nodes may begin in how long a time.
    pub rate: Option<Rate>,
    /// When nodes may begin. Any one of these.
    pub windows: Vec<Window>,
    /// When no node may begin.
    pub blackouts: Vec<Blackout>,
    /// In how many zones.
    pub topology: Option<Topology>,
    /// So many nodes first, counted from the start, and then a time without failure.
    pub steps: Vec<CanaryStep>,
    /// So many failures stop the rollout.
    pub failure_budget: Option<IntOrPercent>,
    /// Where nodes wait for a person's approval.
    pub approval: Option<ApprovalPolicy>,
}

/// Where nodes wait until a person approves, by slipwayctl fleet approve: EachWave, or AfterCanaries, which is before the
/// first wave after the canaries, and at the latest before the last wave. Of several policies EachWave counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum ApprovalPolicy {
    /// Before the first wave after the canaries, and at the latest before the last wave; before the first wave of all, if
    /// there are no canaries.
    AfterCanaries,
    /// Before each wave, the first one included.
    EachWave,
}

/// In how many zones nodes may be unavailable at once.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Topology {
    /// The label of nodes that says where one is: topology.kubernetes.io/zone.
    #[schemars(length(min = 1, max = 317))]
    pub key: String,
    /// How many values of it may be disturbed at once: 1, if it is left out.
    #[schemars(range(min = 1, max = u32::MAX))]
    #[serde(default = "one")]
    pub max_domains: u32,
}

fn one() -> u32 {
    1
}

/// So many nodes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CanaryStep {
    /// How many nodes, counted from the start: 1, or 10% of the plan's.
    pub nodes: IntOrPercent,
    /// How long all of them must be well before others go: 1h. A Rollout that is there keeps what it was made with.
    pub soak: PositiveDuration,
}

/// The policies of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Vec<Policy>", into = "Vec<Policy>")]
pub struct Rules(Vec<Policy>);

/// Policies that cannot hold together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("their topology.key differs, {0:?} and {1:?}: give all of them the same")]
pub struct TwoKeys(String, String);

impl TryFrom<Vec<Policy>> for Rules {
    type Error = TwoKeys;

    fn try_from(policies: Vec<Policy>) -> Result<Self, TwoKeys> {
        let mut keys = policies.iter().filter_map(|policy| policy.topology.as_ref()).map(|topology| &topology.key);
        if let Some(first) = keys.next()
            && let Some(other) = keys.find(|key| *key != first)
        {
            return Err(TwoKeys(first.clone(), other.clone()));
        }
        Ok(Self(policies))
    }
}

impl From<Rules> for Vec<Policy> {
    fn from(rules: Rules) -> Self {
        rules.0
    }
}

/// Why nothing may begin at this time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{by}; {}", next(.opens))]
pub struct Closed {
    /// The obstacle.
    pub by: String,
    /// The next time at which everything allows it, within 400 days.
    pub opens: Option<Timestamp>,
}

fn next(opens: &Option<Timestamp>) -> String {
    opens
        .as_ref()
        .map_or_else(|| "no time within 400 days is allowed".to_owned(), |opens| format!("the next time is {opens}"))
}

impl Policy {
    /// The obstacle to a start, and its end; a time that never comes is `None`.
    fn forbids(&self, at: Timestamp) -> Option<(String, Option<Timestamp>)> {
        let blackout = |blackout: &Blackout| {
            let why = if blackout.why().is_empty() { String::new() } else { format!(" ({})", blackout.why()) };
            let by = format!("a blackout of policy {:?} holds{why}", self.name);
            Some((by, Some(blackout.holds(at)?)))
        };
        if let Some(forbidden) = self.blackouts.iter().find_map(blackout) {
            return Some(forbidden);
        }
        let is_open = self.windows.is_empty() || self.windows.iter().any(|window| window.open(at).is_some());
        let opens = || self.windows.iter().filter_map(|window| window.opens(at)).min();
        (!is_open).then(|| (format!("no window of policy {:?} is open", self.name), opens()))
    }

    /// Until when it surely allows to begin; `None` for ever.
    fn closes(&self, at: Timestamp) -> Option<Timestamp> {
        let window = self.windows.iter().filter_map(|window| window.open(at)).max();
        let blackout = self.blackouts.iter().filter_map(|blackout| blackout.begins(at)).min();
        [window, blackout].into_iter().flatten().min()
    }
}

impl Rules {
    /// Until when nodes may surely begin; `None` for ever.
    pub fn open(&self, at: Timestamp) -> Result<Option<Timestamp>, Closed> {
        match self.0.iter().find_map(|policy| policy.forbids(at)) {
            Some((by, _)) => Err(Closed { by, opens: self.opens(at) }),
            None => Ok(self.0.iter().filter_map(|policy| policy.closes(at)).min()),
        }
    }

    /// One of the policies has windows.
    pub fn has_windows(&self) -> bool {
        self.0.iter().any(|policy| !policy.windows.is_empty())
    }

    /// The first time from `at` on at which all policies allow to begin.
    pub fn opens(&self, at: Timestamp) -> Option<Timestamp> {
        let horizon = PositiveDuration::minutes(HORIZON).after(at);
        let mut time = at;
        for _ in 0..LOOKS {
            let Some((_, later)) = self.0.iter().find_map(|policy| policy.forbids(time)) else { return Some(time) };
            // No time before this one is allowed by that policy, so none is by all of them.
            time = later.filter(|later| *later > time && *later <= horizon)?;
        }
        None
    }

    /// Number of nodes, of `size`, that may be unavailable at once.
    pub fn max_unavailable(&self, size: u32) -> IntOrPercent {
        let amounts = self.0.iter().filter_map(|policy| policy.max_unavailable);
        amounts.min_by_key(|amount| amount.unavailable(size)).unwrap_or(IntOrPercent::Nodes(1))
    }

    /// Number of failures, of `total` nodes, that stop a rollout.
    pub fn failures(&self, total: u32) -> u32 {
        let amounts = self.0.iter().filter_map(|policy| policy.failure_budget);
        amounts.map(|amount| amount.share(total)).min().unwrap_or(1).max(1)
    }

    /// Where nodes wait for a person's approval; `None` for nowhere.
    pub fn approval(&self) -> Option<ApprovalPolicy> {
        self.0.iter().filter_map(|policy| policy.approval).max()
    }

    /// The label that says where a node is; `None` if zones do not count.
    pub fn zone_label(&self) -> Option<&str> {
        self.0.iter().find_map(|policy| policy.topology.as_ref()).map(|topology| topology.key.as_str())
    }

    /// In how many zones nodes may be unavailable at once; `None` for any number.
    pub fn max_domains(&self) -> Option<u32> {
        self.0.iter().filter_map(|policy| policy.topology.as_ref()).map(|topology| topology.max_domains).min()
    }

    /// Rates at which nodes may begin.
    pub fn rates(&self) -> Vec<Rate> {
        self.0.iter().filter_map(|policy| policy.rate).collect()
    }

    /// After how many of `total` nodes a wave ends, and how long it soaks. Ascending.
    pub fn steps(&self, total: u32) -> Vec<(u32, PositiveDuration)> {
        let steps = self.0.iter().flat_map(|policy| &policy.steps);
        let mut steps: Vec<_> = steps.map(|step| (step.nodes.share(total), step.soak)).collect();
        // The longer soak first, which is the one that stays.
        steps.sort_unstable_by(|a, b| (a.0, b.1).cmp(&(b.0, a.1)));
        steps.dedup_by_key(|step| step.0);
        steps
    }

    /// The limits to which the ledger holds a grant.
    pub fn limits(&self, size: u32, down: Vec<Node>, from: Timestamp, until: Option<Timestamp>) -> Limits {
        let (max_unavailable, max_domains) = (self.max_unavailable(size), self.max_domains());
        Limits {
            size,
            max_unavailable,
            max_domains,
            rates: self.rates(),
            from,
            until,
            down,
            named_tokens: BTreeSet::new(),
            shared: BTreeMap::new(),
            younger: Vec::new(),
        }
    }
}
