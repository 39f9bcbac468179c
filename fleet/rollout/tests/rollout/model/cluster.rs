//! One ledger, two controllers, the nodes, and what is on its way between them.

use std::{
    collections::BTreeSet,
    env,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use slipway_rollout::{
    decide::{Action, decide},
    facts::{Facts, NodeReport, ObservedNode, RollbackState},
    int_or_percent::IntOrPercent,
    ledger::{Grant, Ledger, Limits, Node, Role},
    plan::{Order, Plan},
    policy::{Policy, Rules},
};
use stateright::{Model, Property};

use crate::{NEW, OLD, noon};

/// What is done wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    None,
    /// Grants end by time.
    Expires,
    /// A grant is added to the newest ledger, and the budget is of an older one.
    OldBudget,
    /// Whatever token a node names, it frees its grant.
    AnyToken,
}

/// A node, and what it says of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Body {
    runs: bool,
    /// The token with which it is at work.
    work: Option<u64>,
    /// The highest token that it obeyed.
    obeyed: u64,
}

/// The ledger as it is to be, if it still is what it was.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Write {
    version: u8,
    from: Arc<Ledger>,
    to: Arc<Ledger>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Controller {
    todo: Vec<Action>,
    limits: Option<Limits>,
    /// What it read, and of which version that was.
    version: u8,
    read: Arc<Ledger>,
    /// A write to which there was no answer yet.
    sent: Option<Write>,
}

/// One state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub ledger: Arc<Ledger>,
    version: u8,
    controllers: [Controller; 2],
    nodes: Vec<Body>,
    /// What each node has ever said: any of it may be what a controller sees.
    said: Vec<BTreeSet<Body>>,
    /// Requests to begin that were ever sent: each may arrive at any time, and again.
    begins: BTreeSet<(usize, u64)>,
    /// Writes of controllers that crashed since.
    late: Vec<Write>,
    /// How many more may come late.
    may_be_late: u8,
    /// Tokens fell.
    fell: bool,
}

/// One thing that can happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A controller reads the ledger and decides. Of each node it sees something that was said at some time.
    Look(usize, Vec<Body>),
    /// It does the first thing of what it decided.
    Do(usize),
    /// Its write arrives, and it hears what came of it.
    Arrives(usize),
    /// It forgets everything. Its write may be lost, or late.
    Crash(usize, bool),
    ArrivesLate(usize),
    /// A request to begin arrives.
    Hear(usize, u64),
    /// A node is done, and well.
    Done(usize),
    /// What is never to be: a grant ends by time, or by a report without a look at its token.
    Ends(usize),
}

/// The model.
pub struct Cluster {
    /// In the plan's order.
    nodes: Vec<Node>,
    rules: Rules,
    plan: Plan,
    budget: u32,
    mutant: Mutant,
    /// Tokens are not followed beyond: a node that was seen late is granted once more than it needs.
    tokens: u64,
    /// How many writes come late.
    late: u8,
}

impl Cluster {
    pub fn new(nodes: &[Node], budget: u32, tokens: u64, mutant: Mutant) -> Self {
        let policy = Policy { max_unavailable: Some(IntOrPercent::Nodes(budget)), ..Policy::default() };
        let rules = Rules::try_from(vec![policy]).unwrap();
        let plan = Plan::new("pool", NEW, nodes.to_vec(), &rules, Order::default(), None);
        let nodes: Vec<Node> = plan.nodes().map(|(_, node)| node.clone()).collect();
        // With a budget of two there are twenty times as many states.
        let is_large = env::var_os("SLIPWAY_FLEET_STATES").is_some();
        let late = u8::from(budget == 1 || nodes[0].role == Role::ControlPlane) + u8::from(is_large);
        Self { nodes, rules, plan, budget, mutant, tokens, late }
    }

    fn number(&self, uid: &str) -> usize {
        self.nodes.iter().position(|node| node.uid == uid).unwrap()
    }

    fn facts(&self, state: &State, observed: &[Body]) -> Facts {
        let of = |(node, body): (&Node, &Body)| {
            let (runs, busy, token) = (if body.runs { NEW } else { OLD }, body.work.is_some(), body.obeyed);
            let report = NodeReport {
                runs,
                staged: Some(NEW),
                well: true,
                since: noon(),
                busy,
                token,
                failed: None,
                rollback: RollbackState::Unavailable,
            };
            ObservedNode { node: node.clone(), report: Some(report) }
        };
        let nodes = self.nodes.iter().zip(observed).map(of).collect();
        let ledger = Ledger::clone(&state.ledger);
        Facts { ledger, ..Facts::new(self.plan.clone(), self.rules.clone(), nodes) }
    }

    fn look(&self, state: &mut State, c: usize, observed: &[Body]) -> Option<()> {
        let decision = decide(&self.facts(state, observed), noon());
        if decision.steps.is_empty() {
            return None;
        }
        let (todo, limits) = (decision.steps, Some(decision.limits));
        let read = Arc::clone(&state.ledger);
        state.controllers[c] = Controller { todo, limits, version: state.version, read, sent: None };
        Some(())
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
                controller.read.grant(&node, limits, noon()).ok().map(|(ledger, _)| ledger)
            }
            Action::Free { uid, proof } => controller.read.free(&uid, &proof).ok(),
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
            Event::Done(n) => {
                let body = &mut state.nodes[n];
                body.work.take()?;
                body.runs = true;
                state.said[n].insert(*body);
            }
            Event::Ends(n) => {
                let mut ledger = Ledger::clone(&state.ledger);
                ledger.grants.retain(|grant| grant.node.uid != self.nodes[n].uid);
                state.put(Arc::new(ledger), self.mutant);
            }
        }
        Some(())
    }

    /// The node begins, if the token is new to it and the ledger has its grant.
    fn hears(&self, state: &mut State, n: usize, token: u64) -> Option<()> {
        let body = &mut state.nodes[n];
        let granted = state.ledger.held(&self.nodes[n].uid)?.token;
        if token <= body.obeyed || body.work.is_some() || granted != token {
            return None;
        }
        body.obeyed = token;
        // Nothing is disturbed where the payload runs.
        body.work = (!body.runs).then_some(token);
        state.said[n].insert(*body);
        Some(())
    }

    /// All nodes are done when nothing goes wrong any more. Where controllers crash and then see the latest, it is the
    /// same: only that state is looked at.
    fn ends(&self, state: &State) -> bool {
        let is_quiet = state.controllers.iter().all(|controller| *controller == Controller::default());
        if !is_quiet || !state.late.is_empty() {
            return true;
        }
        let mut state = state.clone();
        for _ in 0..40 {
            if state.ledger.grants.is_empty() && state.nodes.iter().all(|body| body.runs) {
                return true;
            }
            let latest = state.nodes.clone();
            let _ = self.happens(&mut state, Event::Look(0, latest));
            for _ in 0..8 {
                let _ = self.happens(&mut state, Event::Do(0));
                let _ = self.happens(&mut state, Event::Arrives(0));
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

    /// No more than the budget, and one of the control plane: of what is held, and of what is disturbed.
    fn is_within(&self, state: &State) -> bool {
        let is_at_work = |node: &&Node| state.nodes[self.number(&node.uid)].work.is_some();
        let held: Vec<&Node> = state.ledger.grants.iter().map(|grant| &grant.node).collect();
        let at_work: Vec<&Node> = self.nodes.iter().filter(is_at_work).collect();
        [held, at_work].iter().all(|nodes| {
            let control_plane = nodes.iter().filter(|node| node.role == Role::ControlPlane).count();
            nodes.len() <= self.budget as usize && control_plane <= 1
        })
    }

    fn all_hold(&self, state: &State) -> bool {
        let granted = |n: usize| state.ledger.held(&self.nodes[n].uid).map(|grant| grant.token);
        state.nodes.iter().enumerate().all(|(n, body)| body.work.is_none() || granted(n) == body.work)
    }
}

impl Controller {
    /// What was read is of no use when there is nothing left to do.
    fn rests(&mut self) {
        if self.todo.is_empty() && self.sent.is_none() {
            *self = Self::default();
        }
    }
}

impl State {
    /// All that a controller may see of the nodes.
    fn views(&self) -> Vec<Vec<Body>> {
        self.said.iter().fold(vec![Vec::new()], |views, said| {
            let with = |view: &Vec<Body>, body: &Body| view.iter().chain([body]).copied().collect();
            views.iter().flat_map(|view| said.iter().map(move |body| with(view, body))).collect()
        })
    }

    fn put(&mut self, ledger: Arc<Ledger>, mutant: Mutant) {
        let tokens: BTreeSet<u64> = ledger.grants.iter().map(|grant| grant.token).collect();
        let is_twice = tokens.len() < ledger.grants.len();
        let is_new = |token: &u64| !self.ledger.grants.iter().any(|grant| grant.token == *token);
        let is_old = tokens.iter().filter(|token| is_new(token)).any(|token| *token <= self.ledger.epoch);
        self.fell |= is_twice || is_old || ledger.epoch < self.ledger.epoch;
        self.ledger = ledger;
        self.version += 1;
        // These fail whenever they arrive.
        self.late.retain(|late| late.version == self.version || mutant == Mutant::OldBudget);
    }
}

fn hash(controller: &Controller) -> u64 {
    let mut hasher = DefaultHasher::new();
    controller.hash(&mut hasher);
    hasher.finish()
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
            said: nodes.iter().map(|body| BTreeSet::from([*body])).collect(),
            nodes,
            begins: BTreeSet::new(),
            late: Vec::new(),
            may_be_late: self.late,
            fell: false,
        }]
    }

    fn actions(&self, state: &State, events: &mut Vec<Event>) {
        let views = state.views();
        for (c, controller) in state.controllers.iter().enumerate() {
            if *controller == Controller::default() {
                events.extend(views.iter().map(|view| Event::Look(c, view.clone())));
                continue;
            }
            events.extend([Event::Do(c), Event::Arrives(c), Event::Crash(c, false)]);
            if state.may_be_late > 0 {
                events.push(Event::Crash(c, true));
            }
        }
        events.extend((0..state.late.len()).map(Event::ArrivesLate));
        events.extend(state.begins.iter().map(|(n, token)| Event::Hear(*n, *token)));
        for n in 0..self.nodes.len() {
            events.push(Event::Done(n));
            let was_well = state.said[n].iter().any(|body| body.work.is_none());
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
        if hash(one) > hash(other) {
            state.controllers.reverse();
        }
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(super::BUDGET, |model: &Self, state: &State| model.is_within(state)),
            Property::always(super::HOLDS, |model: &Self, state: &State| model.all_hold(state)),
            Property::always(super::TOKENS, |_: &Self, state: &State| !state.fell),
            Property::always(super::ENDS, |model: &Self, state: &State| {
                model.mutant != Mutant::None || model.ends(state)
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
