//! The conditions for a node to be granted, or to be asked to begin, in words and numbers of its own: from what the
//! controller saw, and from the ledger that it wrote upon.

use std::collections::{BTreeMap, BTreeSet};

use slipway_node::request::Goal;
use slipway_rollout::{
    attempts::{History, MOST},
    decide::{Action, Decision},
    facts::{Evidence, Facts, Failure, FailureEvidence, Interruption, NodeReport, ObservedNode},
    ledger::{Ledger, Node, Proof, Role},
    plan::Plan,
};

use crate::{
    NEW,
    clock::{Seconds, stamp},
    controller_state::{Change, Write},
    view::View,
    world::World,
};

impl World {
    /// A request to begin is sent: only in a window by the clock of who sends it, with the grant that the ledger had,
    /// and not where anything was stopped before that was read.
    pub fn may_be_asked(&mut self, view: &View, uid: &str, token: u64, goal: Goal) {
        let held = view.facts.ledger.held(uid).map(|grant| grant.token);
        self.laws
            .must(held == Some(token), || format!("requests: {uid} is asked to begin with {token}, and has {held:?}"));
        let at = self.now + view.offset;
        self.laws.must(is_open(view, at), || format!("windows: {uid} is asked to begin at {}", stamp(at, 0)));
        self.is_not_stopped(view, uid, goal == Goal::Rollback);
    }

    /// Nothing new begins once a payload was denied, a rollout paused, or a node left out, by a controller that has read
    /// that.
    ///
    /// A node that `returns` does so because of the denial, and only where that is wanted.
    fn is_not_stopped(&mut self, view: &View, uid: &str, returns: bool) {
        let before = |at: Option<Seconds>| at.is_none_or(|at| at >= view.read);
        let is_denied = !before(self.laws.denied.get(&view.pool).copied());
        self.laws.must(!is_denied || returns, || format!("denied: {uid} is to begin with a payload that is denied"));
        let says = view.facts.nodes.iter().find(|observed| observed.node.uid == uid);
        let may = says.is_some_and(|observed| {
            let of = view.facts.rollback.filter(|_| view.facts.denied.is_some());
            of.is_some_and(|of| of.control_plane || observed.node.role == Role::Worker) && observed.runs(NEW)
        });
        self.laws.must(may || !returns, || format!("the way back: {uid} is to go back, and no rollback is wanted"));
        let is_stopped = !before(self.laws.stopped.get(&view.pool).copied());
        self.laws
            .must(!is_stopped || returns, || format!("stopped: {uid} is to begin, and its rollout stopped by itself"));
        let is_aborted = !before(self.laws.aborted.get(&view.pool).copied());
        self.laws.must(!is_aborted, || format!("aborted: {uid} is to begin, and its rollout was given up"));
        let is_paused = !before(self.laws.paused.get(view.pool).copied().flatten());
        self.laws.must(!is_paused, || format!("paused: {uid} is to begin while its rollout is paused"));
        let approvals = self.api.rollouts[view.pool].object.approvals.iter();
        let approved = approvals.filter(|given| given.plan == view.facts.plan.hash).map(|given| given.waves).max();
        let waves = &view.facts.plan.waves;
        // Somebody is asked before the last wave, whatever it has.
        let canaries = waves[..waves.len().saturating_sub(1)].iter().rposition(|wave| wave.soak.is_some());
        let wave = view.facts.plan.nodes().find(|(_, node)| node.uid == uid).map(|(wave, _)| wave);
        let is_approved =
            returns || wave.is_none_or(|wave| view.terms.is_approved(wave, canaries, approved.unwrap_or(0)));
        self.laws.must(is_approved, || format!("approvals: {uid} is to begin, and {approved:?} waves are approved"));
        let is_skipped = !before(self.laws.skipped.get(uid).copied());
        self.laws.must(!is_skipped, || format!("skipped: {uid} is to begin, and was left out"));
    }

    /// A grant was written upon this ledger.
    pub fn may_be_granted(&mut self, before: &Ledger, write: &Write, node: &Node) {
        let view = &write.view;
        let token = self.api.ledger.object.epoch;
        let now = stamp(write.made, 0);
        let pool = view.pool;
        let given = std::mem::take(&mut self.laws.given);
        let counts = |at: jiff::Timestamp| view.terms.rates().any(|rate| rate.per.after(at) > now);
        let mut given: Vec<_> = given.into_iter().filter(|(of, at)| *of != pool || counts(*at)).collect();
        let of_pool: Vec<_> = given.iter().filter(|(of, _)| *of == pool).map(|(_, at)| *at).collect();
        let law = self.refuses(before, write, node).or_else(|| {
            let is_over = |rate: &slipway_rollout::ledger::Rate| {
                of_pool.iter().filter(|at| rate.per.after(**at) > now).count() as u64 >= u64::from(rate.count)
            };
            view.terms.rates().any(|rate| is_over(&rate)).then(|| format!("rates: {} is over the rate", node.name))
        });
        if view.terms.rates().next().is_some() {
            given.push((pool, now));
        }
        self.laws.given = given;
        // Where the ledger was lost, tokens are given again. This is another attempt than the one that had it before.
        self.laws.deferred.remove(&(node.uid.clone(), token));
        if view.facts.denied.is_none() {
            let count = self.laws.granted.entry(node.uid.clone()).or_default();
            *count += 1;
            let count = count.saturating_sub(self.laws.taken_out.get(&node.uid).copied().unwrap_or(0));
            self.laws.must(count <= MOST, || format!("attempts: {} is granted for the {count}th time", node.name));
            // One at the end of this window, and then one in each: from one to the next it takes an hour at least.
            let (many, since) = self.laws.repeated.get(&node.uid).copied().unwrap_or((0, self.now));
            let most = 2 + (self.now - since) / 3600;
            self.laws.must(many <= most || self.laws.has_wrong_clock, || {
                format!("repeats: {} is granted after {many} attempts that ended before the reboot", node.name)
            });
        }
        let size = view.facts.nodes.len() as u64;
        self.laws.allowed.insert(token, view.terms.budget(size));
        if let Some((terms, size)) = view.younger.as_ref().filter(|_| self.scenario.shared.names.contains(&node.name)) {
            self.laws.allowed_in_younger.insert(token, terms.budget(*size));
        }
        self.is_not_stopped(&std::rc::Rc::clone(view), &node.uid, view.facts.denied.is_some());
        if let Some(law) = law {
            self.laws.break_it(law);
        }
    }

    /// The attempts were written: one that was deferred does not count any more, also if the controller dies before it frees
    /// the grant, and another reason frees it later.
    fn attempts_were_written(&mut self, view: &View, written: &History) {
        for grant in &view.facts.ledger.grants {
            let uid = grant.node.uid.as_str();
            let is_deferred = written.nodes.get(uid).is_some_and(|of| of.deferred && of.token == grant.token);
            let is_word = |evidence: &Evidence| evidence.uid == uid && matches!(evidence.proof, Proof::Word { .. });
            if is_deferred {
                self.attempt_ended(view, uid, grant.token, view.facts.evidence.iter().any(is_word));
            }
        }
    }

    /// An attempt is over. Where a person said that, or the node says that it came back before the reboot, it does not count.
    pub fn attempt_ended(&mut self, view: &View, uid: &str, token: u64, is_word: bool) {
        let says = view.facts.nodes.iter().find(|observed| observed.node.uid == uid);
        let says = says.and_then(|observed| observed.report.as_ref());
        let is_early = says.is_some_and(|says| {
            let evidence = says.failed.as_ref().map(|failure| failure.evidence);
            says.token == token && says.runs != NEW && !says.busy && evidence == Some(FailureEvidence::BeforeReboot)
        });
        let is_repeated = view.facts.denied.is_none() && (is_word || is_early);
        let is_repeated = is_repeated && !self.laws.by_hand.contains(&(uid.to_owned(), token));
        if is_repeated && self.laws.deferred.insert((uid.to_owned(), token)) {
            let count = self.laws.granted.entry(uid.to_owned()).or_default();
            *count = count.saturating_sub(1);
            self.laws.repeated.entry(uid.to_owned()).or_insert((0, self.now)).0 += 1;
        }
    }

    /// Why it should not have been granted.
    fn refuses(&self, before: &Ledger, write: &Write, node: &Node) -> Option<String> {
        let (view, name) = (&write.view, &node.name);
        let nodes = &view.facts.nodes;
        if !is_open(view, write.made) {
            return Some(format!("windows: {name} is granted at {}", stamp(write.made, 0)));
        }
        let ill: Vec<&Node> =
            nodes.iter().filter(|observed| !observed.is_well()).map(|observed| &observed.node).collect();
        let is_ill = ill.iter().any(|other| other.uid == node.uid);
        // A node that is ill without a grant does not count against one that is ill itself.
        let ill = ill.into_iter().chain(&view.facts.elsewhere).filter(|_| !is_ill);
        let held = before.grants.iter().map(|grant| &grant.node);
        let out: BTreeMap<&str, &Node> = ill.chain(held).map(|other| (other.uid.as_str(), other)).collect();
        if before.held(&node.uid).is_some() {
            return Some(format!("grants: {name} holds one already"));
        }
        if before.kubernetes.is_some() {
            return Some(format!("kubernetes: {name} is granted while it is upgraded"));
        }
        let others = out.values().filter(|other| other.uid != node.uid);
        // One that is gone has no labels. Its grant stays in its own pool.
        let is_shared = |other: &Node| self.scenario.is_shared(&other.name, view.pool) && self.api.exists(&other.uid);
        let is_in = |other: &Node| other.pool == node.pool || is_shared(other);
        let in_pool: Vec<&&Node> = others.clone().filter(|other| is_in(other)).collect();
        let budget = view.terms.budget(nodes.len() as u64);
        if in_pool.len() as u64 >= budget {
            return Some(format!("budget: {name} is granted beside {}, and {budget} may be out", in_pool.len()));
        }
        let is_other = others.clone().any(|other| other.role == Role::ControlPlane);
        if node.role == Role::ControlPlane && is_other {
            return Some(format!("control plane: {name} is granted beside another one"));
        }
        let zones: BTreeSet<String> = in_pool.iter().map(|other| zone(other)).chain([zone(node)]).collect();
        if view.terms.zones().is_some_and(|most| zones.len() as u64 > most) {
            return Some(format!("zones: {name} is granted in {zones:?}"));
        }
        // On the way back waves are over, and nothing is staged.
        if view.facts.denied.is_some() { None } else { self.overtakes(write, node) }
    }

    /// Who is ill takes nobody's place, and no worker that of the control plane, for which `other` waits.
    fn takes_no_place(&self, facts: &Facts, node: &Node, other: &Node) -> bool {
        let ill = facts.nodes.iter().filter(|observed| !observed.is_well()).map(|observed| &observed.node);
        if ill.clone().any(|ill| ill.uid == node.uid) {
            return true;
        }
        let is_plane = |of: &Node| of.role == Role::ControlPlane;
        let grants = self.api.ledger.object.grants.iter().chain(&facts.ledger.grants);
        let mut out = grants.map(|grant| &grant.node).chain(ill).chain(&facts.elsewhere);
        is_plane(other) && !is_plane(node) && out.any(|of| is_plane(of) && of.uid != other.uid)
    }

    /// The plan's order: each node before it has gone, or cannot; and the waves before it are over.
    fn overtakes(&self, write: &Write, node: &Node) -> Option<String> {
        let facts = &write.view.facts;
        let plan: &Plan = &facts.plan;
        let observed: BTreeMap<&str, &ObservedNode> =
            facts.nodes.iter().map(|observed| (observed.node.uid.as_str(), observed)).collect();
        let (wave, _) = plan.nodes().find(|(_, planned)| planned.uid == node.uid)?;
        let held: BTreeSet<&str> = self.api.ledger.object.grants.iter().map(|grant| grant.node.uid.as_str()).collect();
        // A grant that this look freed was held when the look was made.
        let held_then = |uid: &str| held.contains(uid) || facts.ledger.held(uid).is_some();
        // It has no attempt left: others wait for it no more.
        let is_spent = |uid: &str| self.laws.granted.get(uid).is_some_and(|count| *count >= MOST);
        // It waits for the next window, although it does not say so any more.
        let is_deferred = |uid: &str| facts.attempts.nodes.get(uid).is_some_and(|of| of.deferred);
        for (earlier, other) in plan.nodes().take_while(|(_, other)| other.uid != node.uid) {
            let uid = other.uid.as_str();
            let is_in = !facts.skip.contains(uid) && (!is_spent(uid) || held.contains(uid));
            let Some(observed) = observed.get(uid).filter(|_| is_in) else { continue };
            let says = observed.report.as_ref();
            let is_ahead = |says: &NodeReport| says.token > facts.ledger.highest();
            let is_unstaged = |says: &NodeReport| view_is_late(write) && says.staged != Some(NEW);
            let cannot =
                says.is_none_or(|says| says.failed.is_some() || says.busy || is_ahead(says) || is_unstaged(says));
            // One with the labels of two pools waits for room in both, and nobody waits for it.
            let cannot = cannot || self.scenario.shared.names.contains(&other.name);
            let cannot = cannot || self.takes_no_place(facts, node, other);
            // Nothing that others do gives it a zone.
            let cannot = cannot || (other.zone.is_none() && write.view.terms.zones().is_some());
            let has_gone = is_deferred(uid) || held_then(uid) || says.is_some_and(|says| says.runs == NEW);
            if !has_gone && !cannot {
                return Some(format!("order: {} overtakes {}", node.name, other.name));
            }
            let is_out = |says: &NodeReport| is_ahead(says) || says.failed.as_ref().is_some_and(is_final);
            let is_over = says.is_some_and(|says| (says.runs == NEW && observed.is_well()) || is_out(says));
            if earlier < wave && earlier >= facts.passed && !is_over {
                return Some(format!("waves: {} goes, and {} of an earlier wave is not done", node.name, other.name));
            }
        }
        let lacks = |observed: &ObservedNode| {
            let says = observed.report.as_ref();
            says.is_some_and(|says| {
                let is_out = says.token > facts.ledger.highest() || says.failed.as_ref().is_some_and(is_final);
                says.runs != NEW && says.staged != Some(NEW) && !is_out
            })
        };
        let planned: BTreeSet<&str> = plan.nodes().map(|(_, node)| node.uid.as_str()).collect();
        let counts = |observed: &&ObservedNode| {
            let uid = observed.node.uid.as_str();
            planned.contains(uid) && !facts.skip.contains(uid) && !held_then(uid) && !is_spent(uid)
        };
        // Later no node waits for that.
        if view_is_late(write) {
            return None;
        }
        let lacking = facts.nodes.iter().filter(counts).find(|observed| lacks(observed));
        lacking.map(|observed| format!("staging: {} goes, and {} has not staged", node.name, observed.node.name))
    }

    /// A rollout was written: a denied payload was bad, and a wave that is over has soaked.
    pub fn rollout_was_written(&mut self, write: &Write) {
        let view = &write.view;
        match &write.change {
            Change::Deny(_) => {
                let was_finished = self.api.rollouts[view.pool].object.finished;
                self.laws.must(!was_finished, || "denied: a rollout that was finished".to_owned());
                self.counts.denied += 1;
                self.laws.denied.entry(view.pool).or_insert(self.now);
                self.is_bad(&std::rc::Rc::clone(view));
            }
            Change::Pause(_) => {
                self.laws.stopped.entry(view.pool).or_insert(self.now);
                self.may_be_stopped(&std::rc::Rc::clone(view));
            }
            Change::Passed(passed) => self.has_soaked(&std::rc::Rc::clone(view), *passed),
            Change::Attempts(attempts) => self.attempts_were_written(&std::rc::Rc::clone(view), attempts),
            _ => {}
        }
    }

    /// The controllers pause a rollout of which too much failed, or whose canaries do not stay well.
    fn may_be_stopped(&mut self, view: &View) {
        let facts = &view.facts;
        let failed = |node: &Node| {
            let observed = facts.nodes.iter().find(|of| of.node.uid == node.uid && !facts.skip.contains(&node.uid));
            let report = observed.and_then(|observed| observed.report.as_ref());
            let is_ill = report.is_some_and(|says| says.runs == NEW && !says.well);
            let says = report.filter(|says| says.runs != NEW).and_then(|says| says.failed.as_ref());
            let counts =
                |says: &Failure| matches!(says.evidence, FailureEvidence::AfterReboot | FailureEvidence::Unknown);
            // With the grant that this look has freed.
            let spent = facts.attempts.nodes.get(&node.uid).is_some_and(|of| of.count + 1 >= MOST);
            is_ill || says.is_some_and(counts) || (observed.is_some() && spent)
        };
        let total = facts.plan.nodes().count() as u64;
        let many = facts.plan.nodes().filter(|(_, node)| failed(node)).count() as u64;
        let canary = facts.plan.nodes().any(|(wave, node)| facts.plan.soaking_wave(wave).is_some() && failed(node));
        let unsteady = facts.interruption.as_ref().is_some_and(|of| of.times >= Interruption::MANY);
        let is_enough = canary || unsteady || many >= view.terms.failures(total);
        self.laws.must(is_enough, || format!("stopped: {many} of {total} failed, and that was not enough"));
    }

    /// A look in which no node could be asked says of no canary that it is not well.
    pub fn blames_nobody_unseen(&mut self, view: &View, decision: &Decision) {
        let facts = &view.facts;
        let is_over = decision.passed > facts.passed;
        let is_blamed = view.is_blind && !is_over && decision.interruption != facts.interruption;
        self.laws.must(!is_blamed, || format!("blind looks: a soak begins anew: {:?}", decision.interruption));
        let denies = decision.steps.iter().any(|step| matches!(step, Action::Deny { .. }));
        self.laws.must(!view.is_blind || !denies, || "blind looks: a payload is denied".to_owned());
    }

    fn is_bad(&mut self, view: &View) {
        let facts = &view.facts;
        let observed: BTreeMap<&str, &ObservedNode> =
            facts.nodes.iter().map(|observed| (observed.node.uid.as_str(), observed)).collect();
        let says = |node: &Node| {
            let is_in = !facts.skip.contains(&node.uid);
            observed.get(node.uid.as_str()).filter(|_| is_in).and_then(|observed| observed.report.as_ref())
        };
        let is_failed =
            |node: &Node| says(node).is_some_and(|says| says.failed.as_ref().is_some_and(tells) && says.runs != NEW);
        let is_ill = |node: &Node| says(node).is_some_and(|says| says.runs == NEW && !says.well);
        let total = facts.plan.nodes().count() as u64;
        let failed = facts.plan.nodes().filter(|(_, node)| is_failed(node)).count() as u64;
        let is_canary = |wave: usize| facts.plan.waves[wave..].iter().any(|wave| wave.soak.is_some());
        let canary = facts.plan.nodes().any(|(wave, node)| is_canary(wave) && (is_failed(node) || is_ill(node)));
        let is_enough = canary || failed >= view.terms.failures(total);
        self.laws.must(is_enough, || format!("denied: {failed} of {total} failed, and that was not enough"));
    }

    fn has_soaked(&mut self, view: &View, passed: usize) {
        let facts = &view.facts;
        let now = stamp(self.now, view.offset);
        for (n, wave) in facts.plan.waves.iter().enumerate().take(passed).skip(facts.passed) {
            // A person wanted it to be passed over when the controller looked; but a node must have tried it.
            let wants =
                facts.window_override.filter(|window_override| stamp(view.read, view.offset) < window_override.until);
            let is_passed_over = wants.is_some_and(|window_override| window_override.soak == Some(n));
            let Some(soak) = wave.soak else { continue };
            let uids = canaries(&facts.plan, n);
            let done = facts.nodes.iter().filter(|observed| uids.contains(observed.node.uid.as_str()));
            let done: Vec<&ObservedNode> = done.filter(|observed| observed.runs(NEW) && observed.is_well()).collect();
            let is_long =
                |observed: &&ObservedNode| observed.report.as_ref().is_some_and(|says| soak.after(says.since) <= now);
            let seen = self.laws.all_done.get(&(view.pool, n)).copied();
            let is_seen = seen.is_some_and(|seen| soak.after(stamp(seen, 0)) <= stamp(self.now, 0));
            self.laws.must(is_seen || is_passed_over || self.laws.has_wrong_clock, || {
                format!("soaks: a wave is over that was not seen well for {soak}")
            });
            let is_over = !done.is_empty() && (is_passed_over || done.iter().all(is_long));
            self.laws.must(is_over, || format!("soaks: a wave is over before its canaries were well for {soak}"));
        }
    }
}

/// The nodes that soak with this wave: its own, and those of the waves before it that are after the last soak.
pub fn canaries(plan: &Plan, wave: usize) -> BTreeSet<&str> {
    let earlier = plan.waves[..wave].iter().rev().take_while(|wave| wave.soak.is_none());
    let waves = earlier.chain(&plan.waves[wave..=wave]);
    waves.flat_map(|wave| &wave.nodes).map(|node| node.uid.as_str()).collect()
}

/// It is not tried again.
fn is_final(failure: &Failure) -> bool {
    failure.evidence != FailureEvidence::BeforeReboot
}

/// It says something of the payload.
fn tells(failure: &Failure) -> bool {
    failure.evidence == FailureEvidence::AfterReboot
}

/// Longer after the rollout was made than others wait for a node to stage.
fn view_is_late(write: &Write) -> bool {
    // The decision was made after its reads, and before this.
    write.made > 3600
}

/// True if nodes may begin then: policies allow it, or a person's word does.
fn is_open(view: &View, at: Seconds) -> bool {
    view.terms.is_open(at)
        || view.facts.window_override.is_some_and(|window_override| stamp(at, 0) < window_override.until)
}

fn zone(node: &Node) -> String {
    node.zone.clone().unwrap_or_else(|| format!("unknown, {}", node.name))
}
