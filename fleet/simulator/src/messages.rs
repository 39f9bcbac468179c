//! Messages on their way: requests to nodes, writes to the API server, and its answers.

use std::rc::Rc;

use slipway_core::digest::Sha256;
use slipway_node::request::{Goal, Request};
use slipway_rollout::{
    attempts::{Attempts, History},
    blocked::Blocked,
    decide::Decision,
    facts::{Facts, FailureEvidence},
    int_or_percent::IntOrPercent,
    ledger::{Grant, Ledger, Node},
    policy::{Policy, Rules},
};
use uuid::Uuid;

use crate::{
    clock::{Seconds, stamp},
    controller_state::{Change, Counted, PendingAction, Work, Write, WriteResult},
    mutant::Mutant,
    policies::Terms,
    view::View,
    world::{Event, LATEST, World},
};

/// A mutant's grants end after this.
const ENDS: Seconds = 3600;

impl World {
    /// A node is asked for something. The request may be lost, late, or come twice.
    pub fn asks(&mut self, view: &View, uid: &str, goal: Goal, payload: Option<Sha256>, token: Option<u64>) {
        let Some((n, _)) = self.uids.get(uid).copied() else { return };
        if let Some(token) = token {
            self.may_be_asked(view, uid, token, goal);
        }
        let is_named = self.scenario.is_tried_once && goal != Goal::Stage;
        let id = if is_named {
            let attempt = self.machines[n].journal.ended.iter().filter(|ended| ended.request.goal == goal).count();
            Uuid::from_bytes(
                Sha256::of(format!("{uid} {goal:?} {attempt}").as_bytes()).0[..16].try_into().unwrap_or_default(),
            )
        } else {
            Uuid::from_u64_pair(self.random.number(), self.random.number())
        };
        let request = Request {
            source: if goal.writes() { "docker://registry.example/os:2".to_owned() } else { String::new() },
            payload,
            token,
            // One or two voters cannot be upgraded else.
            allow_outage: self.etcd.peers.len() <= 2,
            ..Request::new(id, goal, "fleet")
        };
        let name = self.machines[n].name.clone();
        if token.is_some() && self.sent.len() < 1000 {
            self.sent.push((name.clone(), request.clone()));
        }
        let rates = self.scenario.rates;
        if self.goes_wrong(rates.twice) {
            let delay = self.random.from_to(1, LATEST);
            self.after(delay, Event::Request(name.clone(), Box::new(request.clone())));
        }
        if self.goes_wrong(rates.lost) {
            return;
        }
        let delay =
            if self.goes_wrong(rates.late) { self.random.from_to(3, LATEST) } else { self.random.from_to(0, 2) };
        self.after(delay, Event::Request(name, Box::new(request)));
    }

    /// A node is asked to end what it began with this grant. The request may be lost, or late.
    pub fn asks_to_go_back(&mut self, view: &View, uid: &str, token: u64) {
        let Some((n, _)) = self.uids.get(uid).copied() else { return };
        let is_aborted = view.facts.aborted.is_some();
        self.laws.must(is_aborted, || format!("aborts: {uid} is asked to go back, and the rollout was not given up"));
        let rates = self.scenario.rates;
        if self.goes_wrong(rates.lost) {
            return;
        }
        let delay =
            if self.goes_wrong(rates.late) { self.random.from_to(3, LATEST) } else { self.random.from_to(0, 2) };
        self.after(delay, Event::GoesBack(self.machines[n].name.clone(), token));
    }

    /// A write arrives. It is taken if the object is still the one that it was computed from.
    pub fn write_arrives(&mut self, c: usize, life: u64, write: &Write) {
        let mut answer = None;
        if self.api_answers() {
            answer = if let Some(ledger) = &write.ledger {
                self.ledger_arrives(write, ledger)
            } else {
                self.change_arrives(write)
            };
            let is_taken = answer.is_some();
            self.counts.conflicts += u64::from(!is_taken);
            self.trace.say(self.now, || format!("write of controller {c}, {:?}: taken {is_taken}", write.change));
        }
        let is_lost = self.goes_wrong(self.scenario.rates.lost / 4);
        let delay = if is_lost { 60 } else { self.random.from_to(0, 1) };
        self.after(delay, Event::Answer(c, life, answer.filter(|_| !is_lost)));
    }

    fn ledger_arrives(&mut self, write: &Write, ledger: &Rc<Ledger>) -> Option<WriteResult> {
        let before = Rc::clone(&self.api.ledger.object);
        let mut to = Rc::clone(ledger);
        let mut version = write.version;
        if let (Mutant::CachedBudget, Change::Grant(node)) = (self.mutant, &write.change) {
            version = self.api.ledger.version;
            to = Rc::new(on_top(&before, node, write));
        }
        if !self.api.ledger.write(version, Ledger::clone(&to)) {
            return None;
        }
        self.ledger_was_written(&before, write);
        self.laws.changed = self.now;
        if let Change::Grant(node) = &write.change
            && let Some((n, _)) = self.uids.get(&node.uid).copied()
        {
            self.granted(n);
        }
        self.poke();
        Some(WriteResult::Ledger(self.api.ledger.version, Rc::clone(&self.api.ledger.object)))
    }

    fn change_arrives(&mut self, write: &Write) -> Option<WriteResult> {
        let pool = write.view.pool;
        if self.api.rollouts.get(pool)?.version != write.version {
            return None;
        }
        self.rollout_was_written(write);
        let mutant = self.mutant;
        self.api.edit(pool, |rollout| match &write.change {
            Change::Pause(why) => rollout.stopped = Some(why.clone()),
            Change::Deny(why) => rollout.denied = Some(why.clone()),
            Change::Passed(passed) => rollout.passed = *passed,
            Change::Finished => rollout.finished = true,
            Change::Remember(counted) => {
                (rollout.soaking_since, rollout.interruption, rollout.retry) = Counted::clone(counted);
            }
            Change::Attempts(attempts) => rollout.attempts = remembered(mutant, attempts),
            Change::Grant(_) | Change::Free(..) | Change::Drop(_) => {}
        });
        self.laws.changed = self.now;
        self.poke();
        Some(WriteResult::Rollout(write.version + 1))
    }

    /// The outcome of a write. A controller that was not the first, or got no answer, looks again.
    pub fn answer_arrives(&mut self, c: usize, life: u64, answer: Option<WriteResult>) {
        if !self.is_alive(c, life) {
            return;
        }
        let Some(taken) = answer else {
            self.controllers[c].work = None;
            let soon = self.random.from_to(1, 10);
            self.look_in(c, soon);
            return;
        };
        if let Some(work) = &mut self.controllers[c].work {
            match taken {
                WriteResult::Ledger(version, ledger) => (work.version, work.ledger) = (version, ledger),
                WriteResult::Rollout(version) => work.rollout_version = version,
            }
        }
        self.after(0, Event::Act(c, life));
    }

    /// Adds the wrong actions of a mutant.
    pub fn mutate(&self, work: &mut Work, view: &View, decision: &Decision) {
        let now = stamp(self.now, view.offset).as_second();
        for grant in &view.facts.ledger.grants {
            let of_it = decision.blocked.iter().find(|blocked| blocked.node.uid == grant.node.uid);
            let is_silent = of_it.is_some_and(|blocked| matches!(blocked.why, Blocked::SilentHolder { .. }));
            let goes = match self.mutant {
                Mutant::GrantsEnd => grant.since.as_second() + ENDS < now,
                Mutant::FreedBySilence => is_silent,
                _ => false,
            };
            if goes {
                work.todo.push_back(PendingAction::Drop(grant.node.uid.clone()));
            }
        }
        let Facts { denied, aborted, .. } = &view.facts;
        let is_held_back = view.facts.pause().is_some() || denied.is_some() || aborted.is_some();
        if self.mutant == Mutant::WindowIgnored && !is_held_back {
            let begins = |blocked: &slipway_rollout::decide::BlockedNode| {
                let grant = view.facts.ledger.held(&blocked.node.uid)?;
                let (uid, payload) = (blocked.node.uid.clone(), view.facts.plan.payload);
                let begin = slipway_rollout::decide::Action::Begin { uid, token: grant.token, payload };
                matches!(blocked.why, Blocked::Closed(_)).then_some(PendingAction::Decided(begin))
            };
            work.todo.extend(decision.blocked.iter().filter_map(begins));
        }
    }

    /// True if the etcd member of this Node's machine is gone.
    pub fn is_member_gone(&self, node: &Node) -> bool {
        let Some((n, life)) = self.uids.get(&node.uid).copied() else { return true };
        !self.etcd.has(n) || self.machines[n].life != life
    }
}

/// Number of grants of each node, as it is written.
fn remembered(mutant: Mutant, attempts: &History) -> History {
    let mut attempts = attempts.clone();
    match mutant {
        Mutant::ForgetsTheDone => attempts.tried = Default::default(),
        Mutant::CountsEarly => {
            for of in attempts.nodes.values_mut().filter(|of| of.deferred) {
                *of = Attempts { count: of.count + 1, token: of.token + 1, deferred: false };
            }
        }
        _ => {}
    }
    attempts
}

/// The new grant on top of whatever there is.
fn on_top(ledger: &Ledger, node: &Node, write: &Write) -> Ledger {
    let mut ledger = ledger.clone();
    ledger.epoch += 1;
    ledger.grants.push(Grant { node: node.clone(), token: ledger.epoch, since: stamp(write.made, 0), replaces: None });
    ledger
}

/// Neither its own pause nor what has led to it is seen: [`Mutant::ForgetsItsPause`].
pub fn forgets_its_pause(facts: &mut Facts) {
    if facts.stopped.take().is_none() {
        return;
    }
    (facts.interruption, facts.attempts) = (None, History::default());
    for report in facts.nodes.iter_mut().filter_map(|observed| observed.report.as_mut()) {
        report.failed.take_if(|failed| failed.evidence == FailureEvidence::Unknown);
    }
}

/// The rules with percents rounded up: [`Mutant::RoundsUp`].
pub fn rounded_up(terms: &Terms, nodes: usize) -> Rules {
    let up = |amount: IntOrPercent| match amount {
        IntOrPercent::Percent(percent) => {
            IntOrPercent::Nodes(u32::try_from((nodes * usize::from(percent)).div_ceil(100)).unwrap_or(1))
        }
        IntOrPercent::Nodes(_) => amount,
    };
    let policy = |policy: Policy| Policy { max_unavailable: policy.max_unavailable.map(up), ..policy };
    let policies: Vec<Policy> = terms.0.iter().map(|term| policy(term.policy.clone())).collect();
    Rules::try_from(policies).unwrap_or_default()
}
