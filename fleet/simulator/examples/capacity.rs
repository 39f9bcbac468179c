//! The needs of a controller for so many nodes: time of one decision, memory, size of the objects. `cargo run -p
//! slipway-fleet-simulator --example capacity`, with sizes of fleets if others than the usual are wanted.
#![allow(clippy::unwrap_used, reason = "a program for people")]

use std::{env, fs, time::Instant};

use jiff::{Timestamp, ToSpan as _};
use slipway_core::digest::Sha256;
use slipway_fleet_simulator::{
    NEW, OLD,
    clock::{Trace, start},
    mutant::Mutant,
    scenario::Scenario,
    world::World,
};
use slipway_rollout::{
    decide::decide,
    duration::PositiveDuration,
    facts::{Facts, NodeReport, ObservedNode, RollbackState},
    int_or_percent::IntOrPercent,
    ledger::{Node, Rate, Role},
    plan::{Order, Plan},
    policy::{CanaryStep, Policy, Rules, Topology},
    window::{Window, Zone},
};

/// Decisions that are timed at each point.
const TIMES: usize = 21;

/// A node with a name and a UID as long as real ones.
fn node(n: usize) -> Node {
    let hash = Sha256::of(&n.to_le_bytes()).to_string();
    let uid = format!("{}-{}-{}-{}-{}", &hash[..8], &hash[8..12], &hash[12..16], &hash[16..20], &hash[20..32]);
    let role = if n < 3 { Role::ControlPlane } else { Role::Worker };
    let name = format!("ip-10-{}-{}-{}.eu-central-1.compute.internal", n >> 16 & 255, n >> 8 & 255, n & 255);
    let zone = Some(format!("eu-central-1{}", char::from(b'a' + u8::try_from(n % 3).unwrap())));
    Node { uid, name, pool: "workers".to_owned(), zone, role }
}

fn rules() -> Rules {
    let window = Window::new(
        vec![],
        "00:00".parse().unwrap(),
        PositiveDuration::minutes(1200),
        Zone::named("Europe/Berlin").unwrap(),
    );
    let policy = Policy {
        name: "nights".to_owned(),
        max_unavailable: Some(IntOrPercent::Percent(10)),
        rate: Some(Rate { count: 2000, per: PositiveDuration::minutes(60) }),
        windows: vec![window.unwrap()],
        topology: Some(Topology { key: "topology.kubernetes.io/zone".to_owned(), max_domains: 3 }),
        steps: vec![CanaryStep { nodes: IntOrPercent::Percent(1), soak: PositiveDuration::minutes(30) }],
        failure_budget: Some(IntOrPercent::Percent(5)),
        ..Policy::default()
    };
    Rules::try_from(vec![policy]).unwrap()
}

/// A rollout of which this part is done, and as many nodes hold grants as may.
fn pool_facts(nodes: usize, staged: bool, done: usize, now: Timestamp) -> Facts {
    let rules = rules();
    let plan = Plan::new("workers", NEW, (0..nodes).map(node), &rules, Order::default(), None);
    let said = |n: usize| NodeReport {
        runs: if n < done { NEW } else { OLD },
        staged: (staged || n < done).then_some(NEW),
        well: true,
        since: now - 2.hours(),
        busy: false,
        token: 0,
        failed: None,
        rollback: RollbackState::Unavailable,
        other_kubelet: None,
    };
    let observed = |(n, (_, node)): (usize, (usize, &Node))| ObservedNode { node: node.clone(), report: Some(said(n)) };
    let observed: Vec<ObservedNode> = plan.nodes().enumerate().map(observed).collect();
    let passed = usize::from(done > 0);
    Facts { passed, ..Facts::new(plan, rules, observed) }
}

/// The grants of this decision are given. `how` says what became of them: asked to begin, at work, or done.
fn go_on(facts: &mut Facts, how: &str, now: Timestamp) {
    let decision = decide(facts, now);
    for action in &decision.steps {
        if let slipway_rollout::decide::Action::Grant { node, .. } = action {
            facts.ledger = facts.ledger.grant(node, &decision.limits, now).unwrap().0;
        }
    }
    let ledger = facts.ledger.clone();
    let held: std::collections::BTreeMap<_, _> =
        ledger.grants.iter().map(|grant| (&grant.node.uid, grant.token)).collect();
    for observed in &mut facts.nodes {
        if let (Some(token), Some(report)) = (held.get(&observed.node.uid), &mut observed.report) {
            match how {
                "granted" => {}
                "at work" => (report.token, report.busy) = (*token, true),
                _ => (report.token, report.runs, report.busy) = (*token, NEW, false),
            }
        }
    }
}

/// Milliseconds: the median and the worst.
fn timed(facts: &Facts, now: Timestamp) -> (f64, f64, usize) {
    let mut times = Vec::new();
    let mut bytes = 0;
    for _ in 0..TIMES {
        let start = Instant::now();
        let decision = decide(facts, now);
        times.push(start.elapsed().as_secs_f64() * 1000.0);
        bytes = serde_json::to_vec(&decision).unwrap().len();
    }
    times.sort_by(f64::total_cmp);
    (times[TIMES / 2], times[TIMES - 1], bytes)
}

/// The most memory that this process ever had, in MiB.
fn peak() -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib: f64 = line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(f64::NAN);
    kib / 1024.0
}

/// A whole rollout in virtual time, without faults: the traffic of the API server.
fn traffic(nodes: usize) {
    let start = Instant::now();
    let mut world = World::new(Scenario::fair(nodes), Mutant::None, Trace::default());
    assert_eq!(world.run(), None);
    let seconds = world.finished.iter().flatten().max().copied().unwrap_or_default();
    let hours = f64::from(i32::try_from(seconds).unwrap()) / 3600.0;
    let counts = world.counts;
    let of = |many: u64| f64::from(u32::try_from(many).unwrap());
    let per = |many: u64| of(many) / of(nodes as u64) / hours;
    // The size of a grant in JSON, and of the rest of a ledger and of an object.
    let bytes = (of(counts.carried) * 255.0
        + of(counts.reads + counts.writes + counts.node_reads) * 1000.0
        + of(counts.node_writes) * 2.0 * 8000.0)
        / of(nodes as u64)
        / hours;
    let all = counts.reads + counts.writes + counts.node_reads + counts.node_writes;
    let (looks, reports, took) = (counts.looks, per(counts.reports), start.elapsed().as_secs_f64());
    let each = [all, counts.reads, counts.writes, counts.node_reads + counts.node_writes].map(per);
    println!(
        "| {nodes} | {hours:.1} | {looks} | {:.1} | {:.2} | {:.2} | {:.2} | {:.0} | {reports:.0} | {took:.1} | {:.0} |",
        each[0],
        each[1],
        each[2],
        each[3],
        bytes / 1000.0,
        peak()
    );
}

fn main() {
    let sizes: Vec<usize> = env::args().skip(1).map(|size| size.parse().unwrap()).collect();
    let sizes = if sizes.is_empty() { vec![10, 100, 1000, 10_000] } else { sizes };
    let now = start() + 9.hours();
    println!(
        "| nodes | phase | decide, median ms | worst ms | decision, bytes | ledger, bytes | rollout, bytes | peak MiB |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    for size in sizes.iter().copied() {
        let row = |phase: &str, facts: &Facts| {
            let (median, worst, bytes) = timed(facts, now);
            let ledger = serde_json::to_vec(&facts.ledger).unwrap().len();
            let plan = serde_json::to_vec(&facts.plan).unwrap().len();
            println!("| {size} | {phase} | {median:.2} | {worst:.2} | {bytes} | {ledger} | {plan} | {:.0} |", peak());
        };
        row("nothing is staged", &pool_facts(size, false, 0, now));
        let mut half = pool_facts(size, true, size / 2, now);
        row("half are done, as many are granted as may", &half);
        for how in ["granted", "at work", "done"] {
            go_on(&mut half, how, now);
            row(how, &half);
        }
        row("all are done", &pool_facts(size, true, size, now));
    }
    println!();
    println!(
        "| nodes | hours | looks | requests per node and hour | reads | writes | of nodes | kB | reports | s | peak MiB |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|");
    sizes.into_iter().for_each(traffic);
}
