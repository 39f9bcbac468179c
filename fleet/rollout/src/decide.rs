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

pub use crate::action::{Action, Decision, Waiting, successor};
use crate::{
    facts::{Back, Evidence, Seen, Snapshot, Way},
    ledger::{Grant, Ledger, Limits, Node, Proof, Replaces, Role},
    replace::{self, ByNode, Heirs, Where},
    why::WhyNot,
};

/// What is to be done now, and why not more.
pub fn decide(snapshot: &Snapshot, now: Timestamp) -> Decision {
    let mut actions = Vec::new();
    let machines = snapshot.replacing.machines.as_deref().unwrap_or_default();
    let successors = replace::succeeded(&snapshot.ledger, &snapshot.nodes, machines, &snapshot.targets());
    let evidence: Vec<Evidence> = snapshot.evidence.iter().cloned().chain(successors).collect();
    let ledger = frees(&snapshot.ledger, &snapshot.nodes, &evidence, &mut actions);
    let mut succeeded = replace::successors(snapshot, &ledger);
    succeeded.extend(actions.iter().filter_map(successor));
    let snapshot = &*replace::with_successors(snapshot, &ledger, &succeeded);
    let view = View::new(snapshot, &ledger);
    let stop = view.stop(&mut actions);
    let hours = snapshot.hours(now);
    let until = hours.as_ref().ok().copied().flatten();
    let limits = snapshot.rules.limits(view.size(), view.down(), now, until);
    let progress = view.progress(now);
    let closed = hours.err().map(WhyNot::Closed);
    let back = view.back().map(|back| (back, view.persons_pause().or_else(|| closed.clone())));
    let held_back = stop.clone().or(closed);
    let gate = Gate { stop, held_back, back, unstaged: view.unstaged(), progress };

    let mut next = ledger.clone();
    let mut first: Option<String> = None;
    let mut waiting = Vec::new();
    for (wave, node) in view.everybody() {
        let Some(mut why) = view.why(wave, node, &gate, &mut actions) else { continue };
        if why == WhyNot::Granted {
            // In the plan's order: nobody overtakes.
            let granted = match first.clone().map(WhyNot::After) {
                Some(after) => Err(after),
                None => grants(&view, node, &limits, &mut next, now).inspect_err(|_| first = Some(node.name.clone())),
            };
            match granted {
                Ok(replaces) => {
                    actions.push(Action::Grant { node: node.clone(), replaces: replaces.map(Box::new) });
                }
                Err(waits) => why = waits,
            }
        }
        waiting.push(Waiting { node: node.clone(), why });
    }
    let Progress { passed, soaks, .. } = gate.progress;
    let finished = view.is_over(passed) && !view.is_anybody_behind(&actions);
    Decision { actions, limits, waiting, passed, soaks, succeeded, finished }
}

/// One more grant, and how its node is replaced, if it is.
fn grants(
    View { snapshot, machines, .. }: &View<'_>,
    node: &Node,
    limits: &Limits,
    ledger: &mut Ledger,
    now: Timestamp,
) -> Result<Option<Replaces>, WhyNot> {
    let replaces = replace::replaces(snapshot, machines, node, ledger, now)?;
    ledger.give(node, replaces.as_ref(), limits, now).map_err(WhyNot::Refused)?;
    Ok(replaces)
}

/// The ledger without what is free, and the actions that make it so. Whether a pool has a rollout makes no difference: a
/// grant that is not needed is not held.
pub fn frees(ledger: &Ledger, nodes: &[Seen], evidence: &[Evidence], actions: &mut Vec<Action>) -> Ledger {
    let held: BTreeSet<&str> = ledger.grants.iter().map(|grant| grant.node.uid.as_str()).collect();
    let holders = nodes.iter().filter(|seen| held.contains(seen.node.uid.as_str()));
    let well = holders.filter(|seen| seen.is_well()).filter_map(|seen| {
        let token = seen.says.as_ref()?.token;
        Some((&seen.node.uid, Proof::Well { token }))
    });
    let evidence = evidence.iter().map(|evidence| (&evidence.uid, evidence.proof.clone()));
    let mut ledger = ledger.clone();
    for (uid, proof) in well.chain(evidence) {
        // What does not free it is no error: the grant stays, and is named.
        if ledger.take(uid, &proof).is_ok() {
            actions.push(Action::Free { uid: uid.clone(), proof });
        }
    }
    ledger
}

/// What holds nodes back that are not held back by themselves.
struct Gate {
    /// Nothing new at all.
    stop: Option<WhyNot>,
    /// Nothing begins: that, or the time.
    held_back: Option<WhyNot>,
    /// Nodes go back; and why none does now.
    back: Option<(Back, Option<WhyNot>)>,
    /// Somebody has not staged yet.
    unstaged: Option<WhyNot>,
    progress: Progress,
}

/// How far the waves came.
struct Progress {
    passed: usize,
    soaks: Option<Timestamp>,
    /// Why the waves after this one wait.
    blocker: Option<WhyNot>,
}

/// What is seen, by UID.
struct View<'a> {
    snapshot: &'a Snapshot,
    seen: BTreeMap<&'a str, &'a Seen>,
    held: BTreeMap<&'a str, &'a Grant>,
    heirs: Heirs<'a>,
    machines: ByNode<'a>,
}

impl<'a> View<'a> {
    fn new(snapshot: &'a Snapshot, ledger: &'a Ledger) -> Self {
        let seen = snapshot.nodes.iter().map(|seen| (seen.node.uid.as_str(), seen)).collect();
        let held = ledger.grants.iter().map(|grant| (grant.node.uid.as_str(), grant)).collect();
        let machines = snapshot.replacing.machines.as_deref().unwrap_or_default();
        let heirs = replace::heirs(ledger, &snapshot.nodes, machines, &snapshot.targets());
        Self { snapshot, seen, held, heirs, machines: replace::by_node(snapshot) }
    }

    /// How many nodes there are; one that is replaced and who succeeds it are one.
    fn size(&self) -> u32 {
        let gone = self.held.values().filter(|of| of.replaces.is_some() && of.node.pool == self.snapshot.plan.pool);
        let gone = gone.filter(|of| !self.seen.contains_key(of.node.uid.as_str())).count();
        let there = self.snapshot.nodes.iter().filter(|seen| !self.succeeds(seen)).count();
        u32::try_from(there + gone).unwrap_or(u32::MAX)
    }

    /// The grant of another node of this pool stands for it.
    fn succeeds(&self, seen: &Seen) -> bool {
        let pool = &self.snapshot.plan.pool;
        let charged = self.held.values().filter(|grant| grant.node.pool == *pool);
        let mut heirs = charged.filter_map(|grant| self.heirs.get(&grant.token));
        heirs.any(|heir| heir.node.as_ref() == Some(&seen.node.uid))
    }

    /// Nodes that are not well.
    fn down(&self) -> Vec<Node> {
        let ill = self.snapshot.nodes.iter().filter(|seen| !seen.is_well() && !self.succeeds(seen));
        let ill = ill.map(|seen| &seen.node);
        ill.chain(&self.snapshot.elsewhere).cloned().chain(replace::pending(self.snapshot, &self.heirs)).collect()
    }

    /// Why this node failed, if it counts.
    fn failure(&self, node: &Node) -> Option<&'a str> {
        let is_skipped = self.snapshot.skip.contains(&node.uid);
        let seen =
            self.seen.get(node.uid.as_str()).filter(|seen| !is_skipped && !seen.runs(self.snapshot.plan.payload))?;
        seen.failure()
    }

    /// Why nothing new begins; and what is done about it, if it is new.
    fn stop(&self, actions: &mut Vec<Action>) -> Option<WhyNot> {
        let snapshot = self.snapshot;
        if let Some(why) = &snapshot.aborted {
            // Who comes back because it was asked to is no failure of the payload.
            let denied = snapshot.denied.clone().map(WhyNot::Denied);
            return denied.or_else(|| Some(WhyNot::Aborted(why.clone())));
        }
        if let Some(why) = self.verdict() {
            if snapshot.finished && snapshot.denied.is_none() {
                let held = || format!("it was finished, and by now {why}");
                return Some(WhyNot::Paused(snapshot.paused.clone().unwrap_or_else(held)));
            }
            let why = snapshot.denied.clone().unwrap_or(why);
            if snapshot.denied.is_none() {
                actions.push(Action::Deny { payload: snapshot.plan.payload, why: why.clone() });
            }
            if snapshot.paused.is_none() {
                actions.push(Action::Pause { why: why.clone() });
            }
            return Some(WhyNot::Denied(why));
        }
        if !snapshot.plan.is_whole() {
            return Some(WhyNot::PlanChanged);
        }
        let denied = snapshot.denied.clone().map(WhyNot::Denied);
        denied.or_else(|| snapshot.paused.clone().map(WhyNot::Paused))
    }

    /// Whether nodes go back: the payload is denied, by a write that everybody sees.
    fn back(&self) -> Option<Back> {
        let Snapshot { back, denied, aborted, plan, .. } = self.snapshot;
        back.filter(|_| denied.is_some() && aborted.is_none() && plan.is_whole())
    }

    /// Somebody is to go back, now or once the denial is written.
    fn is_anybody_behind(&self, actions: &[Action]) -> bool {
        let Snapshot { back, denied, aborted, plan, .. } = self.snapshot;
        let is_denied = denied.is_some() || actions.iter().any(|action| matches!(action, Action::Deny { .. }));
        let Some(back) = back.filter(|_| is_denied && aborted.is_none() && plan.is_whole()) else { return false };
        let planned = plan.nodes().filter_map(|(_, node)| self.seen.get(node.uid.as_str()));
        let mut on_it = planned.filter(|seen| seen.runs(plan.payload));
        on_it.any(|seen| !matches!(self.returns(seen, &(back, None)), WhyNot::Stays(_) | WhyNot::Skipped))
    }

    /// A person's pause. The one that came with the denial says what that says.
    fn persons_pause(&self) -> Option<WhyNot> {
        let Snapshot { paused, denied, .. } = self.snapshot;
        paused.clone().filter(|_| paused != denied).map(WhyNot::Paused)
    }

    /// Why a node that runs the payload does not go back; `Granted` if nothing but the ledger can hold it back.
    fn returns(&self, seen: &Seen, (back, held_back): &(Back, Option<WhyNot>)) -> WhyNot {
        let says = seen.says.as_ref();
        if self.snapshot.skip.contains(&seen.node.uid) {
            return WhyNot::Skipped;
        }
        if says.is_some_and(|says| says.busy) {
            return WhyNot::Busy;
        }
        let stays = |why: &str| WhyNot::Stays(why.to_owned());
        if seen.node.role == Role::ControlPlane && !back.control_plane {
            return stays("it is of the control plane, and nobody asked that this goes back");
        }
        match says.map(|says| &says.back) {
            Some(Way::Open) => held_back.clone().unwrap_or(WhyNot::Granted),
            Some(Way::Tried(why)) => stays(&format!("it was asked to go back, and did not: {why}")),
            Some(Way::Denied(why)) => stays(&format!("its other slot holds a payload that was denied, too: {why}")),
            Some(Way::Closed) | None => stays("its other slot holds no system that was ever confirmed"),
        }
    }

    /// Why the payload is to be denied.
    fn verdict(&self) -> Option<String> {
        let plan = &self.snapshot.plan;
        let mut failed = Vec::new();
        for (wave, node) in plan.nodes() {
            let soaks = plan.waves.get(wave).is_some_and(|wave| wave.soak.is_some());
            if let Some(why) = self.failure(node) {
                if soaks {
                    return Some(format!("the canary {} failed: {why}", node.name));
                }
                failed.push(format!("{}: {why}", node.name));
            }
            if soaks && wave >= self.snapshot.passed && self.is_ill_with_it(node) {
                return Some(format!("the canary {} runs it, and is not well", node.name));
            }
        }
        let total = u32::try_from(plan.nodes().count()).unwrap_or(u32::MAX);
        let budget = self.snapshot.rules.failures(total);
        let is_over = failed.len() as u64 >= u64::from(budget);
        is_over.then(|| {
            format!("{} of {total} nodes failed, and {budget} are enough; {}", failed.len(), failed.join("; "))
        })
    }

    /// It was upgraded, was well, and is so no more.
    fn is_ill_with_it(&self, node: &Node) -> bool {
        let says = self.seen.get(node.uid.as_str()).and_then(|seen| seen.says.as_ref());
        let is_ill = says.is_some_and(|says| says.runs == self.snapshot.plan.payload && !says.well && !says.busy);
        is_ill && !self.held.contains_key(node.uid.as_str()) && !self.snapshot.skip.contains(&node.uid)
    }

    /// It runs the payload, is well, and holds nothing.
    fn is_done(&self, uid: &str) -> bool {
        let is_done = |seen: &&Seen| seen.runs(self.snapshot.plan.payload) && seen.is_well();
        !self.held.contains_key(uid) && self.seen.get(uid).is_some_and(is_done)
    }

    /// Nothing more is expected of it.
    fn is_settled(&self, node: &Node) -> bool {
        let uid = node.uid.as_str();
        let is_out = !self.seen.contains_key(uid) || self.snapshot.skip.contains(uid) || self.failure(node).is_some();
        !self.held.contains_key(uid) && (is_out || self.is_done(uid))
    }

    fn progress(&self, now: Timestamp) -> Progress {
        let waves = &self.snapshot.plan.waves;
        let mut passed = self.snapshot.passed.min(waves.len());
        while let Some(wave) = waves.get(passed) {
            let number = passed + 1;
            let stay = |blocker, soaks| Progress { passed, soaks, blocker: Some(blocker) };
            if let Some(node) = wave.nodes.iter().find(|node| !self.is_settled(node)) {
                return stay(WhyNot::Wave { wave: number, first: node.name.clone() }, None);
            }
            if let Some(soak) = wave.soak {
                let done = wave.nodes.iter().filter(|node| self.is_done(&node.uid));
                let since = done.filter_map(|node| Some(self.seen.get(node.uid.as_str())?.says.as_ref()?.since)).max();
                let Some(since) = since else { return stay(WhyNot::NoCanary { wave: number }, None) };
                let until = soak.after(since);
                let is_passed_over = self.snapshot.hurries(now).is_some_and(|hurry| hurry.soak == Some(passed));
                if now < until && !is_passed_over {
                    return stay(WhyNot::Soak { wave: number, until }, Some(until));
                }
            }
            passed += 1;
        }
        Progress { passed, soaks: None, blocker: None }
    }

    /// All waves are over, and nothing of the plan is open any more.
    fn is_over(&self, passed: usize) -> bool {
        let plan = &self.snapshot.plan;
        let is_replacing = |grant: &&Grant| grant.node.pool == plan.pool && grant.replaces.is_some();
        !self.held.values().any(is_replacing)
            && passed == plan.waves.len()
            && plan.is_whole()
            && plan.nodes().all(|(_, node)| self.is_settled(node))
    }

    /// The node answers, is to have the payload, and has it in no slot.
    fn lacks(&self, node: &Node) -> bool {
        let uid = node.uid.as_str();
        let says = self.seen.get(uid).and_then(|seen| seen.says.as_ref());
        let payload = self.snapshot.plan.payload;
        let lacks = says.is_some_and(|says| says.runs != payload && says.staged != Some(payload));
        !self.snapshot.replacing.wanted
            && lacks
            && !self.held.contains_key(uid)
            && !self.snapshot.skip.contains(uid)
            && self.failure(node).is_none()
    }

    fn unstaged(&self) -> Option<WhyNot> {
        let mut lacking = self.snapshot.plan.nodes().map(|(_, node)| node).filter(|node| self.lacks(node));
        let first = lacking.next()?.name.clone();
        Some(WhyNot::AllStaged { left: lacking.count() + 1, first })
    }

    /// Each node with its wave, in the plan's order, as it is seen now; then those that are not in the plan; then those
    /// that are gone and still hold a grant in this pool.
    fn everybody(&self) -> Vec<(Option<usize>, &'a Node)> {
        let plan = &self.snapshot.plan;
        let waves: BTreeMap<&str, usize> = plan.nodes().map(|(wave, node)| (node.uid.as_str(), wave)).collect();
        let planned =
            plan.nodes().filter_map(|(wave, node)| Some((Some(wave), &self.seen.get(node.uid.as_str())?.node)));
        let strangers = self.snapshot.nodes.iter().map(|seen| &seen.node);
        let strangers = strangers.filter(|node| !waves.contains_key(node.uid.as_str())).map(|node| (None, node));
        let gone = self.held.values().map(|grant| &grant.node).filter(|node| node.pool == plan.pool);
        let gone = gone.filter(|node| !self.seen.contains_key(node.uid.as_str())).map(|node| (None, node));
        planned.chain(strangers).chain(gone).collect()
    }

    /// Why this node does not go; `Granted` if nothing but the ledger can hold it back, `None` if it is done.
    fn why(&self, wave: Option<usize>, node: &Node, gate: &Gate, actions: &mut Vec<Action>) -> Option<WhyNot> {
        let uid = node.uid.as_str();
        let payload = self.snapshot.plan.payload;
        let Some(seen) = self.seen.get(uid) else {
            return self.held.get(uid).map(|grant| match &grant.replaces {
                Some(replaces) => self.replaced(grant, replaces, gate, actions),
                None => WhyNot::Gone { token: grant.token },
            });
        };
        if let Some(grant) = self.held.get(uid) {
            return Some(self.holds(seen, grant, gate, actions));
        }
        let Some(says) = &seen.says else { return Some(WhyNot::Silent) };
        if says.runs == payload
            && wave.is_some()
            && let Some(back) = &gate.back
        {
            return Some(self.returns(seen, back));
        }
        if says.runs == payload {
            let why = if says.busy { WhyNot::Busy } else { WhyNot::NotWell };
            return (!seen.is_well()).then_some(why);
        }
        let Some(wave) = wave else { return Some(WhyNot::NotInPlan) };
        if self.snapshot.skip.contains(uid) {
            return Some(WhyNot::Skipped);
        }
        if let Some(why) = &says.failed {
            return Some(WhyNot::Failed(why.clone()));
        }
        if let Some(stop) = &gate.stop {
            return Some(stop.clone());
        }
        if says.busy {
            return Some(WhyNot::Busy);
        }
        if self.snapshot.replacing.wanted {
            if let Some(refused) = replace::refuses(self.snapshot, &self.machines, node) {
                return Some(refused);
            }
        } else if says.staged != Some(payload) {
            actions.push(Action::Stage { uid: uid.to_owned(), payload });
            return Some(WhyNot::Staging);
        }
        let is_later = wave > gate.progress.passed;
        let blocker = gate.progress.blocker.as_ref().filter(|_| is_later);
        let why = gate.unstaged.as_ref().or(blocker).or(gate.held_back.as_ref());
        Some(why.cloned().unwrap_or(WhyNot::Granted))
    }

    /// Why a node that holds a grant is not done; it is asked to begin, if it was not yet.
    fn holds(&self, seen: &Seen, grant: &Grant, gate: &Gate, actions: &mut Vec<Action>) -> WhyNot {
        let token = grant.token;
        if let Some(replaces) = &grant.replaces {
            return self.replaced(grant, replaces, gate, actions);
        }
        let Some(says) = &seen.says else { return WhyNot::SilentHolder { token } };
        if says.token > token {
            return WhyNot::Overtaken { token, obeyed: says.token };
        }
        let is_aborted = self.snapshot.aborted.is_some();
        if says.token == token && is_aborted && says.busy {
            actions.push(Action::Abort { uid: seen.node.uid.clone(), token });
            return WhyNot::Aborts { token };
        }
        if says.token == token {
            return WhyNot::UnderWay { token };
        }
        if is_aborted {
            return WhyNot::AbortedHolder { token };
        }
        if says.runs == self.snapshot.plan.payload
            && let Some(back) = &gate.back
        {
            let why = self.returns(seen, back);
            if why != WhyNot::Granted {
                return why;
            }
            actions.push(Action::Return { uid: seen.node.uid.clone(), token });
            return WhyNot::Returns { token };
        }
        // It stays charged: a request may be on its way.
        if self.snapshot.skip.contains(&seen.node.uid) {
            return WhyNot::Skipped;
        }
        if let Some(why) = &gate.held_back {
            return why.clone();
        }
        let (uid, payload) = (seen.node.uid.clone(), self.snapshot.plan.payload);
        actions.push(Action::Begin { uid, token, payload });
        WhyNot::Begins { token }
    }

    /// Why a node that holds a grant to be replaced is not done; its machine is deleted, if it was not yet.
    fn replaced(&self, grant: &Grant, replaces: &Replaces, gate: &Gate, actions: &mut Vec<Action>) -> WhyNot {
        let (uid, token) = (grant.node.uid.clone(), grant.token);
        if let Where::Waits(why) = replace::whereabouts(self.snapshot, grant, replaces, &self.heirs) {
            return why;
        }
        // As long as nobody knows that it goes, a request may be on its way: it stays charged.
        if self.snapshot.aborted.is_some() {
            return WhyNot::AbortedHolder { token };
        }
        if let Some(why) = replace::is_of_another_time(self.snapshot, grant, replaces) {
            return why;
        }
        if self.snapshot.skip.contains(&uid) {
            return WhyNot::Skipped;
        }
        if let Some(why) =
            gate.held_back.clone().or_else(|| replace::refuses(self.snapshot, &self.machines, &grant.node))
        {
            return why;
        }
        actions.push(Action::Delete { uid, token, machine: replaces.machine.clone() });
        WhyNot::Deletes { token, machine: replaces.name.clone() }
    }
}
