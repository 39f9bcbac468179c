//! From what is seen to what is to be done. One function of snapshot and time: [`decide`].
//!
//! * **Frees come first**, also while the rollout is paused: a grant that is not needed is not held.
//! * **Then staging**, of all nodes that answer, at any time: it disturbs nobody. Nobody goes before all of them have it.
//! * **Then grants**, wave by wave, in the plan's order and no other: one that cannot go now is waited for. Not waited for
//!   are nodes that do not answer, failed, or are left out.
//! * A grant is only a proposal. The controller applies [`Ledger::grant`] with the limits of this decision to the object
//!   that it writes, at the time of the write. Window and budget are looked at again there.
//! * A node that holds a grant is asked to begin until it obeys, but only while windows are open: a message that was lost
//!   is no reason to begin in the morning. Nor is it asked while it is left out.
//! * **Too many failures, or one among the canaries**: the payload is denied and the rollout is paused. Nothing new
//!   begins. What has begun goes on to its end.
//! * **What was finished is denied no more**: who leaves the payload later was made to by people. Too many failures still
//!   hold back what is new.
//! * **Somebody may have it go now**: until a time that they name, windows and blackouts hold nobody back, and the soak of
//!   one wave is passed over. Whatever else holds, holds as ever: budgets, rates, zones, order, and what failed.
//! * **Given up**: nothing new begins, ever, and nodes that are at it are asked to go back. That is no failure of the
//!   payload: nothing is denied. A node with a grant that did not begin keeps it: a request may be on its way.
//! * **The way back**, where people want it: once the denial is written, nodes of the plan that run the payload are granted
//!   in the plan's order, and asked to have the system of their other slot run again. That is held to the same ledger,
//!   windows and budgets; waves and soaks are over, and nothing is staged. A node is asked once. A person's pause holds it
//!   back, and the pause that came with the denial does not.
//! * **Nodes that are replaced** are not asked: their machine is deleted, while windows are open, and others succeed them.
//! * Every node that is not done has a reason, and no node that is done has one.
//!
//! A canary is bad if it fails, or if it runs the payload, holds no grant any more, and is ill before its soak is over. A
//! wave that is over stays so: `passed` comes back with the next snapshot. If it is lost, waves are waited for again.
//! A node whose Node object is gone, or that is left out, is not waited for; but somebody must have tried the payload
//! before a wave of canaries is over.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

pub use crate::step::{BlockedNode, Decision, Step, successor};
use crate::{
    blocked::Blocked,
    facts::{Evidence, Facts, ObservedNode, RollbackPolicy, RollbackState},
    ledger::{Grant, Ledger, Limits, Node, Proof, Replacement, Role},
    replace::{self, ByNode, SuccessorMachines, Where},
};

/// What is to be done now, and why not more.
pub fn decide(facts: &Facts, now: Timestamp) -> Decision {
    let mut steps = Vec::new();
    let machines = facts.replacing.machines.as_deref().unwrap_or_default();
    let successors = replace::succeeded(&facts.ledger, &facts.nodes, machines, &facts.targets());
    let evidence: Vec<Evidence> = facts.evidence.iter().cloned().chain(successors).collect();
    let ledger = release_grants(&facts.ledger, &facts.nodes, &evidence, &mut steps);
    let mut succeeded = replace::successors(facts, &ledger);
    succeeded.extend(steps.iter().filter_map(successor));
    let facts = &*replace::with_successors(facts, &ledger, &succeeded);
    let view = View::new(facts, &ledger);
    let stop = view.stop(&mut steps);
    let hours = facts.hours(now);
    let until = hours.as_ref().ok().copied().flatten();
    let limits = facts.rules.limits(view.size(), view.down(), now, until);
    let progress = view.progress(now);
    let closed = hours.err().map(Blocked::Closed);
    let rollback = view.rollback().map(|rollback| (rollback, view.persons_pause().or_else(|| closed.clone())));
    let held_back = stop.clone().or(closed);
    let gate = Gate { stop, held_back, rollback, unstaged: view.unstaged(), progress };

    let mut next = ledger.clone();
    let mut first: Option<String> = None;
    let mut blocked = Vec::new();
    for (wave, node) in view.nodes_in_order() {
        let Some(mut why) = view.why(wave, node, &gate, &mut steps) else { continue };
        if why == Blocked::Granted {
            // In the plan's order: nobody overtakes.
            let granted = match first.clone().map(Blocked::After) {
                Some(after) => Err(after),
                None => grants(&view, node, &limits, &mut next, now).inspect_err(|_| first = Some(node.name.clone())),
            };
            match granted {
                Ok(replaces) => {
                    steps.push(Step::Grant { node: node.clone(), replaces: replaces.map(Box::new) });
                }
                Err(waits) => why = waits,
            }
        }
        blocked.push(BlockedNode { node: node.clone(), why });
    }
    let Progress { passed, soaks, .. } = gate.progress;
    let finished = view.is_over(passed) && !view.is_anybody_behind(&steps);
    Decision { steps, limits, blocked, passed, soaks, succeeded, finished }
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

/// The ledger without what is free, and the actions that make it so. Whether a pool has a rollout makes no difference: a
/// grant that is not needed is not held.
pub fn release_grants(ledger: &Ledger, nodes: &[ObservedNode], evidence: &[Evidence], steps: &mut Vec<Step>) -> Ledger {
    let held: BTreeSet<&str> = ledger.grants.iter().map(|grant| grant.node.uid.as_str()).collect();
    let holders = nodes.iter().filter(|observed| held.contains(observed.node.uid.as_str()));
    let well = holders.filter(|observed| observed.is_well()).filter_map(|observed| {
        let token = observed.report.as_ref()?.token;
        Some((&observed.node.uid, Proof::Well { token }))
    });
    let evidence = evidence.iter().map(|evidence| (&evidence.uid, evidence.proof.clone()));
    let mut ledger = ledger.clone();
    for (uid, proof) in well.chain(evidence) {
        // What does not free it is no error: the grant stays, and is named.
        if ledger.take(uid, &proof).is_ok() {
            steps.push(Step::Free { uid: uid.clone(), proof });
        }
    }
    ledger
}

/// What holds nodes back that are not held back by themselves.
struct Gate {
    /// Nothing new at all.
    stop: Option<Blocked>,
    /// Nothing begins: that, or the time.
    held_back: Option<Blocked>,
    /// Nodes go back; and why none does now.
    rollback: Option<(RollbackPolicy, Option<Blocked>)>,
    /// Somebody has not staged yet.
    unstaged: Option<Blocked>,
    progress: Progress,
}

/// How far the waves came.
struct Progress {
    passed: usize,
    soaks: Option<Timestamp>,
    /// Why the waves after this one wait.
    blocker: Option<Blocked>,
}

/// What is seen, by UID.
struct View<'a> {
    facts: &'a Facts,
    observed: BTreeMap<&'a str, &'a ObservedNode>,
    held: BTreeMap<&'a str, &'a Grant>,
    successor_machines: SuccessorMachines<'a>,
    machines: ByNode<'a>,
}

impl<'a> View<'a> {
    fn new(facts: &'a Facts, ledger: &'a Ledger) -> Self {
        let observed = facts.nodes.iter().map(|observed| (observed.node.uid.as_str(), observed)).collect();
        let held = ledger.grants.iter().map(|grant| (grant.node.uid.as_str(), grant)).collect();
        let machines = facts.replacing.machines.as_deref().unwrap_or_default();
        let successor_machines = replace::successor_machines(ledger, &facts.nodes, machines, &facts.targets());
        Self { facts, observed, held, successor_machines, machines: replace::machines_by_node(facts) }
    }

    /// How many nodes there are; one that is replaced and who succeeds it are one.
    fn size(&self) -> u32 {
        let gone = self.held.values().filter(|of| of.replaces.is_some() && of.node.pool == self.facts.plan.pool);
        let gone = gone.filter(|of| !self.observed.contains_key(of.node.uid.as_str())).count();
        let there = self.facts.nodes.iter().filter(|observed| !self.succeeds(observed)).count();
        u32::try_from(there + gone).unwrap_or(u32::MAX)
    }

    /// The grant of another node of this pool stands for it.
    fn succeeds(&self, observed: &ObservedNode) -> bool {
        let pool = &self.facts.plan.pool;
        let charged = self.held.values().filter(|grant| grant.node.pool == *pool);
        let mut successor_machines = charged.filter_map(|grant| self.successor_machines.get(&grant.token));
        successor_machines.any(|successor| successor.node.as_ref() == Some(&observed.node.uid))
    }

    /// Nodes that are not well.
    fn down(&self) -> Vec<Node> {
        let ill = self.facts.nodes.iter().filter(|observed| !observed.is_well() && !self.succeeds(observed));
        let ill = ill.map(|observed| &observed.node);
        ill.chain(&self.facts.elsewhere)
            .cloned()
            .chain(replace::pending(self.facts, &self.successor_machines))
            .collect()
    }

    /// Why this node failed, if it counts.
    fn failure(&self, node: &Node) -> Option<&'a str> {
        let is_skipped = self.facts.skip.contains(&node.uid);
        let observed = self
            .observed
            .get(node.uid.as_str())
            .filter(|observed| !is_skipped && !observed.runs(self.facts.plan.payload))?;
        observed.failure()
    }

    /// Why nothing new begins; and what is done about it, if it is new.
    fn stop(&self, steps: &mut Vec<Step>) -> Option<Blocked> {
        let facts = self.facts;
        if let Some(why) = &facts.aborted {
            // Who comes back because it was asked to is no failure of the payload.
            let denied = facts.denied.clone().map(Blocked::Denied);
            return denied.or_else(|| Some(Blocked::Aborted(why.clone())));
        }
        if let Some(why) = self.denial() {
            if facts.finished && facts.denied.is_none() {
                let held = || format!("it was finished, and by now {why}");
                return Some(Blocked::Paused(facts.paused.clone().unwrap_or_else(held)));
            }
            let why = facts.denied.clone().unwrap_or(why);
            if facts.denied.is_none() {
                steps.push(Step::Deny { payload: facts.plan.payload, why: why.clone() });
            }
            if facts.paused.is_none() {
                steps.push(Step::Pause { why: why.clone() });
            }
            return Some(Blocked::Denied(why));
        }
        if !facts.plan.is_whole() {
            return Some(Blocked::PlanChanged);
        }
        let denied = facts.denied.clone().map(Blocked::Denied);
        denied.or_else(|| facts.paused.clone().map(Blocked::Paused))
    }

    /// Whether nodes go back: the payload is denied, by a write that everybody sees.
    fn rollback(&self) -> Option<RollbackPolicy> {
        let Facts { rollback, denied, aborted, plan, .. } = self.facts;
        rollback.filter(|_| denied.is_some() && aborted.is_none() && plan.is_whole())
    }

    /// Somebody is to go back, now or once the denial is written.
    fn is_anybody_behind(&self, steps: &[Step]) -> bool {
        let Facts { rollback, denied, aborted, plan, .. } = self.facts;
        let is_denied = denied.is_some() || steps.iter().any(|step| matches!(step, Step::Deny { .. }));
        let Some(rollback) = rollback.filter(|_| is_denied && aborted.is_none() && plan.is_whole()) else {
            return false;
        };
        let planned = plan.nodes().filter_map(|(_, node)| self.observed.get(node.uid.as_str()));
        let mut on_it = planned.filter(|observed| observed.runs(plan.payload));
        on_it.any(|observed| !matches!(self.returns(observed, &(rollback, None)), Blocked::Stays(_) | Blocked::Skipped))
    }

    /// A person's pause. The one that came with the denial says what that says.
    fn persons_pause(&self) -> Option<Blocked> {
        let Facts { paused, denied, .. } = self.facts;
        paused.clone().filter(|_| paused != denied).map(Blocked::Paused)
    }

    /// Why a node that runs the payload does not go back; `Granted` if nothing but the ledger can hold it back.
    fn returns(&self, observed: &ObservedNode, (rollback, held_back): &(RollbackPolicy, Option<Blocked>)) -> Blocked {
        let report = observed.report.as_ref();
        if self.facts.skip.contains(&observed.node.uid) {
            return Blocked::Skipped;
        }
        if report.is_some_and(|report| report.busy) {
            return Blocked::Busy;
        }
        let stays = |why: &str| Blocked::Stays(why.to_owned());
        if observed.node.role == Role::ControlPlane && !rollback.control_plane {
            return stays("it is of the control plane, and nobody asked that this goes back");
        }
        match report.map(|report| &report.rollback) {
            Some(RollbackState::Available) => held_back.clone().unwrap_or(Blocked::Granted),
            Some(RollbackState::Failed(why)) => stays(&format!("it was asked to go back, and did not: {why}")),
            Some(RollbackState::Denied(why)) => {
                stays(&format!("its other slot holds a payload that was denied, too: {why}"))
            }
            Some(RollbackState::Unavailable) | None => stays("its other slot holds no system that was ever confirmed"),
        }
    }

    /// Why the payload is to be denied.
    fn denial(&self) -> Option<String> {
        let plan = &self.facts.plan;
        let mut failed = Vec::new();
        for (wave, node) in plan.nodes() {
            let soaks = plan.waves.get(wave).is_some_and(|wave| wave.soak.is_some());
            if let Some(why) = self.failure(node) {
                if soaks {
                    return Some(format!("the canary {} failed: {why}", node.name));
                }
                failed.push(format!("{}: {why}", node.name));
            }
            if soaks && wave >= self.facts.passed && self.is_ill_with_it(node) {
                return Some(format!("the canary {} runs it, and is not well", node.name));
            }
        }
        let total = u32::try_from(plan.nodes().count()).unwrap_or(u32::MAX);
        let budget = self.facts.rules.failures(total);
        let is_over = failed.len() as u64 >= u64::from(budget);
        is_over.then(|| {
            format!("{} of {total} nodes failed, and {budget} are enough; {}", failed.len(), failed.join("; "))
        })
    }

    /// It was upgraded, was well, and is so no more.
    fn is_ill_with_it(&self, node: &Node) -> bool {
        let report = self.observed.get(node.uid.as_str()).and_then(|observed| observed.report.as_ref());
        let is_ill =
            report.is_some_and(|report| report.runs == self.facts.plan.payload && !report.well && !report.busy);
        is_ill && !self.held.contains_key(node.uid.as_str()) && !self.facts.skip.contains(&node.uid)
    }

    /// It runs the payload, is well, and holds nothing.
    fn is_done(&self, uid: &str) -> bool {
        let is_done = |observed: &&ObservedNode| observed.runs(self.facts.plan.payload) && observed.is_well();
        !self.held.contains_key(uid) && self.observed.get(uid).is_some_and(is_done)
    }

    /// Nothing more is expected of it.
    fn is_settled(&self, node: &Node) -> bool {
        let uid = node.uid.as_str();
        let is_out = !self.observed.contains_key(uid) || self.facts.skip.contains(uid) || self.failure(node).is_some();
        !self.held.contains_key(uid) && (is_out || self.is_done(uid))
    }

    fn progress(&self, now: Timestamp) -> Progress {
        let waves = &self.facts.plan.waves;
        let mut passed = self.facts.passed.min(waves.len());
        while let Some(wave) = waves.get(passed) {
            let number = passed + 1;
            let stay = |blocker, soaks| Progress { passed, soaks, blocker: Some(blocker) };
            if let Some(node) = wave.nodes.iter().find(|node| !self.is_settled(node)) {
                return stay(Blocked::Wave { wave: number, first: node.name.clone() }, None);
            }
            if let Some(soak) = wave.soak {
                let done = wave.nodes.iter().filter(|node| self.is_done(&node.uid));
                let since =
                    done.filter_map(|node| Some(self.observed.get(node.uid.as_str())?.report.as_ref()?.since)).max();
                let Some(since) = since else { return stay(Blocked::NoCanary { wave: number }, None) };
                let until = soak.after(since);
                let is_passed_over =
                    self.facts.window_override(now).is_some_and(|window_override| window_override.soak == Some(passed));
                if now < until && !is_passed_over {
                    return stay(Blocked::Soak { wave: number, until }, Some(until));
                }
            }
            passed += 1;
        }
        Progress { passed, soaks: None, blocker: None }
    }

    /// All waves are over, and nothing of the plan is open any more.
    fn is_over(&self, passed: usize) -> bool {
        let plan = &self.facts.plan;
        let is_replacing = |grant: &&Grant| grant.node.pool == plan.pool && grant.replaces.is_some();
        !self.held.values().any(is_replacing)
            && passed == plan.waves.len()
            && plan.is_whole()
            && plan.nodes().all(|(_, node)| self.is_settled(node))
    }

    /// The node answers, is to have the payload, and has it in no slot.
    fn lacks(&self, node: &Node) -> bool {
        let uid = node.uid.as_str();
        let report = self.observed.get(uid).and_then(|observed| observed.report.as_ref());
        let payload = self.facts.plan.payload;
        let lacks = report.is_some_and(|report| report.runs != payload && report.staged != Some(payload));
        !self.facts.replacing.wanted
            && lacks
            && !self.held.contains_key(uid)
            && !self.facts.skip.contains(uid)
            && self.failure(node).is_none()
    }

    fn unstaged(&self) -> Option<Blocked> {
        let mut lacking = self.facts.plan.nodes().map(|(_, node)| node).filter(|node| self.lacks(node));
        let first = lacking.next()?.name.clone();
        Some(Blocked::AllStaged { left: lacking.count() + 1, first })
    }

    /// Each node with its wave, in the plan's order, as it is seen now; then those that are not in the plan; then those
    /// that are gone and still hold a grant in this pool.
    fn nodes_in_order(&self) -> Vec<(Option<usize>, &'a Node)> {
        let plan = &self.facts.plan;
        let waves: BTreeMap<&str, usize> = plan.nodes().map(|(wave, node)| (node.uid.as_str(), wave)).collect();
        let planned =
            plan.nodes().filter_map(|(wave, node)| Some((Some(wave), &self.observed.get(node.uid.as_str())?.node)));
        let strangers = self.facts.nodes.iter().map(|observed| &observed.node);
        let strangers = strangers.filter(|node| !waves.contains_key(node.uid.as_str())).map(|node| (None, node));
        let gone = self.held.values().map(|grant| &grant.node).filter(|node| node.pool == plan.pool);
        let gone = gone.filter(|node| !self.observed.contains_key(node.uid.as_str())).map(|node| (None, node));
        planned.chain(strangers).chain(gone).collect()
    }

    /// Why this node does not go; `Granted` if nothing but the ledger can hold it back, `None` if it is done.
    fn why(&self, wave: Option<usize>, node: &Node, gate: &Gate, steps: &mut Vec<Step>) -> Option<Blocked> {
        let uid = node.uid.as_str();
        let payload = self.facts.plan.payload;
        let Some(observed) = self.observed.get(uid) else {
            return self.held.get(uid).map(|grant| match &grant.replaces {
                Some(replaces) => self.replaced(grant, replaces, gate, steps),
                None => Blocked::Gone { token: grant.token },
            });
        };
        if let Some(grant) = self.held.get(uid) {
            return Some(self.holds(observed, grant, gate, steps));
        }
        let Some(report) = &observed.report else { return Some(Blocked::Silent) };
        if report.runs == payload
            && wave.is_some()
            && let Some(rollback) = &gate.rollback
        {
            return Some(self.returns(observed, rollback));
        }
        if report.runs == payload {
            let why = if report.busy { Blocked::Busy } else { Blocked::NotWell };
            return (!observed.is_well()).then_some(why);
        }
        let Some(wave) = wave else { return Some(Blocked::NotInPlan) };
        if self.facts.skip.contains(uid) {
            return Some(Blocked::Skipped);
        }
        if let Some(why) = &report.failed {
            return Some(Blocked::Failed(why.clone()));
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
            steps.push(Step::Stage { uid: uid.to_owned(), payload });
            return Some(Blocked::Staging);
        }
        let is_later = wave > gate.progress.passed;
        let blocker = gate.progress.blocker.as_ref().filter(|_| is_later);
        let why = gate.unstaged.as_ref().or(blocker).or(gate.held_back.as_ref());
        Some(why.cloned().unwrap_or(Blocked::Granted))
    }

    /// Why a node that holds a grant is not done; it is asked to begin, if it was not yet.
    fn holds(&self, observed: &ObservedNode, grant: &Grant, gate: &Gate, steps: &mut Vec<Step>) -> Blocked {
        let token = grant.token;
        if let Some(replaces) = &grant.replaces {
            return self.replaced(grant, replaces, gate, steps);
        }
        let Some(report) = &observed.report else { return Blocked::SilentHolder { token } };
        if report.token > token {
            return Blocked::Overtaken { token, obeyed: report.token };
        }
        let is_aborted = self.facts.aborted.is_some();
        if report.token == token && is_aborted && report.busy {
            steps.push(Step::Abort { uid: observed.node.uid.clone(), token });
            return Blocked::Aborts { token };
        }
        if report.token == token {
            return Blocked::UnderWay { token };
        }
        if is_aborted {
            return Blocked::AbortedHolder { token };
        }
        if report.runs == self.facts.plan.payload
            && let Some(rollback) = &gate.rollback
        {
            let why = self.returns(observed, rollback);
            if why != Blocked::Granted {
                return why;
            }
            steps.push(Step::Return { uid: observed.node.uid.clone(), token });
            return Blocked::Returns { token };
        }
        // It stays charged: a request may be on its way.
        if self.facts.skip.contains(&observed.node.uid) {
            return Blocked::Skipped;
        }
        if let Some(why) = &gate.held_back {
            return why.clone();
        }
        let (uid, payload) = (observed.node.uid.clone(), self.facts.plan.payload);
        steps.push(Step::Begin { uid, token, payload });
        Blocked::Begins { token }
    }

    /// Why a node that holds a grant to be replaced is not done; its machine is deleted, if it was not yet.
    fn replaced(&self, grant: &Grant, replaces: &Replacement, gate: &Gate, steps: &mut Vec<Step>) -> Blocked {
        let (uid, token) = (grant.node.uid.clone(), grant.token);
        if let Where::Waits(why) = replace::replacement_state(self.facts, grant, replaces, &self.successor_machines) {
            return why;
        }
        // As long as nobody knows that it goes, a request may be on its way: it stays charged.
        if self.facts.aborted.is_some() {
            return Blocked::AbortedHolder { token };
        }
        if let Some(why) = replace::is_outdated(self.facts, grant, replaces) {
            return why;
        }
        if self.facts.skip.contains(&uid) {
            return Blocked::Skipped;
        }
        if let Some(why) =
            gate.held_back.clone().or_else(|| replace::replacement_blocked(self.facts, &self.machines, &grant.node))
        {
            return why;
        }
        steps.push(Step::Delete { uid, token, machine: replaces.machine.clone() });
        Blocked::Deletes { token, machine: replaces.name.clone() }
    }
}
