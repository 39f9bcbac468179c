//! Everything that there is, and what happens to it in virtual time.

use std::{collections::BTreeMap, rc::Rc};

use slipway_node::request::Request;
use slipway_rollout::{
    facts::Facts,
    ledger::{Ledger, Role},
    plan::Plan,
};

use crate::{
    NEW,
    api::{Api, Versioned},
    clock::{DAY, Seconds, Trace},
    controller_state::{Controller, Write, WriteResult},
    etcd::Etcd,
    faults::{Fault, When, Who},
    laws::Laws,
    machine::Machine,
    mutant::Mutant,
    random::Random,
    scenario::Scenario,
};

/// After this much virtual time the run ends: with one node a week, a rollout takes its time.
const HORIZON: Seconds = 90 * DAY;
/// Longer than any window is waited for.
const STUCK: Seconds = 15 * DAY;
/// So long after the last fault a run with a node that lies for ever goes on.
const LIARS: Seconds = 4 * DAY;
/// A request may be so late. After it, nothing of a rollout that is over is on its way any more.
pub const LATEST: Seconds = 3600;

/// Something that is due.
#[derive(Clone, Debug)]
pub enum Event {
    /// A node decides; what it decided is done. Both only if nothing was scheduled for it since.
    Reconcile(usize, u64),
    Perform(usize, u64),
    /// A machine comes up; its services do; the watchdog looks at a trial. All of one boot.
    Up(usize, u64),
    Check(usize),
    Guard(usize, u64),
    /// A request arrives at whatever machine has this name.
    Request(String, Box<Request>),
    /// A node of this name is asked to end what it began with this grant.
    GoesBack(String, u64),
    /// A controller, in this life of it, reads the ledger; reads the rest, and decides; does the next thing.
    Look(usize, u64),
    Decide(usize, u64),
    Act(usize, u64),
    /// A write arrives; its answer does. `None`: it is given up.
    Write(usize, u64, Box<Write>),
    Answer(usize, u64, Option<WriteResult>),
    Fault(Fault, usize),
    /// A Node is made by the kubelet; another machine takes a place; people clean up.
    Registers(usize),
    Replaced(usize),
    CleansUp(usize),
    /// A controller starts again; its clock is right again.
    Starts(usize),
    Resumes(usize),
    Unskips(usize, String),
    /// A node that lied does so no more.
    IsHonest(usize),
    /// An upgrade of Kubernetes reads the ledger; its write arrives; it is over. The first has how long it takes, and the others
    /// what was read.
    Claims(Seconds),
    ClaimArrives(Seconds, Versioned<Ledger>),
    Unclaims(u64),
    /// Nothing goes wrong any more.
    Calm,
}

/// The counters, for people.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub events: u64,
    pub looks: u64,
    pub grants: u64,
    /// Requests to the API server: of controllers that read, of controllers that write, of nodes that read the ledger,
    /// of nodes that write their Node. And how many grants were in the ledgers that these brought.
    pub reads: u64,
    pub writes: u64,
    pub node_reads: u64,
    pub node_writes: u64,
    pub carried: u64,
    /// Reports of nodes that were looked at.
    pub reports: u64,
    pub conflicts: u64,
    pub refused: u64,
    pub begun: u64,
    pub reached: u64,
    pub came_back: u64,
    pub cuts: u64,
    pub crashes: u64,
    pub faults: u64,
    pub denied: u64,
    /// Nodes that went back from a payload that was denied.
    pub went_back: u64,
    /// Upgrades of Kubernetes that had the ledger's claim.
    pub claimed: u64,
    /// Writes by hand.
    pub by_hand: u64,
    pub finished: u64,
    pub stuck: u64,
    pub cut_short: u64,
    pub nodes: u64,
    pub seconds: u64,
}

impl Counts {
    /// One run more.
    pub fn add(&mut self, other: &Self) {
        self.events += other.events;
        self.looks += other.looks;
        self.grants += other.grants;
        self.reads += other.reads;
        self.writes += other.writes;
        self.node_reads += other.node_reads;
        self.node_writes += other.node_writes;
        self.carried += other.carried;
        self.reports += other.reports;
        self.conflicts += other.conflicts;
        self.refused += other.refused;
        self.begun += other.begun;
        self.reached += other.reached;
        self.came_back += other.came_back;
        self.cuts += other.cuts;
        self.crashes += other.crashes;
        self.faults += other.faults;
        self.denied += other.denied;
        self.went_back += other.went_back;
        self.claimed += other.claimed;
        self.by_hand += other.by_hand;
        self.finished += other.finished;
        self.stuck += other.stuck;
        self.cut_short += other.cut_short;
        self.nodes += other.nodes;
        self.seconds += other.seconds;
    }
}

/// The world.
pub struct World {
    pub now: Seconds,
    due: BTreeMap<(Seconds, u64), Event>,
    scheduled: u64,
    pub random: Random,
    pub scenario: Scenario,
    pub mutant: Mutant,
    pub api: Api,
    pub etcd: Etcd,
    pub machines: Vec<Machine>,
    /// Each UID that there ever was: the place of its machine, and which one of that name it was.
    pub uids: BTreeMap<String, (usize, u64)>,
    pub controllers: Vec<Controller>,
    pub laws: Laws,
    pub trace: Trace,
    pub counts: Counts,
    /// Small things go wrong no more.
    pub is_calm: bool,
    /// Requests that were sent: one of them may come again.
    pub sent: Vec<(String, Request)>,
    /// When each pool's rollout was found to be over.
    pub finished: Vec<Option<Seconds>>,
}

impl World {
    /// Before anything happened.
    pub fn new(scenario: Scenario, mutant: Mutant, trace: Trace) -> Self {
        let machine = |(node, quality): (&slipway_rollout::ledger::Node, &_)| {
            let is_tried_once = scenario.is_tried_once;
            Machine { is_tried_once, ..Machine::new(&node.name, &node.pool, node.role, *quality) }
        };
        let machines: Vec<Machine> = scenario.nodes.iter().zip(&scenario.quality).map(machine).collect();
        let is_member = |(n, machine): (usize, &Machine)| (machine.role == Role::ControlPlane).then_some(n);
        let etcd = Etcd::new(machines.iter().enumerate().filter_map(is_member));
        let uids = scenario.nodes.iter().enumerate().map(|(n, node)| (node.uid.clone(), (n, 0))).collect();
        let terms = scenario.pools.iter().map(|pool| Rc::new(pool.terms.clone())).collect();
        let mut api = Api::new(&scenario.nodes, terms);
        for pool in &scenario.pools {
            let nodes = scenario.nodes.iter().filter(|node| node.pool == pool.name).cloned();
            api.begin(Plan::new(&pool.name, NEW, nodes, &pool.terms.rules(), pool.order, pool.own.as_deref()));
        }
        let controllers = (0..scenario.controllers).map(|_| Controller::default()).collect();
        let mut world = Self {
            now: 0,
            due: BTreeMap::new(),
            scheduled: 0,
            random: scenario.random.clone(),
            mutant,
            api,
            etcd,
            machines,
            uids,
            controllers,
            laws: Laws::new(scenario.pools.len()),
            trace,
            counts: Counts { nodes: scenario.nodes.len() as u64, ..Counts::default() },
            is_calm: false,
            sent: Vec::new(),
            finished: vec![None; scenario.pools.len()],
            scenario,
        };
        world.trace.say(0, || world.scenario.to_string());
        world.prepare();
        world
    }

    fn prepare(&mut self) {
        for planned in self.scenario.faults.clone() {
            let Who::Machine(n) = planned.who else { continue };
            if let When::At(at) = planned.when {
                self.at(at, Event::Fault(planned.fault, n));
            }
        }
        self.at(self.scenario.calm, Event::Calm);
        for c in 0..self.controllers.len() {
            self.starts(c);
        }
    }

    /// Something is due in so many seconds.
    pub fn after(&mut self, seconds: Seconds, event: Event) {
        self.at(self.now + seconds.max(0), event);
    }

    fn at(&mut self, at: Seconds, event: Event) {
        self.scheduled += 1;
        self.due.insert((at, self.scheduled), event);
    }

    /// Until it is over, a law is broken, or nothing more can come. The law, if one was.
    pub fn run(&mut self) -> Option<String> {
        while let Some(((at, _), event)) = self.due.pop_first() {
            self.now = at;
            if self.is_over() {
                break;
            }
            if at > HORIZON {
                self.counts.cut_short += 1;
                let is_stuck = self.laws.changed + STUCK < at;
                self.laws.must(!is_stuck, || "ends: nothing changed for 15 days, and no reason is given".to_owned());
                break;
            }
            self.counts.events += 1;
            self.happens(event);
            if self.laws.broken.is_some() {
                break;
            }
        }
        if let Some(law) = self.laws.broken.clone() {
            self.trace.say(self.now, || format!("BROKEN: {law}"));
            return Some(law);
        }
        self.counts.stuck = self.laws.stuck.len() as u64;
        self.counts.seconds = u64::try_from(self.now).unwrap_or(0);
        self.counts.finished = self.finished.iter().flatten().count() as u64;
        None
    }

    /// All rollouts are over or stuck for good reasons, and all messages have arrived.
    fn is_over(&self) -> bool {
        let is_late = |since: &Option<Seconds>| since.is_some_and(|since| self.now > since + LATEST);
        // One that lies for ever may be granted for ever.
        let has_liar = self.machines.iter().any(|machine| machine.lie.is_some());
        self.is_calm && self.now > self.scenario.calm + LATEST && self.finished.iter().all(is_late)
            || self.is_calm && self.laws.is_stuck
            || self.is_calm && has_liar && self.now > self.scenario.calm + LIARS
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Reconcile(n, ticket) => self.reconcile_node(n, ticket),
            Event::Perform(n, ticket) => self.performs(n, ticket),
            Event::Up(n, boot) => self.comes_up(n, boot),
            Event::Check(n) => self.check(n, false),
            Event::Guard(n, boot) => self.guard(n, boot),
            Event::Request(name, request) => self.receive(&name, *request),
            Event::GoesBack(name, token) => self.goes_back(&name, token),
            Event::Look(c, life) => self.looks(c, life),
            Event::Decide(c, life) => self.decides(c, life),
            Event::Act(c, life) => self.acts(c, life),
            Event::Write(c, life, write) => self.write_arrives(c, life, &write),
            Event::Answer(c, life, taken) => self.answer_arrives(c, life, taken),
            Event::Fault(fault, n) => self.fault(fault, n),
            Event::Registers(n) => self.registers(n),
            Event::Replaced(n) => self.replaced(n),
            Event::CleansUp(n) => self.cleans_up(n),
            Event::Starts(c) => self.starts(c),
            Event::Resumes(pool) => self.resumes(pool),
            Event::Unskips(pool, uid) => self.unskips(pool, &uid),
            Event::IsHonest(n) => self.is_honest(n),
            Event::Claims(takes) => self.claims(takes),
            Event::ClaimArrives(takes, read) => self.claim_arrives(takes, &read),
            Event::Unclaims(token) => self.unclaims(token),
            Event::Calm => self.becomes_calm(),
        }
    }

    /// True if a small thing goes wrong that goes wrong so often.
    pub fn goes_wrong(&mut self, per_mille: u32) -> bool {
        !self.is_calm && self.random.per_mille(per_mille)
    }

    /// True if this machine reaches the API server, and etcd's members each other.
    pub fn reaches_api(&self, n: usize) -> bool {
        let is_cut_off = self.machines.get(n).is_none_or(|machine| self.now < machine.cut_off_until);
        !is_cut_off && self.api_answers()
    }

    /// True if the API server answers.
    pub fn api_answers(&self) -> bool {
        self.now >= self.api.down_until && self.etcd.serves()
    }

    /// The UID of the Node object that a machine has now.
    pub fn uid(&self, n: usize) -> Option<&str> {
        Some(self.api.nodes.get(&self.machines.get(n)?.name)?.node.uid.as_str())
    }

    /// The machine with this name.
    pub fn named(&self, name: &str) -> Option<usize> {
        // Names have their place in them: nothing here searches through ten thousand.
        let n: usize = name.strip_prefix('n')?.parse().ok()?;
        (n < self.machines.len()).then_some(n)
    }

    /// A grant was given to this machine: make its delayed faults due.
    pub fn granted(&mut self, n: usize) {
        self.counts.grants += 1;
        let count = self.counts.grants;
        for planned in self.scenario.faults.clone() {
            if let When::After(nth, delay) = planned.when
                && nth == count
            {
                let whom = if let Who::Machine(m) = planned.who { m } else { n };
                self.after(delay, Event::Fault(planned.fault, whom));
            }
        }
    }

    /// Of this pool, as it would be seen now without any delay.
    pub fn truth(&self, pool: usize) -> Option<Facts> {
        self.pool_facts(pool, Rc::clone(&self.api.ledger.object), 0, 0, |_| 0)
    }
}
