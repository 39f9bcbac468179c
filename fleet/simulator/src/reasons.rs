//! Every node that is not done has one reason, a node that is reported done is done, and a rollout that does not go on has
//! reasons that are so.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use slipway_rollout::{
    attempts::MOST,
    blocked::Blocked,
    decide::{Action, Decision, decide},
    facts::{Facts, FailureEvidence, ObservedNode, RollbackState},
    ledger::{Refusal, Role},
};

use crate::{
    NEW,
    clock::{DAY, stamp},
    controller_state::PendingAction,
    grant_laws::canaries,
    view::View,
    world::World,
};

impl World {
    /// A node that is not done has one reason, and one that is done has none.
    pub fn everybody_has_a_reason(&mut self, view: &View, decision: &Decision) {
        let mut reasons: BTreeMap<&str, u32> = BTreeMap::new();
        for blocked in &decision.blocked {
            *reasons.entry(&blocked.node.uid).or_default() += 1;
        }
        let freed = |action: &Action| match action {
            Action::Free { uid, .. } => Some(uid.clone()),
            _ => None,
        };
        let freed: BTreeSet<String> = decision.steps.iter().filter_map(freed).collect();
        let held = view.facts.ledger.grants.iter().map(|grant| grant.node.uid.as_str());
        let held: BTreeSet<&str> = held.filter(|uid| !freed.contains(*uid)).collect();
        let Facts { rollback: back, denied, aborted, plan, .. } = &view.facts;
        let go_back = back.is_some() && denied.is_some() && aborted.is_none() && plan.is_whole();
        let planned: BTreeSet<&str> = plan.nodes().map(|(_, node)| node.uid.as_str()).collect();
        let wrong = view.facts.nodes.iter().find(|observed| {
            let uid = observed.node.uid.as_str();
            let is_to_go_back = go_back && planned.contains(uid);
            let is_done = observed.runs(NEW) && observed.is_well() && !held.contains(uid) && !is_to_go_back;
            reasons.get(uid).copied().unwrap_or(0) != u32::from(!is_done)
        });
        let law = wrong.map(|observed| {
            format!("reasons: {} has {:?}", observed.node.name, reasons.get(observed.node.uid.as_str()))
        });
        if let Some(law) = law {
            self.laws.break_it(law);
        }
        self.sees_what_is_done(view);
        self.fails_by_what_counts(view, decision);
        let is_lower = decision.passed < view.facts.passed;
        self.laws.must(!is_lower, || "waves: a wave that was over is not any more".to_owned());
    }

    /// Who failed because its attempts are used up was granted so often, not counting attempts that ended before the reboot.
    fn fails_by_what_counts(&mut self, view: &View, decision: &Decision) {
        let nodes = view.facts.nodes.iter().filter(|observed| {
            let says = observed.failure().map(|failure| failure.evidence);
            matches!(says, None | Some(FailureEvidence::BeforeReboot))
        });
        let uids: BTreeSet<&str> = nodes.map(|observed| observed.node.uid.as_str()).collect();
        let failed = decision.blocked.iter().filter(|blocked| matches!(blocked.why, Blocked::Failed(_)));
        let early = failed.filter(|blocked| uids.contains(blocked.node.uid.as_str())).find_map(|blocked| {
            let count = self.laws.granted.get(&blocked.node.uid).copied().unwrap_or(0);
            let by_hand = self.laws.by_hand.iter().filter(|(uid, _)| *uid == blocked.node.uid).count();
            (count as usize + by_hand < MOST as usize)
                .then(|| format!("attempts: {} has failed, and {count} attempts count", blocked.node.name))
        });
        if let Some(law) = early {
            self.laws.break_it(law);
        }
    }

    /// When a controller has first seen all nodes of a wave done. What breaks that is in the law of what nodes say.
    fn sees_what_is_done(&mut self, view: &View) {
        let observed: BTreeMap<&str, &ObservedNode> =
            view.facts.nodes.iter().map(|of| (of.node.uid.as_str(), of)).collect();
        for n in 0..view.facts.plan.waves.len() {
            let of = canaries(&view.facts.plan, n);
            let is_open = |uid: &str| {
                let Some(of) = observed.get(uid).filter(|_| !view.facts.skip.contains(uid)) else { return false };
                let is_out = of.failure().is_some() || of.report.as_ref().is_some_and(|of| of.runs != NEW);
                !is_out && !of.is_well()
            };
            let is_done = |uid: &str| observed.get(uid).is_some_and(|of| of.runs(NEW) && of.is_well());
            if of.iter().all(|uid| !is_open(uid)) && of.iter().any(|uid| is_done(uid)) {
                self.laws.all_done.entry((view.pool, n)).or_insert(self.now);
            }
        }
    }

    /// The ledger has lost the token that it obeyed: it was deleted, or a person gave that grant and took it out.
    fn is_not_given(&self, uid: &str, facts: &Facts) -> bool {
        let highest = facts.ledger.highest();
        self.laws.is_lost || self.laws.by_hand.iter().any(|(of, token)| of == uid && *token > highest)
    }

    /// It may have obeyed a higher token than this one: the ledger was deleted, or a person gave this grant.
    fn is_beside_another(&self, uid: &str, token: u64) -> bool {
        self.laws.is_lost || self.laws.by_hand.contains(&(uid.to_owned(), token))
    }

    /// A rollout that is said to be over is: each of its nodes runs the payload for good, failed, was left out, has
    /// gone back, or is gone.
    pub fn reports_what_is_so(&mut self, view: &View, decision: &Decision) {
        if !decision.finished {
            return;
        }
        let not_so = view.facts.plan.nodes().find(|(_, node)| {
            let Some((n, _)) = self.uids.get(&node.uid).copied() else { return true };
            let machine = &self.machines[n];
            let is_out = !self.api.exists(&node.uid) || view.facts.skip.contains(&node.uid);
            let is_done = machine.runs() == Some(NEW) && machine.is_confirmed();
            let has_failed = machine.report().is_none_or(|report| report.failed.is_some()) || machine.has_lied;
            let has_failed = has_failed || is_spent(decision, &node.uid);
            // Nobody waits for what it obeys of a ledger that was deleted, or of a person: that may begin after the look.
            let is_beside = self.laws.is_lost || self.laws.by_hand.iter().any(|(uid, _)| *uid == node.uid);
            let has_failed = has_failed || is_beside;
            // A node that went back, before people gave the rollout up, is seen on the payload in what it said before that.
            let is_back = view.facts.aborted.is_some() && machine.has_gone_back();
            !is_out && !is_done && !has_failed && !is_back && !machine.is_dead
        });
        let law =
            not_so.map(|(_, node)| format!("reports: the rollout is said to be over, and {} is not done", node.name));
        if let Some(law) = law {
            self.laws.break_it(law);
        }
        self.finished[view.pool].get_or_insert(self.now);
    }

    /// Only a node that lies is asked: it may be asked for ever for what it has done.
    pub fn is_for_a_liar(&self, todo: &PendingAction) -> bool {
        let PendingAction::Decided(
            Action::Stage { uid, .. }
            | Action::Begin { uid, .. }
            | Action::Return { uid, .. }
            | Action::Abort { uid, .. },
        ) = todo
        else {
            return false;
        };
        self.uids.get(uid).is_some_and(|(n, _)| self.machines[*n].has_lied)
    }

    /// Nothing is done, and nothing has changed for two days in which nothing went wrong: then the reasons are so.
    pub fn is_idle(&mut self, pool: usize, is_idle: bool, decision: &Decision) {
        let is_long = self.is_calm && self.now > self.laws.changed + 2 * DAY;
        if !is_long || !is_idle || decision.finished {
            return;
        }
        let Some(facts) = self.truth(pool) else { return };
        let now = stamp(self.now, 0);
        let decision = decide(&facts, now);
        let mut may_still_come = false;
        for blocked in &decision.blocked {
            match self.is_so(&facts, &decision, &blocked.node.uid, &blocked.why) {
                Fair::Stays => {}
                Fair::Comes => may_still_come = true,
                Fair::Wrong => {
                    let (name, why) = (&blocked.node.name, &blocked.why);
                    self.laws.break_it(format!("ends: {name} does not go, and what is said of it is not so: {why:?}"));
                }
            }
        }
        if !may_still_come {
            self.laws.stuck.insert(pool);
            self.trace.say(self.now, || format!("pool {pool} does not go on: {:?}", decision.blocked));
        }
        let is_done = |pool: usize| self.laws.stuck.contains(&pool) || self.finished[pool].is_some();
        self.laws.is_stuck = (0..self.scenario.pools.len()).all(is_done);
    }

    /// Tells whether the reason of a node that does not go is true, after two days in which nothing changed.
    fn is_so(&self, facts: &Facts, decision: &Decision, uid: &str, why: &Blocked) -> Fair {
        let machine = self.uids.get(uid).map(|(n, _)| &self.machines[*n]);
        let is_dead = machine.is_none_or(|machine| machine.is_dead);
        let is_ill = machine.is_none_or(|machine| !machine.is_well);
        let is_held_up =
            machine.is_some_and(|machine| machine.journal.operation.as_ref().is_some_and(|op| op.blocker.is_some()));
        let holds = |token: u64| facts.ledger.held(uid).is_some_and(|of| of.token == token);
        let seen = |uid: &str| facts.nodes.iter().find(|observed| observed.node.uid == uid);
        let waits =
            |name: &str| decision.blocked.iter().any(|blocked| blocked.node.name == *name && blocked.node.uid != uid);
        let is_out = |observed: &ObservedNode| self.is_out(facts, observed) || is_spent(decision, &observed.node.uid);
        let is_so = match why {
            Blocked::Paused(_) => is_paused(facts),
            Blocked::Denied(_) => facts.denied.is_some(),
            Blocked::Aborted(_) => facts.aborted.is_some(),
            Blocked::AbortedHolder { token } => facts.aborted.is_some() && holds(*token),
            Blocked::Aborts { .. } | Blocked::UnderWay { .. } => is_ill || is_held_up,
            Blocked::Stays(_) => {
                let may = seen(uid).is_some_and(|observed| {
                    observed.node.role == Role::Worker || facts.rollback.is_some_and(|of| of.control_plane)
                });
                facts.denied.is_some()
                    && (!may || machine.is_none_or(|machine| machine.rollback_state() != RollbackState::Available))
            }
            Blocked::NotInPlan => facts.plan.nodes().all(|(_, node)| node.uid != uid),
            Blocked::Skipped => facts.skip.contains(uid),
            Blocked::Failed(_) => is_spent(decision, uid) || seen(uid).is_some_and(|of| of.failure().is_some()),
            Blocked::RetriesLater { from, .. } | Blocked::ReturnsLater { from, .. } => {
                // Nothing ever opens.
                if *from < Timestamp::MAX {
                    return Fair::Comes;
                }
                true
            }
            Blocked::TokenAhead { .. } => machine.is_some_and(|of| of.has_lied) || self.is_not_given(uid, facts),
            Blocked::Silent => is_dead && facts.ledger.held(uid).is_none(),
            Blocked::SilentHolder { token } => is_dead && holds(*token),
            Blocked::Overtaken { token, .. } => self.is_beside_another(uid, *token),
            Blocked::Busy => is_held_up,
            Blocked::NotWell => is_ill,
            Blocked::Gone { .. } => !self.api.exists(uid),
            Blocked::Moved { .. } => self.api.exists(uid),
            Blocked::ForeignGrant { token, .. } => holds(*token),
            Blocked::Wave { first, .. } | Blocked::After(first) => waits(first),
            Blocked::NoCanary { wave, .. } => facts
                .plan
                .waves
                .get(wave - 1)
                .is_some_and(|wave| wave.nodes.iter().all(|node| seen(&node.uid).is_none_or(is_out))),
            Blocked::Approval { wave, .. } => {
                facts.approvals.iter().all(|given| given.plan != facts.plan.hash || given.waves < *wave)
            }
            Blocked::Closed(closed) => match closed.opens {
                Some(_) => return Fair::Comes,
                None => true,
            },
            Blocked::Soak { .. } => return Fair::Comes,
            Blocked::Refused(refused) => return self.is_refused(refused, decision),
            // A controller that runs does these at once. None of the others holds a node for long; and no node is replaced
            // here.
            _ => false,
        };
        // The reports of a liar, and their results for itself, need not be true.
        let has_lied = machine.is_some_and(|machine| machine.has_lied);
        if is_so || has_lied { Fair::Stays } else { Fair::Wrong }
    }

    /// No canary any more: left out, failed, or set aside because it lies.
    fn is_out(&self, facts: &Facts, observed: &ObservedNode) -> bool {
        let uid = &observed.node.uid;
        let has_lied = self.uids.get(uid).is_some_and(|(n, _)| self.machines[*n].has_lied);
        facts.skip.contains(uid) || observed.failure().is_some() || has_lied
    }

    /// The ledger's reason is true.
    fn is_refused(&self, refused: &Refusal, decision: &Decision) -> Fair {
        let is_out = |name: &String| {
            let holds = self.api.ledger.object.grants.iter().any(|grant| grant.node.name == *name);
            let is_waiting = decision.blocked.iter().any(|blocked| blocked.node.name == *name);
            // One of another pool that counts here may say that it is ill, and lie.
            let is_ill = self.named(name).is_some_and(|n| !self.machines[n].is_well || self.machines[n].has_lied);
            holds || is_waiting || is_ill
        };
        let is_so = match refused {
            Refusal::Budget { budget, charged, .. } => {
                charged.len() as u64 >= u64::from(*budget) && charged.iter().all(is_out)
            }
            Refusal::ControlPlane { other } => is_out(other),
            Refusal::Zone { others, .. } => !others.is_empty(),
            Refusal::NoZone => true,
            Refusal::Shared { why, .. } => return self.is_refused(why, decision),
            Refusal::Rate { again: Some(_), .. } => return Fair::Comes,
            Refusal::Rate { count, .. } => *count == 0,
            // Its end comes, by those who upgrade or by a person.
            Refusal::Kubernetes { token, .. } => {
                let claim = self.api.ledger.object.kubernetes.as_ref();
                return if claim.is_some_and(|claim| claim.token == *token) { Fair::Comes } else { Fair::Wrong };
            }
            Refusal::Holds { .. } | Refusal::Closed | Refusal::Full { .. } | Refusal::Spent | Refusal::Newer { .. } => {
                false
            }
        };
        if is_so { Fair::Stays } else { Fair::Wrong }
    }
}

/// Only a person's pause holds back who goes back.
fn is_paused(facts: &Facts) -> bool {
    if facts.denied.is_some() { facts.paused.is_some() } else { facts.pause().is_some() || facts.finished }
}

/// It has no attempt left.
fn is_spent(decision: &Decision, uid: &str) -> bool {
    decision.attempts.nodes.get(uid).is_some_and(|of| of.is_spent())
}

/// The fate of a node that does not go.
enum Fair {
    /// It stays like that, and it is known why.
    Stays,
    /// Its time comes.
    Comes,
    /// The given reason is not true.
    Wrong,
}
