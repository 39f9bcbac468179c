//! One node, explored: what the sequence decides, under power cuts and restarts of `slipwayd` between any two things it
//! does, results that get lost, steps that do not work, time that runs out, and people who do as they like.
//!
//! Two faults in one run, anywhere; `SLIPWAY_FLEET_STATES=N` adds faults until it has seen N states.
//!
//! Decisions and journal are the real ones, the journal encoded and decoded with every write. The disk, the Node object,
//! etcd's lock and member list and the fleet's grant are small models of their own. Numbers of boots and of writes are
//! used again once nothing refers to them: states that differ in nothing that decides anything are one.
//!
//! Not in it: the loss of both copies of the journal, and a person who uncordons a node and cordons it again while it is
//! ours (the rest in the Node does not tell).

mod act;
pub mod disk;
mod laws;
pub mod machine;
mod state;

use std::{env, time::Instant};

use machine::Machine;
use slipway_node::{operation::Shape, request::Goal};
use stateright::{Checker as _, Expectation, HasDiscoveries, Model as _, Property};

/// States to see at least, in a large run.
pub fn states() -> Option<usize> {
    env::var("SLIPWAY_FLEET_STATES").ok().map(|states| states.parse().expect("SLIPWAY_FLEET_STATES is a number"))
}

/// Explore all of it; in a large run with one fault more each time, until that many states were seen.
fn explore(machine: Machine) {
    let mut faults = machine.faults;
    while look(Machine { faults, ..machine.clone() }) < states().unwrap_or(0) {
        faults += 1;
    }
}

/// Explore all of it. The answer is how many states there are.
fn look(machine: Machine) -> usize {
    let start = Instant::now();
    let what = format!("{:?}, preserve {}, {:?}", machine.goal, machine.preserve, machine.shape);
    let what = format!("{what}, {} faults", machine.faults);
    let laws: Vec<Property<Machine>> = machine.properties();
    let checker = machine.checker().threads(1).finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    eprintln!(
        "{what}: {} states, {} distinct, depth {}, {:.1} s",
        checker.state_count(),
        checker.unique_state_count(),
        checker.max_depth(),
        start.elapsed().as_secs_f64()
    );
    let mut broken = Vec::new();
    for law in laws {
        match (law.expectation, checker.discovery(law.name)) {
            (Expectation::Sometimes, None) => broken.push(law.name),
            (Expectation::Always, Some(path)) => {
                let (last, _) = path.clone().into_vec().pop().unwrap();
                eprintln!("BROKEN: {} ({:?})", law.name, last.broken);
                path.into_vec().iter().for_each(|(state, action)| {
                    let op = state.op().map(|op| (op.at, op.done, &op.course, &op.blocker));
                    eprintln!("    {op:?} {action:?}");
                });
                broken.push(law.name);
            }
            _ => {}
        }
    }
    assert!(broken.is_empty(), "{broken:?}");
    checker.state_count()
}

#[test]
fn an_upgrade_is_safe() {
    explore(Machine::new(Goal::Upgrade, true));
}

#[test]
fn an_upgrade_that_leaves_etcd_is_safe() {
    explore(Machine::new(Goal::Upgrade, false));
}

#[test]
fn an_upgrade_of_a_machine_without_a_cluster_is_safe() {
    explore(Machine { shape: Shape::default(), token: None, ..Machine::new(Goal::Upgrade, true) });
}

#[test]
fn an_upgrade_of_a_worker_is_safe() {
    let shape = Shape { kubernetes: true, etcd: false };
    explore(Machine { shape, ..Machine::new(Goal::Upgrade, true) });
}

#[test]
fn a_rollback_is_safe() {
    explore(Machine::new(Goal::Rollback, true));
}

#[test]
fn a_reboot_is_safe() {
    explore(Machine::new(Goal::Reboot, true));
}

#[test]
fn staging_is_safe() {
    explore(Machine::new(Goal::Stage, true));
}
