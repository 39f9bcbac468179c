//! A fleet whose nodes take time, fail, fall silent and vanish. It runs the real decisions, and looks at each of them with
//! arithmetic of its own.

use std::collections::BTreeSet;

use jiff::{Timestamp, ToSpan};
use proptest::{collection::vec, option, prelude::*, sample::select};
use slipway_rollout::{
    blocked::Blocked,
    decide::{Action, Decision, decide},
    duration::PositiveDuration,
    facts::{Evidence, Facts, NodeReport, ObservedNode, RollbackState, WindowOverride},
    int_or_percent::IntOrPercent,
    ledger::{Node, Proof, Rate, Refusal, Role},
    plan::{Order, Plan},
    policy::{CanaryStep, Policy, Rules, Topology},
    window::{Window, Zone},
};

use crate::{NEW, OLD, control_plane, failed, noon, worker};

/// Up to seven nodes in up to three zones.
pub fn fleet() -> impl Strategy<Value = Vec<Node>> {
    vec((select(vec!["a", "b", "c"]), prop::bool::weighted(0.3)), 1..8).prop_map(|nodes| {
        let node = |(n, (zone, is_control_plane)): (usize, (&str, bool))| {
            let name = format!("{zone}-{n}");
            if is_control_plane { control_plane(&name) } else { worker(&name) }
        };
        nodes.into_iter().enumerate().map(node).collect()
    })
}

fn amount() -> impl Strategy<Value = IntOrPercent> {
    prop_oneof![(1_u32..4).prop_map(IntOrPercent::Nodes), (1_u8..=100).prop_map(IntOrPercent::Percent)]
}

/// A policy whose window, if it has one, is in UTC: its laws need no calendar.
fn policy() -> impl Strategy<Value = Policy> {
    let rate = (1_u32..4, 5_u32..300).prop_map(|(count, per)| Rate { count, per: PositiveDuration::minutes(per) });
    let steps = vec(
        (amount(), 1_u32..200).prop_map(|(nodes, soak)| CanaryStep { nodes, soak: PositiveDuration::minutes(soak) }),
        0..3,
    );
    let topology = (1_u32..3).prop_map(|max_domains| Topology { key: "zone".to_owned(), max_domains });
    (option::of(amount()), option::of(rate), steps, option::of(topology), option::of(amount())).prop_map(
        |(max_unavailable, rate, steps, topology, failure_budget)| Policy {
            max_unavailable,
            rate,
            steps,
            topology,
            failure_budget,
            ..Policy::default()
        },
    )
}

/// When the only window opens, in hours after midnight, and for how many.
pub type Hours = Option<(u32, u32)>;

pub fn hours() -> impl Strategy<Value = Hours> {
    option::of((0_u32..24, 1_u32..20))
}

/// Up to two policies, without windows.
pub fn policies() -> impl Strategy<Value = Vec<Policy>> {
    vec(policy(), 0..3)
}

pub fn with_window(mut policies: Vec<Policy>, hours: Hours) -> Vec<Policy> {
    if let Some((start, lasts)) = hours {
        let start = jiff::civil::Time::new(i8::try_from(start).unwrap(), 0, 0, 0).unwrap();
        let window =
            Window::new(vec![], start, PositiveDuration::minutes(60 * lasts), Zone::named("UTC").unwrap()).unwrap();
        policies.push(Policy { windows: vec![window], ..Policy::default() });
    }
    policies
}

/// The fate of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is upgraded.
    Reaches,
    /// The new payload is no good on it: it comes back.
    ComesBack,
    /// It falls silent when it begins, for so many looks.
    Silent(u8),
    /// It is silent from the start on, for so many looks.
    Asleep(u8),
    /// It vanishes when it begins. Its member of etcd is taken out later.
    Vanishes,
    /// It runs the payload, is well, and after so many looks it is not, for some time.
    FallsIll(u8),
    /// The first requests to begin are lost.
    Deaf(u8),
}

pub fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        4 => Just(Fate::Reaches),
        1 => Just(Fate::ComesBack),
        1 => (1_u8..60).prop_map(Fate::Silent),
        1 => (1_u8..60).prop_map(Fate::Asleep),
        1 => Just(Fate::Vanishes),
        1 => (0_u8..10).prop_map(Fate::FallsIll),
        1 => (1_u8..60).prop_map(Fate::Deaf),
    ]
}

/// A node, as it is.
#[derive(Clone, Debug)]
struct Body {
    node: Node,
    fate: Fate,
    takes: u8,
    report: NodeReport,
    /// Looks until it is done with what it does.
    left: u8,
    silent: u8,
    /// Looks since it ran the payload.
    age: u8,
}

/// Commands of people in the middle of it, each at a look.
#[derive(Clone, Copy, Debug, Default)]
pub struct Words {
    /// Give it up.
    pub aborts: Option<u32>,
    /// Have it go now, for so many minutes, and pass over the soak of this wave.
    pub window_override: Option<(u32, i64, Option<usize>)>,
}

pub fn words() -> impl Strategy<Value = Words> {
    let window_override = (0_u32..40, 1_i64..2000, option::of(0_usize..3));
    (option::of(0_u32..60), option::of(window_override))
        .prop_map(|(aborts, window_override)| Words { aborts, window_override })
}

/// The fleet, and the record of its rollout.
pub struct World {
    bodies: Vec<Body>,
    gone: Vec<Node>,
    pub facts: Facts,
    pub words: Words,
    hours: Hours,
    now: Timestamp,
    /// When grants were given.
    given: Vec<Timestamp>,
    /// Looks of all kinds so far.
    looks: u32,
}

impl World {
    pub fn new(nodes: &[(Node, Fate, u8)], policies: Vec<Policy>, hours: Hours, order: Order, own: usize) -> Self {
        let rules = Rules::try_from(with_window(policies, hours)).unwrap();
        let report = NodeReport {
            runs: OLD,
            staged: None,
            well: true,
            since: noon(),
            busy: false,
            token: 0,
            failed: None,
            rollback: RollbackState::Unavailable,
            other_kubelet: None,
        };
        let body = |(node, fate, takes): &(Node, Fate, u8)| {
            let silent = if let Fate::Asleep(looks) = fate { *looks } else { 0 };
            Body { node: node.clone(), fate: *fate, takes: *takes, report: report.clone(), left: 0, silent, age: 0 }
        };
        let own = nodes.get(own).map(|(node, ..)| node.uid.as_str());
        let plan = Plan::new("pool", NEW, nodes.iter().map(|(node, ..)| node.clone()), &rules, order, own);
        Self {
            bodies: nodes.iter().map(body).collect(),
            gone: Vec::new(),
            facts: Facts::new(plan, rules, Vec::new()),
            words: Words::default(),
            hours,
            now: noon(),
            given: Vec::new(),
            looks: 0,
        }
    }

    /// Look, decide, do, and let time go by, until it is over or nothing moves any more. Whether it is over.
    pub fn run(&mut self, looks: u32) -> bool {
        while self.looks < looks {
            self.looks += 1;
            let decision = self.look();
            if decision.finished {
                return true;
            }
            self.pass(&decision);
        }
        false
    }

    fn look(&mut self) -> Decision {
        let observed = |body: &Body| ObservedNode {
            node: body.node.clone(),
            report: (body.silent == 0).then(|| body.report.clone()),
        };
        self.facts.nodes = self.bodies.iter().map(observed).collect();
        // A member of etcd is noticed, and taken out, some time later.
        let member_gone = self.looks.is_multiple_of(7);
        let gone = |node: &Node| Evidence { uid: node.uid.clone(), proof: Proof::Gone { member_gone } };
        self.facts.evidence = self.gone.iter().map(gone).collect();
        self.people();
        let decision = decide(&self.facts, self.now);
        assert_eq!(decision, decide(&self.facts, self.now));
        self.everybody_has_a_reason(&decision);
        assert!(decision.passed >= self.facts.passed);
        for step in &decision.steps {
            self.act(step, &decision);
        }
        self.facts.passed = decision.passed;
        (self.facts.soaking_since, self.facts.retry) = (decision.soaking_since, decision.retry);
        self.facts.interruption = decision.interruption.clone();
        let failed = self.bodies.iter().filter(|body| body.silent == 0 && body.report.failed.is_some()).count();
        let total = u32::try_from(self.facts.plan.nodes().count()).unwrap();
        let is_enough = failed as u64 >= u64::from(self.facts.rules.failures(total));
        let Facts { denied, aborted, finished, .. } = &mut self.facts;
        *finished |= decision.finished && denied.is_none() && aborted.is_none();
        let is_stopped = denied.is_some() || aborted.is_some() || *finished;
        assert!(!is_enough || is_stopped, "{failed} failures of {total}, and it goes on");
        decision
    }

    /// They say what they say now.
    fn people(&mut self) {
        if self.words.aborts.is_some_and(|look| self.looks > look) {
            self.facts.aborted = Some("eve: the wrong image".to_owned());
        }
        if let Some((look, minutes, soak)) = self.words.window_override
            && self.looks > look
        {
            self.words.window_override = None;
            self.facts.window_override = Some(WindowOverride { until: self.now + minutes.minutes(), soak });
        }
    }

    fn act(&mut self, step: &Action, decision: &Decision) {
        match step {
            Action::Stage { uid, payload } => self.body(uid).report.staged = Some(*payload),
            Action::Delete { .. } => panic!("no node is replaced here"),
            Action::Grant { node, .. } => {
                self.may_be_granted(node);
                let (ledger, token) = self.facts.ledger.grant(node, &decision.limits, self.now).unwrap();
                assert!(token > self.facts.ledger.epoch && ledger.epoch == token);
                self.facts.ledger = ledger;
                self.given.push(self.now);
            }
            Action::Begin { uid, token, payload } => self.begin(uid, *token, *payload),
            Action::Return { uid, token } => self.goes_back(uid, *token),
            Action::Free { uid, proof } => {
                assert!(self.bodies.iter().all(|body| body.node.uid != *uid || body.left == 0), "it is at work");
                self.facts.ledger = self.facts.ledger.free(uid, proof).unwrap();
            }
            Action::Abort { uid, token } => {
                assert!(self.facts.aborted.is_some());
                assert_eq!(self.facts.ledger.held(uid).unwrap().token, *token);
                let body = self.body(uid);
                assert!(body.report.busy && body.report.token == *token);
                (body.fate, body.left) = (Fate::ComesBack, body.left.min(2));
            }
            Action::Pause { why } => self.facts.stopped = Some(why.clone()),
            Action::Deny { payload, why } => {
                assert_eq!(*payload, NEW);
                assert!(self.facts.aborted.is_none(), "who went back because it was asked to is no failure");
                assert!(!self.facts.finished, "what people do to nodes later says nothing of the payload");
                self.facts.denied = Some(why.clone());
            }
        }
    }

    fn body(&mut self, uid: &str) -> &mut Body {
        self.bodies.iter_mut().find(|body| body.node.uid == uid).unwrap()
    }

    fn begin(&mut self, uid: &str, token: u64, payload: slipway_core::digest::Sha256) {
        assert!(self.is_open(), "it begins outside of the window");
        assert!(self.facts.denied.is_none() && self.facts.pause().is_none() && self.facts.aborted.is_none());
        assert_eq!(self.facts.ledger.held(uid).unwrap().token, token);
        assert_eq!(payload, NEW);
        let body = self.body(uid);
        assert!(token > body.report.token && body.left == 0 && body.report.staged == Some(NEW));
        match &mut body.fate {
            Fate::Deaf(looks) if *looks > 0 => {
                *looks -= 1;
                return;
            }
            Fate::Vanishes => {
                let at = self.bodies.iter().position(|body| body.node.uid == uid).unwrap();
                let body = self.bodies.remove(at);
                self.gone.push(body.node);
                return;
            }
            Fate::Silent(looks) => body.silent = *looks,
            _ => {}
        }
        (body.report.token, body.report.busy, body.left) = (token, true, body.takes);
    }

    fn goes_back(&mut self, uid: &str, token: u64) {
        assert!(self.is_open(), "it goes back outside of the window");
        assert_eq!(self.facts.ledger.held(uid).unwrap().token, token);
        self.may_go_back(uid);
        let body = self.body(uid);
        assert!(token > body.report.token && body.left == 0);
        (body.report.token, body.report.busy, body.left) = (token, true, body.takes);
    }

    /// People have these nodes leave the payload, one after the other.
    pub fn leave(&mut self, which: &[bool]) {
        for (body, _) in self.bodies.iter_mut().zip(which).filter(|(body, leaves)| **leaves && body.report.runs == NEW)
        {
            (body.report.runs, body.report.failed) = (OLD, failed("it ran the payload, and does so no more"));
        }
    }

    /// Only from a payload that is denied, only where people want it, and each once.
    fn may_go_back(&self, uid: &str) {
        let rollback = self.facts.rollback.expect("a rollback is wanted");
        assert!(self.facts.denied.is_some() && self.facts.aborted.is_none());
        let body = self.bodies.iter().find(|body| body.node.uid == uid).unwrap();
        assert!(body.node.role == Role::Worker || rollback.control_plane, "the control plane goes back only if asked");
        assert!(
            body.report.runs == NEW && body.report.rollback == RollbackState::Available,
            "{} has nothing to go back to",
            body.node.name
        );
    }

    /// A node with the payload can go back, and may.
    pub fn is_left_behind(&self) -> bool {
        let may =
            |body: &Body| body.node.role == Role::Worker || self.facts.rollback.is_some_and(|of| of.control_plane);
        self.bodies
            .iter()
            .any(|body| body.report.runs == NEW && body.report.rollback == RollbackState::Available && may(body))
    }

    /// Ten minutes, or until the time for which everything waits.
    fn pass(&mut self, decision: &Decision) {
        let is_quiet = decision.steps.is_empty() && self.bodies.iter().all(|body| body.left == 0 && body.silent == 0);
        let until = |why: &Blocked| match why {
            Blocked::Closed(closed) => closed.opens,
            Blocked::Soak { until, .. } => Some(*until),
            Blocked::Refused(Refusal::Rate { again, .. }) => *again,
            _ => None,
        };
        let times = decision.blocked.iter().filter_map(|blocked| until(&blocked.why)).chain(decision.soaks);
        let soon = self.now + 10.minutes();
        self.now = times.min().filter(|_| is_quiet).map_or(soon, |time| time.max(soon));
        for body in &mut self.bodies {
            body.passes(self.now);
        }
    }

    fn is_open(&self) -> bool {
        if self.facts.window_override.is_some_and(|window_override| self.now < window_override.until) {
            return true;
        }
        let minute = self.now.as_second().rem_euclid(86_400) / 60;
        self.hours
            .is_none_or(|(start, lasts)| (minute - i64::from(start) * 60).rem_euclid(1440) < i64::from(lasts) * 60)
    }

    /// The conditions of a grant, written down independently.
    fn may_be_granted(&self, node: &Node) {
        let policies: Vec<Policy> = self.facts.rules.clone().into();
        assert!(self.is_open(), "outside of the window");
        assert!(self.facts.aborted.is_none(), "given up");
        if self.facts.denied.is_some() {
            self.may_go_back(&node.uid);
        } else {
            assert!(self.facts.pause().is_none(), "stopped");
            self.is_its_turn(node);
        }

        // The nodes that are unavailable once it goes, itself among them.
        let is_ill = |uid: &str| self.bodies.iter().any(|body| body.node.uid == uid && !body.report.well);
        // As many as were seen: one may vanish while the same decision is carried out.
        let total = self.facts.nodes.len() as u64;
        // Others that are ill do not count against one that is ill itself: that takes nothing away.
        let ill = self.bodies.iter().filter(|body| body.silent > 0 || !body.report.well || body.report.busy);
        let ill = ill.filter(|_| !is_ill(&node.uid));
        let held = self.facts.ledger.grants.iter().map(|grant| &grant.node);
        let mut out: Vec<&Node> = held.chain(ill.map(|body| &body.node)).collect();
        assert!(!out.iter().any(|other| other.uid == node.uid), "it is out already");
        out.push(node);
        out.sort_by_key(|node| &node.uid);
        out.dedup_by_key(|node| &node.uid);
        for amount in policies.iter().filter_map(|policy| policy.max_unavailable).chain([IntOrPercent::Percent(100)]) {
            let may = match amount {
                IntOrPercent::Nodes(nodes) => u64::from(nodes),
                IntOrPercent::Percent(percent) => (total * u64::from(percent) / 100).max(1),
            };
            assert!(out.len() as u64 <= may && (out.len() as u64) < total.max(2), "over the budget of {amount}");
        }
        if policies.iter().all(|policy| policy.max_unavailable.is_none()) {
            assert_eq!(out.len(), 1, "one at a time by default");
        }
        let control_plane = out.iter().filter(|node| node.role == Role::ControlPlane).count();
        assert!(node.role == Role::Worker || control_plane == 1, "two nodes of the control plane");
        let zones: BTreeSet<_> = out.iter().map(|node| &node.zone).collect();
        for topology in policies.iter().filter_map(|policy| policy.topology.as_ref()) {
            assert!(zones.len() <= topology.max_domains as usize, "too many zones");
        }
        for rate in policies.iter().filter_map(|policy| policy.rate) {
            let lately = self.given.iter().filter(|given| rate.per.after(**given) > self.now).count();
            assert!(lately < rate.count as usize, "over the rate");
        }
    }

    /// The plan: each node before it has gone, or cannot.
    fn is_its_turn(&self, node: &Node) {
        let plan = &self.facts.plan;
        let (wave, _) = plan.nodes().find(|(_, planned)| planned.uid == node.uid).unwrap();
        for (earlier, other) in plan.nodes().take_while(|(_, other)| other.uid != node.uid) {
            let Some(body) = self.bodies.iter().find(|body| body.node.uid == other.uid) else { continue };
            let has_gone = self.facts.ledger.held(&other.uid).is_some() || body.report.runs == NEW;
            let cannot = body.silent > 0 || body.report.failed.is_some();
            assert!(has_gone || cannot, "{} overtakes {}", node.name, other.name);
            let is_settled = body.report.runs == NEW && body.report.well || body.report.failed.is_some();
            assert!(earlier == wave || earlier < self.facts.passed || is_settled, "an earlier wave is not over");
        }
        for body in self.bodies.iter().filter(|body| body.silent == 0 && body.report.failed.is_none()) {
            assert!(body.report.staged == Some(NEW), "{} is not staged", body.node.name);
        }
    }

    /// A node that is not done has one reason, and one that is done has none.
    fn everybody_has_a_reason(&self, decision: &Decision) {
        for body in &self.bodies {
            let reasons = decision.blocked.iter().filter(|blocked| blocked.node.uid == body.node.uid);
            let reasons: Vec<_> = reasons.map(|blocked| blocked.why.to_string()).collect();
            let is_freed = |step: &Action| matches!(step, Action::Free { uid, .. } if *uid == body.node.uid);
            let holds = self.facts.ledger.held(&body.node.uid).is_some() && !decision.steps.iter().any(is_freed);
            let is_well = body.silent == 0 && body.report.well && !body.report.busy;
            let is_to_go_back =
                self.facts.rollback.is_some() && self.facts.denied.is_some() && self.facts.aborted.is_none();
            let is_done = body.report.runs == NEW && is_well && !holds && !is_to_go_back;
            assert_eq!(reasons.len(), usize::from(!is_done), "{}: {reasons:?}", body.node.name);
            assert!(reasons.iter().all(|reason| !reason.is_empty()));
        }
    }

    /// No node is at it, and each that still holds a grant did not begin with it, is gone, or is ill.
    pub fn is_at_rest(&self) -> bool {
        let rests = |body: &Body| {
            let held = self.facts.ledger.held(&body.node.uid);
            body.left == 0 && held.is_none_or(|grant| grant.token != body.report.token || !body.report.well)
        };
        self.bodies.iter().all(rests)
    }

    /// All nodes run the payload and are well, and nothing is held.
    pub fn is_reached(&self) -> bool {
        let is_there = |body: &Body| body.report.runs == NEW && body.report.well;
        self.facts.ledger.grants.is_empty() && self.bodies.iter().all(is_there)
    }
}

impl Body {
    fn passes(&mut self, now: Timestamp) {
        self.silent = self.silent.saturating_sub(1);
        let is_ill_at = |age: u8, looks: u8| (looks..looks.saturating_add(5)).contains(&age);
        if self.report.runs == NEW && self.left == 0 {
            self.age = self.age.saturating_add(1);
            if let Fate::FallsIll(looks) = self.fate {
                let well = !is_ill_at(self.age, looks);
                if well != self.report.well {
                    (self.report.well, self.report.since) = (well, now);
                }
            }
        }
        if self.left > 0 {
            self.left -= 1;
            if self.left == 0 {
                (self.report.busy, self.report.since) = (false, now);
                match self.fate {
                    _ if self.report.runs == NEW => {
                        (self.report.runs, self.report.well, self.report.rollback) =
                            (OLD, true, RollbackState::Available);
                        self.report.failed = failed("it went back");
                    }
                    Fate::ComesBack => self.report.failed = failed("it did not become well"),
                    _ => {
                        (self.report.runs, self.report.staged, self.report.rollback) =
                            (NEW, Some(NEW), RollbackState::Available)
                    }
                }
            }
        }
    }
}
