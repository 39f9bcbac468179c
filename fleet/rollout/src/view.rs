//! The facts of one decision, by UID, and the conclusions about single nodes: failed, done, how far the
//! waves are.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use jiff::{SignedDuration, Timestamp};
use slipway_kubernetes::skew;

use crate::{
    attempts::{Attempts, History},
    blocked::Blocked,
    facts::{Facts, Failure, FailureEvidence, Interruption, NodeReport, ObservedNode, Retry},
    ledger::{Grant, Ledger, Node},
    replace::{self, ByNode, SuccessorMachines},
};

/// Time that a rollout waits until all nodes that answer have staged: as long as a node may take for that. From then on
/// a node that has not staged goes later, and holds no other node back.
const STAGING: SignedDuration = SignedDuration::from_hours(1);

/// A node that says that it became well so long after the controllers first saw it well was not well meanwhile. Nodes count
/// whole seconds, and answers take time.
const UNSEEN: SignedDuration = SignedDuration::from_mins(1);

/// A canary that was well is bad once it has been ill for so long, by its own word. Before that its soak begins anew, and the
/// payload is not denied for the whole pool: a kubelet that is started anew is not ready for some seconds.
const ILL: SignedDuration = SignedDuration::from_mins(2);

/// The progress of the waves.
pub(crate) struct Progress {
    pub passed: usize,
    pub soaks: Option<Timestamp>,
    /// Since when all nodes of the wave that soaks are well.
    pub soaking_since: Option<Timestamp>,
    /// The interruptions of its soak.
    pub interruption: Option<Interruption>,
    /// Why the waves after this one wait.
    pub blocker: Option<Blocked>,
}

/// The observed nodes, by UID.
pub(crate) struct View<'a> {
    pub facts: &'a Facts,
    pub observed: BTreeMap<&'a str, &'a ObservedNode>,
    pub held: BTreeMap<&'a str, &'a Grant>,
    pub attempts: &'a History,
    pub successor_machines: SuccessorMachines<'a>,
    pub machines: ByNode<'a>,
}

impl<'a> View<'a> {
    pub(crate) fn new(facts: &'a Facts, ledger: &'a Ledger, attempts: &'a History) -> Self {
        let observed = facts.nodes.iter().map(|observed| (observed.node.uid.as_str(), observed)).collect();
        let machines = facts.replacing.machines.as_deref().unwrap_or_default();
        let successor_machines = replace::successor_machines(ledger, &facts.nodes, machines, &facts.targets());
        let held = ledger.grants.iter().map(|grant| (grant.node.uid.as_str(), grant)).collect();
        Self { facts, observed, held, attempts, successor_machines, machines: replace::machines_by_node(facts) }
    }

    /// Number of nodes; one that is replaced and its successor are one.
    pub(crate) fn size(&self) -> u32 {
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
    pub(crate) fn down(&self) -> Vec<Node> {
        let pool = &self.facts.plan.pool;
        // It came from another pool, with a grant that is counted there.
        let is_foreign = |of: &&&Grant| of.node.pool != *pool;
        let is_down = |observed: &ObservedNode| {
            !observed.is_well() || self.held.get(observed.node.uid.as_str()).filter(is_foreign).is_some()
        };
        let ill = self.facts.nodes.iter().filter(|observed| is_down(observed) && !self.succeeds(observed));
        let ill = ill.map(|observed| &observed.node);
        ill.chain(&self.facts.elsewhere)
            .cloned()
            .chain(replace::pending(self.facts, &self.successor_machines))
            .collect()
    }

    /// The failure of this node, if it counts.
    pub(crate) fn failure(&self, node: &Node) -> Option<Cow<'a, Failure>> {
        let is_skipped = self.facts.skip.contains(&node.uid);
        let observed =
            self.observed.get(node.uid.as_str()).filter(|of| !is_skipped && !of.runs(self.facts.plan.payload))?;
        let said = observed.failure();
        if said.is_none_or(|said| said.evidence == FailureEvidence::BeforeReboot)
            && !self.is_unseen(node)
            && let Some(Attempts { count, .. }) = self.spent(&node.uid)
        {
            let last = said.map_or("it does not say why", |said| said.why.as_str());
            let why = format!("{count} attempts ended without the payload; of the last one: {last}");
            return Some(Cow::Owned(Failure { evidence: FailureEvidence::Unknown, why }));
        }
        if said.is_none() && self.attempts.nodes.get(&node.uid).is_some_and(|of| of.deferred) {
            // A person freed its grant, or it has said so before.
            let why = "it says no more of it".to_owned();
            return Some(Cow::Owned(Failure { evidence: FailureEvidence::BeforeReboot, why }));
        }
        said.map(Cow::Borrowed)
    }

    /// The token of its last attempt. A node whose grant a person freed may never have obeyed it.
    pub(crate) fn last_token(&self, uid: &str, report: &NodeReport) -> u64 {
        self.attempts.nodes.get(uid).map_or(0, |of| of.token).max(report.token)
    }

    /// The attempts of a node that has none left.
    fn spent(&self, uid: &str) -> Option<Attempts> {
        self.attempts.nodes.get(uid).copied().filter(|of| of.is_spent() && !self.held.contains_key(uid))
    }

    /// The attempts that the next decision has to know of.
    pub(crate) fn remembered(&self) -> History {
        let mut attempts = self.attempts.clone();
        attempts.remember(&self.facts.plan, |uid| self.facts.denied.is_none() && self.is_done(uid));
        attempts
    }

    /// It was to go back from the denied payload, and a person has freed its grant before it did, or it ended before its reboot.
    /// Who has obeyed that grant, as on the way forward, says itself what came of it.
    pub(crate) fn has_not_returned(&self, node: &Node) -> bool {
        let is_deferred = |of: &&Attempts| of.deferred && self.facts.denied.is_some();
        let Some(of) = self.attempts.nodes.get(&node.uid).filter(is_deferred) else { return false };
        let Some(observed) = self.observed.get(node.uid.as_str()) else { return false };
        let payload = self.facts.plan.payload;
        let has_not_obeyed = observed.report.as_ref().is_some_and(|report| report.token < of.token);
        observed.runs(payload) && (has_not_obeyed || observed.kept(payload).is_some())
    }

    /// The failure of this node, if it is not tried again.
    fn final_failure(&self, node: &Node) -> Option<Cow<'a, Failure>> {
        self.failure(node).filter(|failure| failure.evidence != FailureEvidence::BeforeReboot)
    }

    /// This look says nothing of the node, neither good nor bad.
    fn is_unseen(&self, node: &Node) -> bool {
        self.facts.unasked.contains(&node.uid)
    }

    /// Which attempts are repeated, where one ended before the reboot: those of earlier windows.
    pub(crate) fn retry(&self, now: Timestamp) -> Option<Retry> {
        let is_early = |(_, node): (usize, &Node)| {
            let failure = self.failure(node);
            failure.is_some_and(|failure| failure.evidence == FailureEvidence::BeforeReboot)
                || self.has_not_returned(node)
        };
        let kept = self.facts.retry.filter(|_| !self.facts.unasked.is_empty());
        let retry = self.facts.plan.nodes().any(is_early).then(|| match self.facts.retry {
            // Not later than the next window: a clock may have been ahead, and policies change.
            Some(retry) if now < retry.from => Retry { from: retry.from.min(self.facts.next_window(now)), ..retry },
            Some(_) => Retry { below: self.facts.ledger.highest() + 1, from: self.facts.next_window(now) },
            None => Retry { below: 0, from: self.facts.next_window(now) },
        });
        retry.or(kept)
    }

    /// The token that a node says it obeyed, if the ledger never gave it. No other node is concerned.
    pub(crate) fn token_ahead(&self, report: &NodeReport) -> Option<u64> {
        (report.token > self.facts.ledger.highest()).then_some(report.token)
    }

    /// Why the kubelet in the other slot does not go with the API server, if the payload there names one that does not.
    pub(crate) fn skew(&self, report: &NodeReport) -> Option<Blocked> {
        // A replaced node gets another machine, whose kubelet is its template's.
        let kubelet = report.other_kubelet.as_deref().filter(|_| !self.facts.replacing.wanted)?;
        skew::check(kubelet, self.facts.api_server.as_deref()).err().map(Blocked::KubeletSkew)
    }

    /// Nothing is granted to this node, and no other node waits for it: its report is impossible.
    fn is_set_aside(&self, uid: &str) -> bool {
        let report = self.observed.get(uid).and_then(|observed| observed.report.as_ref());
        report.is_some_and(|report| report.runs != self.facts.plan.payload && self.token_ahead(report).is_some())
    }

    /// It was upgraded, was well, and has not been so for a while.
    pub(crate) fn is_ill_with_it(&self, node: &Node, now: Timestamp) -> bool {
        let report = self.observed.get(node.uid.as_str()).and_then(|observed| observed.report.as_ref());
        let is_ill = report.is_some_and(|report| {
            let is_at_rest = report.runs == self.facts.plan.payload && !report.busy;
            is_at_rest && !report.well && now.duration_since(report.since) >= ILL
        });
        is_ill && !self.held.contains_key(node.uid.as_str()) && !self.facts.skip.contains(&node.uid)
    }

    /// It runs the payload, is well, and holds nothing.
    pub(crate) fn is_done(&self, uid: &str) -> bool {
        let is_done = |observed: &&ObservedNode| observed.runs(self.facts.plan.payload) && observed.is_well();
        !self.held.contains_key(uid) && self.observed.get(uid).is_some_and(is_done)
    }

    /// Nothing more is expected of it.
    fn is_settled(&self, node: &Node) -> bool {
        let uid = node.uid.as_str();
        let is_out = !self.observed.contains_key(uid) || self.facts.is_left_out(uid) || self.is_set_aside(uid);
        let is_out = is_out || self.final_failure(node).is_some();
        !self.held.contains_key(uid) && (is_out || self.is_done(uid))
    }

    pub(crate) fn progress(&self, now: Timestamp) -> Progress {
        let waves = &self.facts.plan.waves;
        let mut passed = self.facts.passed.min(waves.len());
        // The controllers' observations are of one wave. The next one's time begins now.
        let mut seen_since = self.facts.soaking_since;
        let mut interruption = self.facts.interruption.clone();
        while let Some(wave) = waves.get(passed) {
            let number = passed + 1;
            let stay = |blocker, interruption| Progress {
                passed,
                soaks: None,
                soaking_since: None,
                interruption,
                blocker: Some(blocker),
            };
            let step = || self.facts.plan.step(passed);
            let mut open = step().filter(|(_, node)| !self.is_settled(node));
            if let Some((wave, first)) = open.next() {
                let blocker = Blocked::Wave { wave: wave + 1, first: first.name.clone() };
                let mut seen = [first].into_iter().chain(open.map(|(_, node)| node));
                let Some(node) = seen.find(|node| !self.is_unseen(node)) else {
                    return Progress { soaking_since: seen_since, ..stay(blocker, interruption) };
                };
                if seen_since.is_some() {
                    interruption = Some(Interruption::once_more(interruption, node, now));
                }
                return stay(blocker, interruption);
            }
            if let Some(soak) = wave.soak {
                let done = step().map(|(_, node)| node).filter(|node| self.is_done(&node.uid));
                let since =
                    done.filter_map(|node| Some((self.observed.get(node.uid.as_str())?.report.as_ref()?.since, node)));
                let Some((since, last)) = since.max_by_key(|(since, _)| *since) else {
                    let gone = self.is_canary_gone(passed, seen_since.is_some());
                    return stay(Blocked::NoCanary { wave: number, gone }, interruption);
                };
                // A time to come was written by a clock that was ahead: the time counts from now.
                let mut seen = seen_since.map_or(now, |seen| seen.min(now));
                // It was not well between two looks, or says so: nobody else would be named, however often it does. It counts
                // only after the last time that counted, so controllers whose clocks differ count it once.
                let heard = interruption.as_ref().map_or(seen, |of| of.at.max(seen));
                if since.duration_since(heard) > UNSEEN {
                    seen = since.min(now);
                    interruption = Some(Interruption::told(interruption, last, seen));
                }
                let until = soak.after(since.max(seen));
                let is_passed_over = self.facts.override_at(now).is_some_and(|word| word.soak == Some(passed));
                if now < until && !is_passed_over {
                    let blocker = Some(Blocked::Soak { wave: number, until, interruption: interruption.clone() });
                    let (soaks, soaking_since) = (Some(until), Some(seen));
                    return Progress { passed, soaks, soaking_since, interruption, blocker };
                }
            }
            (passed, seen_since, interruption) = (passed + 1, None, None);
        }
        Progress { passed, soaks: None, soaking_since: None, interruption: None, blocker: None }
    }

    /// A node of this step was granted, or seen well with the payload, and is none of the pool's any more: an autoscaler may have
    /// taken it away.
    fn is_canary_gone(&self, wave: usize, was_seen: bool) -> bool {
        let step: BTreeSet<&str> = self.facts.plan.step(wave).map(|(_, node)| node.uid.as_str()).collect();
        let gone = |uid: &str| step.contains(uid) && !self.observed.contains_key(uid);
        let mut placed = self.facts.plan.nodes().zip(0..);
        placed.any(|((_, node), place)| gone(&node.uid) && (was_seen || self.attempts.was_tried(&node.uid, place)))
    }

    /// Why a node of this wave waits for a person, if it does.
    pub(crate) fn unapproved(&self, wave: usize) -> Option<Blocked> {
        let Facts { plan, rules, approvals, .. } = self.facts;
        let gate = plan.gate(rules.approval()?, wave)?;
        let is_approved = approvals.iter().any(|approval| approval.plan == plan.hash && approval.waves > gate);
        (!is_approved).then(|| Blocked::Approval { wave: gate + 1, pool: plan.pool.clone() })
    }

    /// All waves are over, and nothing of the plan is open any more.
    pub(crate) fn is_over(&self, passed: usize) -> bool {
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
            && !self.facts.is_left_out(uid)
            && !self.is_set_aside(uid)
            && self.final_failure(node).is_none()
    }

    pub(crate) fn unstaged(&self, now: Timestamp) -> Option<Blocked> {
        if self.facts.created.is_some_and(|created| now.duration_since(created) > STAGING) {
            return None;
        }
        let mut lacking = self.facts.plan.nodes().map(|(_, node)| node).filter(|node| self.lacks(node));
        let first = lacking.next()?.name.clone();
        Some(Blocked::AllStaged { left: lacking.count() + 1, first })
    }

    /// Each node with its wave, in the plan's order, as it is seen now; then those that are not in the plan; then those
    /// that are gone and still hold a grant in this pool. On the way back those that have obeyed a later grant come later: one
    /// that says so, is well, and stays as it is would be the first for ever.
    pub(crate) fn nodes_in_order(&self) -> Vec<(Option<usize>, &'a Node)> {
        let plan = &self.facts.plan;
        let waves: BTreeMap<&str, usize> = plan.nodes().map(|(wave, node)| (node.uid.as_str(), wave)).collect();
        let planned =
            plan.nodes().filter_map(|(wave, node)| Some((Some(wave), &self.observed.get(node.uid.as_str())?.node)));
        let strangers = self.facts.nodes.iter().map(|observed| &observed.node);
        let strangers = strangers.filter(|node| !waves.contains_key(node.uid.as_str())).map(|node| (None, node));
        let gone = self.held.values().map(|grant| &grant.node).filter(|node| node.pool == plan.pool);
        let gone = gone.filter(|node| !self.observed.contains_key(node.uid.as_str())).map(|node| (None, node));
        let mut nodes: Vec<_> = planned.chain(strangers).chain(gone).collect();
        if self.rollback().is_some() {
            let report = |node: &Node| self.observed.get(node.uid.as_str())?.report.as_ref();
            nodes.sort_by_key(|(_, node)| report(node).map_or(0, |report| report.token));
        }
        nodes
    }
}
