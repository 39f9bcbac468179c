//! The input of decisions about a pool: its nodes, its policies, its target. A pool that cannot be understood has the
//! reason, and nothing begins in it.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use k8s_openapi::api::core::v1 as core;
use slipway_core::digest::Sha256;
use slipway_fleet_objects::{
    ledger::LEDGER,
    policy::UpgradePolicy,
    pool::{Approval, Named, NodePool, NodePoolSpec},
    rollout::Rollout,
};
use slipway_rollout::{
    facts::{RollbackPolicy, WindowOverride},
    ledger::Ledger,
    policy::{Policy, Rules},
};

use crate::{
    channel_target::{ChannelTarget, Pool, follow},
    cluster::Objects,
    observed_node::{self, NodeReading},
};

/// The label that says where a node is, if no policy names one.
const ZONE: &str = "topology.kubernetes.io/zone";

/// Some programs keep a Node until they have drained it. An upgrade would take a place for nothing.
const GOING: &str = "its Node is being deleted: nothing begins on it";

/// Why nothing begins in a pool.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The pool cannot be read.
    #[error("the pool cannot be understood: {0}")]
    Pool(String),
    /// What was decided and seen in it is unknown.
    #[error("its Rollout {0}: delete it, and a new one is made")]
    Rollout(String),
    /// The grants that are held are unknown.
    #[error("the DisruptionLedger {LEDGER} cannot be understood: {0}: correct it; until then no pool goes on")]
    Ledger(String),
    /// It names a policy that is not there.
    #[error("spec.policies names the UpgradePolicy {0:?}, which is not there: apply it, or take its name out")]
    PolicyMissing(String),
    /// It names a policy that cannot be read.
    #[error("spec.policies names the UpgradePolicy {0:?}, which cannot be understood: {1}: correct it")]
    PolicyInvalid(String, String),
    /// Its policies contradict each other.
    #[error("the policies in spec.policies do not go together: {0}")]
    PoliciesConflict(String),
    /// The target is unknown.
    #[error("{0}")]
    NoTarget(String),
}

impl Problem {
    /// The reason in one word, which stays the same.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Pool(_) => "PoolInvalid",
            Self::Rollout(_) => "RolloutInvalid",
            Self::Ledger(_) => "LedgerInvalid",
            Self::PolicyMissing(_) => "PolicyMissing",
            Self::PolicyInvalid(..) => "PolicyInvalid",
            Self::PoliciesConflict(_) => "PoliciesConflict",
            Self::NoTarget(_) => "NoTarget",
        }
    }
}

/// A pool that can be understood.
#[derive(Clone, Debug)]
pub struct DesiredState {
    /// The spec.
    pub pool: NodePool,
    /// The policies.
    pub rules: Rules,
    /// The installer image.
    pub image: String,
    /// The digest that names its payload.
    pub payload: Sha256,
    /// UIDs of nodes that are left out, by a person or by the channel.
    pub skip: BTreeSet<String>,
    /// UIDs of nodes whose Node is being deleted.
    pub going: BTreeSet<String>,
    /// Why nodes are left as they are, by UID; they are also in `skip` or `going`.
    pub left_as_is: BTreeMap<String, String>,
    /// UIDs of those of them that run the channel's choice already, while others go through a floor.
    pub ahead: BTreeSet<String>,
    /// UIDs of nodes that go back from a denied payload, which the channel would leave as they are.
    pub returning: BTreeSet<String>,
    /// Payloads that a node of a channel's pool has failed at.
    pub failed_at: BTreeSet<Sha256>,
    /// The label that says where a node is.
    pub zones: String,
    /// The UIDs of the pool's Rollouts.
    pub rollouts: BTreeSet<String>,
}

impl DesiredState {
    /// The image that the pool names for this payload.
    pub fn image_of(&self, payload: Sha256) -> Option<&str> {
        (payload == self.payload).then_some(self.image.as_str())
    }

    /// Why people have given this rollout up.
    pub fn aborts(&self, rollout: Option<&Rollout>) -> Option<String> {
        let abort = self.pool.spec.abort.as_ref()?;
        (rollout?.metadata.uid.as_ref() == Some(&abort.rollout_uid)).then(|| abort.word.to_string())
    }

    /// People's approvals of this very plan.
    pub fn approval(&self, rollout: Option<&Rollout>) -> Option<&Approval> {
        let (approval, rollout) = (self.pool.spec.approval.as_ref()?, rollout?);
        let is_it = rollout.metadata.uid.as_ref() == Some(&approval.rollout_uid);
        Some(approval).filter(|approval| is_it && approval.plan == rollout.spec.plan.hash)
    }

    /// Why nothing new begins: the pool goes, or a person says so. Who resumes a pool that goes sets nothing going.
    pub fn paused(&self) -> Option<String> {
        let word = self.pool.spec.paused.as_ref().map(ToString::to_string);
        if !self.is_going() {
            return word;
        }
        Some("the NodePool is being deleted".to_owned() + &word.map(|word| format!("; {word}")).unwrap_or_default())
    }

    /// The pool is being deleted, and somebody's finalizer keeps it.
    pub fn is_going(&self) -> bool {
        self.pool.metadata.deletion_timestamp.is_some()
    }

    /// The override, if people want this rollout to go now.
    pub fn window_override(&self, rollout: Option<&Rollout>) -> Option<WindowOverride> {
        let now = self.pool.spec.run_now.as_ref()?;
        (rollout?.metadata.uid.as_ref() == Some(&now.rollout_uid)).then(|| now.window_override())
    }
}

/// Which nodes each pool has. A node that the labels of several pools name is the oldest one's.
#[derive(Debug)]
pub struct Members<'a> {
    of: BTreeMap<&'a str, Vec<&'a core::Node>>,
    /// The nodes that the labels of a pool name, too, and the older pool that has each.
    shared: BTreeMap<&'a str, Vec<(&'a core::Node, &'a str)>>,
    /// The pool of each node, by UID.
    pools: BTreeMap<&'a str, &'a str>,
}

impl<'a> Members<'a> {
    /// As the labels of the nodes say.
    pub fn new(objects: &'a Objects) -> Self {
        let mut members = Self { of: BTreeMap::new(), shared: BTreeMap::new(), pools: BTreeMap::new() };
        let pools = objects.pools.values().flatten();
        let pools = pools.map(|pool| (&pool.metadata, Cow::Borrowed(&pool.spec.node_selector)));
        let others = objects.unreadable_pools.iter().filter_map(|of| {
            let labels = serde_json::from_value(of.spec.get("nodeSelector")?.clone()).ok()?;
            Some((&of.metadata, Cow::Owned(labels)))
        });
        let mut pools: Vec<_> = pools.chain(others).collect();
        pools.sort_by_key(|(of, _)| (of.creation_timestamp.clone(), of.name.clone()));
        for (of, labels) in pools {
            let name = of.name.as_deref().unwrap_or_default();
            let (mut own, mut shared) = (Vec::new(), Vec::new());
            for node in objects.nodes.iter().filter(|node| has(node, &labels)) {
                match members.pools.get(observed_node::uid(node)) {
                    Some(older) => shared.push((node, *older)),
                    None => own.push(node),
                }
            }
            members.pools.extend(own.iter().map(|node| (observed_node::uid(node), name)));
            members.of.insert(name, own);
            members.shared.insert(name, shared);
        }
        members
    }

    /// Those of one pool.
    pub fn in_pool(&self, pool: &str) -> &[&'a core::Node] {
        self.of.get(pool).map(Vec::as_slice).unwrap_or_default()
    }

    /// Those that its labels name, too, and the older pool that has each.
    pub fn shared(&self, pool: &str) -> &[(&'a core::Node, &'a str)] {
        self.shared.get(pool).map(Vec::as_slice).unwrap_or_default()
    }

    /// The pool of a node.
    pub fn pool_of(&self, uid: &str) -> Option<&'a str> {
        self.pools.get(uid).copied()
    }
}

fn has(node: &core::Node, selector: &BTreeMap<String, String>) -> bool {
    let labels = node.metadata.labels.as_ref();
    selector.iter().all(|(key, value)| labels.is_some_and(|labels| labels.get(key) == Some(value)))
}

/// The input of decisions about the pool, or why nothing begins in it. `ledger` is rebuilt, if it was lost.
pub fn desired_state(
    name: &str,
    objects: &Objects,
    members: &Members<'_>,
    (readings, ledger): (&BTreeMap<String, NodeReading>, &Ledger),
) -> Result<DesiredState, Problem> {
    let pool = match objects.pools.get(name) {
        Some(Ok(pool)) => pool,
        Some(Err(why)) => return Err(Problem::Pool(why.clone())),
        None => return Err(Problem::Pool("it is gone".to_owned())),
    };
    if let Some(which) = objects.unreadable.iter().find(|of| of.pool() == Some(name)) {
        return Err(Problem::Rollout(which.sentence()));
    }
    let policies =
        pool.spec.policies.iter().map(|name| policy(name, &objects.policies)).collect::<Result<Vec<_>, _>>()?;
    let rules = Rules::try_from(policies).map_err(|e| Problem::PoliciesConflict(e.to_string()))?;
    let nodes = members.in_pool(name);
    let going = || nodes.iter().filter(|node| node.metadata.deletion_timestamp.is_some());
    let skipped: BTreeSet<&str> = pool.spec.skip.iter().map(|skip| skip.node.as_str()).collect();
    let left_out = skipped.iter().copied().chain(going().map(|node| observed_node::name(node))).collect();
    let rollback = rollback_policy(&pool.spec);
    let followers = Pool { name, nodes, readings, ledger, skip: &left_out, rollouts: &objects.rollouts, rollback };
    let goal = target(&pool.spec, objects, followers);
    let ChannelTarget { image, payload, mut left_as_is, ahead, returning, failed_at } =
        goal.map_err(Problem::NoTarget)?;
    let zones = rules.zone_label().unwrap_or(ZONE).to_owned();
    let uid = |node: &&core::Node| observed_node::uid(node).to_owned();
    let skip = nodes.iter().filter(|node| skipped.contains(observed_node::name(node))).map(uid);
    let skip = skip.chain(left_as_is.keys().cloned()).collect();
    let going: BTreeSet<String> = going().map(uid).collect();
    left_as_is.extend(going.iter().map(|uid| (uid.clone(), GOING.to_owned())));
    let own = objects.rollouts.iter().filter(|of| of.spec.plan.pool == name);
    let rollouts = own.filter_map(|of| of.metadata.uid.clone()).collect();
    let pool = pool.clone();
    Ok(DesiredState {
        pool,
        rules,
        image,
        payload,
        skip,
        going,
        left_as_is,
        ahead,
        returning,
        failed_at,
        zones,
        rollouts,
    })
}

pub(crate) fn policy(
    name: &str,
    policies: &BTreeMap<String, Result<UpgradePolicy, String>>,
) -> Result<Policy, Problem> {
    match policies.get(name) {
        Some(Ok(policy)) => Ok(policy.spec.clone().policy(name)),
        Some(Err(why)) => Err(Problem::PolicyInvalid(name.to_owned(), why.clone())),
        None => Err(Problem::PolicyMissing(name.to_owned())),
    }
}

/// The rollback of nodes from a payload that is denied.
pub(crate) fn rollback_policy(spec: &NodePoolSpec) -> Option<RollbackPolicy> {
    let rollback = spec.rollback.as_ref()?;
    Some(RollbackPolicy { control_plane: rollback.control_plane, any_etcd: spec.allow_any_etcd })
}

fn target(pool: &NodePoolSpec, objects: &Objects, followers: Pool<'_>) -> Result<ChannelTarget, String> {
    match pool.target.named() {
        Some(Named::Image(image, payload)) => {
            let (left_as_is, ahead, returning, failed_at) = Default::default();
            Ok(ChannelTarget { image: image.to_owned(), payload, left_as_is, ahead, returning, failed_at })
        }
        Some(Named::Channel(name)) => match objects.channels.get(name) {
            None => Err(format!(
                "spec.target names the Channel {name:?}, which is not there: apply it, or name another one"
            )),
            Some(Err(why)) => {
                Err(format!("spec.target names the Channel {name:?}, which cannot be understood: {why}: correct it"))
            }
            Some(Ok(channel)) => follow(name, channel, followers),
        },
        None => Err("spec.target needs image and payload, or channel, and not both".to_owned()),
    }
}
