//! One node, explored: what the sequence decides, under power cuts and restarts of `slipwayd` between any two things it
//! does, results that get lost, steps that do not work, time that runs out, and people who do as they like.
//!
//! Decisions and journal are the real ones, the journal encoded and decoded with every write. The disk, the Node object,
//! etcd's lock and member list and the fleet's grant are small models of their own. Numbers of boots and of writes are
//! used again once nothing refers to them, so there is an end even without a limit on faults.
//!
//! Not in it: a copy of the journal that rots while it is the newer one, and somebody who uncordons a node and cordons it
//! again while it is ours (what is left in the Node does not tell).

mod act;
pub mod disk;
mod laws;
pub mod machine;
mod state;

use std::{env, time::Instant};

use machine::Machine;
use slipway_node::{goal::Goal, operation::Shape};
use stateright::{Checker as _, Expectation, HasDiscoveries, Model as _, Property};

/// States for a large run, in which as much goes wrong as one likes.
pub fn states() -> Option<usize> {
    env::var("SLIPWAY_FLEET_STATES").ok().map(|states| states.parse().expect("SLIPWAY_FLEET_STATES is a number"))
}

/// Explore it, and say what is broken.
fn explore(machine: Machine) {
    let (start, states) = (Instant::now(), states());
    let machine = Machine { faults: machine.faults.filter(|_| states.is_none()), ..machine };
    let what = format!("{:?}, preserve {}, {:?}", machine.goal, machine.preserve, machine.shape);
    let laws: Vec<Property<Machine>> = machine.properties();
    let checker = machine.checker().threads(1).finish_when(HasDiscoveries::AnyFailures);
    let checker = checker.target_state_count(states.unwrap_or(0)).spawn_bfs().join();
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
