//! What the policies of a pool allow now, and why a node may not go.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{duration::PositiveDuration, int_or_percent::IntOrPercent, node::Node};

/// So many grants in so long a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Rate {
    /// So many nodes may begin, at least one.
    #[schemars(range(min = 1, max = u32::MAX))]
    pub count: u32,
    /// In any time that is this long, and not only in whole hours: 1h.
    pub per: PositiveDuration,
}

/// The limits of a pool's policies at this time. The ledger applies it when it is written, not when it was computed.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Limits {
    /// The number of nodes of the pool.
    pub size: u32,
    /// The number of them that may be unavailable at once.
    pub max_unavailable: IntOrPercent,
    /// The number of zones that may be disturbed at once; `None` for any number.
    pub max_domains: Option<u32>,
    /// Limits of grants in a time. All of them hold.
    pub rates: Vec<Rate>,
    /// From when grants may be given.
    pub from: Timestamp,
    /// When the window closes; `None` if it does not.
    pub until: Option<Timestamp>,
    /// Nodes that are not well, in this pool or of the control plane.
    pub down: Vec<Node>,
    /// Tokens that are not given: a release named them before.
    pub named_tokens: BTreeSet<u64>,
    /// Nodes that the labels of the pool name, and that an older pool has, as this pool would have them. They are not of its
    /// size, and count in it while they are away. By name: one that was made again since may hold a grant already.
    pub shared: BTreeMap<String, Node>,
    /// The limits of younger pools whose labels name nodes of this one.
    pub younger: Vec<Limits>,
}

impl Limits {
    /// Checks whether one more node of the pool may be away beside these, of this pool and of others.
    pub(crate) fn has_room(&self, node: &Node, charged: Vec<&Node>) -> Result<(), Refusal> {
        let mut in_pool: Vec<&Node> = charged.into_iter().filter(|other| other.pool == node.pool).collect();
        let budget = self.max_unavailable.unavailable(self.size);
        if in_pool.len() as u64 >= u64::from(budget) {
            in_pool.sort_unstable_by_key(|other| &other.uid);
            let charged = in_pool.iter().map(|other| other.name.clone()).collect();
            return Err(Refusal::Budget { pool: node.pool.clone(), budget, size: self.size, charged });
        }
        self.max_domains.map_or(Ok(()), |most| zones(node, &in_pool, most))
    }
}

/// Why a node may not go now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "kebab-case")]
pub enum Refusal {
    /// It may already.
    #[error("it holds a grant already, with the token {token}")]
    Holds { token: u64 },
    /// Kubernetes itself is upgraded.
    #[error(
        "Kubernetes is upgraded to {version}, with the claim {token}: no node begins until that is completed or rolled \
         back"
    )]
    Kubernetes { version: String, token: u64 },
    /// The window has closed, or is not open yet.
    #[error("no maintenance window is open at this time")]
    Closed,
    /// Too many others are unavailable.
    #[error("{}", over_budget(.pool, *.budget, *.size, .charged))]
    Budget { pool: String, budget: u32, size: u32, charged: Vec<String> },
    /// Another node of the control plane is unavailable.
    #[error("one node of the control plane at a time: {other} is unavailable")]
    ControlPlane { other: String },
    /// Other zones are disturbed.
    #[error("nodes of {most} zones may be unavailable at once, and some are in {}", list(.others))]
    Zone { most: u32, others: Vec<String> },
    /// Its zone is unknown.
    #[error("its zone is not known, and zones count: give the node the label that the policy names")]
    NoZone,
    /// It is in a younger pool, too, which has no place for it now.
    #[error("the labels of the younger pool {pool} name it, too, and it counts there: {why}")]
    Shared { pool: String, why: Box<Refusal> },
    /// Enough of them for now.
    #[error("{count} nodes in {per}: {}", next(.again))]
    Rate { count: u32, per: PositiveDuration, again: Option<Timestamp> },
    /// The ledger is one object.
    #[error("{most} grants are held, and no more fit into the ledger")]
    Full { most: usize },
    /// The ledger was edited.
    #[error(
        "the ledger has no tokens left, because somebody has edited its epoch: as soon as no grant is held, delete the \
         DisruptionLedger cluster; it is made anew"
    )]
    Spent,
    /// A newer program works with the ledger.
    #[error("the ledger has {}, which this version does not know: run the newest version everywhere", .fields.join(", "))]
    Newer { fields: Vec<String> },
}

/// A budget of nothing is one that people set, and not one that others use up.
fn over_budget(pool: &str, budget: u32, size: u32, charged: &[String]) -> String {
    if budget == 0 && size > 0 {
        return format!(
            "maxUnavailable of a policy of pool {pool} is 0, so none of its nodes goes: raise it to let them go"
        );
    }
    format!("{budget} of the {size} nodes of pool {pool} may be unavailable at once, and these are: {}", list(charged))
}

fn list(names: &[String]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

fn next(again: &Option<Timestamp>) -> String {
    again.as_ref().map_or_else(|| "none at all".to_owned(), |again| format!("the next one after {again}"))
}

/// Checks whether the zone of one more node is among those that are disturbed, or may be one more.
fn zones<'a>(node: &Node, in_pool: &[&'a Node], most: u32) -> Result<(), Refusal> {
    let zone = node.zone.as_deref().ok_or(Refusal::NoZone)?;
    // A node without a zone may be anywhere: it is a zone of its own.
    let name = |other: &&'a Node| match &other.zone {
        Some(zone) => Cow::Borrowed(zone.as_str()),
        None => Cow::Owned(format!("an unknown zone ({})", other.name)),
    };
    let others: BTreeSet<Cow<'a, str>> = in_pool.iter().map(name).filter(|other| other != zone).collect();
    if (others.len() as u64) < u64::from(most) {
        return Ok(());
    }
    Err(Refusal::Zone { most, others: others.into_iter().map(Cow::into_owned).collect() })
}
