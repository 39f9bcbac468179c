//! Each step, each way it can go wrong, and how the operation ends: run, and kept as a table for people. The executor and
//! its journal are the real ones; the world is the stand-in.

use std::{fmt::Write as _, fs, path::Path};

use slipway_core::boot::slot::Slot;
use slipway_node::{
    cordon::NodeState,
    facts::Facts,
    operation::{Operation, Shape, Tried},
    sequence::{Limits, Outcome},
    step::Step,
};
use slipwayd::{
    executor::{Abort, Shared},
    store::Store,
    world::{Watcher, World},
};
use tempfile::tempdir;

use crate::{
    executor::{Heard, upgrade},
    world::Machine,
};

/// The fault of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// It fails, whenever it is tried.
    Fails,
    /// It is blocked until its time is over, and longer.
    Blocked,
    /// An admin wants the operation to end while it is blocked.
    Aborted,
    CutBefore,
    CutAfter,
}

const FAULTS: [(Fault, &str); 5] = [
    (Fault::Fails, "fails"),
    (Fault::Blocked, "is blocked"),
    (Fault::Aborted, "is aborted"),
    (Fault::CutBefore, "cut before it"),
    (Fault::CutAfter, "cut after it"),
];

/// A world in which this goes wrong with this step.
struct Faulty {
    machine: Machine,
    step: Step,
    fault: Option<Fault>,
}

impl World for Faulty {
    fn facts(&mut self, op: Option<&Operation>) -> Facts {
        self.machine.facts(op)
    }

    fn perform(&mut self, step: Step, op: &Operation, watcher: &dyn Watcher) -> Tried {
        let is_cut = matches!(self.fault, Some(Fault::CutBefore | Fault::CutAfter));
        match self.fault.filter(|_| step == self.step) {
            None => return self.machine.perform(step, op, watcher),
            Some(Fault::Fails) => return Tried::Failed("it failed".to_owned()),
            Some(Fault::Blocked) => self.machine.uptime += 300,
            Some(Fault::Aborted | Fault::CutBefore) => {}
            Some(Fault::CutAfter) => drop(self.machine.perform(step, op, watcher)),
        }
        if is_cut {
            self.fault = None;
            self.machine.power_cut();
        }
        Tried::Blocked("it does not end".to_owned())
    }
}

#[test]
fn every_step_with_every_fault_ends_as_the_table_says() {
    let mut table = "| step |".to_owned();
    FAULTS.iter().for_each(|(_, words)| write!(table, " {words} |").unwrap());
    table += &format!("\n|{}\n", "---|".repeat(FAULTS.len() + 1));
    use Step::{Activate, Confirm, Cordon, Drain, Gate, Grant, HandOver, Lock, Prove, Reboot, Recheck, Release};
    let all = [Step::Stage, Grant, Lock, Gate, Cordon, Drain, HandOver, Recheck, Step::Stop, Release, Activate, Reboot];
    for step in all.into_iter().chain([Prove, Confirm, Step::Uncordon, Step::Unlock]) {
        write!(table, "| {step} |").unwrap();
        FAULTS.iter().for_each(|(fault, _)| write!(table, " {} |", end(step, *fault)).unwrap());
        table.push('\n');
    }
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/faults.md");
    if std::env::var_os("SLIPWAY_UPDATE_GOLDEN").is_some() {
        fs::write(&golden, &table).unwrap();
    }
    assert_eq!(table, fs::read_to_string(&golden).unwrap(), "SLIPWAY_UPDATE_GOLDEN=1 writes it anew");
}

/// The end of an upgrade with this fault.
fn end(step: Step, fault: Fault) -> String {
    let case = format!("{step:?}, {fault:?}");
    let dir = tempdir().unwrap();
    // As a process that starts: it knows the disk alone.
    let start = || {
        let shape = Shape { kubernetes: true, etcd: true };
        Shared::new(Store::open(dir.path()).unwrap(), shape, Limits::default(), Heard::default())
    };
    let mut world = Faulty { machine: Machine::new(), step, fault: Some(fault) };
    let mut shared = start();
    let request = upgrade();
    shared.ask(request.clone(), &world.facts(None)).unwrap().unwrap();
    let mut said = "";
    // More turns than any of them needs that ends.
    for _ in 0..100 {
        let Some(op) = shared.journal().operation else { break };
        let boot = world.machine.boot;
        if fault == Fault::Aborted && op.at == step && world.fault.take().is_some() {
            said = match shared.abort(request.id, "a person wants it").unwrap() {
                Abort::TooLate => "too late: ",
                _ => "",
            };
        }
        shared.run_once(&mut world).unwrap();
        if world.machine.boot != boot {
            shared = start();
        }
    }
    let machine = world.machine;
    if let Some(op) = shared.journal().operation {
        assert!(op.blocker.is_some(), "{case}: it says what it waits for");
        return format!("tried until it works, in slot {}", machine.disk.running);
    }
    let outcome = &shared.journal().ended[0].outcome;
    let runs = if *outcome == Outcome::Reached { Slot::B } else { Slot::A };
    assert_eq!((machine.disk.running, machine.default, machine.disk.next), (runs, runs, Some(runs)), "{case}");
    assert_eq!(machine.node, NodeState::default(), "{case}");
    match (runs, machine.boot - 1) {
        (Slot::B, boots) => format!("{said}new, {boots} boot{}", if boots == 1 { "" } else { "s" }),
        (Slot::A, 0) => "as before".to_owned(),
        (Slot::A, boots) => format!("old, {boots} boot{}", if boots == 1 { "" } else { "s" }),
    }
}
