//! From facts to actions. One function of facts and time: [`decide`].
//!
//! * **Frees come first**, also while the rollout is paused: a grant that is not needed is not held.
//! * **Then staging**, of all nodes that answer, at any time: it disturbs no node. No node goes before all of them have it.
//! * **Then grants**, wave by wave, in the plan's order: one that cannot go now is waited for. Not waited for are nodes that do
//!   not answer, failed, or are left out; nor, within what may go at all, one that waits for what nobody behind it could take:
//!   a zone, room in a younger pool, the place of the control plane. A node that is ill itself overtakes others, because it
//!   is counted already.
//! * A grant is only a proposal. The controller applies [`Ledger::grant`] with the limits of this decision to the object
//!   that it writes, at the time of the write. Window and budget are looked at again there.
//! * A node that holds a grant is asked to begin until it obeys, but only while windows are open: a message that was lost
//!   is no reason to begin in the morning. Nor is it asked while it is left out, or while earlier waves of another rollout than
//!   that of its grant are not over.
//! * **Too many failures, or one among the canaries**: the payload is denied and the rollout is paused. Nothing new
//!   begins. Running upgrades go on to their end.
//! * **A finished rollout is denied no more**: a node leaves its payload later only by a person's doing. Too many
//!   failures still hold back new nodes.
//! * **A node has a number of attempts** in a rollout. Who used them up without ever running the payload counts as failed, for
//!   a reason that is not known. Only a person has it tried again. What ends before the reboot is not one of them, and is
//!   repeated in the next window.
//! * **A person may have it go now**: until a time that they name, windows and blackouts do not count, and the soak of
//!   one wave is passed over. Whatever else holds, holds as ever: budgets, rates, zones, order, and what failed.
//! * **An approval** that a policy asks for is a person's word for this plan, by its hash. Without it no node of the wave
//!   begins, nor one of a later wave. It is looked at after soaks and before windows: what waits for people says so early.
//! * **Given up**: nothing new begins, ever, and nodes that are at it are asked to go back. That is no failure of the
//!   payload: nothing is denied. A node with a grant that did not begin keeps it: a request may be on its way.
//! * **The way back**, where people want it: once the denial is written, nodes of the plan that run the payload are granted
//!   in the plan's order, but later if they have obeyed a later grant, and asked to have the system of their other slot run
//!   again. That is held to the same ledger, windows and budgets; waves and soaks are over, and nothing is staged. A node is
//!   asked once; and once more in a later window if a person has freed its grant, or if it ended before its reboot, as often as
//!   that takes. A person's pause holds it back, and one of the controllers' own does not.
//! * **A kubelet that the payload names** goes with the API server, forward and back, or its node waits.
//! * **A node that a younger pool's labels name, too**, waits for room in both. In its own pool nobody waits for it in the
//!   meantime, but for a later wave.
//! * **Nodes that are replaced** are not asked: their machine is deleted, while windows are open, and others succeed them.
//! * Every node that is not done has a reason, and no node that is done has one.
//!
//! All nodes of a step are canaries, also where it has several waves. A canary is bad if it fails. It is bad, too, if it runs
//! the payload, holds no grant any more, and has been ill for two minutes before its soak is over: one look that finds it ill may
//! have come while its kubelet was started anew. If it is not seen well, its soak begins anew. A
//! soak that was interrupted too often pauses the rollout: nobody knows why, and it would wait for ever. A look of a controller
//! that can ask no node at all interrupts nothing.
//!
//! A wave that is over stays so: `passed` comes back with the next facts. If that number is lost, waves are waited for again.
//! A node whose Node object is gone, or that is left out, is not waited for. But one node must have tried the payload before
//! a wave of canaries is over.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use jiff::Timestamp;
use slipway_core::digest::Sha256;

pub use crate::action::{Action, BlockedNode, Decision, freed_by_word, successor};
use crate::{
    attempts::History,
    blocked::Blocked,
    facts::{Evidence, Facts, Failure, FailureEvidence, ObservedNode, Retry, RollbackPolicy},
    ledger::{Grant, Ledger, Limits, Node, Proof, Refusal, Replacement},
    replace::{self, Where},
    view::{Progress, View},
};

/// The steps to do now, and why no more.
pub fn decide(facts: &Facts, now: Timestamp) -> Decision {
    let mut steps = Vec::new();
    let machines = facts.replacing.machines.as_deref().unwrap_or_default();
    let successors = replace::succeeded(&facts.ledger, &facts.nodes, machines, &facts.targets());
    let evidence: Vec<Evidence> = facts.evidence.iter().cloned().chain(successors).collect();
    let ledger = release_grants(&facts.ledger, &facts.nodes, &evidence, &mut steps);
    let mut succeeded = replace::successors(facts, &ledger);
    succeeded.extend(steps.iter().filter_map(successor));
    let facts = &*replace::with_successors(facts, &ledger, &succeeded);
    let attempts = attempts(facts, &ledger, &steps);
    let view = View::new(facts, &ledger, &attempts);
    let stop = view.stop(&mut steps, now);
    let hours = facts.hours(now);
    let until = hours.as_ref().ok().copied().flatten();
    let limits = Limits { until, named_tokens: facts.named_tokens.clone(), ..room(&view, view.size(), now) };
    let progress = view.progress(now);
    let closed = hours.err().map(Blocked::Closed);
    let persons_pause = || facts.paused.clone().map(Blocked::Paused);
    let rollback = view.rollback().map(|rollback| (rollback, persons_pause().or_else(|| closed.clone())));
    let held_back = stop.clone().or(closed);
    let gate = Gate { stop, held_back, rollback, unstaged: view.unstaged(now), retry: view.retry(now), progress };

    let mut next = ledger.clone();
    let mut order = Order::new(&limits);
    let mut blocked = Vec::new();
    for (wave, node) in view.nodes_in_order() {
        let Some(mut why) = view.why(wave, node, &gate, &mut steps) else { continue };
        if why == Blocked::Granted {
            let granted = match order.before(node, &limits) {
                Some(after) => Err(after),
                None => grants(&view, node, &limits, &mut next, now).inspect_err(|why| order.stays(node, why)),
            };
            match granted {
                Ok(replaces) => {
                    steps.push(Action::Grant { node: node.clone(), replaces: replaces.map(Box::new) });
                }
                Err(waits) => why = waits,
            }
        }
        blocked.push(BlockedNode { node: node.clone(), why });
    }
    let Gate { retry, progress: Progress { passed, soaks, soaking_since, interruption, .. }, .. } = gate;
    let finished = view.is_over(passed) && !view.is_any_behind(&steps);
    let attempts = view.remembered();
    Decision {
        steps,
        limits,
        blocked,
        passed,
        soaks,
        soaking_since,
        interruption,
        retry,
        attempts,
        succeeded,
        finished,
    }
}

/// The attempts of nodes by now. `kept` is the ledger without the grants that these steps free.
fn attempts(facts: &Facts, kept: &Ledger, steps: &[Action]) -> History {
    let mut attempts = facts.attempts.clone();
    let freed = steps.iter().filter_map(freed_by_word);
    let is_denied = facts.denied.is_some();
    attempts.take(&facts.plan, &facts.ledger, freed, is_denied);
    let ended = facts.nodes.iter().filter_map(|observed| ended_early(observed, facts.plan.payload, is_denied));
    attempts.defer_ended(kept, ended, is_denied);
    attempts
}

/// The limits of the pool for the nodes of `shared`: budget and zones, whatever the time. For these it has all nodes that its
/// labels name: a pool whose nodes are all an older one's would else never let one go. For its own nodes only those
/// count: no label raises a budget.
pub fn limits(facts: &Facts, now: Timestamp) -> Limits {
    let view = View::new(facts, &facts.ledger, &facts.attempts);
    let shared = u32::try_from(facts.shared.len()).unwrap_or(u32::MAX);
    room(&view, view.size().saturating_add(shared), now)
}

fn room(view: &View<'_>, size: u32, now: Timestamp) -> Limits {
    let Facts { rules, shared, younger, .. } = view.facts;
    Limits { shared: shared.clone(), younger: younger.clone(), ..rules.limits(size, view.down(), now, None) }
}

/// The node and the last token that it obeyed, if it says that this attempt ended before the reboot: that to have the payload
/// run, or, once that is denied, to go back from it.
fn ended_early(observed: &ObservedNode, payload: Sha256, is_denied: bool) -> Option<(&str, u64)> {
    let report = observed.report.as_ref().filter(|report| (report.runs == payload) == is_denied && !report.busy)?;
    let is_early = report.failed.as_ref()?.evidence == FailureEvidence::BeforeReboot;
    is_early.then_some((observed.node.uid.as_str(), report.token))
}

/// One more grant, and how its node is replaced, if it is.
fn grants(
    View { facts, machines, .. }: &View<'_>,
    node: &Node,
    limits: &Limits,
    ledger: &mut Ledger,
    now: Timestamp,
) -> Result<Option<Replacement>, Blocked> {
    let replaces = replace::replaces(facts, machines, node, ledger, now)?;
    ledger.give(node, replaces.as_ref(), limits, now).map_err(Blocked::Refused)?;
    Ok(replaces)
}

/// The ledger without free grants, and the actions that make it so. Whether a pool has a rollout makes no difference: a
/// grant that is not needed is not held.
pub fn release_grants(
    ledger: &Ledger,
    nodes: &[ObservedNode],
    evidence: &[Evidence],
    steps: &mut Vec<Action>,
) -> Ledger {
    let held: BTreeSet<&str> = ledger.grants.iter().map(|grant| grant.node.uid.as_str()).collect();
    let holders = nodes.iter().filter(|observed| held.contains(observed.node.uid.as_str()));
    let well = holders.filter(|observed| observed.is_well()).filter_map(|observed| {
        let token = observed.report.as_ref()?.token;
        Some((&observed.node.uid, Proof::Well { token }))
    });
    let evidence = evidence.iter().map(|evidence| (&evidence.uid, evidence.proof.clone()));
    let mut ledger = ledger.clone();
    for (uid, proof) in well.chain(evidence) {
        // A proof that does not free it is no error: the grant stays, and is named.
        if ledger.take(uid, &proof).is_ok() {
            steps.push(Action::Free { uid: uid.clone(), proof });
        }
    }
    ledger
}

/// In the plan's order: no node overtakes one that waits for what it would take.
struct Order<'a> {
    /// The nodes that are ill themselves. They are counted already: that one of them goes takes the place of no node that is
    /// well, and may mend what others wait for.
    ill: BTreeSet<&'a str>,
    /// The first node that stays; among those that are well, and among those that are ill.
    first: [Option<String>; 2],
    /// One that a younger pool has no place for, by that pool. A label that a node has given itself holds back that node, and
    /// others with this label: no other one could go either.
    shared: BTreeMap<String, String>,
}

impl<'a> Order<'a> {
    fn new(limits: &'a Limits) -> Self {
        let ill = limits.down.iter().map(|node| node.uid.as_str()).collect();
        Self { ill, first: [None, None], shared: BTreeMap::new() }
    }

    fn first(&mut self, node: &Node) -> &mut Option<String> {
        let [well, ill] = &mut self.first;
        if self.ill.contains(node.uid.as_str()) { ill } else { well }
    }

    fn before(&mut self, node: &Node, limits: &Limits) -> Option<Blocked> {
        let first = self.first(node).clone();
        let mut there = limits.younger.iter().filter_map(|of| self.shared.get(&of.shared.get(&node.name)?.pool));
        first.or_else(|| there.next().cloned()).map(Blocked::After)
    }

    fn stays(&mut self, node: &Node, why: &Blocked) {
        match why {
            Blocked::Refused(Refusal::Shared { pool, why }) => {
                // Its zone is its own, too.
                if matches!(**why, Refusal::Budget { .. }) {
                    self.shared.entry(pool.clone()).or_insert_with(|| node.name.clone());
                }
            }
            // No other one that goes gives it a zone. Nor has a worker the one place of the control plane, to take or to give;
            // and others of the control plane have their own answer.
            Blocked::Refused(Refusal::NoZone | Refusal::ControlPlane { .. }) => {}
            _ => *self.first(node) = Some(node.name.clone()),
        }
    }
}

/// The obstacles that hold back nodes which are ready themselves.
struct Gate {
    /// Nothing new at all.
    stop: Option<Blocked>,
    /// Nothing begins: that, or the time.
    held_back: Option<Blocked>,
    /// Nodes go back; and why none does now.
    rollback: Option<(RollbackPolicy, Option<Blocked>)>,
    /// A node has not staged yet.
    unstaged: Option<Blocked>,
    /// Which attempts are repeated now.
    retry: Option<Retry>,
    progress: Progress,
}

impl Gate {
    /// What was given up or denied is repeated at no time.
    fn is_over(&self) -> bool {
        matches!(self.stop, Some(Blocked::Aborted(_) | Blocked::Denied(_)))
    }

    /// Why this wave waits for an earlier one.
    fn earlier(&self, wave: Option<usize>) -> Option<Blocked> {
        let is_later = wave.is_some_and(|wave| wave > self.progress.passed);
        self.progress.blocker.clone().filter(|_| is_later)
    }
}

impl View<'_> {
    /// Why this node does not go; `Granted` if nothing but the ledger can hold it back, `None` if it is done.
    fn why(&self, wave: Option<usize>, node: &Node, gate: &Gate, steps: &mut Vec<Action>) -> Option<Blocked> {
        let uid = node.uid.as_str();
        let payload = self.facts.plan.payload;
        let Some(observed) = self.observed.get(uid) else {
            return self.held.get(uid).map(|grant| match &grant.replaces {
                Some(replaces) => self.replaced(grant, replaces, (wave, gate), steps),
                None if self.facts.moved.contains(uid) => Blocked::Moved { token: grant.token },
                None => Blocked::Gone { token: grant.token },
            });
        };
        if let Some(grant) = self.held.get(uid) {
            return Some(self.holds(observed, grant, (wave, gate), steps));
        }
        let Some(report) = &observed.report else { return Some(Blocked::Silent) };
        let highest = self.facts.ledger.highest();
        let ahead = self.token_ahead(report).map(|token| Blocked::TokenAhead { token, highest });
        if report.runs == payload
            && wave.is_some()
            && let Some(rollback) = &gate.rollback
        {
            return ahead.or_else(|| Some(self.returns_now(observed, rollback, gate.retry)));
        }
        if report.runs == payload {
            let why = if report.busy { Blocked::Busy } else { Blocked::NotWell };
            return (!observed.is_well()).then_some(why);
        }
        let Some(wave) = wave else { return Some(Blocked::NotInPlan) };
        if self.facts.is_left_out(uid) {
            return Some(Blocked::Skipped);
        }
        if ahead.is_some() {
            return ahead;
        }
        if let Some(Failure { evidence, why }) = self.failure(node).map(Cow::into_owned) {
            match gate.retry {
                _ if evidence != FailureEvidence::BeforeReboot => return Some(Blocked::Failed(why)),
                _ if gate.is_over() => {}
                Some(Retry { below, from }) if self.last_token(uid, report) >= below => {
                    return Some(Blocked::RetriesLater { from, why });
                }
                _ => {}
            }
        }
        if let Some(stop) = &gate.stop {
            return Some(stop.clone());
        }
        if report.busy {
            return Some(Blocked::Busy);
        }
        if self.facts.replacing.wanted {
            if let Some(refused) = replace::replacement_blocked(self.facts, &self.machines, node) {
                return Some(refused);
            }
        } else if report.staged != Some(payload) {
            steps.push(Action::Stage { uid: uid.to_owned(), payload });
            return Some(Blocked::Staging);
        }
        let why = gate.unstaged.clone().or_else(|| gate.earlier(Some(wave)));
        Some(why.or_else(|| self.skew(report)).or_else(|| self.held_back(Some(wave), gate)).unwrap_or(Blocked::Granted))
    }

    /// Why a node that runs the payload does not go back now. One whose grant a person has freed, or that a budget keeps, would
    /// have the place of others again and again.
    fn returns_now(
        &self,
        observed: &ObservedNode,
        rollback: &(RollbackPolicy, Option<Blocked>),
        retry: Option<Retry>,
    ) -> Blocked {
        let why = self.returns(observed, rollback);
        let retry = retry.filter(|_| why == Blocked::Granted && self.has_not_returned(&observed.node));
        match retry.zip(observed.report.as_ref()) {
            Some((Retry { below, from }, report)) if self.last_token(&observed.node.uid, report) >= below => {
                let kept = observed.kept(self.facts.plan.payload).map(str::to_owned);
                Blocked::ReturnsLater { from, kept }
            }
            _ => why,
        }
    }

    /// Why nothing begins in this wave: for a reason of the whole rollout, or because a person has not approved it.
    fn held_back(&self, wave: Option<usize>, gate: &Gate) -> Option<Blocked> {
        gate.stop.clone().or_else(|| wave.and_then(|wave| self.unapproved(wave))).or_else(|| gate.held_back.clone())
    }

    /// Why a node that holds a grant is not done; it is asked to begin, if it was not yet.
    fn holds(
        &self,
        observed: &ObservedNode,
        grant: &Grant,
        (wave, gate): (Option<usize>, &Gate),
        steps: &mut Vec<Action>,
    ) -> Blocked {
        let token = grant.token;
        if let Some(replaces) = &grant.replaces {
            return self.replaced(grant, replaces, (wave, gate), steps);
        }
        let Some(report) = &observed.report else { return Blocked::SilentHolder { token } };
        if report.token > token {
            return Blocked::Overtaken { token, obeyed: report.token };
        }
        let is_aborted = self.facts.aborted.is_some();
        let is_of_this_pool = grant.node.pool == self.facts.plan.pool;
        if report.token == token && is_aborted && is_of_this_pool && report.busy {
            steps.push(Action::Abort { uid: observed.node.uid.clone(), token });
            return Blocked::Aborts { token };
        }
        if report.token == token {
            return Blocked::UnderWay { token };
        }
        if is_aborted {
            return Blocked::AbortedHolder { token };
        }
        // Its grant gives it neither room nor a turn in this pool, nor the payload of it.
        if !is_of_this_pool {
            return Blocked::ForeignGrant { token, pool: grant.node.pool.clone() };
        }
        if report.runs == self.facts.plan.payload
            && let Some(rollback) = &gate.rollback
        {
            let why = self.returns(observed, rollback);
            if why != Blocked::Granted {
                return why;
            }
            steps.push(Action::Return { uid: observed.node.uid.clone(), token });
            return Blocked::Returns { token };
        }
        // It stays charged: a request may be on its way.
        if self.facts.is_left_out(&observed.node.uid) {
            return Blocked::Skipped;
        }
        // Its grant is of a rollout that is gone: in this one others may be the canaries.
        let held_back = self.held_back(wave, gate).or_else(|| gate.earlier(wave));
        if let Some(why) = held_back.or_else(|| self.skew(report)) {
            return why;
        }
        let (uid, payload) = (observed.node.uid.clone(), self.facts.plan.payload);
        steps.push(Action::Begin { uid, token, payload });
        Blocked::Begins { token }
    }

    /// Why a node that holds a grant to be replaced is not done; its machine is deleted, if it was not yet.
    fn replaced(
        &self,
        grant: &Grant,
        replaces: &Replacement,
        (wave, gate): (Option<usize>, &Gate),
        steps: &mut Vec<Action>,
    ) -> Blocked {
        let (uid, token) = (grant.node.uid.clone(), grant.token);
        if let Where::Waits(why) = replace::replacement_state(self.facts, grant, replaces, &self.successor_machines) {
            return why;
        }
        // As long as it is unknown that it goes, a request may be on its way: it stays charged.
        if self.facts.aborted.is_some() {
            return Blocked::AbortedHolder { token };
        }
        if let Some(why) = replace::is_outdated(self.facts, grant, replaces) {
            return why;
        }
        if self.facts.is_left_out(&uid) {
            return Blocked::Skipped;
        }
        let held_back = self.held_back(wave, gate).or_else(|| gate.earlier(wave));
        let blocked = || replace::replacement_blocked(self.facts, &self.machines, &grant.node);
        if let Some(why) = held_back.or_else(blocked) {
            return why;
        }
        steps.push(Action::Delete { uid, token, machine: replaces.machine.clone() });
        Blocked::Deletes { token, machine: replaces.name.clone() }
    }
}
