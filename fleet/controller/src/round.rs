//! The decisions of one round, for all pools together: they share one ledger.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::api::core::v1 as core;
use slipway_core::digest::Sha256;
use slipway_fleet_objects::rollout::Rollout;
use slipway_rollout::{
    blocked::Blocked,
    decide::{Action, BlockedNode, Decision, decide, limits, release_grants, successor},
    facts::{Evidence, Facts, ObservedNode},
    ledger::{Ledger, Limits, Node, Proof, Role},
    replace,
};

pub use crate::observation::{Observation, Reboot, RejectedWrites};
use crate::{
    cluster::Objects,
    names, node_report,
    observed_node::{self, NoReport},
    plans,
    pool_facts::{Seen, Told, seen},
    pools::{DesiredState, Members, Problem, desired_state},
};

/// The decisions of a round.
#[derive(Debug, Default)]
pub struct Round {
    /// The ledger as it is to be.
    pub ledger: Ledger,
    /// The grants that are freed, and why.
    pub freed: Vec<Action>,
    /// The pools, by name.
    pub pools: BTreeMap<String, Result<PoolRound, Problem>>,
    /// Rollouts that are to be made.
    pub new: Vec<Rollout>,
    /// Why the next rollout of a pool cannot be made, by the pool's name: somebody has written one of its name.
    pub taken: BTreeMap<String, String>,
    /// Rollouts that are put aside.
    pub aside: Vec<Superseded>,
    /// Rollouts that are kept no longer, and are deleted.
    pub expired: Vec<Rollout>,
}

/// A rollout that is put aside.
#[derive(Clone, Debug)]
pub struct Superseded {
    /// Which.
    pub rollout: Rollout,
    /// Why people have given it up, if they have.
    pub aborted: Option<String>,
}

impl Round {
    /// Nothing goes on in any pool, for the same reason.
    pub fn stuck(objects: &Objects, problem: &Problem) -> Self {
        let pools = objects.pools.keys().map(|name| (name.clone(), Err(problem.clone()))).collect();
        Self { pools, ..Self::default() }
    }
}

/// The decisions for one pool.
#[derive(Debug)]
pub struct PoolRound {
    /// The desired state.
    pub desired: DesiredState,
    /// The plan that is followed.
    pub rollout: Option<Rollout>,
    /// The input of the decision.
    pub facts: Facts,
    /// The decision.
    pub decision: Decision,
    /// When.
    pub at: Timestamp,
    /// Why nothing is known of a node, by UID.
    pub unclear: BTreeMap<String, NoReport>,
    /// The obstacle of a node's operation, in its own words, by UID.
    pub blockers: BTreeMap<String, String>,
    /// The faults of a node on which nothing is under way, in its own words, by UID.
    pub ill: BTreeMap<String, String>,
    /// Why a node did not do what it was asked for in the round before, by UID.
    pub refused: BTreeMap<String, String>,
    /// Nodes that went silent in the middle of their upgrade, by UID: since when, and until when they may be rebooting.
    pub rebooting: BTreeMap<String, Reboot>,
    /// The names of nodes that the pool's labels name, too, and the older pool that has each.
    pub shared: Vec<(String, String)>,
}

impl PoolRound {
    /// Why nodes are not done, by UID.
    pub fn blocked(&self) -> BTreeMap<&str, &BlockedNode> {
        self.decision.blocked.iter().map(|blocked| (blocked.node.uid.as_str(), blocked)).collect()
    }
}

/// The nodes that must be looked at: those of the pools, those of the control plane, and those that hold grants.
pub fn to_look<'a>(objects: &'a Objects, members: &Members<'_>, ledger: &Ledger) -> Vec<&'a core::Node> {
    let counts = |node: &&core::Node| {
        let uid = observed_node::uid(node);
        observed_node::role(node) == Role::ControlPlane || members.pool_of(uid).is_some() || ledger.held(uid).is_some()
    };
    objects.nodes.iter().filter(counts).collect()
}

/// The decisions of one round.
pub fn round(observation: Observation<'_>, members: &Members<'_>, now: Timestamp) -> Round {
    let nodes = all_nodes(observation, members);
    let found = observed(observation, &nodes);
    let state = |name: &str| desired_state(name, observation.objects, members, (observation.readings, &found));
    let desired = observation.objects.pools.keys().map(|name| (name, state(name)));
    let desired: Vec<(&String, Result<DesiredState, Problem>)> = desired.collect();
    let targets = desired.iter().filter_map(|(name, desired)| Some(((*name).clone(), desired.as_ref().ok()?.payload)));
    // That rollout could not remember successors.
    let unclear = desired.iter().filter(|(_, desired)| desired.is_err()).map(|(name, _)| name.as_str());
    let unclear: BTreeSet<&str> = unclear.chain(observation.refused.rollouts.keys().map(String::as_str)).collect();
    let mut freed = Vec::new();
    let mut ledger = freed_ledger(observation, &found, nodes, (&targets.collect(), &unclear), &mut freed);
    ledger.correct_times(now);
    let succeeded: BTreeMap<String, String> = freed.iter().filter_map(successor).collect();
    let sharing = sharing(&desired, observation, members, (&ledger, &succeeded, &freed), now);
    let mut round = Round { freed, ..Round::default() };
    for (name, desired) in desired {
        let pool_round = desired.map(|desired| {
            let mut seen = seen(&desired, name, observation, members, (&ledger, &succeeded, &round.freed), now);
            let is_ours = |younger: &&str| members.shared(younger).iter().any(|(_, of)| of == name);
            seen.facts.younger =
                sharing.iter().filter(|(younger, _)| is_ours(younger)).map(|(_, of)| of.clone()).collect();
            let mut pool_round = pool_round(desired, name, seen, members, now);
            withhold(&mut pool_round, name, observation.refused);
            for step in &pool_round.decision.steps {
                // The decision has asked this ledger, which is the one that is written; what it says now counts.
                if let Action::Grant { node, replaces } = step
                    && let Ok((granted, _)) =
                        ledger.grant_for(node, replaces.as_deref(), &pool_round.decision.limits, now)
                {
                    ledger = granted;
                }
            }
            pool_round
        });
        if let Ok(pool_round) = &pool_round
            && !observation.refused.rollouts.contains_key(name)
            && pool_round.rollout.as_ref().is_none_or(|of| of.spec.plan.payload == pool_round.desired.payload)
        {
            round.rollouts(name, pool_round, observation);
        }
        round.pools.insert(name.clone(), pool_round);
    }
    round.ledger = ledger;
    round
}

impl Round {
    /// The rollouts of a pool that come and go.
    fn rollouts(&mut self, name: &str, pool_round: &PoolRound, observation: Observation<'_>) {
        let (desired, rollouts) = (&pool_round.desired, &observation.objects.rollouts);
        let last = names::last(name, desired.payload, rollouts);
        let nodes = (pool_round.facts.nodes.as_slice(), &doubtful(pool_round, observation));
        // What is made for a pool that goes would go with it, and be made again.
        let next = || plans::next(desired, nodes, (last, observation.readings), observation.own);
        if let Some(next) = (!desired.is_going()).then(next).flatten() {
            match taken(&next, observation.objects) {
                Some(why) => _ = self.taken.insert(name.to_owned(), why),
                None => self.new.push(next),
            }
        }
        let aside = |of: &Rollout| Superseded { rollout: of.clone(), aborted: desired.aborts(Some(of)) };
        self.aside.extend(plans::old(name, desired.payload, rollouts).into_iter().map(aside));
        self.expired.extend(expired(name, pool_round, observation.objects).into_iter().cloned());
    }
}

/// Why this rollout cannot be made; `None` if it can. One that was read before is no other controller's of a moment ago.
fn taken(next: &Rollout, objects: &Objects) -> Option<String> {
    let there = objects.rollouts.iter().map(|of| &of.metadata).chain(objects.unreadable.iter().map(|of| &of.metadata));
    let name = next.metadata.name.as_deref()?;
    let is_there = there.map(|of| of.name.as_deref()).any(|of| of == Some(name));
    is_there
        .then(|| format!("the Rollout {name} is there, and is none that a controller made for this pool: delete it"))
}

/// The UIDs of nodes that may not be able to go: they do not answer, say what cannot be, or could not stage the payload the
/// last time, for whatever rollout. A node that has denied the payload is not among them: it is to stop a new rollout as it
/// stopped the last one.
fn doubtful<'a>(of: &'a PoolRound, observation: Observation<'_>) -> BTreeSet<&'a str> {
    let highest = of.facts.ledger.highest();
    let is_unstaged = |uid: &str| {
        let status = observation.readings.get(uid).and_then(|look| look.status.as_ref().ok());
        status.is_some_and(|status| node_report::unstaged(status, of.desired.payload).is_some())
    };
    let is_doubtful = |observed: &&ObservedNode| {
        observed.report.as_ref().is_none_or(|report| report.token > highest) || is_unstaged(&observed.node.uid)
    };
    of.facts.nodes.iter().filter(is_doubtful).map(|observed| observed.node.uid.as_str()).collect()
}

/// The rollouts of a pool that are not kept. A node is open in one that it was planned in, while it is there and does not
/// run the payload.
fn expired<'a>(name: &str, of: &PoolRound, objects: &'a Objects) -> Vec<&'a Rollout> {
    let there: BTreeSet<&str> = objects.nodes.iter().map(observed_node::uid).collect();
    let payload = of.desired.payload;
    let runs = of.facts.nodes.iter().filter(|observed| observed.runs(payload));
    let done: BTreeSet<&str> = runs.map(|observed| observed.node.uid.as_str()).collect();
    let is_open = |node: &Node| there.contains(node.uid.as_str()) && !done.contains(node.uid.as_str());
    let limit = of.desired.pool.spec.revision_history_limit;
    plans::expired(name, (payload, &of.desired.failed_at, limit), &objects.rollouts, is_open)
}

/// The limits of pools whose labels name nodes that an older pool has, by the names of these pools. Grants of this round change
/// nothing about them: the ledger that is asked has those.
fn sharing<'a>(
    desired: &[(&'a String, Result<DesiredState, Problem>)],
    observation: Observation<'_>,
    members: &Members<'_>,
    state: (&Ledger, &BTreeMap<String, String>, &[Action]),
    now: Timestamp,
) -> BTreeMap<&'a str, Limits> {
    let sharing = desired.iter().filter(|(name, _)| !members.shared(name).is_empty());
    let limits = sharing.filter_map(|(name, desired)| {
        let seen = seen(desired.as_ref().ok()?, name, observation, members, state, now);
        Some(((*name).as_str(), limits(&seen.facts, now)))
    });
    limits.collect()
}

/// All nodes, whatever the payload is: health and token are the same.
fn all_nodes(observation: Observation<'_>, members: &Members<'_>) -> Vec<ObservedNode> {
    let observe = |node: &core::Node| {
        let uid = observed_node::uid(node);
        let member = observed_node::member(node, members.pool_of(uid).unwrap_or_default(), "");
        observed_node::observe(observation.readings.get(uid), member, Sha256([0; 32]), &[]).0
    };
    observation.objects.nodes.iter().map(observe).collect()
}

/// The tokens that the nodes of pools have obeyed.
fn tokens(nodes: &[ObservedNode]) -> Vec<u64> {
    let token = |of: &ObservedNode| of.report.as_ref().map_or(0, |report| report.token);
    nodes.iter().filter(|of| !of.node.pool.is_empty()).map(token).collect()
}

/// The ledger as it was read; rebuilt, if most nodes of pools know of tokens that it has lost. A node that has become one of the
/// control plane since its grant was given counts as one.
fn observed(observation: Observation<'_>, nodes: &[ObservedNode]) -> Ledger {
    let mut ledger = observation.ledger.status.clone().unwrap_or_default();
    ledger.rebuild(tokens(nodes));
    let control_plane = nodes.iter().filter(|of| of.node.role == Role::ControlPlane);
    let control_plane: BTreeSet<&str> = control_plane.map(|of| of.node.uid.as_str()).collect();
    for grant in ledger.grants.iter_mut().filter(|grant| control_plane.contains(grant.node.uid.as_str())) {
        grant.node.role = Role::ControlPlane;
    }
    ledger
}

/// The ledger without free grants of any pool. What stays of a pool that is unclear stays as it is.
fn freed_ledger(
    observation: Observation<'_>,
    read: &Ledger,
    mut nodes: Vec<ObservedNode>,
    (targets, unclear): (&BTreeMap<String, Sha256>, &BTreeSet<&str>),
    freed: &mut Vec<Action>,
) -> Ledger {
    let mut evidence = evidence(observation, read);
    let pool = |uid: &str| read.held(uid).map(|grant| grant.node.pool.as_str());
    let succeeded =
        replace::succeeded(read, &nodes, &observation.replacement_facts.machines().unwrap_or_default(), targets);
    evidence.extend(succeeded.into_iter().filter(|of| pool(&of.uid).is_none_or(|pool| !unclear.contains(pool))));
    nodes.retain(|observed| {
        pool(&observed.node.uid).is_none_or(|pool| !observation.refused.rollouts.contains_key(pool))
    });
    let mut ledger = release_grants(read, &nodes, &evidence, freed);
    let claim = ledger.kubernetes.as_ref().map(|claim| claim.token);
    let named = |token: &u64| observation.ledger.spec.release.iter().any(|release| release.token == *token);
    if let Some(token) = claim.filter(named) {
        ledger = ledger.unclaim(token);
    }
    if let Ok(machines) = observation.replacement_facts.machines() {
        replace::forget(&mut ledger, &machines);
    }
    ledger
}

/// The proofs that free grants from elsewhere than from the node.
fn evidence(observation: Observation<'_>, ledger: &Ledger) -> Vec<Evidence> {
    let there: BTreeSet<&str> = observation.objects.nodes.iter().map(observed_node::uid).collect();
    let mut evidence = Vec::new();
    for grant in &ledger.grants {
        let uid = &grant.node.uid;
        if !there.contains(uid.as_str()) {
            // It is unknown whether etcd still has the member: for the control plane a person says so.
            evidence.push(Evidence { uid: uid.clone(), proof: Proof::Gone { member_gone: false } });
        }
        if let Some(release) = observation.ledger.spec.release.iter().find(|release| release.token == grant.token) {
            let (who, why) = (release.word.who.clone(), release.word.why.clone());
            evidence.push(Evidence { uid: uid.clone(), proof: Proof::Word { who, why } });
        }
    }
    evidence
}

fn pool_round(desired: DesiredState, name: &str, seen: Seen, members: &Members<'_>, now: Timestamp) -> PoolRound {
    let Seen { facts, rollout, leaves, told: Told { unclear, blockers, ill, refused, rebooting } } = seen;
    let mut decision = decide(&facts, now);
    if leaves {
        leave(&mut decision, &desired.returning);
    }
    let shared = members.shared(name).iter();
    let shared = shared.map(|(node, pool)| (observed_node::name(node).to_owned(), (*pool).to_owned())).collect();
    PoolRound { desired, rollout, facts, decision, at: now, unclear, blockers, ill, refused, rebooting, shared }
}

/// A refused write is not acted on, and nodes say so.
fn withhold(pool_round: &mut PoolRound, pool: &str, refused: &RejectedWrites) {
    let PoolRound { decision, facts, .. } = pool_round;
    if let Some(why) = refused.rollouts.get(pool) {
        let held = decision.steps.drain(..).filter_map(|step| {
            let Action::Free { uid, .. } = step else { return None };
            let node = facts.ledger.held(&uid)?.node.clone();
            Some(BlockedNode { node, why: Blocked::Unwritten(why.clone()) })
        });
        let held: Vec<BlockedNode> = held.collect();
        decision.blocked.retain(|blocked| held.iter().all(|of| of.node.uid != blocked.node.uid));
        decision.blocked.extend(held);
        decision.finished = false;
    } else if refused.grants.contains_key(pool) {
        decision.steps.retain(|step| !matches!(step, Action::Grant { .. }));
    }
    let Some(why) = refused.rollouts.get(pool).or(refused.grants.get(pool)) else { return };
    let is_all = refused.rollouts.contains_key(pool);
    for blocked in &mut decision.blocked {
        let asks = matches!(
            blocked.why,
            Blocked::Staging
                | Blocked::Begins { .. }
                | Blocked::Returns { .. }
                | Blocked::Aborts { .. }
                | Blocked::Deletes { .. }
        );
        if blocked.why == Blocked::Granted || (is_all && asks) {
            blocked.why = Blocked::Unwritten(why.clone());
        }
    }
}

/// The pool has another target now: running upgrades end, and nothing else begins, but for nodes that are `returning`, of which
/// the other target wants nothing.
fn leave(decision: &mut Decision, returning: &BTreeSet<String>) {
    decision.steps.retain(|step| match step {
        Action::Grant { node, .. } => returning.contains(&node.uid),
        step => !matches!(step, Action::Stage { .. }),
    });
    for blocked in decision.blocked.iter_mut().filter(|of| !returning.contains(&of.node.uid)) {
        if matches!(blocked.why, Blocked::Granted | Blocked::Staging) {
            let why = "the pool has another target now: its rollout begins when no node holds a grant any more";
            blocked.why = Blocked::Paused(why.to_owned());
        }
    }
    decision.finished = false;
}
