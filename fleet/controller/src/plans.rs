//! Which rollout is followed, and when there is a new one.
//!
//! * A new target is a new rollout. It begins when no node of the pool holds a grant any more: running upgrades end, and no
//!   node goes to the new payload before its canaries do. Nor does it begin while nodes go back from a denied payload, of which
//!   the channel wants nothing.
//! * If an earlier target is wanted again, its rollout goes on where it was, unless its nodes have left it meanwhile. Then
//!   there is a new one with the next number, and with waves, approvals and attempts of its own.
//! * A node that came after the plan was made gets a further rollout of the same payload, when the last one is finished.
//! * A node that is left out, silent, or could not stage is behind the others in a new plan: another one is the canary.
//! * A plan is as large as fits into one object, with the record of its nodes beside it. A node that is left out gets a
//!   further rollout, too.
//! * What failed is not tried again by itself, and a payload that was denied gets no further rollout. Who deletes the
//!   rollout has it tried again.
//! * The pool keeps so many rollouts that are over as it says, whatever joins and leaves it. Those that denied a payload or
//!   know of a failure stay.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource as _;
use slipway_core::digest::Sha256;
use slipway_fleet_objects::{
    pool::{NodePool, Strategy},
    rollout::{Rollout, RolloutSpec, RolloutStatus, SUPERSEDED},
};
use slipway_rollout::{
    facts::ObservedNode,
    ledger::{Ledger, Node},
    plan::{Plan, Prospect},
};

use crate::{names, node_report, observed_node::NodeReading, pools::DesiredState};

/// The largest plan, bytes. etcd takes 1.5 MiB for an object; the rest of it needs some 0.3 MiB.
const LARGEST: usize = 1_200_000;

/// The plan that a pool follows.
#[derive(Clone, Copy, Debug)]
pub struct Followed<'a> {
    /// The rollout, if there is one.
    pub rollout: Option<&'a Rollout>,
    /// It is not that of the target: running upgrades end, and nothing else begins.
    pub leaves: bool,
}

fn state(rollout: &Rollout) -> &str {
    rollout.status.as_ref().map_or("", |status| status.state.as_str())
}

fn ended(rollout: &Rollout) -> bool {
    rollout.status.as_ref().is_some_and(RolloutStatus::has_ended)
}

/// It was put aside, and then its nodes have left it: of those whose waves were over, no more than half run its payload. A
/// node that does not say so counts as one that left: a new rollout has canaries. What was denied or given up stays so.
pub fn is_over(rollout: &Rollout, readings: &BTreeMap<String, NodeReading>) -> bool {
    let Some(status) = rollout.status.as_ref().filter(|status| status.state == SUPERSEDED) else { return false };
    let has_canaries = status.finished || status.passed > 0;
    if status.denied.is_some() || status.aborted.is_some() || !has_canaries {
        return false;
    }
    let Plan { waves, payload, .. } = &rollout.spec.plan;
    let runs = |node: &&Node| {
        let uid = status.succeeded.get(&node.uid).unwrap_or(&node.uid);
        let says = readings.get(uid).and_then(|look| look.status.as_ref().ok());
        // Who answers at its address may be another one. Of a successor the name is not known.
        let says = says.filter(|says| says.node == node.name || *uid != node.uid);
        says.and_then(|says| node_report::runs(says).ok()) == Some(*payload)
    };
    let nodes: Vec<&Node> = waves.iter().take(status.passed as usize).flat_map(|wave| &wave.nodes).collect();
    2 * nodes.iter().filter(|node| runs(node)).count() <= nodes.len()
}

/// The rollouts of this payload in this pool that count: what nodes did in one that is over says nothing of the next one.
pub fn counting<'a>(
    pool: &str,
    payload: Sha256,
    rollouts: &'a [Rollout],
    readings: &BTreeMap<String, NodeReading>,
) -> Vec<&'a Rollout> {
    let mut counting: Vec<_> = names::rollouts(pool, payload, rollouts).collect();
    counting.sort_by_key(|of| Reverse(names::number(of)));
    // A further rollout has no node of the one before it. If it has one, all before it are over, also when nodes come back.
    if let Some(last) = counting.windows(2).position(|pair| begins_anew(pair[0], pair[1])) {
        counting.truncate(last + 1);
    }
    counting.retain(|of| !is_over(of, readings));
    counting
}

/// The second one was over when the first one was made.
fn begins_anew(rollout: &Rollout, before: &Rollout) -> bool {
    let planned: BTreeSet<&str> = before.spec.plan.nodes().map(|(_, node)| node.uid.as_str()).collect();
    let is_next = names::number(rollout) == names::number(before).saturating_add(1);
    is_next && rollout.spec.plan.nodes().any(|(_, node)| planned.contains(node.uid.as_str()))
}

/// Rollouts of this pool that bring something else, and were not put aside yet. The newest is the last.
pub fn old<'a>(pool: &str, payload: Sha256, rollouts: &'a [Rollout]) -> Vec<&'a Rollout> {
    let is_old =
        |of: &&Rollout| of.spec.plan.pool == pool && of.spec.plan.payload != payload && state(of) != SUPERSEDED;
    let mut old: Vec<_> = rollouts.iter().filter(is_old).collect();
    old.sort_by_key(|of| (of.metadata.creation_timestamp.clone(), of.metadata.name.clone()));
    old
}

/// Rollouts of this pool that were put aside, or have another one of the same payload after them, but for the last `limit`.
/// Those that denied a payload stay: it would be tried again. So do those of the pool's payload with a node that `is_open`: it
/// may have failed there, and would be tried again, too; and those of `failed_at`, which know what a channel's nodes failed at.
pub fn expired<'a>(
    pool: &str,
    (payload, failed_at, limit): (Sha256, &BTreeSet<Sha256>, u32),
    rollouts: &'a [Rollout],
    is_open: impl Fn(&Node) -> bool,
) -> Vec<&'a Rollout> {
    let is_denied = |of: &Rollout| of.status.as_ref().is_some_and(|status| status.denied.is_some());
    let newest = names::last(pool, payload, rollouts).map(names::number);
    let is_past = |of: &Rollout| {
        let plan = &of.spec.plan;
        let is_earlier = plan.payload == payload && Some(names::number(of)) < newest && ended(of);
        is_earlier && !plan.nodes().any(|(_, node)| is_open(node))
    };
    let is_known = |of: &Rollout| is_denied(of) || failed_at.contains(&of.spec.plan.payload);
    let is_aside = |of: &&Rollout| {
        let is_over = (state(of) == SUPERSEDED && !is_known(of)) || (is_past(of) && !is_denied(of));
        of.spec.plan.pool == pool && is_over
    };
    let mut aside: Vec<_> = rollouts.iter().filter(is_aside).collect();
    aside.sort_by_key(|of| Reverse((of.metadata.creation_timestamp.clone(), of.metadata.name.clone())));
    aside.into_iter().skip(limit as usize).collect()
}

/// True if people have given a rollout of this pool up that was neither finished nor put aside.
pub fn is_given_up(pool: &NodePool, rollouts: &[Rollout]) -> bool {
    let uid = pool.spec.abort.as_ref().map(|abort| &abort.rollout_uid);
    let is_it = |of: &&Rollout| of.metadata.uid.is_some() && of.metadata.uid.as_ref() == uid;
    rollouts.iter().find(is_it).is_some_and(|of| !ended(of) && state(of) != SUPERSEDED)
}

/// The plan that this pool follows, whose nodes are to run `payload`. A rollout that has denied its payload is followed as long
/// as nodes are `returning` from that.
pub fn followed<'a>(
    pool: &str,
    (payload, returning): (Sha256, &BTreeSet<String>),
    rollouts: &'a [Rollout],
    ledger: &Ledger,
    readings: &BTreeMap<String, NodeReading>,
) -> Followed<'a> {
    let is_held = ledger.grants.iter().any(|grant| grant.node.pool == pool);
    let goes_on = |last: &&Rollout| !is_over(last, readings);
    let is_denied = |of: &Rollout| of.status.as_ref().is_some_and(|status| status.denied.is_some());
    let has_returning = |of: &Rollout| {
        let runs = |uid: &str| node_report::runs(readings.get(uid)?.status.as_ref().ok()?).ok();
        let mut planned =
            of.spec.plan.nodes().map(|(_, node)| node.uid.as_str()).filter(|uid| returning.contains(*uid));
        planned.any(|uid| runs(uid) == Some(of.spec.plan.payload))
    };
    let of_pool = rollouts.iter().filter(|of| of.spec.plan.pool == pool && of.spec.plan.payload != payload);
    let denied = of_pool.filter(|of| is_denied(of) && has_returning(of));
    if let Some(denied) = denied.max_by_key(|of| (of.metadata.creation_timestamp.clone(), names::number(of))) {
        return Followed { rollout: Some(denied), leaves: true };
    }
    match old(pool, payload, rollouts).last() {
        Some(old) if is_held => Followed { rollout: Some(old), leaves: true },
        _ => Followed { rollout: names::last(pool, payload, rollouts).filter(goes_on), leaves: false },
    }
}

/// The next rollout of the pool's target after the one `before`, if there is to be one. `observed` has the pool's nodes with
/// regard to that target, `doubtful` the UIDs of those that may not be able to go.
pub fn next(
    desired: &DesiredState,
    (observed, doubtful): (&[ObservedNode], &BTreeSet<&str>),
    (before, readings): (Option<&Rollout>, &BTreeMap<String, NodeReading>),
    own: Option<&str>,
) -> Option<Rollout> {
    let last = before.filter(|before| !is_over(before, readings));
    let is_done = |last: &Rollout| ended(last) && last.status.as_ref().is_some_and(|status| status.denied.is_none());
    if last.is_some_and(|last| !is_done(last)) {
        return None;
    }
    let planned: BTreeSet<&str> =
        last.iter().flat_map(|of| of.spec.plan.nodes()).map(|(_, node)| node.uid.as_str()).collect();
    let successor_machines: BTreeSet<&str> = last
        .iter()
        .filter_map(|of| of.status.as_ref())
        .flat_map(|of| of.succeeded.values())
        .map(String::as_str)
        .collect();
    let is_new = |observed: &&ObservedNode| {
        let uid = observed.node.uid.as_str();
        !observed.runs(desired.payload)
            && !planned.contains(uid)
            && !successor_machines.contains(uid)
            && !desired.left_as_is.contains_key(uid)
    };
    let may_go = |observed: &ObservedNode| {
        let waits_for_nothing =
            before.is_none() || (observed.failure().is_none() && !desired.skip.contains(&observed.node.uid));
        observed.report.is_some() && waits_for_nothing
    };
    let prospect = |uid: &str| match doubtful.contains(uid) {
        _ if desired.skip.contains(uid) => Prospect::LeftOut,
        true => Prospect::Poor,
        false => Prospect::Fair,
    };
    let new: Vec<&ObservedNode> = observed.iter().filter(is_new).collect();
    // A node that does not answer may have it already: alone it is no reason for a rollout.
    if !new.iter().any(|observed| may_go(observed)) {
        return None;
    }
    let nodes = new
        .into_iter()
        .filter(|observed| observed.report.is_none() || may_go(observed))
        .map(|observed| (observed.node.clone(), prospect(observed.node.uid.as_str())));
    Some(rollout(desired, nodes, before, own))
}

fn rollout(
    desired: &DesiredState,
    nodes: impl Iterator<Item = (Node, Prospect)>,
    last: Option<&Rollout>,
    own: Option<&str>,
) -> Rollout {
    let pool = desired.pool.metadata.name.as_deref().unwrap_or_default();
    let plan = |nodes: Vec<(Node, Prospect)>| {
        Plan::with_prospects(pool, desired.payload, nodes, &desired.rules, desired.pool.spec.order, own)
    };
    let mut nodes: Vec<(Node, Prospect)> = nodes.collect();
    let whole = plan(nodes.clone());
    let fits = fitting(&whole, desired.pool.spec.strategy);
    let plan = if fits.len() == nodes.len() {
        whole
    } else {
        nodes.retain(|(node, _)| fits.contains(node.uid.as_str()));
        plan(nodes)
    };
    let name = names::rollout(pool, desired.payload, last);
    let mut rollout = Rollout::new(&name, RolloutSpec { image: desired.image.clone(), plan });
    // It goes with its pool.
    rollout.metadata.owner_references = Some(vec![OwnerReference {
        api_version: NodePool::api_version(&()).into_owned(),
        kind: NodePool::kind(&()).into_owned(),
        name: pool.to_owned(),
        uid: desired.pool.metadata.uid.clone().unwrap_or_default(),
        ..OwnerReference::default()
    }]);
    rollout
}

/// The UIDs of the first nodes of a plan: as many as fit into one Rollout.
fn fitting(plan: &Plan, strategy: Strategy) -> BTreeSet<&str> {
    let mut room = LARGEST;
    let fits = |node: &&Node| {
        let written = serde_json::to_vec(node).map_or(usize::MAX, |text| text.len() + 1);
        // A replaced node has its successor in the status: two UIDs, and JSON's own characters.
        let remembered = if strategy == Strategy::Replace { 2 * node.uid.len() + 6 } else { 0 };
        match room.checked_sub(written.saturating_add(remembered)) {
            Some(rest) => {
                room = rest;
                true
            }
            None => false,
        }
    };
    plan.nodes().map(|(_, node)| node).take_while(fits).map(|node| node.uid.as_str()).collect()
}
