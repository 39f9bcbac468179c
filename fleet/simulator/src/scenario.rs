//! One fleet, its policies, and what will go wrong with it: all of it from a seed.

use std::{collections::BTreeSet, fmt};

use slipway_rollout::{
    facts::RollbackPolicy,
    ledger::{Node, Role},
    plan::Order,
};

use crate::{
    clock::{DAY, Seconds},
    faults::{self, Planned},
    policies::{self, Terms},
    random::Random,
};

/// The behaviour of a payload on a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quality {
    /// It is well.
    Well,
    /// It comes up, and is never well.
    NeverWell,
    /// It does not come up: the watchdog starts the machine anew.
    NeverUp,
    /// It is well, and for so long; then never again.
    FallsIll(Seconds),
    /// It cannot be written.
    NotStaged,
}

/// Small faults, of a thousand chances.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rates {
    /// A message is lost.
    pub lost: u32,
    /// A message or a write is late.
    pub late: u32,
    /// A message comes twice.
    pub twice: u32,
    /// A controller crashes before or after one thing that it does.
    pub crash: u32,
    /// Power is cut before, in the middle of, or after a step.
    pub cut: u32,
    /// A step does not work, and says so.
    pub fails: u32,
}

/// A pool, and the plans for it.
#[derive(Clone, Debug)]
pub struct Pool {
    pub name: String,
    pub terms: Terms,
    pub order: Order,
    /// The node that controller 0 runs on.
    pub own: Option<String>,
    /// The rollback of nodes if the payload is denied.
    pub rollback: Option<RollbackPolicy>,
}

/// Labels of two pools: a node of the older one has those of the younger one, too.
#[derive(Clone, Debug, Default)]
pub struct SharedNodes {
    /// The places of the two.
    pub older: usize,
    pub younger: usize,
    /// The names of these nodes.
    pub names: BTreeSet<String>,
}

/// All that the seed says.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub seed: u64,
    pub pools: Vec<Pool>,
    pub nodes: Vec<Node>,
    /// Which of them have the labels of two pools.
    pub shared: SharedNodes,
    /// The behaviour of the payload on each of them.
    pub quality: Vec<Quality>,
    pub controllers: usize,
    /// An upgrade that came back, for whatever reason, is not tried again, and each node has one name for its request.
    /// Otherwise it is granted again, and each request has a name of its own.
    pub is_tried_once: bool,
    pub rates: Rates,
    pub faults: Vec<Planned>,
    /// From then on nothing goes wrong any more, and whatever can come back comes back.
    pub calm: Seconds,
    /// The random numbers for the run itself.
    pub random: Random,
}

impl Scenario {
    /// The scenario of this seed; with so many nodes, if that is given.
    pub fn new(seed: u64, nodes: Option<usize>) -> Self {
        // Seeds of people are small numbers, and near each other.
        let mut random = Random::new(seed);
        let mut random = Random::new(random.number());
        let size = nodes.unwrap_or_else(|| size(&mut random));
        let nodes = fleet(&mut random, size);
        let quality = qualities(&mut random, nodes.len());
        let pools = pools(&mut random, &nodes);
        let calm = random.from_to(2, 5) * DAY;
        let rates = rates(&mut random);
        let controllers = 1 + usize::from(random.coin());
        let is_tried_once = random.coin();
        let mut faults = faults::planned(&mut random, nodes.len(), pools.len(), controllers, calm);
        for (n, _) in pools.iter().enumerate().filter(|(_, pool)| pool.terms.asks_for_approval()) {
            faults.extend(faults::approvals(&mut random, n, calm));
        }
        faults.extend(faults::by_hand(seed, nodes.len(), pools.len(), calm));
        faults.extend(faults::blind(seed, controllers, calm));
        let shared = shared(&mut Random::new(seed ^ LABELS), &nodes, &pools);
        Self { seed, pools, nodes, shared, quality, controllers, is_tried_once, rates, faults, calm, random }
    }

    /// True if this node is another pool's, and has the labels of this one, too.
    pub fn is_shared(&self, name: &str, pool: usize) -> bool {
        self.shared.younger == pool && self.shared.names.contains(name)
    }

    /// So many workers, two controllers, and nothing that goes wrong; a tenth may be unavailable at once.
    pub fn fair(nodes: usize) -> Self {
        let mut random = Random::new(1);
        let node = |n: usize| Node {
            uid: format!("u{n}-0"),
            name: format!("n{n}"),
            pool: "pool".to_owned(),
            zone: None,
            role: Role::Worker,
        };
        let nodes: Vec<Node> = (0..nodes).map(node).collect();
        let terms = policies::tenth();
        let pool = Pool { name: "pool".to_owned(), terms, order: Order::default(), own: None, rollback: None };
        let quality = vec![Quality::Well; nodes.len()];
        let (seed, rates, faults, calm) = (random.number(), Rates::default(), Vec::new(), 0);
        let (controllers, is_tried_once, pools, shared) = (2, true, vec![pool], SharedNodes::default());
        Self { seed, pools, nodes, shared, quality, controllers, is_tried_once, rates, faults, calm, random }
    }

    /// The command that runs this again.
    pub fn command(&self, is_sized: bool) -> String {
        let nodes = if is_sized { format!(" --nodes {}", self.nodes.len()) } else { String::new() };
        format!("cargo run -p slipway-fleet-simulator -- replay {}{nodes}", self.seed)
    }
}

/// Small fleets have the corners; a few are large.
fn size(random: &mut Random) -> usize {
    let (from, to) = match random.below(1000) {
        0..4 => (61, 200),
        4..20 => (21, 60),
        20..120 => (9, 20),
        _ => (1, 8),
    };
    usize::try_from(random.from_to(from, to)).unwrap_or(1)
}

fn fleet(random: &mut Random, size: usize) -> Vec<Node> {
    let control_plane = match random.below(10) {
        0..3 => 0,
        3..5 => 1,
        5..9 => 3,
        _ => 5,
    }
    .min(size);
    let zones = random.from_to(1, 4);
    let is_split = random.per_mille(300) && control_plane > 0 && control_plane < size;
    let has_unlabelled = random.per_mille(60);
    let mut nodes = Vec::new();
    for n in 0..size {
        let role = if n < control_plane { Role::ControlPlane } else { Role::Worker };
        let pool = if is_split && role == Role::ControlPlane { "control-plane" } else { "pool" };
        let zone = char::from(b'a' + u8::try_from(random.below(zones.unsigned_abs())).unwrap_or(0));
        let is_unlabelled = has_unlabelled && random.per_mille(200);
        nodes.push(Node {
            uid: format!("u{n}-0"),
            name: format!("n{n}"),
            pool: pool.to_owned(),
            zone: (!is_unlabelled).then(|| zone.to_string()),
            role,
        });
    }
    nodes
}

fn qualities(random: &mut Random, size: usize) -> Vec<Quality> {
    // The number of machines, of a thousand, on which the payload is bad.
    let bad = match random.below(20) {
        0..13 => 0,
        13..17 => 150,
        _ => 1000,
    };
    let kind = random.below(4);
    let long = random.from_to(60, 4 * 3600);
    let mut one = || match kind {
        _ if !random.per_mille(bad) => Quality::Well,
        0 => Quality::NeverWell,
        1 => Quality::NeverUp,
        2 => Quality::FallsIll(long),
        _ => Quality::NotStaged,
    };
    (0..size).map(|_| one()).collect()
}

fn pools(random: &mut Random, nodes: &[Node]) -> Vec<Pool> {
    let mut names: Vec<&str> = nodes.iter().map(|node| node.pool.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let mut pools = Vec::new();
    for name in names {
        let own = random.per_mille(400).then(|| nodes.get(random.place(nodes.len()))).flatten();
        let order = if random.coin() { Order::ControlPlaneFirst } else { Order::ControlPlaneLast };
        let own = own.map(|node| node.uid.clone());
        let terms = policies::random(random);
        let rollback = random.coin().then(|| RollbackPolicy { control_plane: random.coin(), any_etcd: false });
        pools.push(Pool { name: name.to_owned(), terms, order, own, rollback });
    }
    pools
}

/// Its own random numbers: what else a seed says stays.
const LABELS: u64 = 0x6c61_6265_6c73;

fn shared(random: &mut Random, nodes: &[Node], pools: &[Pool]) -> SharedNodes {
    if pools.len() < 2 || random.coin() {
        return SharedNodes::default();
    }
    let older = random.place(2);
    let of_older = |node: &&Node| pools.get(older).is_some_and(|pool| pool.name == node.pool);
    let mut names = BTreeSet::new();
    for node in nodes.iter().filter(of_older) {
        if random.per_mille(400) {
            names.insert(node.name.clone());
        }
    }
    SharedNodes { older, younger: 1 - older, names }
}

fn rates(random: &mut Random) -> Rates {
    let mut some = |most: u64| if random.per_mille(600) { u32::try_from(random.below(most)).unwrap_or(0) } else { 0 };
    Rates { lost: some(200), late: some(100), twice: some(150), crash: some(60), cut: some(20), fails: some(40) }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "seed {}: {} nodes, {} controllers, {:?}",
            self.seed,
            self.nodes.len(),
            self.controllers,
            self.rates
        )?;
        for pool in &self.pools {
            writeln!(
                f,
                "  pool {}: {:?}, own node {:?}, {:?}, {}",
                pool.name, pool.order, pool.own, pool.rollback, pool.terms
            )?;
        }
        for (node, quality) in self.nodes.iter().zip(&self.quality) {
            let zone = node.zone.as_deref().unwrap_or("-");
            writeln!(f, "  {} ({}, zone {zone}, {:?}): payload {quality:?}", node.name, node.pool, node.role)?;
        }
        if !self.shared.names.is_empty() {
            writeln!(f, "  {:?}", self.shared)?;
        }
        for fault in &self.faults {
            writeln!(f, "  {fault:?}")?;
        }
        write!(f, "  calm from day {}", self.calm / DAY)
    }
}
