//! Every node that is not done has one reason, what is reported done is so, and a rollout that does not go on has
//! reasons that are so.

use std::collections::{BTreeMap, BTreeSet};

use slipway_rollout::{
    decide::{Decision, decide},
    facts::{Seen, Snapshot, Way},
    ledger::{Refused, Role},
    why::WhyNot,
};

use crate::{
    clock::{DAY, stamp},
    scenario::NEW,
    view::View,
    world::World,
};

impl World {
    /// Who is not done has one reason, and who is done has none.
    pub fn everybody_has_a_reason(&mut self, view: &View, decision: &Decision) {
        let mut reasons: BTreeMap<&str, u32> = BTreeMap::new();
        for waiting in &decision.waiting {
            *reasons.entry(&waiting.node.uid).or_default() += 1;
        }
        let freed = |action: &slipway_rollout::decide::Action| match action {
            slipway_rollout::decide::Action::Free { uid, .. } => Some(uid.clone()),
            _ => None,
        };
        let freed: BTreeSet<String> = decision.actions.iter().filter_map(freed).collect();
        let held = view.snapshot.ledger.grants.iter().map(|grant| grant.node.uid.as_str());
        let held: BTreeSet<&str> = held.filter(|uid| !freed.contains(*uid)).collect();
        let Snapshot { back, denied, aborted, plan, .. } = &view.snapshot;
        let go_back = back.is_some() && denied.is_some() && aborted.is_none() && plan.is_whole();
        let planned: BTreeSet<&str> = plan.nodes().map(|(_, node)| node.uid.as_str()).collect();
        let wrong = view.snapshot.nodes.iter().find(|seen| {
            let uid = seen.node.uid.as_str();
            let is_to_go_back = go_back && planned.contains(uid);
            let is_done = seen.runs(NEW) && seen.is_well() && !held.contains(uid) && !is_to_go_back;
            reasons.get(uid).copied().unwrap_or(0) != u32::from(!is_done)
        });
        let law =
            wrong.map(|seen| format!("reasons: {} has {:?}", seen.node.name, reasons.get(seen.node.uid.as_str())));
        if let Some(law) = law {
            self.laws.break_it(law);
        }
        let is_lower = decision.passed < view.snapshot.passed;
        self.laws.must(!is_lower, || "waves: a wave that was over is not any more".to_owned());
    }

    /// A rollout that is said to be over is: each of its nodes runs the payload for good, failed, was left out, has
    /// gone back, or is gone.
    pub fn reports_what_is_so(&mut self, view: &View, decision: &Decision) {
        if !decision.finished {
            return;
        }
        let not_so = view.snapshot.plan.nodes().find(|(_, node)| {
            let Some((n, _)) = self.uids.get(&node.uid).copied() else { return true };
            let machine = &self.machines[n];
            let is_out = !self.api.exists(&node.uid) || view.snapshot.skip.contains(&node.uid);
            let is_done = machine.runs() == Some(NEW) && machine.is_confirmed();
            let has_failed = machine.report().is_none_or(|report| report.failed.is_some());
            // Who went back, before people gave the rollout up, is seen on the payload in what it said before that.
            let is_back = view.snapshot.aborted.is_some() && machine.has_gone_back();
            !is_out && !is_done && !has_failed && !is_back && !machine.is_dead
        });
        let law =
            not_so.map(|(_, node)| format!("reports: the rollout is said to be over, and {} is not done", node.name));
        if let Some(law) = law {
            self.laws.break_it(law);
        }
        self.finished[view.pool].get_or_insert(self.now);
    }

    /// Nothing is done, and nothing has changed for two days in which nothing went wrong: then the reasons are so.
    pub fn is_idle(&mut self, pool: usize, is_idle: bool, decision: &Decision) {
        let is_long = self.is_calm && self.now > self.laws.changed + 2 * DAY;
        if !is_long || !is_idle || decision.finished {
            return;
        }
        let Some(snapshot) = self.truth(pool) else { return };
        let now = stamp(self.now, 0);
        let decision = decide(&snapshot, now);
        let mut may_still_come = false;
        for waiting in &decision.waiting {
            match self.is_so(&snapshot, &decision, &waiting.node.uid, &waiting.why) {
                Fair::Stays => {}
                Fair::Comes => may_still_come = true,
                Fair::Wrong => {
                    let (name, why) = (&waiting.node.name, &waiting.why);
                    self.laws.break_it(format!("ends: {name} does not go, and what is said of it is not so: {why:?}"));
                }
            }
        }
        if !may_still_come {
            self.laws.stuck.insert(pool);
            self.trace.say(self.now, || format!("pool {pool} does not go on: {:?}", decision.waiting));
        }
        let is_done = |pool: usize| self.laws.stuck.contains(&pool) || self.finished[pool].is_some();
        self.laws.is_stuck = (0..self.scenario.pools.len()).all(is_done);
    }

    /// Whether what is said of a node that does not go is so, after two days in which nothing changed.
    fn is_so(&self, snapshot: &Snapshot, decision: &Decision, uid: &str, why: &WhyNot) -> Fair {
        let machine = self.uids.get(uid).map(|(n, _)| &self.machines[*n]);
        let is_dead = machine.is_none_or(|machine| machine.is_dead);
        let is_ill = machine.is_none_or(|machine| !machine.is_well);
        let is_held_up =
            machine.is_some_and(|machine| machine.journal.operation.as_ref().is_some_and(|op| op.blocker.is_some()));
        let seen = |uid: &str| snapshot.nodes.iter().find(|seen| seen.node.uid == uid);
        let waits =
            |name: &str| decision.waiting.iter().any(|waiting| waiting.node.name == *name && waiting.node.uid != uid);
        let is_out = |seen: &Seen| snapshot.skip.contains(&seen.node.uid) || seen.failure().is_some();
        let is_so = match why {
            WhyNot::Paused(_) => snapshot.paused.is_some() || snapshot.finished,
            WhyNot::Denied(_) => snapshot.denied.is_some(),
            WhyNot::Aborted(_) => snapshot.aborted.is_some(),
            WhyNot::AbortedHolder { token } => {
                snapshot.aborted.is_some() && snapshot.ledger.held(uid).map(|of| of.token) == Some(*token)
            }
            WhyNot::Aborts { .. } => is_ill || is_held_up,
            WhyNot::Stays(_) => {
                let may = seen(uid).is_some_and(|seen| {
                    seen.node.role == Role::Worker || snapshot.back.is_some_and(|of| of.control_plane)
                });
                snapshot.denied.is_some() && (!may || machine.is_none_or(|machine| machine.way() != Way::Open))
            }
            WhyNot::NotInPlan => snapshot.plan.nodes().all(|(_, node)| node.uid != uid),
            WhyNot::Skipped => snapshot.skip.contains(uid),
            WhyNot::Failed(_) => seen(uid).is_some_and(|seen| seen.failure().is_some()),
            WhyNot::Silent => is_dead && snapshot.ledger.held(uid).is_none(),
            WhyNot::SilentHolder { token } => is_dead && snapshot.ledger.held(uid).map(|of| of.token) == Some(*token),
            WhyNot::UnderWay { .. } => is_ill || is_held_up,
            WhyNot::Busy => is_held_up,
            WhyNot::NotWell => is_ill,
            WhyNot::Gone { .. } => !self.api.exists(uid),
            WhyNot::Wave { first, .. } | WhyNot::After(first) => waits(first),
            WhyNot::NoCanary { wave } => snapshot
                .plan
                .waves
                .get(wave - 1)
                .is_some_and(|wave| wave.nodes.iter().all(|node| seen(&node.uid).is_none_or(is_out))),
            WhyNot::Closed(closed) => match closed.opens {
                Some(_) => return Fair::Comes,
                None => true,
            },
            WhyNot::Soak { .. } => return Fair::Comes,
            WhyNot::Refused(refused) => return self.is_refused(refused, decision),
            // These are done at once, by somebody who is there.
            // None of the others holds a node for long; and nobody is replaced here.
            _ => false,
        };
        if is_so { Fair::Stays } else { Fair::Wrong }
    }

    /// What the ledger says no for is there.
    fn is_refused(&self, refused: &Refused, decision: &Decision) -> Fair {
        let is_out = |name: &String| {
            let holds = self.api.ledger.object.grants.iter().any(|grant| grant.node.name == *name);
            let is_waiting = decision.waiting.iter().any(|waiting| waiting.node.name == *name);
            let is_ill = self.named(name).is_some_and(|n| !self.machines[n].is_well);
            holds || is_waiting || is_ill
        };
        let is_so = match refused {
            Refused::Budget { budget, charged, .. } => {
                charged.len() as u64 >= u64::from(*budget) && charged.iter().all(is_out)
            }
            Refused::ControlPlane { other } => is_out(other),
            Refused::Zone { others, .. } => !others.is_empty(),
            Refused::NoZone => true,
            Refused::Rate { again: Some(_), .. } => return Fair::Comes,
            Refused::Rate { count, .. } => *count == 0,
            Refused::Holds { .. } | Refused::Closed | Refused::Full { .. } | Refused::Spent => false,
        };
        if is_so { Fair::Stays } else { Fair::Wrong }
    }
}

/// What becomes of a node that does not go.
enum Fair {
    /// It stays like that, and it is known why.
    Stays,
    /// Its time comes.
    Comes,
    /// What is said is not so.
    Wrong,
}
