//! What people read: what goes on, and why no more.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use slipway_fleet_objects::{
    condition,
    pool::{NodePool, NodePoolStatus},
    rollout::{Replacing, Rollout, RolloutStatus},
    upgrade::NodeUpgradeStatus,
};
use slipway_node_api::v1::StatusResponse;
use slipway_rollout::{
    decide::{Action, Waiting},
    facts::{Seen, Snapshot},
    why::WhyNot,
};

use crate::{
    nodes::Answer,
    plans::{self, FINISHED, SUPERSEDED},
    pools::Problem,
    round::{Aside, Course},
    seen::Look,
};

/// The longest message. What is longer is in the objects of the nodes.
const LONGEST: usize = 1000;

/// What is told of nodes that are being replaced, bytes: with more of them at once the rest is left out. A Rollout is one
/// object, whose size has an end.
const REPLACING: usize = 200_000;

/// What goes on, in one word that stays the same, and for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Headline {
    /// Finished, Denied, Aborted, Paused, Running, Waiting.
    pub state: &'static str,
    /// The same, and why no more.
    pub message: String,
}

fn short(message: String) -> String {
    message.chars().take(LONGEST).collect()
}

fn count(of: usize) -> u32 {
    u32::try_from(of).unwrap_or(u32::MAX)
}

/// Something is being done with the node.
fn goes_on(why: &WhyNot) -> bool {
    use WhyNot::{Aborts, Begins, Deletes, Granted, MachineGoes, Returns, Staging, SuccessorJoins, UnderWay};
    let is_asked = matches!(why, UnderWay { .. } | Begins { .. } | Returns { .. } | Aborts { .. } | Granted | Staging);
    is_asked || matches!(why, Deletes { .. } | MachineGoes { .. } | SuccessorJoins { .. })
}

/// Why this node does not go, with what its own service says, and what a person can do if nobody else can.
pub fn sentence(course: &Course, waiting: &Waiting) -> String {
    let Waiting { node, why } = waiting;
    let holds = course.snapshot.ledger.held(&node.uid).is_some();
    let remedy = why.remedy(&node.name, holds).map(|what| format!(": {what}")).unwrap_or_default();
    said(course, waiting) + &remedy
}

fn said(course: &Course, waiting: &Waiting) -> String {
    let why = &waiting.why;
    if let (WhyNot::Skipped | WhyNot::NotInPlan, Some(held)) = (why, course.wish.held.get(&waiting.node.uid)) {
        return held.clone();
    }
    match course.unclear.get(&waiting.node.uid) {
        Some(unclear) if matches!(why, WhyNot::Silent | WhyNot::SilentHolder { .. }) => format!("{why} ({unclear})"),
        _ => why.to_string(),
    }
}

/// What goes on in a pool.
pub fn headline(course: &Course) -> Headline {
    let (decision, snapshot) = (&course.decision, &course.snapshot);
    let denied = decision.actions.iter().find_map(|action| match action {
        Action::Deny { why, .. } => Some(why),
        _ => None,
    });
    if let Some(why) = snapshot.denied.as_ref().or(denied) {
        return Headline { state: "Denied", message: short(why.clone() + &back(course)) };
    }
    if let Some(why) = &snapshot.aborted {
        return Headline { state: "Aborted", message: short(why.clone()) };
    }
    if let Some(why) = &snapshot.paused {
        return Headline { state: "Paused", message: short(why.clone()) };
    }
    let named = |waiting: &Waiting| format!("{}: {}", waiting.node.name, sentence(course, waiting));
    let busy: Vec<&Waiting> = decision.waiting.iter().filter(|waiting| goes_on(&waiting.why)).collect();
    if let Some(first) = busy.first() {
        let more = if busy.len() > 1 { format!("; and {} more", busy.len() - 1) } else { String::new() };
        return Headline { state: "Running", message: short(named(first) + &more) };
    }
    let first = decision.waiting.first();
    if decision.finished {
        let message = first.map_or_else(|| "every node is done".to_owned(), named);
        return Headline { state: FINISHED, message: short(message) };
    }
    let soaks = decision.soaks.map(|until| format!("wave {} must be well until {until}", decision.passed + 1));
    let message = first.map(named).or(soaks).unwrap_or_else(|| "it begins with the next look".to_owned());
    Headline { state: "Waiting", message: short(message) }
}

/// How far nodes are on the way back; empty if none is to go.
fn back(course: &Course) -> String {
    let Snapshot { back, denied, aborted, plan, nodes, .. } = &course.snapshot;
    if back.is_none() || denied.is_none() || aborted.is_some() || !plan.is_whole() {
        return String::new();
    }
    let planned: BTreeSet<&str> = plan.nodes().map(|(_, node)| node.uid.as_str()).collect();
    let on_it = nodes.iter().filter(|seen| seen.runs(plan.payload) && planned.contains(seen.node.uid.as_str()));
    let waiting = course.waiting();
    let stays = |seen: &&Seen| {
        let why = waiting.get(seen.node.uid.as_str()).map(|of| &of.why);
        matches!(why, Some(WhyNot::Stays(_) | WhyNot::Skipped))
    };
    let (stay, go): (Vec<&Seen>, Vec<&Seen>) = on_it.partition(stays);
    let go = if go.is_empty() { String::new() } else { format!("; nodes go back, and {} still run it", go.len()) };
    if stay.is_empty() { go } else { format!("{go}; {} keep it, and say why", stay.len()) }
}

/// What is kept of a rollout, and what people read of it.
pub fn rollout(rollout: &Rollout, course: &Course, now: Timestamp) -> RolloutStatus {
    let mut status = rollout.status.clone().unwrap_or_default();
    let decision = &course.decision;
    for action in &decision.actions {
        match action {
            Action::Deny { why, .. } => _ = status.denied.get_or_insert_with(|| why.clone()),
            Action::Pause { why } => _ = status.paused.get_or_insert_with(|| why.clone()),
            _ => {}
        }
    }
    status.aborted = course.snapshot.aborted.clone();
    status.finished |= decision.finished && status.denied.is_none() && status.aborted.is_none();
    let plan = &rollout.spec.plan;
    status.passed = status.passed.max(count(decision.passed));
    let waiting = course.waiting();
    let there: BTreeSet<&str> = course.snapshot.nodes.iter().map(|seen| seen.node.uid.as_str()).collect();
    // Who is replaced is done when its successor is.
    let is_there = |uid: &str| there.contains(uid) && !waiting.contains_key(uid);
    let heir = |uid: &str| decision.succeeded.get(uid).filter(|_| !waiting.contains_key(uid));
    let is_done = |uid: &str| is_there(uid) || heir(uid).is_some_and(|heir| is_there(heir));
    status.succeeded = decision.succeeded.clone();
    status.replacing = replacing(course);
    status.nodes = count(plan.nodes().count());
    status.done = count(plan.nodes().filter(|(_, node)| is_done(&node.uid)).count());
    status.waves = format!("{}/{}", status.passed, plan.waves.len());
    let Headline { state, message } = headline(course);
    status.conditions = condition::set(&status.conditions, "Finished", state == FINISHED, state, &message, now);
    (status.state, status.message) = (state.to_owned(), message);
    status
}

/// Nodes that hold grants to be replaced, and where they are.
fn replacing(course: &Course) -> Vec<Replacing> {
    let is_replaced = |waiting: &&Waiting| {
        course.snapshot.ledger.held(&waiting.node.uid).is_some_and(|grant| grant.replaces.is_some())
    };
    let of = |waiting: &Waiting| Replacing {
        node_uid: waiting.node.uid.clone(),
        node: waiting.node.name.clone(),
        reason: waiting.why.word().to_owned(),
        message: sentence(course, waiting),
    };
    let mut told = 0;
    let fits = |of: &Replacing| {
        // The keys and what JSON needs have less than a hundred.
        told += of.node_uid.len() + of.node.len() + of.reason.len() + of.message.len() + 100;
        told <= REPLACING
    };
    course.decision.waiting.iter().filter(is_replaced).map(of).take_while(fits).collect()
}

/// A rollout that is put aside. That it was given up stays, whatever the pool says by now.
pub fn aside(Aside { rollout, aborted }: &Aside, now: Timestamp) -> RolloutStatus {
    let mut status = rollout.status.clone().unwrap_or_default();
    status.aborted = status.aborted.or_else(|| aborted.clone());
    let message = "its pool has another target now".to_owned();
    status.conditions = condition::set(&status.conditions, "Finished", false, SUPERSEDED, &message, now);
    (status.state, status.message) = (SUPERSEDED.to_owned(), message);
    status
}

fn old(pool: &NodePool) -> NodePoolStatus {
    let mut status = pool.status.clone().unwrap_or_default();
    status.observed_generation = pool.metadata.generation.unwrap_or(0);
    status
}

/// How many nodes have the target, and are well; or have the channel's choice already, while others go through a floor. While
/// another payload is followed, nobody has.
fn done(course: &Course) -> usize {
    let is_target = course.snapshot.plan.payload == course.wish.payload;
    let waiting = course.waiting();
    let is_ahead = |seen: &Seen| {
        let uid = seen.node.uid.as_str();
        course.wish.ahead.contains(uid) && seen.is_well() && course.snapshot.ledger.held(uid).is_none()
    };
    let is_done = |seen: &&Seen| !waiting.contains_key(seen.node.uid.as_str()) || is_ahead(seen);
    course.snapshot.nodes.iter().filter(|_| is_target).filter(is_done).count()
}

fn is_up_to_date(course: &Course) -> bool {
    let uids: BTreeSet<&str> = course.snapshot.nodes.iter().map(|seen| seen.node.uid.as_str()).collect();
    // Whose machine is gone, and whose successor is not there, is no node of the pool.
    let is_replaced = replacing(course).iter().any(|of| !uids.contains(of.node_uid.as_str()));
    !is_replaced && course.snapshot.plan.payload == course.wish.payload && done(course) == uids.len()
}

/// What goes on in a pool, in one word.
pub fn state(course: &Course) -> &'static str {
    if is_up_to_date(course) { "UpToDate" } else { headline(course).state }
}

/// What people read of a pool; `refused` is why its next Rollout cannot be made.
pub fn pool(course: &Course, refused: Option<&str>, now: Timestamp) -> NodePoolStatus {
    let mut status = old(&course.wish.pool);
    let nodes = &course.snapshot.nodes;
    status.nodes = count(nodes.len());
    status.done = count(done(course));
    status.payload = Some(course.wish.payload);
    status.rollout = course.rollout.as_ref().and_then(|of| of.metadata.name.clone());
    let message = refused.map_or_else(|| headline(course).message, |why| short(format!("nothing begins: {why}")));
    let is_done = is_up_to_date(course);
    let state = state(course);
    status.conditions = condition::set(&status.conditions, "Valid", true, "Valid", "the pool can be understood", now);
    status.conditions = condition::set(&status.conditions, "UpToDate", is_done, state, &message, now);
    (status.state, status.message) = (state.to_owned(), message);
    status
}

/// What people read of a pool in which nothing begins. Nobody is asked to go back either: that is said.
pub fn invalid(
    pool: Option<&NodePool>,
    members: usize,
    rollouts: &[Rollout],
    problem: &Problem,
    now: Timestamp,
) -> NodePoolStatus {
    let mut status = pool.map(old).unwrap_or_default();
    let waits = pool.is_some_and(|pool| plans::is_given_up(pool, rollouts));
    let waits =
        if waits { "; until that is mended, spec.abort is not acted on: no node is asked to go back" } else { "" };
    let message = short(format!("{problem}{waits}"));
    status.nodes = count(members);
    status.conditions = condition::set(&status.conditions, "Valid", false, problem.word(), &message, now);
    status.conditions = condition::set(&status.conditions, "UpToDate", false, "Invalid", &message, now);
    (status.state, status.message) = ("Invalid".to_owned(), message);
    status
}

/// What people read of each node, by UID: why it does not go, and why it did not do what it was asked for.
pub fn nodes<'a>(
    course: &'a Course,
    looks: &BTreeMap<String, Look>,
    answers: &BTreeMap<String, Answer>,
) -> BTreeMap<&'a str, NodeUpgradeStatus> {
    let waiting = course.waiting();
    let waves = course.snapshot.plan.nodes().map(|(wave, node)| (node.uid.as_str(), count(wave + 1)));
    let mut waves: BTreeMap<&str, u32> = waves.collect();
    for (uid, heir) in &course.decision.succeeded {
        waves.extend(waves.get(uid.as_str()).copied().map(|wave| (heir.as_str(), wave)));
    }
    let of = |seen: &'a Seen| {
        let uid = seen.node.uid.as_str();
        let waiting = waiting.get(uid).map(|waiting| (waiting.why.word(), sentence(course, waiting)));
        let refused = match answers.get(uid) {
            Some(Answer::Refused(why)) => Some(why.as_str()),
            Some(Answer::New | Answer::Known) | None => None,
        };
        let mut status = node(seen, waiting, looks.get(uid), refused);
        status.token = course.snapshot.ledger.held(uid).map(|grant| grant.token);
        status.wave = waves.get(uid).copied();
        (uid, status)
    };
    course.snapshot.nodes.iter().map(of).collect()
}

fn node(seen: &Seen, waiting: Option<(&str, String)>, look: Option<&Look>, refused: Option<&str>) -> NodeUpgradeStatus {
    let (reason, message) = waiting.unwrap_or_else(|| ("Done", "it runs the payload, and is well".to_owned()));
    let status = look.and_then(|look| look.status.as_ref().ok());
    let more = [ill(status).filter(|_| reason == "NotWell" || reason == "UnderWay"), refused.map(str::to_owned)];
    let message = more.into_iter().flatten().fold(message, |all, more| format!("{all} ({more})"));
    let says = seen.says.as_ref();
    NodeUpgradeStatus {
        reason: reason.to_owned(),
        message: short(message),
        step: status.and_then(|status| Some(status.operation.as_ref()?.step.clone())),
        runs: says.map(|says| says.runs),
        staged: says.and_then(|says| says.staged),
        well: says.map(|says| says.well),
        ..NodeUpgradeStatus::default()
    }
}

/// What people read of a node whose pool cannot be understood.
pub fn stuck(problem: &Problem) -> NodeUpgradeStatus {
    let (reason, message) = (problem.word().to_owned(), short(problem.to_string()));
    NodeUpgradeStatus { reason, message, ..NodeUpgradeStatus::default() }
}

/// What is not well, or what its operation waits for.
fn ill(status: Option<&StatusResponse>) -> Option<String> {
    let status = status?;
    if let Some(operation) = &status.operation {
        return operation.blocked.clone().map(|blocked| format!("{}: {blocked}", operation.step));
    }
    let reasons = &status.health.as_ref()?.reasons;
    (!reasons.is_empty()).then(|| reasons.join("; "))
}
