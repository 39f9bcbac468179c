//! The status for people: the work under way, and the reasons against more.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use slipway_fleet_objects::{
    condition,
    pool::{Approval, NodePool, NodePoolStatus},
    rollout::{ApprovalRecord, FINISHED, INCOMPLETE, Replacing, Rollout, RolloutStatus, SUPERSEDED},
    upgrade::NodeUpgradeStatus,
};
use slipway_node_api::{enum_name, text::clean_and_cut, v1::Step as NodeStep};
use slipway_rollout::{
    blocked::{Blocked, soak},
    decide::{Action, BlockedNode, Decision},
    facts::{Facts, ObservedNode},
};

use crate::{
    node_report,
    nodes::Answer,
    observed_node::NodeReading,
    plans,
    pools::Problem,
    round::{PoolRound, Superseded},
    sentences::{LONGEST, add, brief, goes_on, is_silent, own_words, reboot, refusal_of, sentence_of_node, short},
};

pub use crate::sentences::{blocked_reason, sentence};

/// The size of the message about nodes that are being replaced, bytes: with more of them at once the rest is left out. A
/// Rollout is one object, whose size has an end.
const REPLACING: usize = 200_000;

/// So many approvals are recorded, the last ones: the API server takes no more.
const APPROVALS: usize = 128;

/// So many bytes of what a pool does are said, whatever is said of its fields.
const FIRST: usize = 400;

/// How often a pool's status says that a controller looks at it.
const SIGN_OF_LIFE: SignedDuration = SignedDuration::from_mins(1);

/// The state, in one word that stays the same, and for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Headline {
    /// Finished, Incomplete, Denied, Aborted, Paused, Running, Waiting.
    pub state: &'static str,
    /// The same, and why no more.
    pub message: String,
}

fn count(of: usize) -> u32 {
    u32::try_from(of).unwrap_or(u32::MAX)
}

/// Why the rollout of another target does not begin: this one is followed as long as a node holds a grant.
fn keeps_waiting(pool_round: &PoolRound) -> String {
    let PoolRound { facts, decision, desired, .. } = pool_round;
    let is_left = facts.plan.payload != desired.payload;
    let holder = decision.blocked.iter().find(|of| is_left && facts.ledger.held(&of.node.uid).is_some());
    // That the payload is denied is said before.
    let stays = |of: &BlockedNode| of.why.remedy(&of.node.name, true).filter(|_| matches!(of.why, Blocked::Denied(_)));
    let what = |of: &BlockedNode| stays(of).unwrap_or_else(|| brief(pool_round, of));
    holder.map(|of| format!("; the new target waits for {}: {}", of.node.name, what(of))).unwrap_or_default()
}

/// The state of a pool.
pub fn headline(pool_round: &PoolRound) -> Headline {
    let (decision, facts) = (&pool_round.decision, &pool_round.facts);
    let denies = decision.steps.iter().find_map(|step| match step {
        Action::Deny { why, .. } => Some(why),
        _ => None,
    });
    let (denied, paused) = (facts.denied.as_ref().or(denies), pauses(facts));
    let stopped = [("Denied", denied), ("Aborted", facts.aborted.as_ref()), ("Paused", paused.as_ref())];
    if let Some((state, why)) = stopped.into_iter().find_map(|(state, why)| Some((state, why?))) {
        let more = back(pool_round) + &keeps_waiting(pool_round);
        let more = if more.is_empty() { kept_too(pool_round, None) } else { more };
        return Headline { state, message: clean_and_cut(why, LONGEST.saturating_sub(more.len())) + &short(more) };
    }
    let named = |blocked: &BlockedNode| format!("{}: {}", blocked.node.name, sentence(pool_round, blocked));
    let busy: Vec<&BlockedNode> = decision.blocked.iter().filter(|of| is_busy(pool_round, of)).collect();
    // Of several the one that says what keeps it: a person may have to do something about that.
    let kept = busy.iter().find(|of| !own_words(pool_round, of).is_empty());
    if let Some(first) = kept.or(busy.first()) {
        let more = if busy.len() > 1 { format!("; and {} more", busy.len() - 1) } else { String::new() };
        return Headline {
            state: "Running",
            message: short(named(first) + &more + &kept_too(pool_round, Some(first))),
        };
    }
    let first = decision.blocked.first();
    // No node could be planned: nothing is over yet.
    let waits_for = |of: &BlockedNode| is_silent(&of.why) || !facts.is_left_out(&of.node.uid);
    let is_empty = facts.plan.nodes().next().is_none() && decision.blocked.iter().any(waits_for);
    if decision.finished && !is_empty {
        return over(decision, named);
    }
    let soaks = decision.soaks.map(|until| soak(decision.passed + 1, until, decision.interruption.as_ref()));
    let first = first.map(|of| named(of) + &kept_too(pool_round, Some(of)));
    let message = first.or(soaks).unwrap_or_else(|| "it begins with the next look".to_owned());
    Headline { state: "Waiting", message: short(message) }
}

/// The first node that says itself what keeps it, where none is named that does.
fn kept_too(pool_round: &PoolRound, named: Option<&BlockedNode>) -> String {
    let says = |of: &BlockedNode| !own_words(pool_round, of).is_empty();
    let other = pool_round.decision.blocked.iter().find(|of| says(of)).filter(|_| !named.is_some_and(says));
    other.map(|of| format!("; {}: {}", of.node.name, brief(pool_round, of))).unwrap_or_default()
}

/// Why it is paused: by a person, and by the controllers themselves, whose pause stays when the person's is taken back.
fn pauses(facts: &Facts) -> Option<String> {
    match (&facts.paused, &facts.stopped) {
        (Some(person), Some(own)) => {
            Some(format!("{}; and it has stopped by itself: {own}", clean_and_cut(person, LONGEST / 2)))
        }
        _ => facts.pause().cloned(),
    }
}

/// Something is being done with this node, or it is away because of that.
fn is_busy(pool_round: &PoolRound, of: &BlockedNode) -> bool {
    goes_on(&of.why) || reboot(pool_round, of).is_some()
}

/// Nothing is left to do. A node that people left out is not missed; any other that is not done needs a person.
fn over(decision: &Decision, named: impl Fn(&BlockedNode) -> String) -> Headline {
    let is_left_out = |of: &&BlockedNode| matches!(of.why, Blocked::Skipped | Blocked::NotInPlan);
    let (left_out, missed): (Vec<&BlockedNode>, Vec<&BlockedNode>) = decision.blocked.iter().partition(is_left_out);
    let (state, message) = match (missed.first(), left_out.first()) {
        (Some(first), _) if missed.len() == 1 => (INCOMPLETE, format!("1 node is not done: {}", named(first))),
        (Some(first), _) => (INCOMPLETE, format!("{} nodes are not done; the first: {}", missed.len(), named(first))),
        (None, Some(first)) => (FINISHED, named(first)),
        (None, None) => (FINISHED, "every node is done".to_owned()),
    };
    Headline { state, message: short(message) }
}

/// The progress of nodes on the way back; empty if none is to go.
fn back(pool_round: &PoolRound) -> String {
    let Facts { rollback: back, denied, aborted, plan, nodes, .. } = &pool_round.facts;
    if back.is_none() || denied.is_none() || aborted.is_some() || !plan.is_whole() {
        return String::new();
    }
    let planned: BTreeSet<&str> = plan.nodes().map(|(_, node)| node.uid.as_str()).collect();
    let on_it =
        nodes.iter().filter(|observed| observed.runs(plan.payload) && planned.contains(observed.node.uid.as_str()));
    let blocked = pool_round.blocked();
    let stays = |observed: &&ObservedNode| {
        let why = blocked.get(observed.node.uid.as_str()).map(|of| &of.why);
        matches!(why, Some(Blocked::Stays(_) | Blocked::Skipped))
    };
    let (stay, go): (Vec<&ObservedNode>, Vec<&ObservedNode>) = on_it.partition(stays);
    let waits: Vec<&&BlockedNode> = go.iter().filter_map(|of| blocked.get(of.node.uid.as_str())).collect();
    let go = match waits.first() {
        None => String::new(),
        Some(first) if !pool_round.decision.blocked.iter().any(|of| is_busy(pool_round, of)) => {
            let (name, why) = (&first.node.name, brief(pool_round, first));
            format!("; nodes are to go back, {} still run it, and none goes now; {name}: {why}", waits.len())
        }
        Some(_) => format!("; nodes go back, and {} still run it", waits.len()),
    };
    if stay.is_empty() { go } else { format!("{go}; {} keep it, and say why", stay.len()) }
}

/// The record of a rollout, and its status for people.
pub fn rollout(rollout: &Rollout, pool_round: &PoolRound, now: Timestamp) -> RolloutStatus {
    let mut status = rollout.status.clone().unwrap_or_default();
    let decision = &pool_round.decision;
    for step in &decision.steps {
        match step {
            Action::Deny { why, .. } => _ = status.denied.get_or_insert_with(|| short(why)),
            Action::Pause { why } => _ = status.paused.get_or_insert_with(|| short(why)),
            _ => {}
        }
    }
    status.aborted = pool_round.facts.aborted.clone();
    status.finished |= decision.finished && status.denied.is_none() && status.aborted.is_none();
    let awaiting =
        |blocked: &BlockedNode| if let Blocked::Approval { wave, .. } = blocked.why { Some(count(wave)) } else { None };
    status.awaiting_approval = decision.blocked.iter().find_map(awaiting);
    let approval = pool_round.desired.approval(Some(rollout));
    let is_new = |approval: &&Approval| status.approvals.iter().all(|given| given.wave < approval.wave);
    if let Some(Approval { wave, word, .. }) = approval.filter(is_new) {
        status.approvals.push(ApprovalRecord { wave: *wave, at: now, word: word.clone() });
        // The last one counts for all waves before its own.
        status.approvals.drain(..status.approvals.len().saturating_sub(APPROVALS));
    }
    let plan = &rollout.spec.plan;
    status.passed = status.passed.max(count(decision.passed));
    (status.soaking_since, status.retry) = (decision.soaking_since, decision.retry);
    status.interruption = decision.interruption.clone();
    (status.attempts, status.tried) = (decision.attempts.nodes.clone(), decision.attempts.tried.clone());
    let blocked = pool_round.blocked();
    let there: BTreeSet<&str> = pool_round.facts.nodes.iter().map(|observed| observed.node.uid.as_str()).collect();
    // A replaced node is done when its successor is.
    let is_there = |uid: &str| there.contains(uid) && !blocked.contains_key(uid);
    let successor = |uid: &str| decision.succeeded.get(uid).filter(|_| !blocked.contains_key(uid));
    let is_done = |uid: &str| is_there(uid) || successor(uid).is_some_and(|successor| is_there(successor));
    status.succeeded = decision.succeeded.clone();
    status.replacing = replacing(pool_round);
    status.nodes = count(plan.nodes().count());
    status.done = count(plan.nodes().filter(|(_, node)| is_done(&node.uid)).count());
    status.waves = format!("{}/{}", status.passed, plan.waves.len());
    let Headline { state, message } = headline(pool_round);
    status.conditions = condition::set(&status.conditions, "Finished", state == FINISHED, state, &message, now);
    (status.state, status.message) = (state.to_owned(), message);
    status
}

/// Nodes that hold grants to be replaced, and where they are.
fn replacing(pool_round: &PoolRound) -> Vec<Replacing> {
    let is_replaced = |blocked: &&BlockedNode| {
        pool_round.facts.ledger.held(&blocked.node.uid).is_some_and(|grant| grant.replaces.is_some())
    };
    let of = |blocked: &BlockedNode| Replacing {
        node_uid: blocked.node.uid.clone(),
        node: blocked.node.name.clone(),
        reason: blocked_reason(pool_round, blocked).to_owned(),
        message: short(sentence(pool_round, blocked)),
    };
    let mut told = 0;
    let fits = |of: &Replacing| {
        // The keys and what JSON needs have less than a hundred.
        told += of.node_uid.len() + of.node.len() + of.reason.len() + of.message.len() + 100;
        told <= REPLACING
    };
    pool_round.decision.blocked.iter().filter(is_replaced).map(of).take_while(fits).collect()
}

/// A rollout that is put aside. That it was given up stays, whatever the pool says by now. Nobody watches its soak, and
/// nobody is asked to approve it.
pub fn aside(Superseded { rollout, aborted }: &Superseded, now: Timestamp) -> RolloutStatus {
    let mut status = rollout.status.clone().unwrap_or_default();
    // It may have been put aside before it said anything. There are API servers that take an empty text for none at all.
    let plan = &rollout.spec.plan;
    status.nodes = count(plan.nodes().count());
    status.waves = format!("{}/{}", status.passed, plan.waves.len());
    (status.aborted, status.soaking_since) = (status.aborted.or_else(|| aborted.clone()), None);
    status.awaiting_approval = None;
    let message = "its pool has another target now".to_owned();
    status.conditions = condition::set(&status.conditions, "Finished", false, SUPERSEDED, &message, now);
    (status.state, status.message) = (SUPERSEDED.to_owned(), message);
    status
}

fn old(pool: &NodePool, now: Timestamp) -> NodePoolStatus {
    let mut status = pool.status.clone().unwrap_or_default();
    status.observed_generation = pool.metadata.generation.unwrap_or(0);
    // Once a minute, and not once a round: each is a write.
    let is_recent = |at: &Timestamp| now.duration_since(*at).abs() < SIGN_OF_LIFE;
    status.observed_at = status.observed_at.filter(is_recent).or(Some(now));
    status
}

/// The number of nodes that have the target and are well, or have the channel's choice already while others go through a floor.
/// While another payload is followed, no node has.
fn done(pool_round: &PoolRound) -> usize {
    let is_target = pool_round.facts.plan.payload == pool_round.desired.payload;
    let blocked = pool_round.blocked();
    let is_ahead = |observed: &ObservedNode| {
        let uid = observed.node.uid.as_str();
        pool_round.desired.ahead.contains(uid) && observed.is_well() && pool_round.facts.ledger.held(uid).is_none()
    };
    let is_done = |observed: &&ObservedNode| !blocked.contains_key(observed.node.uid.as_str()) || is_ahead(observed);
    pool_round.facts.nodes.iter().filter(|_| is_target).filter(is_done).count()
}

/// The nodes that the pool's labels name and that it does not have, if there are any.
fn shared(pool_round: &PoolRound) -> Option<String> {
    let (node, pool) = pool_round.shared.first()?;
    let how = "an older pool keeps a node that its labels name";
    Some(match pool_round.shared.len() {
        1 => format!("{node} stays in the pool {pool}: {how}"),
        many => format!("{many} nodes stay in other pools, {node} in {pool}: {how}"),
    })
}

/// A name in `spec.skip` that no node of the pool has: by a slip, or because the node is gone.
fn mistyped(pool_round: &PoolRound) -> Option<String> {
    let names: BTreeSet<&str> = pool_round.facts.nodes.iter().map(|observed| observed.node.name.as_str()).collect();
    let mut wrong = pool_round.desired.pool.spec.skip.iter().filter(|skip| !names.contains(skip.node.as_str()));
    let (first, more) = (&wrong.next()?.node, wrong.count());
    Some(match more {
        0 => format!("spec.skip has {first:?}, which is no node of this pool"),
        more => format!("spec.skip has {first:?} and {more} more, which are no nodes of this pool"),
    })
}

/// A person's word about a Rollout that is none of this pool's, as long as it would have an effect: by a slip, or because the
/// Rollout is gone. Who gave one up must hear that it goes on.
fn unheard(pool_round: &PoolRound, now: Timestamp) -> impl Iterator<Item = String> {
    let spec = &pool_round.desired.pool.spec;
    let waits = pool_round.decision.blocked.iter().any(|of| matches!(of.why, Blocked::Approval { .. }));
    let abort = spec.abort.as_ref().map(|abort| ("abort", &abort.rollout_uid, "nothing is given up by it"));
    let run_now = spec.run_now.as_ref().filter(|word| now < word.until);
    let run_now = run_now.map(|word| ("runNow", &word.rollout_uid, "windows hold as ever"));
    let approval = spec.approval.as_ref().filter(|_| waits);
    let approval = approval.map(|word| ("approval", &word.rollout_uid, "nothing is approved by it"));
    let of_none = |(_, uid, _): &(&str, &String, &str)| !pool_round.desired.rollouts.contains(*uid);
    [abort, run_now, approval].into_iter().flatten().filter(of_none).map(|(field, uid, so)| {
        format!("spec.{field} names {uid:?}, which is the UID of no Rollout of this pool: {so}")
    })
}

/// Why a pool without any node is not up to date: its labels may be those of no Node by mistake.
fn no_node(pool_round: &PoolRound) -> Option<String> {
    if !pool_round.facts.nodes.is_empty() || !pool_round.decision.blocked.is_empty() {
        return None;
    }
    if !pool_round.shared.is_empty() {
        return Some("it has no node of its own".to_owned());
    }
    let labels = &pool_round.desired.pool.spec.node_selector;
    let labels: Vec<String> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    Some(format!("no Node has the labels of its nodeSelector: {}", labels.join(", ")))
}

fn is_up_to_date(pool_round: &PoolRound) -> bool {
    if no_node(pool_round).is_some() {
        return false;
    }
    let uids: BTreeSet<&str> = pool_round.facts.nodes.iter().map(|observed| observed.node.uid.as_str()).collect();
    // A node without its machine and without a successor is no node of the pool.
    let is_replaced = replacing(pool_round).iter().any(|of| !uids.contains(of.node_uid.as_str()));
    !is_replaced && pool_round.facts.plan.payload == pool_round.desired.payload && done(pool_round) == uids.len()
}

/// The state of a pool, in one word.
pub fn state(pool_round: &PoolRound) -> &'static str {
    if is_up_to_date(pool_round) { "UpToDate" } else { headline_of_pool(pool_round).state }
}

fn headline_of_pool(pool_round: &PoolRound) -> Headline {
    let headline = headline(pool_round);
    match no_node(pool_round).filter(|_| matches!(headline.state, FINISHED | INCOMPLETE | "Waiting")) {
        Some(message) => Headline { state: "Waiting", message: short(message) },
        None => headline,
    }
}

/// The status of a pool for people; `refused` is why its next Rollout cannot be made.
pub fn pool(pool_round: &PoolRound, refused: Option<&str>, now: Timestamp) -> NodePoolStatus {
    let mut status = old(&pool_round.desired.pool, now);
    let nodes = &pool_round.facts.nodes;
    status.nodes = count(nodes.len());
    status.done = count(done(pool_round));
    status.payload = Some(pool_round.desired.payload);
    status.rollout = pool_round.rollout.as_ref().and_then(|of| of.metadata.name.clone());
    let refused = refused.map(|why| short(format!("nothing begins: {why}")));
    let shared = shared(pool_round);
    let message = refused.unwrap_or_else(|| headline_of_pool(pool_round).message);
    let more = shared.iter().cloned().chain(mistyped(pool_round)).chain(unheard(pool_round, now));
    let more = more.fold(String::new(), |all, more| format!("{all}; {more}"));
    let message = clean_and_cut(&message, LONGEST.saturating_sub(more.len()).max(FIRST)) + &more;
    let message = short(message);
    let is_done = is_up_to_date(pool_round);
    let state = state(pool_round);
    status.conditions = condition::set(&status.conditions, "Valid", true, "Valid", "the pool can be understood", now);
    status.conditions = condition::set(&status.conditions, "UpToDate", is_done, state, &message, now);
    let (is_shared, word) = if shared.is_some() { (true, "NodesShared") } else { (false, "OwnNodes") };
    let shared = shared.unwrap_or_else(|| "no older pool has a node that its labels name".to_owned());
    status.conditions = condition::set(&status.conditions, "NodesShared", is_shared, word, &short(shared), now);
    (status.state, status.message) = (state.to_owned(), message);
    status
}

/// The status of a pool in which nothing begins. No node is asked to go back either: that is said.
pub fn invalid(
    pool: Option<&NodePool>,
    members: usize,
    rollouts: &[Rollout],
    problem: &Problem,
    now: Timestamp,
) -> NodePoolStatus {
    let mut status = pool.map(|pool| old(pool, now)).unwrap_or_default();
    let waits = pool.is_some_and(|pool| plans::is_given_up(pool, rollouts));
    let waits =
        if waits { "; until that is mended, spec.abort is not acted on: no node is asked to go back" } else { "" };
    let message = short(format!("{problem}{waits}"));
    status.nodes = count(members);
    status.conditions = condition::set(&status.conditions, "Valid", false, problem.reason(), &message, now);
    status.conditions = condition::set(&status.conditions, "UpToDate", false, "Invalid", &message, now);
    (status.state, status.message) = ("Invalid".to_owned(), message);
    status
}

/// A node of the pool whose NodeUpgrade cannot be written: it says nothing, or what was so earlier.
pub fn add_untold(status: &mut NodePoolStatus, why: Option<&str>) {
    if let Some(why) = why {
        status.message = short(format!("{}; {why}", status.message));
    }
}

/// The status of each node for people, by UID: why it does not go, and why it did not do what it was asked for.
pub fn nodes<'a>(
    pool_round: &'a PoolRound,
    readings: &BTreeMap<String, NodeReading>,
    answers: &BTreeMap<String, Answer>,
) -> BTreeMap<&'a str, NodeUpgradeStatus> {
    let blocked = pool_round.blocked();
    let waves = pool_round.facts.plan.nodes().map(|(wave, node)| (node.uid.as_str(), count(wave + 1)));
    let mut waves: BTreeMap<&str, u32> = waves.collect();
    for (uid, successor) in &pool_round.decision.succeeded {
        waves.extend(waves.get(uid.as_str()).copied().map(|wave| (successor.as_str(), wave)));
    }
    let of = |observed: &'a ObservedNode| {
        let uid = observed.node.uid.as_str();
        let answer = answers.get(uid);
        let message = blocked.get(uid).map_or_else(
            || ("Done", add("it runs the payload, and is well".to_owned(), refusal_of(answer))),
            |blocked| (blocked_reason(pool_round, blocked), sentence_of_node(pool_round, blocked, answer)),
        );
        let mut status = node(observed, message, readings.get(uid));
        status.token = pool_round.facts.ledger.held(uid).map(|grant| grant.token);
        status.wave = waves.get(uid).copied();
        let read = readings.get(uid).and_then(|reading| reading.status.as_ref().ok());
        let moved = read.and_then(|read| node_report::moved(read, pool_round.facts.plan.payload));
        status.bytes_fetched = moved.map(|moved| moved.fetched);
        status.bytes_reused = moved.map(|moved| moved.reused);
        status.bytes_written = moved.map(|moved| moved.written);
        status.silent_since = pool_round.rebooting.get(uid).map(|reboot| reboot.since);
        (uid, status)
    };
    pool_round.facts.nodes.iter().map(of).collect()
}

fn node(observed: &ObservedNode, (reason, message): (&str, String), look: Option<&NodeReading>) -> NodeUpgradeStatus {
    let status = look.and_then(|look| look.status.as_ref().ok());
    let report = observed.report.as_ref();
    NodeUpgradeStatus {
        reason: reason.to_owned(),
        message: short(message),
        step: status.and_then(|status| Some(enum_name::of::<NodeStep>(status.operation.as_ref()?.step))),
        runs: report.map(|report| report.runs),
        staged: report.and_then(|report| report.staged),
        well: report.map(|report| report.well),
        ..NodeUpgradeStatus::default()
    }
}

/// The status of a node whose pool cannot be understood.
pub fn stuck(problem: &Problem) -> NodeUpgradeStatus {
    let (reason, message) = (problem.reason().to_owned(), short(problem.to_string()));
    NodeUpgradeStatus { reason, message, ..NodeUpgradeStatus::default() }
}
