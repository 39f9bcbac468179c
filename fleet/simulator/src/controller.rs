//! A controller: it reads the ledger, then the rollout, both from the API server itself; nodes and policies from a
//! watch and reports that may be old. It decides, and does one thing after the other. It may crash between any two of
//! them.
//!
//! * The ledger is read before the rollout. So a pause, or a payload that was denied, is seen by every controller that reads
//!   the ledger later.
//! * A grant, or what frees one, is written with the version of the ledger that was read, or that the last write gave.
//! * A request is sent only while the decision's window is open, by the clock at that moment.
//! * A person's word names a token, and frees no other grant.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    rc::Rc,
};

use slipway_core::digest::Sha256;
use slipway_node::request::Goal;
use slipway_rollout::{
    blocked::Blocked,
    decide::{Action, Decision, decide, limits},
    facts::{Approval, Evidence, Facts, NodeReport, ObservedNode, WindowOverride},
    ledger::{Grant, HIGHEST, Ledger, Node, Proof, Refusal, Role},
};

use crate::{
    NEW,
    api::Listing,
    clock::{DAY, Seconds, stamp},
    controller_state::{Change, PendingAction, Work, Write},
    messages::{forgets_its_pause, rounded_up},
    mutant::Mutant,
    scenario::SharedNodes,
    view::View,
    world::{Event, LATEST, World},
};

impl World {
    /// A controller starts, for the first time or again.
    pub fn starts(&mut self, c: usize) {
        let controller = &mut self.controllers[c];
        (controller.is_up, controller.work, controller.look_at) = (true, None, None);
        controller.life += 1;
        controller.due = vec![self.now; self.scenario.pools.len()];
        let soon = self.random.from_to(1, 30);
        self.look_in(c, soon);
    }

    /// It forgets everything; another one starts so much later.
    pub fn crashes(&mut self, c: usize, seconds: Seconds) {
        if !self.controllers[c].is_up {
            return;
        }
        self.counts.crashes += 1;
        self.trace.say(self.now, || format!("controller {c} crashes"));
        let controller = &mut self.controllers[c];
        (controller.is_up, controller.work) = (false, None);
        controller.life += 1;
        self.after(seconds, Event::Starts(c));
    }

    /// An event: an idle controller looks soon.
    pub fn poke(&mut self) {
        for c in 0..self.controllers.len() {
            let soon = self.random.from_to(3, 40);
            let at = self.now + soon;
            self.controllers[c].due.iter_mut().for_each(|due| *due = (*due).min(at));
            self.look_in(c, soon);
        }
    }

    pub fn look_in(&mut self, c: usize, seconds: Seconds) {
        let at = self.now + seconds;
        let controller = &mut self.controllers[c];
        let is_sooner = controller.look_at.is_none_or(|planned| at < planned || planned < self.now);
        if controller.is_up && controller.work.is_none() && is_sooner {
            controller.look_at = Some(at);
            let life = controller.life;
            self.after(seconds, Event::Look(c, life));
        }
    }

    pub fn is_alive(&self, c: usize, life: u64) -> bool {
        self.controllers[c].is_up && self.controllers[c].life == life
    }

    /// It reads the ledger.
    pub fn looks(&mut self, c: usize, life: u64) {
        let is_due = self.controllers[c].look_at == Some(self.now) && self.controllers[c].work.is_none();
        if !self.is_alive(c, life) || !is_due {
            return;
        }
        self.controllers[c].look_at = None;
        if !self.api_answers() {
            self.look_in(c, 30);
            return;
        }
        let due = self.controllers[c].due.iter().enumerate().min_by_key(|(_, at)| **at);
        let pool = due.map_or(0, |(pool, _)| pool);
        let (mut ledger, version) = (Rc::clone(&self.api.ledger.object), self.api.ledger.version);
        if self.mutant == Mutant::CachedBudget {
            ledger = std::mem::replace(&mut self.controllers[c].before, ledger);
        }
        let todo = VecDeque::new();
        let read = self.now;
        let work = Work { pool, ledger, version, rollout_version: 0, read, view: None, limits: None, todo, wait: DAY };
        self.controllers[c].work = Some(work);
        let soon = self.random.from_to(0, 2);
        self.after(soon, Event::Decide(c, life));
    }

    /// It reads the rollout, looks at what it watches, and decides.
    pub fn decides(&mut self, c: usize, life: u64) {
        if !self.is_alive(c, life) {
            return;
        }
        let Some(mut work) = self.controllers[c].work.take() else { return };
        if !self.api_answers() {
            self.look_in(c, 30);
            return;
        }
        self.rebuilds(&mut work);
        let Some(view) = self.view(c, &work) else { return };
        // A node knows of a grant that was given since the ledger was read.
        let is_ahead = |of: &ObservedNode| of.report.as_ref().is_some_and(|of| of.token > work.ledger.highest());
        if view.facts.nodes.iter().any(is_ahead) && self.api.ledger.version != work.version {
            self.look_in(c, 1);
            return;
        }
        self.counts.looks += 1;
        // The ledger and the rollout.
        self.counts.reads += 2;
        self.counts.carried += work.ledger.grants.len() as u64;
        self.counts.reports += view.facts.nodes.len() as u64;
        let now = stamp(self.now, view.offset);
        let decision = decide(&view.facts, now);
        self.everybody_has_a_reason(&view, &decision);
        self.reports_what_is_so(&view, &decision);
        self.blames_nobody_unseen(&view, &decision);
        work.rollout_version = self.api.rollouts[work.pool].version;
        work.limits = Some(decision.limits.clone());
        let passed = Some(decision.passed).filter(|passed| *passed > view.facts.passed);
        let todo = decision.steps.iter().cloned().map(PendingAction::Decided);
        let Facts { denied, aborted, finished, .. } = &view.facts;
        let is_over = decision.finished && !finished && denied.is_none() && aborted.is_none();
        let is_over = is_over && !decision.steps.iter().any(|action| matches!(action, Action::Deny { .. }));
        let now_counts = (decision.soaking_since, decision.interruption.clone(), decision.retry);
        let counted = (view.facts.soaking_since, view.facts.interruption.clone(), view.facts.retry);
        let remember = (now_counts != counted).then(|| PendingAction::Remember(Box::new(now_counts)));
        work.todo =
            todo.chain(passed.map(PendingAction::Passed)).chain(is_over.then_some(PendingAction::Finished)).collect();
        // Both before a grant is freed or given.
        if let Some(remember) = remember {
            work.todo.push_front(remember);
        }
        if decision.attempts != view.facts.attempts && self.mutant != Mutant::ForgetsAttempts {
            work.todo.push_front(PendingAction::Attempts(decision.attempts.clone()));
        }
        self.mutate(&mut work, &view, &decision);
        work.wait = self.waits(&view, &decision);
        let is_idle = work.todo.iter().all(|todo| self.is_for_a_liar(todo));
        self.is_idle(work.pool, is_idle, &decision);
        self.trace
            .say(self.now, || format!("controller {c} looks at pool {}: {}", work.pool, describe_decision(&decision)));
        work.view = Some(Rc::new(view));
        self.controllers[c].work = Some(work);
        self.after(0, Event::Act(c, life));
    }

    /// A ledger that is behind what most nodes obeyed is rebuilt. None is lost here: nothing may come of it.
    fn rebuilds(&self, work: &mut Work) {
        let reports = self.machines.iter().map(|machine| machine.report().map_or(0, |report| report.token));
        let mut ledger = Ledger::clone(&work.ledger);
        if self.mutant == Mutant::BelievesTokens {
            ledger.epoch = reports.fold(ledger.epoch, u64::max).min(HIGHEST);
        } else {
            ledger.rebuild(reports.collect());
        }
        if ledger != *work.ledger {
            work.ledger = Rc::new(ledger);
        }
    }

    fn view(&mut self, c: usize, work: &Work) -> Option<View> {
        let offset = self.controllers[c].offset;
        let (lag, until) = self.controllers[c].lag;
        let lag = if self.now < until { lag } else { 0 } + self.random.from_to(0, 20);
        let late = self.scenario.rates.late;
        let mut random = self.random.clone();
        let is_calm = self.is_calm;
        let old = |_: usize| match random.below(1000) {
            n if !is_calm && n < u64::from(late) => random.from_to(0, LATEST),
            _ => random.from_to(0, 20),
        };
        let mut facts = self.pool_facts(work.pool, Rc::clone(&work.ledger), offset, lag, old)?;
        self.random = random;
        let is_blind = self.now < self.controllers[c].blind_until;
        if is_blind {
            self.sees_no_node(&mut facts);
        }
        if self.mutant == Mutant::ForgetsItsPause {
            forgets_its_pause(&mut facts);
        }
        let listing = self.api.listing(self.now - lag)?;
        let terms = Rc::clone(listing.terms.get(work.pool)?);
        let younger = facts
            .younger
            .first()
            .and_then(|of| Some((Rc::clone(listing.terms.get(self.scenario.shared.younger)?), u64::from(of.size))));
        Some(View { pool: work.pool, facts, terms, younger, read: work.read, offset, is_blind })
    }

    /// No node can be asked. That says nothing of any of them.
    fn sees_no_node(&self, facts: &mut Facts) {
        facts.nodes.iter_mut().for_each(|observed| observed.report = None);
        if self.mutant != Mutant::BlamesTheUnseen {
            facts.unasked = facts.nodes.iter().map(|observed| observed.node.uid.clone()).collect();
        }
    }

    /// The view of a pool. Watches are `lag` old, and the report of each node as old as `old` says.
    pub fn pool_facts(
        &self,
        pool: usize,
        ledger: Rc<Ledger>,
        offset: Seconds,
        lag: Seconds,
        mut old: impl FnMut(usize) -> Seconds,
    ) -> Option<Facts> {
        let SharedNodes { older, younger, names } = &self.scenario.shared;
        let is_older = *older == pool && !names.is_empty() && self.mutant != Mutant::CountsInOnePool;
        let younger = if is_older {
            let of = self.own_facts(*younger, Rc::clone(&ledger), offset, lag, &mut old)?;
            vec![limits(&of, stamp(self.now, offset))]
        } else {
            Vec::new()
        };
        Some(Facts { younger, ..self.own_facts(pool, ledger, offset, lag, &mut old)? })
    }

    /// The same without the limits of the other pool.
    fn own_facts(
        &self,
        pool: usize,
        ledger: Rc<Ledger>,
        offset: Seconds,
        lag: Seconds,
        old: &mut dyn FnMut(usize) -> Seconds,
    ) -> Option<Facts> {
        let rollout = &self.api.rollouts.get(pool)?.object;
        let listing = self.api.listing(self.now - lag)?;
        let Seen { nodes, elsewhere, shared } = self.seen(pool, &rollout.plan.pool, &listing, offset, old);
        let terms = listing.terms.get(pool)?;
        let rules = if self.mutant == Mutant::RoundsUp { rounded_up(terms, nodes.len()) } else { terms.rules() };
        let gone = ledger.grants.iter().filter(|grant| grant.node.pool == rollout.plan.pool);
        let gone = gone.filter(|grant| !self.api.exists(&grant.node.uid)).map(|grant| Evidence {
            uid: grant.node.uid.clone(),
            proof: Proof::Gone { member_gone: self.is_member_gone(&grant.node) },
        });
        let said = |grant: &&Grant| rollout.words.get(&grant.node.uid) == Some(&grant.token);
        let words = ledger.grants.iter().filter(said).map(|grant| Evidence {
            uid: grant.node.uid.clone(),
            proof: Proof::Word { who: "eve".to_owned(), why: format!("it has {}", grant.token) },
        });
        let evidence = gone.chain(words).collect();
        Some(Facts {
            plan: rollout.plan.clone(),
            passed: rollout.passed,
            rules,
            nodes,
            elsewhere,
            moved: self.moved(&rollout.plan.pool, &ledger),
            shared,
            younger: Vec::new(),
            unasked: BTreeSet::new(),
            ledger: self.seen_ledger(&ledger),
            evidence,
            skip: rollout.skip.clone(),
            going: BTreeSet::new(),
            paused: rollout.paused.clone(),
            stopped: rollout.stopped.clone(),
            denied: rollout.denied.clone(),
            finished: rollout.finished,
            rollback: self.scenario.pools.get(pool)?.rollback,
            aborted: rollout.aborted.clone(),
            window_override: rollout
                .window_override
                .map(|(until, soak)| WindowOverride { until: stamp(until, 0), soak }),
            approvals: self.approvals(&rollout.approvals, rollout.plan.hash),
            replacing: Default::default(),
            created: Some(stamp(0, 0)),
            // Also a mutant's soak has begun, or has not.
            soaking_since: rollout.soaking_since.map(|since| self.mutant.soaking_since().unwrap_or(since)),
            interruption: rollout.interruption.clone(),
            retry: self.mutant.retry().or(rollout.retry),
            attempts: rollout.attempts.clone(),
            named_tokens: rollout.words.values().copied().collect(),
            api_server: None,
        })
    }

    /// The nodes of a pool, and those of others that count in it.
    fn seen(
        &self,
        pool: usize,
        name: &str,
        listing: &Listing,
        offset: Seconds,
        old: &mut dyn FnMut(usize) -> Seconds,
    ) -> Seen {
        let mut observed = |node: &Node| {
            let n = self.named(&node.name)?;
            let age = old(n);
            let is_cut_off = self.now < self.machines[n].cut_off_until && age < 60;
            let report = self.machines[n].report_at(self.now - age).filter(|_| !is_cut_off);
            let report = report.map(|report| self.told(n, report.taken(offset)));
            Some(ObservedNode { node: node.clone(), report })
        };
        let (mine, others): (Vec<&Node>, Vec<&Node>) = listing.nodes.iter().partition(|node| node.pool == name);
        let nodes: Vec<ObservedNode> = mine.into_iter().filter_map(&mut observed).collect();
        let is_shared =
            |node: &Node| self.scenario.is_shared(&node.name, pool) && self.mutant != Mutant::CountsInOnePool;
        let here = |node: &Node| Node { pool: name.to_owned(), ..node.clone() };
        let shared = others.iter().filter(|node| is_shared(node)).map(|node| (node.name.clone(), here(node))).collect();
        let others = others.into_iter().filter(|node| node.role == Role::ControlPlane || is_shared(node));
        let others = others.filter_map(&mut observed).filter(|observed| !observed.is_well());
        let as_counted = |node: Node| if is_shared(&node) { here(&node) } else { node };
        let elsewhere = others.map(|observed| as_counted(observed.node)).collect();
        Seen { nodes, elsewhere, shared }
    }

    /// Who holds a grant of this pool, and is another one's.
    fn moved(&self, pool: &str, ledger: &Ledger) -> BTreeSet<String> {
        let held = ledger.grants.iter().map(|grant| &grant.node).filter(|node| node.pool == pool);
        let is_other = |node: &&Node| {
            let there = self.api.nodes.get(&node.name).map(|object| &object.node);
            there.is_some_and(|there| there.uid == node.uid && there.pool != pool)
        };
        held.filter(is_other).map(|node| node.uid.clone()).collect()
    }

    /// A report as the controller gets it now: some lies depend on the time.
    fn told(&self, n: usize, mut report: NodeReport) -> NodeReport {
        if self.machines[n].lie.and_then(|lie| lie.runs_at(self.now)) == Some(true) {
            report.runs = NEW;
        }
        report
    }

    /// People's approvals. A mutant takes one of another plan for one of this.
    fn approvals(&self, given: &[Approval], plan: Sha256) -> Vec<Approval> {
        let of_any = |approval: &Approval| match self.mutant {
            Mutant::ApprovesAnyPlan => Approval { plan, ..*approval },
            _ => *approval,
        };
        given.iter().map(of_any).collect()
    }

    /// When it looks again, if nothing happens before.
    fn waits(&self, view: &View, decision: &Decision) -> Seconds {
        let until = |why: &Blocked| match why {
            Blocked::Closed(closed) => closed.opens,
            Blocked::Soak { until, .. } => Some(*until),
            Blocked::RetriesLater { from, .. } | Blocked::ReturnsLater { from, .. } => Some(*from),
            Blocked::Refused(Refusal::Rate { again, .. }) => *again,
            _ => None,
        };
        let named = decision.blocked.iter().filter_map(|blocked| until(&blocked.why)).chain(decision.soaks).min();
        let now = stamp(self.now, view.offset).as_second();
        let named = named.map_or(DAY, |at| (at.as_second() - now).max(1));
        let is_busy = !view.facts.ledger.grants.is_empty() || !decision.steps.is_empty();
        named.min(if is_busy { 600 } else { 6 * 3600 })
    }

    /// It does the next thing.
    pub fn acts(&mut self, c: usize, life: u64) {
        if !self.is_alive(c, life) {
            return;
        }
        if self.goes_wrong(self.scenario.rates.crash) {
            let seconds = self.random.from_to(1, 300);
            self.crashes(c, seconds);
            return;
        }
        let Some(mut work) = self.controllers[c].work.take() else { return };
        let Some(todo) = work.todo.pop_front() else {
            let due = &mut self.controllers[c].due;
            due[work.pool] = self.now + work.wait;
            let next = due.iter().min().copied().unwrap_or(self.now);
            self.look_in(c, (next - self.now).max(1));
            return;
        };
        let write = self.does(&mut work, todo);
        let made = self.now + self.controllers[c].offset;
        let write = write.zip(work.view.clone()).map(|((version, ledger, change), view)| Write {
            version,
            ledger: ledger.map(Rc::new),
            change,
            view,
            made,
        });
        self.controllers[c].work = Some(work);
        match write {
            None => self.after(0, Event::Act(c, life)),
            Some(write) => self.sends(c, life, write),
        }
    }

    fn sends(&mut self, c: usize, life: u64, write: Write) {
        self.counts.writes += 1;
        // It is sent, and comes back.
        self.counts.carried += 2 * write.ledger.as_ref().map_or(0, |ledger| ledger.grants.len() as u64);
        let rates = self.scenario.rates;
        // The API server ends a request that is older than a minute.
        let delay = if self.goes_wrong(rates.late) { self.random.from_to(1, 60) } else { self.random.from_to(0, 1) };
        if self.goes_wrong(rates.lost / 4) {
            self.after(60, Event::Answer(c, life, None));
        } else {
            self.after(delay, Event::Write(c, life, Box::new(write)));
        }
        if self.goes_wrong(rates.crash) {
            let seconds = self.random.from_to(1, 300);
            self.crashes(c, seconds);
        }
    }

    /// One thing is done. A write goes on its way with the version that it names.
    fn does(&mut self, work: &mut Work, todo: PendingAction) -> Option<(u64, Option<Ledger>, Change)> {
        let view = work.view.clone()?;
        let now = stamp(self.now, view.offset);
        let (version, of_rollout) = (work.version, work.rollout_version);
        match todo {
            PendingAction::Decided(Action::Stage { uid, payload }) => {
                self.asks(&view, &uid, Goal::Stage, Some(payload), None);
                None
            }
            PendingAction::Decided(Action::Begin { uid, token, payload }) => {
                let limits = work.limits.as_ref()?;
                let is_open = limits.from <= now && limits.until.is_none_or(|until| now < until);
                if is_open || self.mutant == Mutant::WindowIgnored {
                    self.asks(&view, &uid, Goal::Upgrade, Some(payload), Some(token));
                }
                None
            }
            PendingAction::Decided(Action::Return { uid, token }) => {
                let limits = work.limits.as_ref()?;
                if limits.from <= now && limits.until.is_none_or(|until| now < until) {
                    self.asks(&view, &uid, Goal::Rollback, None, Some(token));
                }
                None
            }
            PendingAction::Decided(Action::Abort { uid, token }) => {
                self.asks_to_go_back(&view, &uid, token);
                None
            }
            PendingAction::Decided(Action::Grant { node, .. }) => {
                let granted = self.seen_ledger(&work.ledger).grant(&node, work.limits.as_ref()?, now);
                self.counts.refused += u64::from(granted.is_err());
                let kubernetes = work.ledger.kubernetes.clone();
                let granted = granted.ok().map(|(ledger, _)| Ledger { kubernetes, ..ledger });
                granted.map(|ledger| (version, Some(ledger), Change::Grant(node)))
            }
            // No pool replaces its nodes here.
            PendingAction::Decided(Action::Delete { .. }) => None,
            PendingAction::Decided(Action::Free { uid, proof }) => {
                let freed = work.ledger.free(&uid, &proof).ok()?;
                Some((version, Some(freed), Change::Free(uid, proof)))
            }
            PendingAction::Decided(Action::Pause { why }) => Some((of_rollout, None, Change::Pause(why))),
            PendingAction::Decided(Action::Deny { why, .. }) => Some((of_rollout, None, Change::Deny(why))),
            PendingAction::Passed(passed) => Some((of_rollout, None, Change::Passed(passed))),
            PendingAction::Finished => Some((of_rollout, None, Change::Finished)),
            PendingAction::Remember(counted) => Some((of_rollout, None, Change::Remember(counted))),
            PendingAction::Attempts(attempts) => Some((of_rollout, None, Change::Attempts(attempts))),
            PendingAction::Drop(uid) => Some((version, Some(dropped(&work.ledger, &uid)), Change::Drop(uid))),
        }
    }
}

/// The nodes of a pool, others that count in it and are not well, and those that its labels name, too.
struct Seen {
    nodes: Vec<ObservedNode>,
    elsewhere: Vec<Node>,
    shared: BTreeMap<String, Node>,
}

fn describe_decision(decision: &Decision) -> String {
    let first = decision.blocked.first().map(|blocked| format!("{}: {}", blocked.node.name, blocked.why));
    let first = first.unwrap_or_else(|| "no node waits".to_owned());
    format!("{:?}; {} wait, {first}", decision.steps, decision.blocked.len())
}

fn dropped(ledger: &Ledger, uid: &str) -> Ledger {
    let mut ledger = ledger.clone();
    ledger.grants.retain(|grant| grant.node.uid != uid);
    ledger
}
