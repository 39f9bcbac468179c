//! One ledger, two controllers, the nodes, and the messages between them.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    env,
    sync::{Arc, Mutex},
};

use slipway_rollout::{
    decide::Action,
    int_or_percent::IntOrPercent,
    ledger::{Grant, HIGHEST, Ledger, Limits, Node, Role},
    plan::{Order, Plan},
    policy::{Policy, Rules},
};
use stateright::{Model, Property};

use super::{
    said::Said,
    state::{Body, Controller, Mutant, State, Upgrade, Write, hash},
};
use crate::{NEW, noon};

/// One thing that can happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A controller reads the ledger and decides. Of each node it sees something that was said at some time.
    Look(usize, Vec<Said>),
    /// It does the first thing of what it decided.
    Do(usize),
    /// Its write arrives, and it hears the outcome.
    Arrives(usize),
    /// It forgets everything. Its write may be lost, or late.
    Crash(usize, bool),
    ArrivesLate(usize),
    /// A request to begin arrives.
    Hear(usize, u64),
    /// A request to begin arrives, with the certificate of a controller and a token that was never given.
    HearForged(usize),
    /// A node is done, and well.
    Done(usize),
    /// Forbidden: a grant ends by time, or by a report without a look at its token.
    Ends(usize),
    /// An upgrade of Kubernetes reads the ledger and claims it; its write arrives; it is over.
    Claims,
    ClaimArrives,
    Unclaims,
}

/// The model.
pub struct Cluster {
    /// In the plan's order.
    pub(super) nodes: Vec<Node>,
    pub(super) rules: Rules,
    pub(super) plan: Plan,
    pub(super) budget: u32,
    pub(super) mutant: Mutant,
    /// Tokens are not followed beyond: a node that was seen late is granted once more than it needs.
    pub(super) tokens: u64,
    /// The number of writes that come late.
    pub(super) late: u8,
    /// The first node of the plan lies, and an attacker has the certificate of a controller.
    pub(super) has_liar: bool,
    /// The number of controllers. With a liar there is one: with two there are too many states.
    pub(super) controllers: usize,
    /// Kubernetes is upgraded once.
    pub(super) has_upgrade: bool,
    /// The plan of a younger pool, which has all nodes but the first, and whose labels name that one, too. Each pool has one
    /// of the controllers.
    pub(super) younger: Option<Plan>,
    pub(super) decided: Mutex<HashMap<View, Option<Decided>>>,
    pub(super) views: Mutex<HashMap<Seen, Arc<Vec<Vec<Said>>>>>,
    pub(super) ended: Mutex<HashMap<Quiet, bool>>,
}

/// The inputs of a decision here.
pub type View = (usize, Arc<Ledger>, Vec<Said>);
pub type Decided = (Vec<Action>, Limits);
/// The inputs of the views of a state, and the end of a state without controllers.
pub type Seen = (usize, Arc<Ledger>, Vec<BTreeSet<Said>>);
pub type Quiet = (Arc<Ledger>, Vec<Body>, BTreeSet<(usize, u64)>);

impl Cluster {
    pub fn new(nodes: &[Node], budget: u32, tokens: u64, mutant: Mutant) -> Self {
        let policy = Policy { max_unavailable: Some(IntOrPercent::Nodes(budget)), ..Policy::default() };
        let rules = Rules::try_from(vec![policy]).unwrap();
        let plan = Plan::new("pool", NEW, nodes.to_vec(), &rules, Order::default(), None);
        let nodes: Vec<Node> = plan.nodes().map(|(_, node)| node.clone()).collect();
        // With a budget of two there are twenty times as many states.
        let is_large = env::var_os("SLIPWAY_FLEET_STATES").is_some();
        let late = u8::from(budget == 1 || nodes[0].role == Role::ControlPlane) + u8::from(is_large);
        let (has_liar, decided, views, ended) = (false, Mutex::default(), Mutex::default(), Mutex::default());
        let (controllers, has_upgrade, younger) = (2, false, None);
        Self {
            nodes,
            rules,
            plan,
            budget,
            mutant,
            tokens,
            late,
            has_liar,
            controllers,
            has_upgrade,
            younger,
            decided,
            views,
            ended,
        }
    }

    /// One of the nodes lies. One that fails is not enough to stop the others.
    pub fn with_liar(self) -> Self {
        let mut policies: Vec<Policy> = self.rules.into();
        policies[0].failure_budget = Some(IntOrPercent::Nodes(2));
        Self { rules: Rules::try_from(policies).unwrap(), has_liar: true, controllers: 1, late: 0, ..self }
    }

    /// At some time Kubernetes is upgraded.
    pub fn with_upgrade(self) -> Self {
        Self { has_upgrade: true, late: 0, ..self }
    }

    /// All nodes but the first are a younger pool's, whose labels name the first one, too.
    pub fn with_younger_pool(self) -> Self {
        let plan = |pool: &str, nodes: &[Node]| {
            let here = |node: &Node| Node { pool: pool.to_owned(), ..node.clone() };
            Plan::new(pool, NEW, nodes.iter().map(here), &self.rules, Order::default(), None)
        };
        let (plan, younger) = (plan("pool", &self.nodes[..1]), plan("younger", &self.nodes[1..]));
        let nodes = plan.nodes().chain(younger.nodes()).map(|(_, node)| node.clone()).collect();
        Self { nodes, plan, younger: Some(younger), late: 0, ..self }
    }

    pub(super) fn lies(&self, n: usize) -> bool {
        self.has_liar && n == 0
    }

    fn number(&self, uid: &str) -> usize {
        self.nodes.iter().position(|node| node.uid == uid).unwrap()
    }

    fn act(&self, state: &mut State, c: usize) -> Option<()> {
        let controller = &mut state.controllers[c];
        if controller.todo.is_empty() || controller.sent.is_some() {
            return None;
        }
        let to = match controller.todo.remove(0) {
            Action::Begin { uid, token, .. } => {
                state.begins.insert((self.number(&uid), token));
                None
            }
            Action::Grant { node, .. } => {
                let limits = controller.limits.as_ref()?;
                let granted = self.seen(&controller.read).grant(&node, limits, noon());
                let kubernetes = controller.read.kubernetes.clone();
                granted.ok().map(|(ledger, _)| Ledger { kubernetes, ..ledger })
            }
            Action::Free { uid, proof } => controller.read.free(&uid, &proof).ok(),
            // One node that fails, or says so, is not enough.
            Action::Pause { .. } | Action::Deny { .. } => {
                state.stopped = true;
                None
            }
            other => panic!("{other:?} without a fault"),
        };
        let (version, from) = (controller.version, Arc::clone(&controller.read));
        controller.sent = to.map(|to| Write { version, from, to: Arc::new(to) });
        controller.rests();
        Some(())
    }

    /// A write arrives. The ledger that came of it, if the write was taken.
    fn write(&self, state: &mut State, write: &Write) -> Option<Arc<Ledger>> {
        let mut to = Arc::clone(&write.to);
        if write.version != state.version {
            // The new grant on top of whatever there is.
            let is_new = |grant: &&Grant| write.from.held(&grant.node.uid).is_none();
            let grant = write.to.grants.iter().find(is_new).filter(|_| self.mutant == Mutant::OldBudget)?;
            let mut ledger = Ledger::clone(&state.ledger);
            ledger.epoch += 1;
            ledger.grants.push(Grant { token: ledger.epoch, ..grant.clone() });
            to = Arc::new(ledger);
        }
        state.put(Arc::clone(&to), self.mutant);
        Some(to)
    }

    fn happens(&self, state: &mut State, event: Event) -> Option<()> {
        match event {
            Event::Look(c, observed) => self.look(state, c, &observed)?,
            Event::Do(c) => self.act(state, c)?,
            Event::Arrives(c) => {
                let write = state.controllers[c].sent.take()?;
                let taken = self.write(state, &write);
                let version = state.version;
                let controller = &mut state.controllers[c];
                match taken {
                    Some(read) => (controller.version, controller.read) = (version, read),
                    // Another controller was first: it looks again.
                    None => controller.todo.clear(),
                }
                controller.rests();
            }
            Event::Crash(c, is_late) => {
                let controller = std::mem::take(&mut state.controllers[c]);
                if is_late {
                    state.may_be_late -= 1;
                    state.late.push(controller.sent?);
                }
            }
            Event::ArrivesLate(n) => {
                let write = state.late.remove(n);
                let _ = self.write(state, &write);
            }
            Event::Hear(n, token) => self.hears(state, n, token)?,
            Event::HearForged(n) => self.hears(state, n, HIGHEST)?,
            Event::Done(n) => {
                let body = &mut state.nodes[n];
                body.work.take()?;
                body.runs = true;
                let said = body.says();
                state.said[n].insert(said);
            }
            Event::Claims | Event::ClaimArrives | Event::Unclaims => self.upgrades(state, &event)?,
            Event::Ends(n) => {
                let mut ledger = Ledger::clone(&state.ledger);
                ledger.grants.retain(|grant| grant.node.uid != self.nodes[n].uid);
                state.put(Arc::new(ledger), self.mutant);
            }
        }
        Some(())
    }

    fn upgrades(&self, state: &mut State, event: &Event) -> Option<()> {
        state.upgrade = match (event, state.upgrade.clone()) {
            (Event::Claims, Upgrade::Begins) => {
                let mut read = Ledger::clone(&state.ledger);
                if self.mutant == Mutant::ClaimsBesideGrants {
                    read.grants.clear();
                }
                let to = read.claim("1.31.2", &BTreeSet::new(), noon()).ok()?;
                let to = Arc::new(Ledger { grants: state.ledger.grants.clone(), ..to });
                Upgrade::Claims(Write { version: state.version, from: Arc::clone(&state.ledger), to })
            }
            (Event::ClaimArrives, Upgrade::Claims(write)) if write.version == state.version => {
                state.put(write.to, self.mutant);
                Upgrade::Works
            }
            (Event::ClaimArrives, Upgrade::Claims(_)) => Upgrade::Begins,
            (Event::Unclaims, Upgrade::Works) => {
                let token = state.ledger.kubernetes.as_ref()?.token;
                state.put(Arc::new(state.ledger.unclaim(token)), self.mutant);
                Upgrade::Over
            }
            _ => return None,
        };
        Some(())
    }

    /// The node begins, if the token is new to it and the ledger has its grant.
    fn hears(&self, state: &mut State, n: usize, token: u64) -> Option<()> {
        let body = &mut state.nodes[n];
        if self.mutant == Mutant::UnreadToken && body.work.is_none() {
            body.obeyed = body.obeyed.max(token);
            let said = body.says();
            state.said[n].insert(said);
        }
        let granted = state.ledger.held(&self.nodes[n].uid)?.token;
        if token <= body.obeyed || body.work.is_some() || granted != token {
            return None;
        }
        body.obeyed = token;
        // Nothing is disturbed where the payload runs.
        body.work = (!body.runs).then_some(token);
        let said = body.says();
        state.said[n].insert(said);
        Some(())
    }

    /// All nodes are done when nothing goes wrong any more. Where controllers crash and then see the latest, it is the
    /// same: only that state is looked at. A liar says for ever what it says, and all but it are done.
    fn ends(&self, state: &State) -> bool {
        let is_quiet = state.controllers.iter().all(|controller| *controller == Controller::default());
        if !is_quiet || !state.late.is_empty() {
            return true;
        }
        let quiet = (Arc::clone(&state.ledger), state.nodes.clone(), state.begins.clone());
        if let Some(ends) = self.ended.lock().unwrap().get(&quiet) {
            return *ends;
        }
        let ends = self.ends_whatever_is_said(state);
        self.ended.lock().unwrap().insert(quiet, ends);
        ends
    }

    fn ends_whatever_is_said(&self, state: &State) -> bool {
        if !self.has_liar {
            return self.ends_with(state, None);
        }
        let truth = state.nodes.iter().map(|body| body.says());
        let with = |lie: Said| [lie].into_iter().chain(truth.clone().skip(1)).collect::<Vec<_>>();
        let mut known = HashSet::new();
        let mut lies = Said::lies(state.ledger.epoch);
        lies.retain(|lie| known.insert(self.decides(0, &state.ledger, &with(*lie))));
        lies.into_iter().all(|lie| self.ends_with(state, Some(lie)))
    }

    fn ends_with(&self, state: &State, lie: Option<Said>) -> bool {
        let mut state = state.clone();
        let _ = self.happens(&mut state, Event::Unclaims);
        for _ in 0..40 {
            let all_run = state.nodes.iter().enumerate().all(|(n, body)| body.runs || self.lies(n));
            let is_liars = |grant: &Grant| self.has_liar && grant.node == self.nodes[0];
            if all_run && state.ledger.grants.iter().all(is_liars) {
                return true;
            }
            let mut latest: Vec<Said> = state.nodes.iter().map(|body| body.says()).collect();
            latest[0] = lie.unwrap_or(latest[0]);
            for c in 0..=usize::from(self.younger.is_some()) {
                let _ = self.happens(&mut state, Event::Look(c, latest.clone()));
                for _ in 0..8 {
                    let _ = self.happens(&mut state, Event::Do(c));
                    let _ = self.happens(&mut state, Event::Arrives(c));
                }
            }
            for (n, token) in state.begins.clone() {
                let _ = self.happens(&mut state, Event::Hear(n, token));
            }
            for n in 0..self.nodes.len() {
                let _ = self.happens(&mut state, Event::Done(n));
            }
        }
        false
    }

    /// No more than the budget, and one of the control plane: of held grants, and of disturbed nodes.
    fn is_within(&self, state: &State) -> bool {
        // A liar may free its own grant while it is at work: that is its own doing.
        let is_at_work = |node: &&Node| {
            let n = self.number(&node.uid);
            state.nodes[n].work.is_some() && !self.lies(n)
        };
        let held: Vec<&Node> = state.ledger.grants.iter().map(|grant| &grant.node).collect();
        let at_work: Vec<&Node> = self.nodes.iter().filter(is_at_work).collect();
        [held, at_work].iter().all(|nodes| {
            let control_plane = nodes.iter().filter(|node| node.role == Role::ControlPlane).count();
            nodes.len() <= self.budget as usize && control_plane <= 1
        })
    }

    /// No grant is there beside a claim, and no node is at work while Kubernetes is upgraded.
    fn is_one_at_a_time(&self, state: &State) -> bool {
        let is_claimed = state.ledger.kubernetes.is_some() && !state.ledger.grants.is_empty();
        let is_at_work = state.upgrade == Upgrade::Works && state.nodes.iter().any(|body| body.work.is_some());
        !is_claimed && !is_at_work
    }

    fn all_hold(&self, state: &State) -> bool {
        let granted = |n: usize| state.ledger.held(&self.nodes[n].uid).map(|grant| grant.token);
        let holds = |(n, body): (usize, &Body)| body.work.is_none() || granted(n) == body.work || self.lies(n);
        state.nodes.iter().enumerate().all(holds)
    }
}

impl Model for Cluster {
    type State = State;
    type Action = Event;

    fn init_states(&self) -> Vec<State> {
        let nodes = vec![Body::default(); self.nodes.len()];
        vec![State {
            ledger: Arc::default(),
            version: 0,
            controllers: Default::default(),
            said: nodes.iter().map(|body| BTreeSet::from([body.says()])).collect(),
            nodes,
            begins: BTreeSet::new(),
            late: Vec::new(),
            may_be_late: self.late,
            fell: false,
            stopped: false,
            upgrade: if self.has_upgrade { Upgrade::Begins } else { Upgrade::Never },
        }]
    }

    fn actions(&self, state: &State, events: &mut Vec<Event>) {
        for (c, controller) in state.controllers.iter().enumerate().take(self.controllers) {
            if *controller == Controller::default() {
                events.extend(self.views(c, state).iter().map(|view| Event::Look(c, view.clone())));
                continue;
            }
            events.extend([Event::Do(c), Event::Arrives(c), Event::Crash(c, false)]);
            if state.may_be_late > 0 {
                events.push(Event::Crash(c, true));
            }
        }
        events.extend((0..state.late.len()).map(Event::ArrivesLate));
        if self.has_upgrade {
            events.extend([Event::Claims, Event::ClaimArrives, Event::Unclaims]);
        }
        events.extend(state.begins.iter().map(|(n, token)| Event::Hear(*n, *token)));
        for n in 0..self.nodes.len() {
            events.push(Event::Done(n));
            if self.has_liar && !self.lies(n) {
                events.push(Event::HearForged(n));
            }
            let was_well = state.said[n].iter().any(|said| matches!(said, Said::Report { busy: false, .. }));
            if self.mutant == Mutant::Expires || self.mutant == Mutant::AnyToken && was_well {
                events.push(Event::Ends(n));
            }
        }
    }

    fn next_state(&self, last: &State, event: Event) -> Option<State> {
        let mut state = last.clone();
        self.happens(&mut state, event)?;
        // One controller is as good as the other.
        let [one, other] = &state.controllers;
        if self.controllers == 2 && self.younger.is_none() && hash(one) > hash(other) {
            state.controllers.reverse();
        }
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(super::BUDGET, |model: &Self, state: &State| model.is_within(state)),
            Property::always(super::ONE, |model: &Self, state: &State| model.is_one_at_a_time(state)),
            Property::always(super::HOLDS, |model: &Self, state: &State| model.all_hold(state)),
            Property::always(super::TOKENS, |_: &Self, state: &State| !state.fell),
            Property::always(super::GOES_ON, |_: &Self, state: &State| !state.stopped),
            Property::always(super::ENDS, |model: &Self, state: &State| {
                !(model.has_liar || model.mutant == Mutant::None) || model.ends(state)
            }),
            Property::sometimes(super::REACHED, |_: &Self, state: &State| {
                state.ledger.grants.is_empty() && state.nodes.iter().all(|body| body.runs)
            }),
        ]
    }

    fn within_boundary(&self, state: &State) -> bool {
        state.ledger.epoch <= self.tokens
    }
}
