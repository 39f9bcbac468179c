//! The loop, with a crash before and after every write of the journal.

use std::{sync::Mutex, time::Duration};

use slipway_core::boot::slot::{Slot, SlotState};
use slipway_node::{
    cordon::NodeState,
    facts::Facts,
    journal::Asked,
    operation::{Operation, Shape, Tried},
    request::{Goal, Request},
    sequence::{Limits, Outcome},
    step::Step,
};
use slipwayd::{
    executor::{Abort, Happened, Listener, Shared},
    store::Store,
    world::{Watcher, World},
};
use tempfile::{TempDir, tempdir};
use uuid::Uuid;

use crate::world::{Machine, payload};

#[derive(Default)]
pub struct Heard(Mutex<Vec<String>>);

impl Listener for Heard {
    fn on_event(&self, _op: &Operation, happened: Happened) {
        self.0.lock().unwrap().push(happened.to_string());
    }
}

const KUBERNETES: Shape = Shape { kubernetes: true, etcd: false };

pub fn upgrade() -> Request {
    Request {
        source: "docker://registry.example/os:2".to_owned(),
        token: Some(7),
        ..Request::new(Uuid::new_v4(), Goal::Upgrade, "test")
    }
}

/// The process starts: it knows the disk alone.
fn start(dir: &TempDir) -> Shared<Heard> {
    Shared::new(Store::open(dir.path()).unwrap(), KUBERNETES, Limits::default(), Heard::default())
}

/// Until it is over.
fn run(shared: &Shared<Heard>, machine: &mut dyn World) {
    while shared.journal().operation.is_some() {
        shared.run_once(machine).unwrap();
    }
}

fn outcome(shared: &Shared<Heard>) -> Outcome {
    shared.journal().ended[0].outcome.clone()
}

#[test]
fn an_upgrade_without_a_fault() {
    let dir = tempdir().unwrap();
    let (shared, mut machine) = (start(&dir), Machine::new());
    let request = upgrade();
    let facts = machine.facts(None);
    assert_eq!(shared.ask(request.clone(), &facts).unwrap(), Ok(Asked::New));
    assert_eq!(shared.ask(request.clone(), &facts).unwrap(), Ok(Asked::UnderWay));
    assert!(shared.ask(upgrade(), &facts).unwrap().is_err(), "one at a time");
    run(&shared, &mut machine);
    assert_eq!(outcome(&shared), Outcome::Reached);
    assert_eq!((machine.default, machine.disk.running), (Slot::B, Slot::B));
    assert_eq!(machine.node, NodeState::default());
    use Step::{Activate, Confirm, Cordon, Drain, Grant, Prove, Reboot, Recheck, Release, Stage, Stop, Uncordon};
    let all = [Stage, Grant, Cordon, Drain, Recheck, Stop, Release, Activate, Reboot, Prove, Confirm, Uncordon];
    assert_eq!(machine.did, all);
    assert_eq!(shared.ask(request, &facts).unwrap(), Ok(Asked::Ended(Outcome::Reached)));
    assert!(shared.ask(upgrade(), &facts).unwrap().is_err(), "its token was obeyed once");
    let heard = shared.listener().0.lock().unwrap();
    assert_eq!(heard.first().map(String::as_str), Some("asked for"));
    assert_eq!(heard.last().map(String::as_str), Some("ended: it is what was asked for"));
}

#[test]
fn a_system_that_is_not_well_comes_back_and_is_denied() {
    let dir = tempdir().unwrap();
    let (shared, mut machine) = (start(&dir), Machine { sick: true, ..Machine::new() });
    let cordoned = NodeState { unschedulable: true, ..NodeState::default() };
    machine.node = cordoned.clone();
    let facts = machine.facts(None);
    shared.ask(upgrade(), &facts).unwrap().unwrap();
    run(&shared, &mut machine);
    let Outcome::CameBack(why) = outcome(&shared) else { panic!() };
    assert!(why.contains("it is not well"), "{why}");
    assert_eq!((machine.disk.running, machine.default), (Slot::A, Slot::A));
    assert_eq!(machine.disk.states[Slot::B], Some(SlotState::Bad));
    assert_eq!(machine.node, cordoned, "a person had cordoned it before");
    let again = Request { payload: Some(payload("new")), token: Some(8), ..upgrade() };
    machine.grant = Some(8);
    let refused = shared.ask(again, &machine.facts(None)).unwrap().unwrap_err().to_string();
    assert!(refused.contains("is denied"), "{refused}");
}

/// What was booted and not well is denied, whoever says abort afterwards.
#[test]
fn an_abort_on_the_way_back_takes_no_verdict_away() {
    for last in [Step::GiveUp, Step::Return, Step::ProveOld] {
        let dir = tempdir().unwrap();
        let (shared, mut machine) = (start(&dir), Machine { sick: true, ..Machine::new() });
        let request = upgrade();
        shared.ask(request.clone(), &machine.facts(None)).unwrap().unwrap();
        let is_at = |last| {
            let op = shared.journal().operation.unwrap();
            !op.is_forward() && op.at == last
        };
        while !is_at(last) {
            shared.run_once(&mut machine).unwrap();
        }
        assert_eq!(shared.abort(request.id, "enough").unwrap(), Abort::Journalled);
        assert_eq!(shared.journal().operation.unwrap().abort, None, "{last}");
        run(&shared, &mut machine);
        let Outcome::CameBack(why) = outcome(&shared) else { panic!() };
        assert!(why.contains("it is not well"), "{last}: {why}");
        assert!(shared.journal().denial(payload("new")).is_some(), "{last}: it was booted, and was not well");
    }
}

/// An abort counts if it is what leads back. Here the new system fails while somebody says so.
#[test]
fn an_abort_that_comes_too_late_to_lead_back_takes_no_verdict_away() {
    let dir = tempdir().unwrap();
    let (shared, request) = (start(&dir), upgrade());
    let mut world = Aborted::new(&shared, &request, Step::Prove, Tried::Failed("it is not well".to_owned()));
    shared.ask(request, &world.facts(None)).unwrap().unwrap();
    run(&shared, &mut world);
    assert_eq!(world.heard, [false, true]);
    let Outcome::CameBack(why) = outcome(&shared) else { panic!() };
    assert!(why.contains("it is not well"), "{why}");
    assert!(shared.journal().denial(payload("new")).is_some());
}

#[test]
fn what_is_blocked_too_long_is_undone() {
    for (step, reboots) in [(Step::Drain, false), (Step::Recheck, false), (Step::Stop, true), (Step::Activate, true)] {
        let dir = tempdir().unwrap();
        let (shared, mut machine) = (start(&dir), Machine { blocked: Some(step), ..Machine::new() });
        shared.ask(upgrade(), &machine.facts(None)).unwrap().unwrap();
        run(&shared, &mut machine);
        assert!(matches!(outcome(&shared), Outcome::CameBack(_)), "{step}");
        assert_eq!((machine.disk.running, machine.boot > 1), (Slot::A, reboots), "{step}");
        assert_eq!(machine.node, NodeState::default(), "{step}");
        assert!(shared.journal().denied.is_empty(), "{step}: it was never tried");
    }
}

#[test]
fn an_abort_counts_until_it_is_too_late() {
    let dir = tempdir().unwrap();
    let (shared, mut machine) = (start(&dir), Machine { blocked: Some(Step::Drain), ..Machine::new() });
    let request = upgrade();
    assert_eq!(shared.abort(request.id, "no").unwrap(), Abort::NotUnderWay);
    shared.ask(request.clone(), &machine.facts(None)).unwrap().unwrap();
    while shared.journal().operation.as_ref().unwrap().at != Step::Drain {
        shared.run_once(&mut machine).unwrap();
    }
    assert_eq!(shared.abort(Uuid::new_v4(), "another one").unwrap(), Abort::NotUnderWay);
    assert_eq!(shared.abort(request.id, "aborted by a person").unwrap(), Abort::Journalled);
    run(&shared, &mut machine);
    assert_eq!(outcome(&shared), Outcome::CameBack("aborted by a person".to_owned()));
    let late = Request { token: Some(9), ..upgrade() };
    (machine.blocked, machine.grant) = (Some(Step::Uncordon), Some(9));
    shared.ask(late.clone(), &machine.facts(None)).unwrap().unwrap();
    while shared.journal().operation.as_ref().unwrap().at != Step::Uncordon {
        shared.run_once(&mut machine).unwrap();
    }
    assert_eq!(shared.abort(late.id, "no").unwrap(), Abort::TooLate);
}

/// A world with an abort while a step runs, and how that step ends; what it hears before and after the abort.
struct Aborted<'a> {
    machine: Machine,
    shared: &'a Shared<Heard>,
    id: Uuid,
    step: Step,
    ends: Tried,
    heard: Vec<bool>,
}

impl World for Aborted<'_> {
    fn facts(&mut self, op: Option<&Operation>) -> slipway_node::facts::Facts {
        self.machine.facts(op)
    }

    fn perform(&mut self, step: Step, op: &Operation, watcher: &dyn Watcher) -> Tried {
        if step != self.step {
            return self.machine.perform(step, op, watcher);
        }
        self.heard.push(watcher.wants_end());
        assert_eq!(self.shared.abort(self.id, "enough").unwrap(), Abort::Journalled);
        self.heard.push(watcher.wants_end());
        self.ends.clone()
    }
}

impl<'a> Aborted<'a> {
    fn new(shared: &'a Shared<Heard>, request: &Request, step: Step, ends: Tried) -> Self {
        Self { machine: Machine::new(), shared, id: request.id, step, ends, heard: Vec::new() }
    }
}

#[test]
fn a_step_that_runs_hears_that_it_is_to_end() {
    let dir = tempdir().unwrap();
    let (shared, request) = (start(&dir), upgrade());
    let mut world = Aborted::new(&shared, &request, Step::Stage, Tried::Blocked("it was ended".to_owned()));
    shared.ask(request, &world.facts(None)).unwrap().unwrap();
    run(&shared, &mut world);
    assert_eq!(world.heard, [false, true]);
    assert_eq!(outcome(&shared), Outcome::CameBack("enough".to_owned()));
}

/// The old system misses a unit for ever: only an admin's acceptance ends it, and counts in the boot in which it is given.
#[test]
fn a_node_that_never_becomes_well_is_taken_as_it_is() {
    let dir = tempdir().unwrap();
    let (shared, mut machine) = (start(&dir), Machine { sick: true, blocked: Some(Step::ProveOld), ..Machine::new() });
    let request = upgrade();
    let leave =
        |machine: &mut Machine, id| shared.accept_as_is(id, "alice: kubelet is gone", &machine.facts(None)).unwrap();
    assert_eq!(leave(&mut machine, request.id), Abort::NotUnderWay);
    shared.ask(request.clone(), &machine.facts(None)).unwrap().unwrap();
    let is_stuck = || {
        let journal = shared.journal();
        journal.operation.as_ref().is_some_and(|op| op.at == Step::ProveOld && op.blocker.is_some())
    };
    while !is_stuck() {
        assert_eq!(leave(&mut machine, request.id), Abort::TooEarly, "{:?}", shared.journal().operation);
        shared.run_once(&mut machine).unwrap();
    }
    assert_eq!(leave(&mut machine, Uuid::new_v4()), Abort::NotUnderWay);
    assert_eq!(leave(&mut machine, request.id), Abort::Journalled);
    machine.power_cut();
    for _ in 0..5 {
        shared.run_once(&mut machine).unwrap();
    }
    assert!(is_stuck() && !machine.did.contains(&Step::Uncordon), "that was another boot");
    assert_eq!(leave(&mut machine, request.id), Abort::Journalled);
    run(&shared, &mut machine);
    let Outcome::Left(why) = outcome(&shared) else { panic!() };
    assert!(why.contains("it is not well") && why.ends_with("; left as it is: alice: kubelet is gone"), "{why}");
    assert_eq!(machine.node, NodeState::default());
    assert!(shared.journal().denial(payload("new")).is_some(), "the new system was not well either");
    let heard = shared.listener().0.lock().unwrap();
    assert!(heard.contains(&"the node is taken as it is: alice: kubelet is gone".to_owned()), "{heard:?}");
}

/// Steps that lead back do not wait.
#[test]
fn a_failure_is_told_once() {
    let dir = tempdir().unwrap();
    let (shared, mut machine) = (start(&dir), Machine { fails: Some(Step::Stage), ..Machine::new() });
    shared.ask(upgrade(), &machine.facts(None)).unwrap().unwrap();
    run(&shared, &mut machine);
    let heard = shared.listener().0.lock().unwrap();
    let told: Vec<_> = heard.iter().filter(|line| line.contains("it will not work")).collect();
    let stage = "write the payload into the other slot and verify it";
    assert_eq!(told[0], &format!("turns back: {stage}: it will not work"), "{heard:?}");
    assert_eq!((told.len(), told[1].starts_with("ended: ")), (2, true), "{heard:?}");
}

/// A world in which the power goes away before, or after, the n-th step.
struct Cut<'a> {
    machine: &'a mut Machine,
    steps: usize,
    at: usize,
    before: bool,
}

impl World for Cut<'_> {
    fn facts(&mut self, op: Option<&Operation>) -> slipway_node::facts::Facts {
        self.machine.facts(op)
    }

    fn perform(&mut self, step: Step, op: &Operation, watcher: &dyn Watcher) -> Tried {
        self.steps += 1;
        let cuts = self.steps == self.at;
        if cuts && self.before {
            self.machine.power_cut();
            return Tried::Blocked("the power went away".to_owned());
        }
        let tried = self.machine.perform(step, op, watcher);
        if cuts {
            self.machine.power_cut();
            return Tried::Blocked("the power went away".to_owned());
        }
        tried
    }
}

#[test]
fn a_power_cut_at_every_step_ends_well() {
    for at in 1..=13 {
        for before in [true, false] {
            for sick in [true, false] {
                let dir = tempdir().unwrap();
                let mut machine = Machine { sick, ..Machine::new() };
                let shared = start(&dir);
                shared.ask(upgrade(), &machine.facts(None)).unwrap().unwrap();
                let mut cut = Cut { machine: &mut machine, steps: 0, at, before };
                while cut.steps < at && shared.journal().operation.is_some() {
                    shared.run_once(&mut cut).unwrap();
                }
                // Another process goes on from the disk.
                let shared = start(&dir);
                run(&shared, &mut machine);
                let case = format!("step {at}, before: {before}, sick: {sick}: {:?}", machine.did);
                let runs = if outcome(&shared) == Outcome::Reached { Slot::B } else { Slot::A };
                assert_eq!((machine.disk.running, machine.default), (runs, runs), "{case}");
                assert_eq!(machine.disk.next, Some(runs), "{case}");
                assert_eq!(machine.node, NodeState::default(), "{case}");
                assert!(!sick || runs == Slot::A, "{case}");
            }
        }
    }
}

/// An installer that works until it is told to end, and does not hear of events meanwhile.
struct Stages<'a> {
    inner: Machine,
    shared: &'a Shared<Heard>,
    next: Option<Request>,
}

impl World for Stages<'_> {
    fn facts(&mut self, op: Option<&Operation>) -> Facts {
        self.inner.facts(op)
    }

    fn perform(&mut self, step: Step, op: &Operation, watcher: &dyn Watcher) -> Tried {
        let Some(next) = self.next.take() else { return self.inner.perform(step, op, watcher) };
        assert!(!watcher.wants_end());
        let facts = self.inner.facts(None);
        assert_eq!(self.shared.ask(next, &facts).unwrap(), Ok(Asked::New));
        assert!(watcher.wants_end(), "the old one is told to end");
        Tried::Blocked("the installer was ended".to_owned())
    }
}

#[test]
fn a_stage_that_is_superseded_ends_and_the_new_one_begins_at_once() {
    let dir = tempdir().unwrap();
    let shared = start(&dir);
    let of = |tag: &str| Request {
        goal: Goal::Stage,
        source: format!("docker://registry.example/os:{tag}"),
        token: None,
        ..upgrade()
    };
    let (wrong, right) = (of("nope"), of("2"));
    let mut world = Stages { inner: Machine::new(), shared: &shared, next: Some(right.clone()) };
    let facts = world.inner.facts(None);
    shared.ask(wrong.clone(), &facts).unwrap().unwrap();
    assert_eq!(shared.run_once(&mut world).unwrap(), Duration::ZERO);
    assert_eq!(shared.journal().operation.map(|op| op.request.id), Some(right.id));
    run(&shared, &mut world);
    let ended: Vec<_> = shared.journal().ended.into_iter().map(|of| (of.request.id, of.outcome)).collect();
    assert_eq!(ended[0], (right.id, Outcome::Reached));
    assert!(matches!(&ended[1], (id, Outcome::CameBack(why)) if *id == wrong.id && why.contains("superseded")));
    let heard = shared.listener().0.lock().unwrap();
    assert!(!heard.iter().any(|line| line.contains("installer was ended")), "{heard:?}");
}

#[test]
fn what_cannot_be_staged_ends_at_once() {
    let dir = tempdir().unwrap();
    let (shared, mut machine) = (start(&dir), Machine { fails: Some(Step::Stage), ..Machine::new() });
    let facts = machine.facts(None);
    shared.ask(upgrade(), &facts).unwrap().unwrap();
    assert_eq!(shared.run_once(&mut machine).unwrap(), Duration::ZERO, "it is not tried again");
    run(&shared, &mut machine);
    assert!(matches!(outcome(&shared), Outcome::CameBack(why) if why.contains("it will not work")));
    assert!(shared.journal().ended[0].failed);
}

/// An image's own installer, which says why in as many words as it likes.
struct Talks(Machine);

impl World for Talks {
    fn facts(&mut self, op: Option<&Operation>) -> Facts {
        self.0.facts(op)
    }

    fn perform(&mut self, step: Step, op: &Operation, watcher: &dyn Watcher) -> Tried {
        if step == Step::Stage { Tried::Failed("no\n".repeat(3 << 20)) } else { self.0.perform(step, op, watcher) }
    }
}

#[test]
fn a_reason_of_any_length_leaves_a_journal_that_can_be_read() {
    let dir = tempdir().unwrap();
    let (shared, mut world) = (start(&dir), Talks(Machine::new()));
    shared.ask(upgrade(), &world.facts(None)).unwrap().unwrap();
    run(&shared, &mut world);
    // Another process reads it.
    let Outcome::CameBack(why) = outcome(&start(&dir)) else { panic!() };
    assert!(why.len() < 10_000 && why.contains("no no no"), "{} bytes", why.len());
}
