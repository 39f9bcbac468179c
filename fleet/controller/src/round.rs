//! The decisions of one round, for all pools together: they share one ledger.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::api::core::v1 as core;
use slipway_core::digest::Sha256;
use slipway_fleet_objects::{
    ledger::DisruptionLedger,
    pool::{NodePoolSpec, Strategy},
    rollout::{Rollout, RolloutStatus},
};
use slipway_rollout::{
    attempts::History,
    blocked::Blocked,
    decide::{Action, BlockedNode, Decision, decide, freed_by_word, release_grants, successor},
    duration::PositiveDuration,
    facts::{Approval, Evidence, Facts, ObservedNode, Replacing, RollbackPolicy},
    ledger::{Ledger, Node, Proof, Role},
    plan::Plan,
    replace,
};

use crate::{
    cluster::Objects,
    observed_node::{self, NoReport, NodeReading},
    plans::{self, Followed},
    pools::{DesiredState, Members, Problem, desired_state},
    replacement_facts::ReplacementFacts,
};

/// The observation.
#[derive(Clone, Copy, Debug)]
pub struct Observation<'a> {
    /// The ledger, read before all else.
    pub ledger: &'a DisruptionLedger,
    /// The other objects.
    pub objects: &'a Objects,
    /// The nodes, by UID.
    pub readings: &'a BTreeMap<String, NodeReading>,
    /// Machines and volumes, where nodes are replaced.
    pub replacement_facts: &'a ReplacementFacts,
    /// The version of the API server; `None` if it does not say it, or nothing depends on it.
    pub api_server: Option<&'a str>,
    /// The UID of the node that this controller runs on.
    pub own: Option<&'a str>,
    /// The writes that were refused a moment ago.
    pub refused: &'a RejectedWrites,
}

/// The refused writes, by pool, and why. That is this pool's own trouble: others go on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RejectedWrites {
    /// Its rollouts. Nothing of the pool begins, and no grant of it is freed by what would have to be remembered there.
    pub rollouts: BTreeMap<String, String>,
    /// Its new grants.
    pub grants: BTreeMap<String, String>,
}

/// The decisions of a round.
#[derive(Debug)]
pub struct Round {
    /// The ledger as it is to be.
    pub ledger: Ledger,
    /// The grants that are freed, and why.
    pub freed: Vec<Action>,
    /// The pools, by name.
    pub pools: BTreeMap<String, Result<PoolRound, Problem>>,
    /// Rollouts that are to be made.
    pub new: Vec<Rollout>,
    /// Rollouts that are put aside.
    pub aside: Vec<Superseded>,
    /// Rollouts that were put aside long ago, and are deleted.
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
    /// Nodes that went silent in the middle of their upgrade, by UID: since when, and until when they may be rebooting.
    pub rebooting: BTreeMap<String, Reboot>,
}

impl PoolRound {
    /// Why nodes are not done, by UID.
    pub fn blocked(&self) -> BTreeMap<&str, &BlockedNode> {
        self.decision.blocked.iter().map(|blocked| (blocked.node.uid.as_str(), blocked)).collect()
    }
}

/// A reboot that a node is expected to come back from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reboot {
    /// When the controllers first had no answer.
    pub since: Timestamp,
    /// When it should be back: the firmware, a trial that the guard ends, and the old system again.
    pub until: Timestamp,
}

impl Reboot {
    /// As long as a node may be away before a person has to look: twice what a trial may take, and a start on top.
    const LIMIT: PositiveDuration = PositiveDuration::from_minutes(20);

    fn expected(since: Timestamp) -> Self {
        Self { since, until: Self::LIMIT.after(since) }
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
    let desired = observation
        .objects
        .pools
        .keys()
        .map(|name| (name, desired_state(name, observation.objects, members, observation.readings)));
    let desired: Vec<(&String, Result<DesiredState, Problem>)> = desired.collect();
    let targets = desired.iter().filter_map(|(name, desired)| Some(((*name).clone(), desired.as_ref().ok()?.payload)));
    // That rollout could not remember successors.
    let unclear = desired.iter().filter(|(_, desired)| desired.is_err()).map(|(name, _)| name.as_str());
    let unclear: BTreeSet<&str> = unclear.chain(observation.refused.rollouts.keys().map(String::as_str)).collect();
    let mut freed = Vec::new();
    let mut ledger = freed_ledger(observation, members, (&targets.collect(), &unclear), &mut freed);
    ledger.correct_times(now);
    let succeeded: BTreeMap<String, String> = freed.iter().filter_map(successor).collect();
    let mut round = Round {
        ledger: Ledger::default(),
        freed,
        pools: BTreeMap::new(),
        new: Vec::new(),
        aside: Vec::new(),
        expired: Vec::new(),
    };
    for (name, desired) in desired {
        let pool_round = desired.map(|desired| {
            let mut pool_round =
                pool_round(desired, name, observation, members, (&ledger, &succeeded, &round.freed), now);
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
            let last = plans::last(name, pool_round.desired.payload, &observation.objects.rollouts);
            round.new.extend(plans::next(&pool_round.desired, &pool_round.facts.nodes, last, observation.own));
            let old = plans::old(name, pool_round.desired.payload, &observation.objects.rollouts);
            let aside = |of: &Rollout| Superseded { rollout: of.clone(), aborted: pool_round.desired.aborts(Some(of)) };
            round.aside.extend(old.into_iter().map(aside));
            let limit = pool_round.desired.pool.spec.revision_history_limit;
            round.expired.extend(plans::expired(name, limit, &observation.objects.rollouts).cloned());
        }
        round.pools.insert(name.clone(), pool_round);
    }
    round.ledger = ledger;
    round
}

/// The ledger without free grants of any pool; rebuilt, if most nodes of pools know of tokens that it has
/// lost. What stays of a pool that is unclear stays as it is.
fn freed_ledger(
    observation: Observation<'_>,
    members: &Members<'_>,
    (targets, unclear): (&BTreeMap<String, Sha256>, &BTreeSet<&str>),
    freed: &mut Vec<Action>,
) -> Ledger {
    let read = observation.ledger.status.clone().unwrap_or_default();
    let mut nodes = Vec::new();
    for node in &observation.objects.nodes {
        let pool = members.pool_of(observed_node::uid(node)).unwrap_or_default();
        // Whatever the payload is: health and token are the same.
        nodes.push(
            observed_node::observe(
                observation.readings.get(observed_node::uid(node)),
                observed_node::member(node, pool, ""),
                Sha256([0; 32]),
                &[],
            )
            .0,
        );
    }
    let mut evidence = evidence(observation, &read);
    let pool = |uid: &str| read.held(uid).map(|grant| grant.node.pool.as_str());
    let succeeded =
        replace::succeeded(&read, &nodes, &observation.replacement_facts.machines().unwrap_or_default(), targets);
    evidence.extend(succeeded.into_iter().filter(|of| pool(&of.uid).is_none_or(|pool| !unclear.contains(pool))));
    let token = |of: &&ObservedNode| of.report.as_ref().map_or(0, |report| report.token);
    let tokens = nodes.iter().filter(|of| !of.node.pool.is_empty()).map(|of| token(&of)).collect();
    nodes.retain(|observed| {
        pool(&observed.node.uid).is_none_or(|pool| !observation.refused.rollouts.contains_key(pool))
    });
    let mut ledger = release_grants(&read, &nodes, &evidence, freed);
    let claim = ledger.kubernetes.as_ref().map(|claim| claim.token);
    let named = |token: &u64| observation.ledger.spec.release.iter().any(|release| release.token == *token);
    if let Some(token) = claim.filter(named) {
        ledger = ledger.unclaim(token);
    }
    if let Ok(machines) = observation.replacement_facts.machines() {
        replace::forget(&mut ledger, &machines);
    }
    ledger.rebuild(tokens);
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

fn pool_round(
    desired: DesiredState,
    name: &str,
    observation: Observation<'_>,
    members: &Members<'_>,
    (ledger, succeeded, freed): (&Ledger, &BTreeMap<String, String>, &[Action]),
    now: Timestamp,
) -> PoolRound {
    let rollouts = &observation.objects.rollouts;
    let Followed { rollout, leaves } = plans::followed(name, desired.payload, rollouts, ledger);
    let none = || Plan::new(name, desired.payload, [], &desired.rules, desired.pool.spec.order, None);
    let plan = rollout.map_or_else(none, |rollout| rollout.spec.plan.clone());
    let of_payload = rollouts.iter().filter(|of| of.spec.plan.pool == name && of.spec.plan.payload == plan.payload);
    let uids: Vec<&str> = of_payload.filter_map(|of| of.metadata.uid.as_deref()).collect();
    let (denied, image) = (plans::denied(name, rollouts), desired.image_of(plan.payload));

    let (mut unclear, mut blockers, mut rebooting) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    let mut nodes = Vec::new();
    for node in members.in_pool(name) {
        let uid = observed_node::uid(node);
        let look = observation.readings.get(uid);
        let member = observed_node::member(node, name, &desired.zones);
        let (mut observed, why) = observed_node::observe(look, member, plan.payload, &uids);
        observed_node::consider(&mut observed, look, &denied, image);
        unclear.extend(why.map(|why| (uid.to_owned(), why)));
        let status = look.and_then(|look| look.status.as_ref().ok());
        blockers.extend(status.and_then(observed_node::blocker).map(|why| (uid.to_owned(), why)));
        if observed.report.is_none() && ledger.held(uid).is_some() {
            let told = observation.objects.upgrades.get(observed_node::name(node));
            let since = told.and_then(|told| told.status.as_ref()?.silent_since).map_or(now, |since| since.min(now));
            rebooting.insert(uid.to_owned(), Reboot::expected(since));
        }
        nodes.push(observed);
    }
    let status = rollout.and_then(|rollout| rollout.status.clone()).unwrap_or_default();
    let given = status.approvals.iter().map(|given| given.wave);
    let given = given.chain(desired.approval(rollout).map(|approval| approval.wave));
    let approvals = given.map(|wave| Approval { plan: plan.hash, waves: wave as usize }).collect();
    let replacing = replacing(&desired, observation.replacement_facts, &status, succeeded, &plan);
    let attempts = attempts(&status, &plan, observation.ledger, freed);
    let facts = Facts {
        plan,
        passed: status.passed as usize,
        rules: desired.rules.clone(),
        nodes,
        elsewhere: elsewhere(name, observation, members),
        ledger: ledger.clone(),
        evidence: Vec::new(),
        skip: desired.skip.clone(),
        paused: desired.pool.spec.paused.as_ref().map(ToString::to_string).or(status.paused),
        denied: status.denied,
        finished: status.finished,
        rollback: rollback_policy(&desired.pool.spec),
        aborted: status.aborted.or_else(|| desired.aborts(rollout)),
        window_override: desired.window_override(rollout),
        approvals,
        replacing,
        created: rollout.and_then(|rollout| rollout.metadata.creation_timestamp.as_ref()).map(|at| at.0),
        soaking_since: status.soaking_since,
        retry: status.retry,
        attempts,
        named_tokens: observation.ledger.spec.release.iter().map(|release| release.token).collect(),
        api_server: observation.api_server.map(str::to_owned),
    };
    let mut decision = decide(&facts, now);
    if leaves {
        leave(&mut decision);
    }
    PoolRound { desired, rollout: rollout.cloned(), facts, decision, at: now, unclear, blockers, rebooting }
}

/// The attempts of nodes, with the grants that were read: some of them are freed in this round.
fn attempts(status: &RolloutStatus, plan: &Plan, ledger: &DisruptionLedger, freed: &[Action]) -> History {
    let mut history = History::new(status.attempts.clone(), status.tried.clone());
    if let Some(read) = ledger.status.as_ref().filter(|_| status.denied.is_none()) {
        history.count(plan, read);
        history.defer_freed(read, freed.iter().filter_map(freed_by_word));
    }
    history
}

/// The rollback of nodes from a payload that is denied.
fn rollback_policy(spec: &NodePoolSpec) -> Option<RollbackPolicy> {
    let rollback = spec.rollback.as_ref()?;
    Some(RollbackPolicy { control_plane: rollback.control_plane, any_etcd: spec.allow_any_etcd })
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

/// Nodes of the control plane that are not in this pool, and are not well.
fn elsewhere(pool: &str, observation: Observation<'_>, members: &Members<'_>) -> Vec<Node> {
    let others = observation.objects.nodes.iter().filter(|node| observed_node::role(node) == Role::ControlPlane);
    let others = others.filter_map(|node| {
        let of = members.pool_of(observed_node::uid(node)).unwrap_or_default();
        let look = observation.readings.get(observed_node::uid(node));
        (of != pool).then(|| observed_node::observe(look, observed_node::member(node, of, ""), Sha256([0; 32]), &[]).0)
    });
    others.filter(|observed: &ObservedNode| !observed.is_well()).map(|observed| observed.node).collect()
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

/// The pool has another target now: running upgrades end, and nothing else begins.
fn leave(decision: &mut Decision) {
    decision.steps.retain(|step| !matches!(step, Action::Grant { .. } | Action::Stage { .. }));
    for blocked in &mut decision.blocked {
        if matches!(blocked.why, Blocked::Granted | Blocked::Staging) {
            let why = "the pool has another target now: its rollout begins when no node holds a grant any more";
            blocked.why = Blocked::Paused(why.to_owned());
        }
    }
    decision.finished = false;
}
