//! The input of the decision about one pool.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::api::core::v1 as core;
use slipway_core::digest::Sha256;
use slipway_fleet_objects::{
    ledger::DisruptionLedger,
    pool::Strategy,
    rollout::{Rollout, RolloutStatus},
};
use slipway_rollout::{
    attempts::History,
    decide::{Action, freed_by_word},
    facts::{Approval, Facts, ObservedNode, Replacing},
    ledger::{Ledger, Node, Role},
    plan::Plan,
};

use crate::{
    names,
    observation::{Observation, Reboot},
    observed_node::{self, NoReport, Wanted},
    plans::{self, Followed},
    pools::{DesiredState, Members, rollback_policy},
    readable::Readable,
    replacement_facts::ReplacementFacts,
};

/// The input of the decision about a pool, and what is said beside it.
pub struct Seen {
    /// The input.
    pub facts: Facts,
    /// The rollout that is followed.
    pub rollout: Option<Rollout>,
    /// It is not that of the target.
    pub leaves: bool,
    /// What nodes say.
    pub told: Told,
}

/// Of this pool, with the ledger as it is by now, and the grants that this round has freed.
pub fn seen(
    desired: &DesiredState,
    name: &str,
    observation: Observation<'_>,
    members: &Members<'_>,
    (ledger, succeeded, freed): (&Ledger, &BTreeMap<String, String>, &[Action]),
    now: Timestamp,
) -> Seen {
    let rollouts = &observation.objects.rollouts;
    let wanted = (desired.payload, &desired.returning);
    let Followed { rollout, leaves } = plans::followed(name, wanted, rollouts, ledger, observation.readings);
    let none = || Plan::new(name, desired.payload, [], &desired.rules, desired.pool.spec.order, None);
    let plan = rollout.map_or_else(none, |rollout| rollout.spec.plan.clone());
    let counting = plans::counting(name, plan.payload, rollouts, observation.readings);
    let uids: Vec<&str> = counting.into_iter().filter_map(|of| of.metadata.uid.as_deref()).collect();
    let (nodes, told) = told(desired, name, observation, members, (&plan, &uids, ledger), now);
    let is_unasked = |(_, why): &(&String, &NoReport)| matches!(why, NoReport::Unasked(_));
    let unasked = told.unclear.iter().filter(is_unasked).map(|(uid, _)| uid.clone()).collect();
    let shared = members.shared(name).iter().map(|(node, _)| observed_node::member(node, name, &desired.zones));
    let shared: BTreeMap<String, Node> = shared.map(|node| (node.name.clone(), node)).collect();
    let status = rollout.and_then(|rollout| rollout.status.clone()).unwrap_or_default();
    let given = status.approvals.iter().map(|given| given.wave);
    let given = given.chain(desired.approval(rollout).map(|approval| approval.wave));
    let approvals = given.map(|wave| Approval { plan: plan.hash, waves: wave as usize }).collect();
    let replacing = replacing(desired, observation.replacement_facts, &status, succeeded, &plan);
    let attempts = attempts(&status, &plan, observation.ledger, freed);
    let goes = rollout.is_some_and(|of| of.metadata.deletion_timestamp.is_some());
    let facts = Facts {
        plan,
        passed: status.passed as usize,
        rules: desired.rules.clone(),
        nodes,
        elsewhere: elsewhere(name, observation, members, &shared),
        moved: moved(name, observation, members, ledger),
        shared,
        younger: Vec::new(),
        unasked,
        ledger: ledger.clone(),
        evidence: Vec::new(),
        skip: desired.skip.clone(),
        going: desired.going.clone(),
        paused: desired.paused().or_else(|| goes.then(|| "its Rollout is being deleted".to_owned())),
        stopped: status.paused,
        denied: status.denied,
        finished: status.finished,
        rollback: rollback_policy(&desired.pool.spec),
        aborted: status.aborted.or_else(|| desired.aborts(rollout)),
        window_override: desired.window_override(rollout),
        approvals,
        replacing,
        created: rollout.and_then(|rollout| rollout.metadata.creation_timestamp.as_ref()).map(|at| at.0),
        soaking_since: status.soaking_since,
        interruption: status.interruption,
        retry: status.retry,
        attempts,
        named_tokens: observation.ledger.spec.release.iter().map(|release| release.token).collect(),
        api_server: observation.api_server.map(str::to_owned),
    };
    Seen { facts, rollout: rollout.cloned(), leaves, told }
}

/// What is said of the nodes of a pool, by UID.
pub struct Told {
    /// Why nothing is known of a node.
    pub unclear: BTreeMap<String, NoReport>,
    /// The obstacle of a node's operation, in its own words.
    pub blockers: BTreeMap<String, String>,
    /// The faults of a node on which nothing is under way, in its own words.
    pub ill: BTreeMap<String, String>,
    /// Why a node did not do what it was asked for in the round before.
    pub refused: BTreeMap<String, String>,
    /// Nodes that went silent in the middle of their upgrade; also one that this controller cannot ask by now.
    pub rebooting: BTreeMap<String, Reboot>,
}

fn told(
    desired: &DesiredState,
    name: &str,
    observation: Observation<'_>,
    members: &Members<'_>,
    (plan, rollouts, ledger): (&Plan, &[&str], &Ledger),
    now: Timestamp,
) -> (Vec<ObservedNode>, Told) {
    let denied = names::denied(name, &observation.objects.rollouts);
    let (payload, image) = (plan.payload, desired.image_of(plan.payload));
    let wanted = Wanted { payload, rollouts, image, any_version: desired.pool.spec.allow_any_version };
    let (mut unclear, mut blockers, mut rebooting) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    let (mut ill, mut refused) = (BTreeMap::new(), BTreeMap::new());
    let mut nodes = Vec::new();
    for node in members.in_pool(name) {
        let uid = observed_node::uid(node);
        let look = observation.readings.get(uid);
        let member = observed_node::member(node, name, &desired.zones);
        let (mut observed, why) = observed_node::observe(look, member, plan.payload, rollouts);
        observed_node::consider(&mut observed, look, &denied, wanted);
        let is_held = ledger.held(uid).is_some();
        let since = why.as_ref().filter(|_| is_held).and_then(|why| silent_since(node, why, observation, now));
        rebooting
            .extend(since.map(|since| (uid.to_owned(), Reboot::expected(since, desired.pool.spec.reboot_deadline))));
        unclear.extend(why.map(|why| (uid.to_owned(), why)));
        let status = look.and_then(|look| look.status.as_ref().ok());
        blockers.extend(status.and_then(observed_node::blocker).map(|why| (uid.to_owned(), why)));
        ill.extend(status.and_then(observed_node::ill).map(|why| (uid.to_owned(), why)));
        refused.extend(look.and_then(|look| look.refused.clone()).map(|why| (uid.to_owned(), why)));
        nodes.push(observed);
    }
    (nodes, Told { unclear, blockers, ill, refused, rebooting })
}

/// Since when a node has not answered, as its object says; from now on, if that says nothing. A node that answers something
/// that nothing can be decided from does not reboot. Of one that this controller could not ask another one may know.
fn silent_since(node: &core::Node, why: &NoReport, observation: Observation<'_>, now: Timestamp) -> Option<Timestamp> {
    let told = observation.objects.upgrades.get(observed_node::name(node)).and_then(Readable::understood);
    let since = told.and_then(|told| told.status.as_ref()?.silent_since).map(|since| since.min(now));
    match why {
        NoReport::Silent(_) => Some(since.unwrap_or(now)),
        NoReport::Unasked(_) => since,
        NoReport::Unclear(_) => None,
    }
}

/// The attempts of nodes, with the grants that were read: some of them are freed in this round.
fn attempts(status: &RolloutStatus, plan: &Plan, ledger: &DisruptionLedger, freed: &[Action]) -> History {
    let mut history = History::new(status.attempts.clone(), status.tried.clone());
    if let Some(read) = &ledger.status {
        history.take(plan, read, freed.iter().filter_map(freed_by_word), status.denied.is_some());
    }
    history
}

/// The facts of nodes that are replaced. A node whose grant is freed in this round has a successor as of now.
fn replacing(
    desired: &DesiredState,
    replacement_facts: &ReplacementFacts,
    status: &RolloutStatus,
    succeeded: &BTreeMap<String, String>,
    plan: &Plan,
) -> Replacing {
    let DesiredState { pool, payload, .. } = desired;
    let allows = pool.spec.replace.as_ref().is_some_and(|replace| replace.allow_local_volumes);
    let planned: BTreeSet<&str> = plan.nodes().map(|(_, node)| node.uid.as_str()).collect();
    let new = succeeded.iter().filter(|(uid, _)| planned.contains(uid.as_str()));
    let new = new.map(|(uid, successor)| (uid.clone(), successor.clone()));
    Replacing {
        wanted: pool.spec.strategy == Strategy::Replace,
        target: Some(*payload),
        machines: replacement_facts.machines(),
        local_volumes: if allows { BTreeMap::new() } else { replacement_facts.local_volumes.clone() },
        succeeded: status.succeeded.clone().into_iter().chain(new).collect(),
    }
}

/// The UIDs of nodes that hold a grant of this pool, and are not its own by now.
fn moved(pool: &str, observation: Observation<'_>, members: &Members<'_>, ledger: &Ledger) -> BTreeSet<String> {
    let held = ledger.grants.iter().map(|grant| &grant.node).filter(|node| node.pool == pool);
    let others = held.map(|node| &node.uid).filter(|uid| members.pool_of(uid) != Some(pool));
    others
        .filter(|uid| observation.objects.nodes.iter().any(|node| observed_node::uid(node) == **uid))
        .cloned()
        .collect()
}

/// Nodes that are not this pool's and are not well: those of the control plane, and those that its labels name, too.
fn elsewhere(
    pool: &str,
    observation: Observation<'_>,
    members: &Members<'_>,
    shared: &BTreeMap<String, Node>,
) -> Vec<Node> {
    let others = observation.objects.nodes.iter().filter_map(|node| {
        let uid = observed_node::uid(node);
        let of = members.pool_of(uid).unwrap_or_default();
        let here = shared.get(observed_node::name(node));
        let is_counted = of != pool && (observed_node::role(node) == Role::ControlPlane || here.is_some());
        let there = || here.cloned().unwrap_or_else(|| observed_node::member(node, of, ""));
        let look = observation.readings.get(uid);
        is_counted.then(|| observed_node::observe(look, there(), Sha256([0; 32]), &[]).0)
    });
    others.filter(|observed: &ObservedNode| !observed.is_well()).map(|observed| observed.node).collect()
}
