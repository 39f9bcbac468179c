//! What follows from one look, for all pools together: they share one ledger.

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
    decide::{Action, Decision, Waiting, decide, frees, successor},
    facts::{Back, Evidence, Replacing, Seen, Snapshot},
    ledger::{Ledger, Node, Proof, Role},
    plan::Plan,
    replace,
    why::WhyNot,
};

use crate::{
    cluster::Objects,
    plans::{self, Followed},
    pools::{Members, Problem, Wish, wish},
    seen::{self, Look},
    stock::Stock,
};

/// What was seen.
#[derive(Clone, Copy, Debug)]
pub struct Sight<'a> {
    /// The ledger, read before all else.
    pub ledger: &'a DisruptionLedger,
    /// The other objects.
    pub objects: &'a Objects,
    /// The nodes, by UID.
    pub looks: &'a BTreeMap<String, Look>,
    /// Machines and volumes, where nodes are replaced.
    pub stock: &'a Stock,
    /// The UID of the node that this controller runs on.
    pub own: Option<&'a str>,
    /// What could not be written a moment ago.
    pub refused: &'a Refused,
}

/// What cannot be written, by pool, and why. That is this pool's own trouble: others go on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refused {
    /// Its rollouts. Nothing of the pool begins, and no grant of it is freed by what would have to be remembered there.
    pub rollouts: BTreeMap<String, String>,
    /// Its new grants.
    pub grants: BTreeMap<String, String>,
}

/// What follows.
#[derive(Debug)]
pub struct Round {
    /// The ledger as it is to be.
    pub ledger: Ledger,
    /// The grants that are freed, and why.
    pub freed: Vec<Action>,
    /// The pools, by name.
    pub pools: BTreeMap<String, Result<Course, Problem>>,
    /// Rollouts that are to be made.
    pub new: Vec<Rollout>,
    /// Rollouts that are put aside.
    pub aside: Vec<Aside>,
}

/// A rollout that is put aside.
#[derive(Clone, Debug)]
pub struct Aside {
    /// Which.
    pub rollout: Rollout,
    /// Why people have given it up, if they have.
    pub aborted: Option<String>,
}

/// What follows for one pool.
#[derive(Debug)]
pub struct Course {
    /// What people want.
    pub wish: Wish,
    /// What is followed.
    pub rollout: Option<Rollout>,
    /// What was decided from.
    pub snapshot: Snapshot,
    /// What was decided.
    pub decision: Decision,
    /// Why nothing can be decided from what a node says, by UID.
    pub unclear: BTreeMap<String, String>,
}

impl Course {
    /// Why nodes are not done, by UID.
    pub fn waiting(&self) -> BTreeMap<&str, &Waiting> {
        self.decision.waiting.iter().map(|waiting| (waiting.node.uid.as_str(), waiting)).collect()
    }
}

/// The nodes that must be looked at: those of the pools, those of the control plane, and those that hold grants.
pub fn to_look<'a>(objects: &'a Objects, members: &Members<'_>, ledger: &Ledger) -> Vec<&'a core::Node> {
    let counts = |node: &&core::Node| {
        let uid = seen::uid(node);
        seen::role(node) == Role::ControlPlane || members.pool_of(uid).is_some() || ledger.held(uid).is_some()
    };
    objects.nodes.iter().filter(counts).collect()
}

/// What follows from one look.
pub fn round(sight: Sight<'_>, members: &Members<'_>, now: Timestamp) -> Round {
    let wishes = sight.objects.pools.keys().map(|name| (name, wish(name, sight.objects, members, sight.looks)));
    let wishes: Vec<(&String, Result<Wish, Problem>)> = wishes.collect();
    let targets = wishes.iter().filter_map(|(name, wish)| Some(((*name).clone(), wish.as_ref().ok()?.payload)));
    // Nobody would remember there who succeeded whom.
    let unclear = wishes.iter().filter(|(_, wish)| wish.is_err()).map(|(name, _)| name.as_str());
    let unclear: BTreeSet<&str> = unclear.chain(sight.refused.rollouts.keys().map(String::as_str)).collect();
    let mut freed = Vec::new();
    let mut ledger = freed_ledger(sight, members, (&targets.collect(), &unclear), &mut freed);
    let succeeded: BTreeMap<String, String> = freed.iter().filter_map(successor).collect();
    let mut round =
        Round { ledger: Ledger::default(), freed, pools: BTreeMap::new(), new: Vec::new(), aside: Vec::new() };
    for (name, wish) in wishes {
        let course = wish.map(|wish| {
            let mut course = course(wish, name, sight, members, (&ledger, &succeeded), now);
            withhold(&mut course, name, sight.refused);
            for action in &course.decision.actions {
                // The decision has asked this ledger, which is the one that is written; what it says now counts.
                if let Action::Grant { node, replaces } = action
                    && let Ok((granted, _)) = ledger.grant_for(node, replaces.as_deref(), &course.decision.limits, now)
                {
                    ledger = granted;
                }
            }
            course
        });
        if let Ok(course) = &course
            && !sight.refused.rollouts.contains_key(name)
            && course.rollout.as_ref().is_none_or(|of| of.spec.plan.payload == course.wish.payload)
        {
            let last = plans::last(name, course.wish.payload, &sight.objects.rollouts);
            round.new.extend(plans::next(&course.wish, &course.snapshot.nodes, last, sight.own));
            let old = plans::old(name, course.wish.payload, &sight.objects.rollouts);
            let aside = |of: &Rollout| Aside { rollout: of.clone(), aborted: course.wish.aborts(Some(of)) };
            round.aside.extend(old.into_iter().map(aside));
        }
        round.pools.insert(name.clone(), course);
    }
    round.ledger = ledger;
    round
}

/// The ledger without what is free, whatever pool it belongs to; and not behind what nodes obeyed: of a ledger that was
/// made anew they would obey nothing. What stays of a pool that is unclear stays as it is.
fn freed_ledger(
    sight: Sight<'_>,
    members: &Members<'_>,
    (targets, unclear): (&BTreeMap<String, Sha256>, &BTreeSet<&str>),
    freed: &mut Vec<Action>,
) -> Ledger {
    let read = sight.ledger.status.clone().unwrap_or_default();
    let mut nodes = Vec::new();
    for node in &sight.objects.nodes {
        let pool = members.pool_of(seen::uid(node)).unwrap_or_default();
        // Whatever the payload is: health and token are the same.
        nodes.push(seen::seen(sight.looks.get(seen::uid(node)), seen::member(node, pool, ""), Sha256([0; 32]), &[]).0);
    }
    let mut evidence = evidence(sight, &read);
    let pool = |uid: &str| read.held(uid).map(|grant| grant.node.pool.as_str());
    let succeeded = replace::succeeded(&read, &nodes, &sight.stock.machines().unwrap_or_default(), targets);
    evidence.extend(succeeded.into_iter().filter(|of| pool(&of.uid).is_none_or(|pool| !unclear.contains(pool))));
    let obeyed = nodes.iter().filter_map(|seen| Some(seen.says.as_ref()?.token)).max().unwrap_or(0);
    nodes.retain(|seen| pool(&seen.node.uid).is_none_or(|pool| !sight.refused.rollouts.contains_key(pool)));
    let mut ledger = frees(&read, &nodes, &evidence, freed);
    if let Ok(machines) = sight.stock.machines() {
        replace::forget(&mut ledger, &machines);
    }
    ledger.epoch = ledger.epoch.max(obeyed);
    ledger
}

/// What frees grants from elsewhere than from the node.
fn evidence(sight: Sight<'_>, ledger: &Ledger) -> Vec<Evidence> {
    let there: BTreeSet<&str> = sight.objects.nodes.iter().map(seen::uid).collect();
    let mut evidence = Vec::new();
    for grant in &ledger.grants {
        let uid = &grant.node.uid;
        if !there.contains(uid.as_str()) {
            // Whether etcd still has the member, nobody has looked: for the control plane a person says so.
            evidence.push(Evidence { uid: uid.clone(), proof: Proof::Gone { member_gone: false } });
        }
        if let Some(release) = sight.ledger.spec.release.iter().find(|release| release.token == grant.token) {
            let (who, why) = (release.word.who.clone(), release.word.why.clone());
            evidence.push(Evidence { uid: uid.clone(), proof: Proof::Word { who, why } });
        }
    }
    evidence
}

fn course(
    wish: Wish,
    name: &str,
    sight: Sight<'_>,
    members: &Members<'_>,
    (ledger, succeeded): (&Ledger, &BTreeMap<String, String>),
    now: Timestamp,
) -> Course {
    let rollouts = &sight.objects.rollouts;
    let Followed { rollout, leaves } = plans::followed(name, wish.payload, rollouts, ledger);
    let none = || Plan::new(name, wish.payload, [], &wish.rules, wish.pool.spec.order, None);
    let plan = rollout.map_or_else(none, |rollout| rollout.spec.plan.clone());
    let of_payload = rollouts.iter().filter(|of| of.spec.plan.pool == name && of.spec.plan.payload == plan.payload);
    let uids: Vec<&str> = of_payload.filter_map(|of| of.metadata.uid.as_deref()).collect();
    let denied = plans::denied(name, rollouts);

    let mut unclear = BTreeMap::new();
    let mut nodes = Vec::new();
    for node in members.of(name) {
        let uid = seen::uid(node);
        let look = sight.looks.get(uid);
        let (mut seen, why) = seen::seen(look, seen::member(node, name, &wish.zones), plan.payload, &uids);
        seen::closes(&mut seen, look, &denied);
        unclear.extend(why.map(|why| (uid.to_owned(), why)));
        nodes.push(seen);
    }
    let status = rollout.and_then(|rollout| rollout.status.clone()).unwrap_or_default();
    let replacing = replacing(&wish, sight.stock, &status, succeeded, &plan);
    let snapshot = Snapshot {
        plan,
        passed: status.passed as usize,
        rules: wish.rules.clone(),
        nodes,
        elsewhere: elsewhere(name, sight, members),
        ledger: ledger.clone(),
        evidence: Vec::new(),
        skip: wish.skip.clone(),
        paused: wish.pool.spec.paused.as_ref().map(ToString::to_string).or(status.paused),
        denied: status.denied,
        finished: status.finished,
        back: wish.pool.spec.rollback.as_ref().map(|of| Back { control_plane: of.control_plane }),
        aborted: status.aborted.or_else(|| wish.aborts(rollout)),
        hurry: wish.hurry(rollout),
        replacing,
    };
    let mut decision = decide(&snapshot, now);
    if leaves {
        leave(&mut decision);
    }
    Course { wish, rollout: rollout.cloned(), snapshot, decision, unclear }
}

/// What is known of nodes that are replaced. Whose grant is freed in this round has a successor as of now.
fn replacing(
    wish: &Wish,
    stock: &Stock,
    status: &RolloutStatus,
    succeeded: &BTreeMap<String, String>,
    plan: &Plan,
) -> Replacing {
    let Wish { pool, payload, .. } = wish;
    let allows = pool.spec.replace.as_ref().is_some_and(|replace| replace.allow_local_volumes);
    let planned: BTreeSet<&str> = plan.nodes().map(|(_, node)| node.uid.as_str()).collect();
    let new = succeeded.iter().filter(|(uid, _)| planned.contains(uid.as_str()));
    let new = new.map(|(uid, heir)| (uid.clone(), heir.clone()));
    Replacing {
        wanted: pool.spec.strategy == Strategy::Replace,
        target: Some(*payload),
        machines: stock.machines(),
        keeps: if allows { BTreeMap::new() } else { stock.keeps.clone() },
        succeeded: status.succeeded.clone().into_iter().chain(new).collect(),
    }
}

/// Nodes of the control plane that are not in this pool, and are not well.
fn elsewhere(pool: &str, sight: Sight<'_>, members: &Members<'_>) -> Vec<Node> {
    let others = sight.objects.nodes.iter().filter(|node| seen::role(node) == Role::ControlPlane);
    let others = others.filter_map(|node| {
        let of = members.pool_of(seen::uid(node)).unwrap_or_default();
        let look = sight.looks.get(seen::uid(node));
        (of != pool).then(|| seen::seen(look, seen::member(node, of, ""), Sha256([0; 32]), &[]).0)
    });
    others.filter(|seen: &Seen| !seen.is_well()).map(|seen| seen.node).collect()
}

/// What cannot be written is not acted on, and nodes say so.
fn withhold(course: &mut Course, pool: &str, refused: &Refused) {
    let Course { decision, snapshot, .. } = course;
    if let Some(why) = refused.rollouts.get(pool) {
        let held = decision.actions.drain(..).filter_map(|action| {
            let Action::Free { uid, .. } = action else { return None };
            let node = snapshot.ledger.held(&uid)?.node.clone();
            Some(Waiting { node, why: WhyNot::Unwritten(why.clone()) })
        });
        let held: Vec<Waiting> = held.collect();
        decision.waiting.retain(|waiting| held.iter().all(|of| of.node.uid != waiting.node.uid));
        decision.waiting.extend(held);
        decision.finished = false;
    } else if refused.grants.contains_key(pool) {
        decision.actions.retain(|action| !matches!(action, Action::Grant { .. }));
    }
    let Some(why) = refused.rollouts.get(pool).or(refused.grants.get(pool)) else { return };
    let is_all = refused.rollouts.contains_key(pool);
    for waiting in &mut decision.waiting {
        let asks = matches!(
            waiting.why,
            WhyNot::Staging
                | WhyNot::Begins { .. }
                | WhyNot::Returns { .. }
                | WhyNot::Aborts { .. }
                | WhyNot::Deletes { .. }
        );
        if waiting.why == WhyNot::Granted || (is_all && asks) {
            waiting.why = WhyNot::Unwritten(why.clone());
        }
    }
}

/// The pool has another target now: what has begun ends, and nothing else begins.
fn leave(decision: &mut Decision) {
    decision.actions.retain(|action| !matches!(action, Action::Grant { .. } | Action::Stage { .. }));
    for waiting in &mut decision.waiting {
        if matches!(waiting.why, WhyNot::Granted | WhyNot::Staging) {
            let why = "the pool has another target now: its rollout begins when no node holds a grant any more";
            waiting.why = WhyNot::Paused(why.to_owned());
        }
    }
    decision.finished = false;
}
