//! The loop of a node's service, as `slipwayd` has it: look, decide, journal, do, journal. And the machine under it.

use slipway_core::{boot::slot::SlotState, digest::Sha256};
use slipway_node::{
    facts::Facts,
    journal::{Asked, Journal},
    operation::{Learned, Operation, Shape, Tried},
    request::{Goal, Request},
    sequence::{Limits, Next, Outcome, next},
    step::{OnFailure, Step},
};

use crate::{
    NEW,
    clock::Seconds,
    mutant::Mutant,
    scenario::Quality,
    world::{Event, World},
};

/// The watchdog, or the guard, ends a system that does not become well: longer than the sequence's own time for it.
const GUARD: Seconds = 900;

impl World {
    /// The node decides, or does what it decided, in so many seconds, and nothing else before.
    fn schedule(&mut self, n: usize, seconds: Seconds, event: fn(usize, u64) -> Event) {
        self.machines[n].ticket += 1;
        let ticket = self.machines[n].ticket;
        self.after(seconds, event(n, ticket));
    }

    /// The facts that the node observes of itself, and those that its next step needs.
    fn facts(&self, n: usize, op: Option<&Operation>) -> Facts {
        let machine = &self.machines[n];
        let needs_node = op.is_some_and(|op| op.cordon.is_none()) && self.reaches_api(n);
        let node = self.api.nodes.get(&machine.name).filter(|_| needs_node).map(|object| object.state.clone());
        Facts { node, ..machine.facts(self.now) }
    }

    /// The node looks and decides.
    pub fn reconcile_node(&mut self, n: usize, ticket: u64) {
        let machine = &self.machines[n];
        if machine.ticket != ticket || !machine.is_up || machine.to_do.is_some() {
            return;
        }
        let Some(op) = machine.journal.operation.clone() else { return };
        let facts = self.facts(n, Some(&op));
        let next = next(&op, &facts, Limits::default());
        let mut journal = machine.journal.clone();
        let step = journal.take(next.clone(), &facts);
        self.machines[n].write(journal);
        let name = &self.machines[n].name;
        self.trace.say(self.now, || format!("{name} decides {next:?}"));
        match (next, step) {
            (Next::End(outcome), _) => self.ended(n, &op, &outcome),
            (_, Some(step)) => {
                self.machines[n].to_do = Some(step);
                self.begins(n, step);
                let takes = self.takes(step);
                self.schedule(n, takes, Event::Perform);
            }
            (Next::Wait(_), None) => self.schedule(n, 60, Event::Reconcile),
            _ => self.schedule(n, 0, Event::Reconcile),
        }
        self.publish_report(n);
    }

    /// The time of a step.
    fn takes(&mut self, step: Step) -> Seconds {
        let (from, to) = match step {
            Step::Stage => (20, 300),
            Step::Drain => (10, 200),
            Step::Stop | Step::Activate => (5, 40),
            _ => (0, 4),
        };
        self.random.from_to(from, to)
    }

    /// The step that was announced is done, or something comes between.
    pub fn performs(&mut self, n: usize, ticket: u64) {
        if self.machines[n].ticket != ticket || !self.machines[n].is_up {
            return;
        }
        let Some(step) = self.machines[n].to_do.take() else { return };
        let Some(op) = self.machines[n].journal.operation.clone() else { return };
        if self.goes_wrong(self.scenario.rates.cut) {
            self.cut_in(n, &op, step);
            return;
        }
        if matches!(step, Step::Reboot | Step::Return) {
            self.starts_anew(n, &op, step);
            return;
        }
        let tried = if self.goes_wrong(self.scenario.rates.fails) {
            let why = "it did not work".to_owned();
            if self.random.coin() { Tried::Blocked(why) } else { Tried::Failed(why) }
        } else {
            self.perform(n, &op, step)
        };
        let name = &self.machines[n].name;
        self.trace.say(self.now, || format!("{name}: {step:?}: {tried:?}"));
        let is_done = matches!(tried, Tried::Done(_));
        let mut journal = self.machines[n].journal.clone();
        journal.settle(op.id(), tried);
        self.machines[n].write(journal);
        let again = if step.on_failure() == OnFailure::TryAgain { 300 } else { 30 };
        self.schedule(n, if is_done { 0 } else { again }, Event::Reconcile);
        self.publish_report(n);
    }

    /// Power is cut before the step, in the middle of it, or after it, before the node could report it.
    fn cut_in(&mut self, n: usize, op: &Operation, step: Step) {
        match self.random.below(3) {
            0 if step == Step::Stage && self.machines[n].runs() != op.request.payload => {
                let now = self.machines[n].time(self.now);
                let machine = &mut self.machines[n];
                let slot = !machine.running;
                machine.env = machine.env.deactivated(slot, now);
                machine.payloads[slot] = None;
            }
            1 if matches!(step, Step::Reboot | Step::Return) => {
                self.starts_anew(n, op, step);
                return;
            }
            1 => drop(self.perform(n, op, step)),
            _ => {}
        }
        let outage = self.random.from_to(5, 600);
        self.power_cut(n, outage);
    }

    fn starts_anew(&mut self, n: usize, op: &Operation, step: Step) {
        self.orders_reboot(n, op, step);
        let takes = self.random.from_to(20, 120);
        self.goes_down(n, takes, true);
    }

    /// Power is cut, and comes back so much later.
    pub fn power_cut(&mut self, n: usize, outage: Seconds) {
        if !self.machines[n].is_up {
            return;
        }
        self.counts.cuts += 1;
        let is_torn = self.random.per_mille(300);
        let machine = &mut self.machines[n];
        machine.read_journal(is_torn);
        if self.mutant == Mutant::JournalLost {
            machine.journal = Journal::default();
        }
        let name = machine.name.clone();
        self.trace.say(self.now, || format!("{name}: power is cut for {outage} s"));
        let is_ours = self.machines[n].is_stopped;
        self.goes_down(n, outage, is_ours);
    }

    /// The machine goes down, and comes up so much later.
    fn goes_down(&mut self, n: usize, outage: Seconds, is_ours: bool) {
        self.machines[n].goes_down();
        self.look_at_health(n, is_ours);
        self.publish_report(n);
        let boot = self.machines[n].boot;
        self.after(outage, Event::Up(n, boot));
    }

    /// The machine comes up.
    pub fn comes_up(&mut self, n: usize, boot: u64) {
        let machine = &self.machines[n];
        if machine.boot != boot || machine.is_up || machine.is_dead {
            return;
        }
        let healthy = self.now + self.random.from_to(15, 150);
        let machine = &mut self.machines[n];
        machine.boots(self.now);
        machine.healthy_from = healthy;
        let is_trial = machine.env.states[machine.running] == SlotState::Tried;
        let (running, boot, name) = (machine.running, machine.boot, machine.name.clone());
        self.trace.say(self.now, || format!("{name} comes up in slot {running}, a trial: {is_trial}"));
        let machine = &mut self.machines[n];
        if is_trial && machine.quality == Quality::NeverUp && machine.runs() == Some(NEW) {
            machine.is_up = false;
            self.after(GUARD, Event::Up(n, boot));
            return;
        }
        if is_trial {
            self.after(GUARD, Event::Guard(n, boot));
        }
        self.after(healthy - self.now, Event::Check(n));
        if let Quality::FallsIll(after) = self.machines[n].quality {
            self.after(healthy - self.now + after, Event::Check(n));
        }
        if self.uid(n).is_none() {
            self.after(healthy - self.now, Event::Registers(n));
        }
        self.schedule(n, 2, Event::Reconcile);
        self.publish_report(n);
    }

    /// A trial that was not confirmed in time ends.
    pub fn guard(&mut self, n: usize, boot: u64) {
        let machine = &self.machines[n];
        let is_trial = machine.env.states[machine.running] == SlotState::Tried;
        if machine.boot == boot && machine.is_up && is_trial {
            let name = machine.name.clone();
            self.trace.say(self.now, || format!("{name}: the guard ends the trial"));
            self.goes_down(n, 60, true);
        }
    }

    /// Look whether it is well now.
    pub fn check(&mut self, n: usize, is_ours: bool) {
        self.look_at_health(n, is_ours);
        self.publish_report(n);
    }

    /// The system, and the member of etcd, are as well as they can be. `is_ours`: an operation has made it so.
    fn look_at_health(&mut self, n: usize, is_ours: bool) {
        let now = self.now;
        let machine = &mut self.machines[n];
        let runs = machine.is_up && !machine.is_stopped && now >= machine.healthy_from && now >= machine.ill_until;
        let is_well = runs && !machine.is_spoilt(now);
        if is_well != machine.is_well {
            (machine.is_well, machine.since) = (is_well, now);
        }
        let is_member_up = runs && now >= machine.cut_off_until;
        let was_up = self.etcd.peers.iter().find(|peer| peer.machine == n).map(|peer| peer.up);
        if was_up.is_some_and(|up| up != is_member_up) {
            self.etcd.set(n, is_member_up, is_ours);
        }
    }

    /// Its report to others, if it is new.
    pub fn publish_report(&mut self, n: usize) {
        if self.machines[n].record_report(self.now) {
            self.laws.changed = self.now;
            self.poke();
        }
    }

    /// The grant that the ledger names as this machine's, for a request with this token; an error if it does not answer.
    fn grant_of(&self, n: usize, token: Option<u64>) -> Result<Option<u64>, ()> {
        match token {
            None => Ok(None),
            // The mutant takes the request's word for it.
            Some(token) if self.mutant == Mutant::UnreadToken => Ok(Some(token)),
            Some(_) if !self.reaches_api(n) => Err(()),
            Some(_) => Ok(self.uid(n).and_then(|uid| self.api.ledger.object.held(uid)).map(|grant| grant.token)),
        }
    }

    /// A request arrives at whatever machine has this name.
    pub fn receive(&mut self, name: &str, request: Request) {
        let Some(n) = self.named(name) else { return };
        if !self.machines[n].is_up || self.now < self.machines[n].cut_off_until {
            return;
        }
        let shape = Shape { kubernetes: true, etcd: self.etcd.has(n) };
        let facts = self.facts(n, None);
        let (token, goal) = (request.token, request.goal);
        let facts = match self.grant_of(n, token) {
            Ok(grant) => Facts { grant, ..facts },
            Err(()) => {
                self.trace.say(self.now, || format!("{name} is asked for {goal:?}, and cannot read the ledger"));
                return;
            }
        };
        let mut journal = self.machines[n].journal.clone();
        if self.mutant == Mutant::AnyToken {
            journal.token = 0;
        }
        self.machines[n].asked = self.machines[n].asked.max(token.unwrap_or(0));
        let asked = journal.ask(request, shape, &facts);
        self.trace.say(self.now, || format!("{name} is asked for {goal:?}, token {token:?}: {asked:?}"));
        let (obeyed, given) = (journal.token, self.api.ledger.object.highest());
        self.laws.must(obeyed <= given || self.laws.is_lost, || {
            format!("tokens: {name} remembers {obeyed}, and {given} was given")
        });
        if asked != Ok(Asked::New) {
            // A token may have been obeyed with nothing to do.
            if self.machines[n].has_lied {
                self.publish_report(n);
            }
            if journal != self.machines[n].journal && self.mutant != Mutant::AnyToken {
                self.machines[n].write(journal);
                self.publish_report(n);
            }
            return;
        }
        if let Some(token) = token {
            self.counts.begun += 1;
            self.laws.obeys(n, self.machines[n].life, token);
            journal.token = journal.token.max(self.machines[n].journal.token);
        }
        self.machines[n].write(journal);
        self.schedule(n, 0, Event::Reconcile);
        self.publish_report(n);
    }

    /// The operation is over.
    fn ended(&mut self, n: usize, op: &Operation, outcome: &Outcome) {
        if op.request.goal == Goal::Upgrade {
            match outcome {
                Outcome::Reached => self.counts.reached += 1,
                Outcome::CameBack(_) | Outcome::Left(_) | Outcome::Later(_) => self.counts.came_back += 1,
            }
        }
        if op.request.goal == Goal::Rollback && *outcome == Outcome::Reached {
            self.counts.went_back += 1;
        }
        self.outcome_is_so(n, op, outcome);
        let machine = &mut self.machines[n];
        machine.disturbed = None;
        let payload: Option<Sha256> = op.to.as_ref().and_then(|to| to.payload);
        if let Some(payload) = payload
            && machine.journal.denial(payload).is_some()
        {
            machine.in_vain.insert(payload);
        }
        self.laws.at_work.remove(&n);
    }
}

/// A step that is done, and told nothing.
pub const DONE: Tried = Tried::Done(Learned::Nothing);
