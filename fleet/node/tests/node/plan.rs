//! The plan of each goal on each kind of node, each step with what follows when it fails or is aborted, as a golden file:
//! the order stands where it is reviewed.
//! `SLIPWAY_UPDATE_GOLDEN=1` writes it anew.

use std::{env, fmt::Write as _, fs, path::Path};

use proptest::{option, prelude::*, sample::select};
use slipway_core::boot::slot::{Slot, SlotState};
use slipway_node::{
    cordon::NodeState,
    facts::Facts,
    operation::{Installed, Operation, Shape},
    request::Goal,
    sequence::{BACK, FORWARD, Limits, Next, Outcome, next, steps},
    step::Step,
};

use crate::world::disk::{Disk, OLD, OLDER, TARGET, digest};

fn facts(disk: &Disk, boot: &str) -> Facts {
    let node = Some(NodeState::default());
    Facts { boot: boot.to_owned(), uptime: 0, disk: Some(disk.seen()), node, member: Some(7), ..Facts::default() }
}

fn first() -> Facts {
    facts(&Disk::new(SlotState::Good, Some(OLDER)), "first")
}

fn operation(goal: Goal, preserve: bool, shape: Shape, token: Option<u64>) -> Operation {
    Operation::new(crate::request(goal, preserve, token), shape, &first()).unwrap()
}

/// Found in QEMU: a requested rollback began with the fleet's grant, which it does not have.
#[test]
fn an_operation_begins_with_the_first_of_its_steps() {
    for goal in [Goal::Stage, Goal::Upgrade, Goal::Rollback, Goal::Reboot] {
        for (token, etcd, kubernetes) in [None, Some(1)]
            .into_iter()
            .flat_map(|token| [(token, true, false), (token, false, true), (token, false, false)])
        {
            let op = operation(goal, true, Shape { etcd, kubernetes }, token);
            let first = steps(&op).next().unwrap();
            assert_eq!(next(&op, &self::first(), Limits::default()), Next::Begin(first), "{goal:?} {token:?} {etcd}");
        }
    }
}

/// The way back from `at`, done, but for steps that cannot be taken back then; `None` if there is no way back.
fn way_back(op: &Operation, at: Step) -> Option<Vec<Step>> {
    let mut op = op.clone();
    let (mut disk, mut boot) = (Disk::new(SlotState::Good, Some(OLDER)), "first");
    for step in steps(&op).take_while(|step| *step <= at).collect::<Vec<_>>() {
        op.begin(step, &facts(&disk, boot));
        op.done = true;
        match step {
            Step::Stage => {
                (disk.states.b, disk.payloads.b) = (SlotState::Untried, Some(TARGET));
                op.to = Some(Installed { slot: Slot::B, payload: Some(digest(TARGET)) });
            }
            Step::Activate if op.request.goal == Goal::Upgrade => disk.once = Some(Slot::B),
            Step::Reboot if step < at => {
                disk.boots(true);
                boot = "second";
                op.found(Step::Reboot, &facts(&disk, boot));
            }
            _ => {}
        }
    }
    op.abort = Some("an admin wants it to end".to_owned());
    match next(&op, &facts(&disk, boot), Limits::default()) {
        Next::TurnBack(why) => op.turn_back(&why),
        _ => return None,
    }
    let mut way = Vec::new();
    while let Next::Begin(step) = next(&op, &facts(&disk, boot), Limits::default()) {
        way.push(step);
        op.begin(step, &facts(&disk, boot));
        op.done = true;
        match step {
            Step::Deactivate => disk.once = None,
            Step::GiveUp => disk.states.b = SlotState::Bad,
            Step::Return => {
                disk.boots(true);
                boot = "third";
            }
            _ => {}
        }
    }
    Some(way)
}

fn names(steps: &[Step]) -> String {
    steps.iter().map(|step| format!("{step:?}")).collect::<Vec<_>>().join(" ")
}

fn text() -> String {
    let shapes = [
        ("a machine without a cluster", Shape::default(), None),
        ("a worker, asked by the fleet", Shape { kubernetes: true, etcd: false }, Some(1)),
        ("a control-plane node, asked by the fleet", Shape { kubernetes: true, etcd: true }, Some(1)),
        ("a member of etcd, asked by a person", Shape { kubernetes: false, etcd: true }, None),
    ];
    let goals = [
        (Goal::Stage, true),
        (Goal::Upgrade, true),
        (Goal::Upgrade, false),
        (Goal::Rollback, true),
        (Goal::Reboot, true),
    ];
    let mut text = String::new();
    for (goal, preserve) in goals {
        for (node, shape, token) in shapes {
            if !preserve && !shape.etcd {
                continue;
            }
            let op = operation(goal, preserve, shape, token);
            let kept = if preserve { "" } else { ", EPHEMERAL not kept" };
            writeln!(text, "{goal:?}{kept}: {node}").unwrap();
            for step in steps(&op) {
                let failure = match way_back(&op, step) {
                    None => "it is tried again".to_owned(),
                    Some(way) if way.is_empty() => "the end".to_owned(),
                    Some(way) => names(&way),
                };
                writeln!(text, "  {:<10} {:<52} {failure}", format!("{step:?}"), step.does()).unwrap();
            }
            writeln!(text).unwrap();
        }
    }
    text
}

#[test]
fn the_plans_are_those_that_were_reviewed() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/plans.txt");
    let text = text();
    if env::var_os("SLIPWAY_UPDATE_GOLDEN").is_some() {
        fs::write(&path, &text).unwrap();
    }
    assert_eq!(fs::read_to_string(&path).expect("golden file: SLIPWAY_UPDATE_GOLDEN=1 writes it"), text);
}

fn an_operation() -> impl Strategy<Value = Operation> {
    let goals = select(&[Goal::Stage, Goal::Upgrade, Goal::Rollback, Goal::Reboot][..]);
    let shape = (any::<bool>(), any::<bool>()).prop_map(|(kubernetes, etcd)| Shape { kubernetes, etcd });
    (goals, any::<bool>(), shape, option::of(1..9_u64))
        .prop_map(|(goal, preserve, shape, token)| operation(goal, preserve, shape, token))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Everything that was taken is given back, on either way, and in the same order.
    #[test]
    fn every_step_has_its_undoing(op in an_operation(), at in 0..18_usize) {
        let forward: Vec<Step> = steps(&op).collect();
        let undone = [(Step::Cordon, Step::Uncordon), (Step::Lock, Step::Unlock), (Step::Leave, Step::Rejoin)];
        for (step, undo) in undone {
            prop_assert_eq!(forward.contains(&step), forward.contains(&undo), "{:?}", step);
        }
        let at = forward[at % forward.len()];
        let Some(back) = way_back(&op, at) else { return Ok(()) };
        for (step, undo) in undone.into_iter().filter(|(step, _)| forward.contains(step)) {
            prop_assert_eq!(back.contains(&undo), step <= at, "{:?} at {:?}: {:?}", undo, at, back);
        }
        let places: Vec<_> = back.iter().filter_map(|step| BACK.iter().position(|of| of == step)).collect();
        prop_assert!(places.is_sorted(), "{:?}", back);
        // Stopped services come back by a boot. The node looks at them before it gives anything back.
        if at >= Step::Stop && forward.contains(&Step::Stop) {
            let place = |of: Step| back.iter().position(|step| *step == of);
            let first = back.iter().position(|step| matches!(step, Step::Uncordon | Step::Unlock));
            prop_assert!(place(Step::Return) < place(Step::ProveOld));
            prop_assert!(first.is_none_or(|first| place(Step::ProveOld).is_some_and(|proved| proved < first)), "{:?}", back);
        }
    }

    /// Of the way back nothing is done when it begins, whatever was the last step.
    #[test]
    fn a_turn_begins_at_the_beginning(op in an_operation(), at in select(&Step::ALL[..])) {
        let mut plain = op.clone();
        plain.reached = Step::Unlock;
        plain.cordon = Some(NodeState::default());
        plain.to = Some(plain.from.clone());
        let mut late = plain.clone();
        (late.at, late.done) = (at, true);
        plain.turn_back("why");
        late.turn_back("why");
        let next = |op: &Operation| next(op, &first(), Limits::default());
        prop_assert_eq!(next(&late), next(&plain));
    }
}

#[test]
fn the_order_of_the_steps_is_that_of_their_names() {
    assert!(FORWARD.is_sorted() && Step::ALL.is_sorted());
    let mut all: Vec<Step> =
        FORWARD.into_iter().chain(BACK).chain([Step::Deactivate, Step::GiveUp, Step::Renew, Step::Return]).collect();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all, Step::ALL);
    assert_eq!(first().disk.unwrap().payloads.a, Some(digest(OLD)));
}

/// The node waits, but not for ever, for the facts that a step needs.
#[test]
fn a_step_that_cannot_begin_has_its_time() {
    let shape = Shape { kubernetes: true, etcd: true };
    for (before, step) in [(Step::Gate, Step::Cordon), (Step::Recheck, Step::Leave)] {
        let mut op = operation(Goal::Upgrade, false, shape, None);
        op.begin(before, &Facts { uptime: 1000, ..first() });
        op.done = true;
        let limits = Limits { gate: 10, drain: 5, ..Limits::default() };
        let time = if before == Step::Gate { 15 } else { 10 };
        let blind = |after: u64| Facts { uptime: 1000 + after, node: None, member: None, ..first() };
        assert_eq!(next(&op, &first(), limits), Next::Begin(step));
        assert!(matches!(next(&op, &blind(time), limits), Next::Wait(_)), "{step:?}");
        assert!(matches!(next(&op, &blind(time + 1), limits), Next::TurnBack(_)), "{step:?}");
        // It says why they are not known.
        for after in [time, time + 1] {
            let told = Facts { unread: Some("the API server says 403".to_owned()), ..blind(after) };
            let (Next::Wait(why) | Next::TurnBack(why)) = next(&op, &told, limits) else { panic!("{step:?} begins") };
            assert!(why.ends_with(": the API server says 403"), "{why}");
        }
    }
}

/// A step that is blocked has its time, too: of this boot, and of the new system all of it.
#[test]
fn a_step_that_is_blocked_has_its_time() {
    let shape = Shape { kubernetes: true, etcd: true };
    let limits = Limits { drain: 5, prove: 480, ..Limits::default() };
    let mut op = operation(Goal::Upgrade, true, shape, None);
    let at = |uptime| Facts { uptime, ..first() };
    op.begin(Step::Drain, &at(1000));
    op.begin(Step::Drain, &at(1004));
    assert_eq!(next(&op, &at(1005), limits), Next::Begin(Step::Drain));
    op.blocker = Some("a pod".to_owned());
    assert_eq!(next(&op, &at(1006), limits), Next::TurnBack("evict the pods: a pod (after 5 s)".to_owned()));

    let mut disk = Disk::new(SlotState::Tried, Some(TARGET));
    disk.running = Slot::B;
    let new = |uptime| Facts { uptime, ..facts(&disk, "second") };
    op.to = Some(Installed { slot: Slot::B, payload: Some(digest(TARGET)) });
    op.begin(Step::Reboot, &at(1010));
    assert_eq!(next(&op, &new(30), limits), Next::Found(Step::Reboot));
    op.found(Step::Reboot, &new(30));
    op.begin(Step::Prove, &new(40));
    assert_eq!(next(&op, &new(480), limits), Next::Begin(Step::Prove));
    assert!(matches!(next(&op, &new(481), limits), Next::TurnBack(_)));
}

/// A machine that would not come up again stays up.
#[test]
fn nothing_is_rebooted_into_nothing() {
    let mut op = operation(Goal::Upgrade, true, Shape::default(), None);
    let mut facts = first();
    op.begin(Step::Stop, &facts);
    op.begin(Step::Activate, &facts);
    op.done = true;
    let mut back = op.clone();
    back.turn_back("why");
    let sees = |op: &Operation, facts: &Facts| next(op, facts, Limits::default());
    assert_eq!((sees(&op, &facts), sees(&back, &facts)), (Next::Begin(Step::Reboot), Next::Begin(Step::Return)));
    facts.disk.as_mut().unwrap().next = None;
    let wait = Next::Wait("no slot would boot".to_owned());
    assert_eq!((sees(&op, &facts), sees(&back, &facts)), (wait.clone(), wait));
}

/// There is nothing to do.
#[test]
fn what_runs_already_is_left_alone() {
    for token in [None, Some(1)] {
        let mut op = operation(Goal::Upgrade, true, Shape { kubernetes: true, etcd: true }, token);
        op.to = Some(op.from.clone());
        assert_eq!(steps(&op).collect::<Vec<_>>(), [Step::Stage]);
        op.done = true;
        assert_eq!(next(&op, &first(), Limits::default()), Next::End(Outcome::Reached));
    }
}

/// A slot that was not written to its end, or was tried in vain, holds nothing that could go.
#[test]
fn what_is_staged_is_whole() {
    let staged = |state| Disk::new(state, Some(OLDER)).seen().staged();
    for state in [SlotState::Untried, SlotState::Good] {
        assert_eq!(staged(state), Some(digest(OLDER)), "{state}");
    }
    for state in [SlotState::Empty, SlotState::Tried, SlotState::Bad] {
        assert_eq!(staged(state), None, "{state}");
    }
}

/// The earlier state is the one before the first try.
#[test]
fn a_second_try_forgets_nothing() {
    let mut op = operation(Goal::Upgrade, false, Shape { kubernetes: true, etcd: true }, None);
    let before = first();
    let after =
        Facts { node: Some(NodeState { unschedulable: true, ..NodeState::default() }), member: None, ..first() };
    for step in [Step::Cordon, Step::Leave] {
        op.begin(step, &before);
        op.begin(step, &after);
    }
    assert_eq!((op.cordon, op.left), (before.node, before.member));
}

/// Power is cut once the slot is activated, before the journal has it: the next boot is the planned one. A payload is not
/// blamed for it.
#[test]
fn a_boot_that_comes_early_is_the_boot() {
    for (goal, b) in [(Goal::Upgrade, SlotState::Tried), (Goal::Rollback, SlotState::Good)] {
        let mut op = operation(goal, true, Shape::default(), None);
        op.to = Some(Installed { slot: Slot::B, payload: Some(digest(TARGET)) });
        op.begin(Step::Activate, &first());
        let new = Disk { running: Slot::B, ..Disk::new(b, Some(TARGET)) };
        assert_eq!(next(&op, &facts(&new, "second"), Limits::default()), Next::Found(Step::Reboot));
        // It was cut before.
        let old = Disk::new(SlotState::Untried, Some(TARGET));
        assert!(matches!(next(&op, &facts(&old, "second"), Limits::default()), Next::TurnBack(_)));
    }
}
