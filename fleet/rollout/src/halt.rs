//! The reasons that stop a rollout, and the way back: the payload is denied, people have paused or given it up, too much
//! failed.

use jiff::Timestamp;

use crate::{
    action::Action,
    blocked::Blocked,
    facts::{Facts, FailureEvidence, Interruption, ObservedNode, RollbackPolicy, RollbackState},
    ledger::Role,
    view::View,
};

/// So many nodes that failed are named. The objects of the nodes have the others.
const NAMED: usize = 10;

/// A reason against a rollout.
struct Verdict {
    /// The payload was booted and was not well: it is tried nowhere else. Otherwise people have to look.
    denies: bool,
    why: String,
}

impl View<'_> {
    /// The reason why nothing new begins; and the actions about it, if it is new.
    pub(crate) fn stop(&self, steps: &mut Vec<Action>, now: Timestamp) -> Option<Blocked> {
        let facts = self.facts;
        if let Some(why) = &facts.aborted {
            // A node that comes back at a request is no failure of the payload.
            let denied = facts.denied.clone().map(Blocked::Denied);
            return denied.or_else(|| Some(Blocked::Aborted(why.clone())));
        }
        if let Some(Verdict { denies, why }) = self.verdict(now) {
            if facts.finished && facts.denied.is_none() {
                let held = || format!("it was finished, and by now {why}");
                return Some(Blocked::Paused(facts.pause().cloned().unwrap_or_else(held)));
            }
            let why = facts.denied.clone().unwrap_or(why);
            if denies && facts.denied.is_none() {
                steps.push(Action::Deny { payload: facts.plan.payload, why: why.clone() });
            }
            if facts.pause().is_none() {
                steps.push(Action::Pause { why: why.clone() });
            }
            let is_denied = denies || facts.denied.is_some();
            return Some(if is_denied {
                Blocked::Denied(why)
            } else {
                Blocked::Paused(facts.pause().cloned().unwrap_or(why))
            });
        }
        if !facts.plan.is_whole() {
            return Some(Blocked::PlanChanged);
        }
        let denied = facts.denied.clone().map(Blocked::Denied);
        denied.or_else(|| facts.pause().cloned().map(Blocked::Paused))
    }

    /// The rollback of nodes, once the payload is denied by a write that all controllers see.
    pub(crate) fn rollback(&self) -> Option<RollbackPolicy> {
        let Facts { rollback, denied, aborted, plan, .. } = self.facts;
        rollback.filter(|_| denied.is_some() && aborted.is_none() && plan.is_whole())
    }

    /// A node is to go back, now or once the denial is written.
    pub(crate) fn is_any_behind(&self, steps: &[Action]) -> bool {
        let Facts { rollback, denied, aborted, plan, .. } = self.facts;
        let is_denied = denied.is_some() || steps.iter().any(|step| matches!(step, Action::Deny { .. }));
        let Some(rollback) = rollback.filter(|_| is_denied && aborted.is_none() && plan.is_whole()) else {
            return false;
        };
        let planned = plan.nodes().filter_map(|(_, node)| self.observed.get(node.uid.as_str()));
        let mut on_it = planned.filter(|observed| observed.runs(plan.payload));
        on_it.any(|observed| !matches!(self.returns(observed, &(rollback, None)), Blocked::Stays(_) | Blocked::Skipped))
    }

    /// Why a node that runs the payload does not go back; `Granted` if nothing but the ledger can hold it back.
    pub(crate) fn returns(
        &self,
        observed: &ObservedNode,
        (rollback, held_back): &(RollbackPolicy, Option<Blocked>),
    ) -> Blocked {
        let report = observed.report.as_ref();
        if self.facts.is_left_out(&observed.node.uid) {
            return Blocked::Skipped;
        }
        if report.is_some_and(|report| report.busy) {
            return Blocked::Busy;
        }
        let stays = |why: &str| Blocked::Stays(why.to_owned());
        if observed.node.role == Role::ControlPlane && !rollback.control_plane {
            return stays("it is of the control plane, and its rollback was not asked for");
        }
        match report.map(|report| &report.rollback) {
            Some(RollbackState::Stranding(why)) if !rollback.any_etcd => Blocked::StrandsMember(why.clone()),
            Some(RollbackState::Available | RollbackState::Stranding(_)) => {
                let skew = report.and_then(|report| self.skew(report));
                skew.or_else(|| held_back.clone()).unwrap_or(Blocked::Granted)
            }
            Some(RollbackState::Failed(why)) => stays(&format!("it was asked to go back, and did not: {why}")),
            Some(RollbackState::Denied(why)) => {
                stays(&format!("its other slot holds a payload that was denied, too: {why}"))
            }
            Some(RollbackState::Unavailable) | None => stays("its other slot holds no system that was ever confirmed"),
        }
    }

    /// The failures against the rollout: one canary that failed, canaries that do not stay well, or as many failed nodes as
    /// the policies name. Only failures count that may be the payload's. One that denies comes before all others: an unknown
    /// outcome neither denies a payload nor saves it from being denied.
    fn verdict(&self, now: Timestamp) -> Option<Verdict> {
        let plan = &self.facts.plan;
        let (mut failed, mut known) = (Vec::new(), 0_u64);
        let mut verdicts = Vec::new();
        for (wave, node) in plan.nodes() {
            let soaks = plan.soaking_wave(wave);
            let failure = self
                .failure(node)
                .filter(|failure| matches!(failure.evidence, FailureEvidence::AfterReboot | FailureEvidence::Unknown));
            if let Some(failure) = failure {
                let is_known = failure.evidence == FailureEvidence::AfterReboot;
                let why = &failure.why;
                if soaks.is_some() {
                    let why = format!("the canary {} failed: {why}", node.name);
                    verdicts.push(Verdict { denies: is_known, why });
                }
                known += u64::from(is_known);
                failed.push(format!("{}: {why}", node.name));
            }
            if soaks.is_some_and(|soaks| soaks >= self.facts.passed) && self.is_ill_with_it(node, now) {
                let why = format!("the canary {} runs it, and is not well", node.name);
                verdicts.push(Verdict { denies: true, why });
            }
        }
        if let Some(Interruption { node, times, .. }) = &self.facts.interruption
            && *times >= Interruption::MANY
        {
            let why =
                format!("the canaries do not stay well: their soak began anew {times} times, the last time by {node}");
            verdicts.push(Verdict { denies: false, why });
        }
        let total = u32::try_from(plan.nodes().count()).unwrap_or(u32::MAX);
        let budget = self.facts.rules.failures(total);
        if failed.len() as u64 >= u64::from(budget) {
            let named: Vec<&str> = failed.iter().take(NAMED).map(String::as_str).collect();
            let more = failed.len().checked_sub(NAMED).filter(|more| *more > 0);
            let list = named.join("; ") + &more.map(|more| format!("; and {more} more")).unwrap_or_default();
            let why = format!("{} of {total} nodes failed, and {budget} are enough; {list}", failed.len());
            verdicts.push(Verdict { denies: known >= u64::from(budget), why });
        }
        verdicts.into_iter().min_by_key(|verdict| !verdict.denies)
    }
}
