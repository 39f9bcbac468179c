//! The journal of a later version, which was on trial here. This version goes on with what it knows, undoes what it does not
//! know, and loses nothing of either.

use serde_json::{Value, json};
use slipway_core::boot::slot::{Slot, SlotState};
use slipway_node::{
    cordon::NodeState,
    facts::Facts,
    journal::{Asked, Ended, Journal, Unreadable},
    operation::{Course, Installed, Learned, Moved, Operation, Shape, Tried},
    request::{Goal, Request},
    sequence::{Limits, Next, Outcome, next, steps},
    step::Step,
};
use uuid::Uuid;

use crate::world::disk::{Disk, OLDER, TARGET, digest};

/// The disk of a node whose trial of slot B is armed, runs, or has failed.
fn disk(running: Slot, b: SlotState) -> Disk {
    Disk { running, once: (b == SlotState::Untried).then_some(Slot::B), ..Disk::new(b, Some(TARGET)) }
}

fn facts(boot: &str, disk: &Disk) -> Facts {
    let node = Some(NodeState { unschedulable: false, ..NodeState::default() });
    Facts { boot: boot.to_owned(), uptime: 30, disk: Some(disk.seen()), node, member: Some(1), ..Facts::default() }
}

/// A control-plane node that came to `last`; where that is behind the reboot, in the second boot.
fn came_to(goal: Goal, last: Step) -> Journal {
    let mut journal = Journal::default();
    let first = facts("boot-1", &Disk::new(SlotState::Good, Some(OLDER)));
    let payload = (goal == Goal::Upgrade).then(|| digest(TARGET));
    let request = Request { payload, ..crate::request(goal, true, None) };
    assert_eq!(journal.ask(request, Shape { kubernetes: true, etcd: true }, &first), Ok(Asked::New));
    let all: Vec<Step> = steps(journal.operation.as_ref().unwrap()).collect();
    for step in all.into_iter().take_while(|step| *step <= last) {
        let is_after = step > Step::Reboot;
        let (boot, disk) = match goal {
            Goal::Upgrade if is_after => ("boot-2", disk(Slot::B, SlotState::Tried)),
            _ if is_after => ("boot-2", Disk::new(SlotState::Good, Some(OLDER))),
            _ => ("boot-1", Disk::new(SlotState::Good, Some(OLDER))),
        };
        journal.take(Next::Begin(step), &facts(boot, &disk));
        let learned = match step {
            Step::Stage => {
                Learned::Staged(Installed { slot: Slot::B, payload: Some(digest(TARGET)) }, Moved::default())
            }
            _ => Learned::Nothing,
        };
        crate::settle(&mut journal, Tried::Done(learned));
    }
    journal
}

/// The copy that a version which knows more would have written.
fn written_by_later(journal: &Journal, version: &str, change: impl FnOnce(&mut Value)) -> Vec<u8> {
    let mut value = serde_json::to_value(journal).unwrap();
    change(&mut value);
    let json = value.to_string();
    let crc = crc32fast::hash(json.as_bytes());
    format!("slipway-journal {version} {crc:08x} {}\n{json}", json.len()).into_bytes()
}

fn op(journal: &Journal) -> &Operation {
    journal.operation.as_ref().unwrap()
}

/// What this version does with it: the steps that it begins, each of which works, and how it ends.
fn goes_on(journal: &mut Journal, boot: &str, disk: &mut Disk) -> (Vec<Step>, Outcome) {
    let (mut steps, mut boot) = (Vec::new(), boot.to_owned());
    for _ in 0..60 {
        let facts = facts(&boot, disk);
        let decided = next(op(journal), &facts, Limits::default());
        if let Next::End(outcome) = &decided {
            let outcome = outcome.clone();
            journal.take(decided, &facts);
            return (steps, outcome);
        }
        assert!(!matches!(decided, Next::Wait(_)), "{decided:?}");
        let Some(step) = journal.take(decided, &facts) else { continue };
        steps.push(step);
        crate::settle(journal, Tried::Done(Learned::Nothing));
        match step {
            Step::Reboot | Step::Return => {
                boot += "-and-one-more";
                disk.boots(true);
            }
            Step::GiveUp => disk.states.b = SlotState::Bad,
            Step::Deactivate => disk.once = None,
            _ => {}
        }
    }
    panic!("it has no end: {steps:?}");
}

#[test]
fn fields_of_a_later_version_stay() {
    let mut journal = came_to(Goal::Upgrade, Step::Cordon);
    journal.ended.push(Ended::of(op(&journal), Outcome::Reached));
    journal.deny(digest(9), "it was ill");
    let places = ["", "/operation", "/operation/request", "/ended/0", "/ended/0/request", "/denied/0"];
    for version in ["1", "2"] {
        let copy = written_by_later(&journal, version, |value| {
            for place in places {
                value.pointer_mut(place).unwrap()["mood"] = json!({"is": ["well", 18_446_744_073_709_551_615_u64]});
            }
        });
        let mut read = Journal::decode(&copy).unwrap();
        read.take(Next::Begin(Step::Drain), &facts("boot-1", &Disk::new(SlotState::Untried, Some(TARGET))));
        let again: Value =
            serde_json::from_str(str::from_utf8(&read.encode().unwrap()).unwrap().split_once('\n').unwrap().1).unwrap();
        for place in places {
            let mood = &again.pointer(place).unwrap()["mood"];
            assert_eq!(mood, &json!({"is": ["well", 18_446_744_073_709_551_615_u64]}), "{place}");
        }
        assert_eq!(again["operation"]["at"], "drain");
        assert_eq!(Journal::foreign_version(&copy), (version != "1").then_some(version));
    }
}

/// The trial of a later version came to a step of its own, and failed: the old system takes back what was taken, and the payload
/// is not tried again. It neither reboots nor arms anything.
#[test]
fn a_trial_that_failed_at_an_unknown_step_is_taken_back() {
    for back in [false, true] {
        let copy = written_by_later(&came_to(Goal::Upgrade, Step::Prove), "2", |value| {
            let op = &mut value["operation"];
            (op["at"], op["done"]) = (json!("warm-up"), json!(false));
            (op["warmth"], op["boot"]) = (json!(3), json!("boot-2"));
            if back {
                op["course"] = json!({"back": "warm-up: it stays cold"});
            } else {
                op["reached"] = json!("warm-up");
            }
        });
        let mut journal = Journal::decode(&copy).unwrap();
        let (steps, outcome) = goes_on(&mut journal, "boot-3", &mut disk(Slot::A, SlotState::Tried));
        assert_eq!(steps, [Step::ProveOld, Step::Uncordon, Step::Unlock]);
        let why = if back { "warm-up: it stays cold" } else { "the machine came back to the old system" };
        assert_eq!(outcome, Outcome::CameBack(why.to_owned()));
        assert_eq!(journal.denial(digest(TARGET)).unwrap().why, why);
        // The same request again begins nothing.
        let again = journal.ended[0].request.clone();
        let asked = journal.ask(again, Shape::default(), &facts("boot-3", &disk(Slot::A, SlotState::Tried)));
        assert!(matches!(asked, Ok(Asked::Ended(Outcome::CameBack(_)))), "{asked:?}");
    }
}

/// `slipwayd` alone became older, while the machine ran on: what was taken is given back, and says why. Only where services were
/// stopped, or a trial runs, the machine is started once more, for the old system.
#[test]
fn an_unknown_step_is_undone_and_says_so() {
    let begun = |last: Step| {
        written_by_later(&came_to(Goal::Upgrade, last), "1", |value| {
            let op = &mut value["operation"];
            for key in ["at", "reached"] {
                op[key] = json!("warm-up");
            }
            op["done"] = json!(false);
        })
    };
    let armed = Disk { once: Some(Slot::B), ..Disk::new(SlotState::Untried, Some(TARGET)) };
    let trial = disk(Slot::B, SlotState::Tried);
    let undone = [Step::Uncordon, Step::Unlock];
    let cases = [
        (Step::Cordon, "boot-1", Disk::new(SlotState::Untried, Some(TARGET)), vec![]),
        (Step::Stop, "boot-1", Disk::new(SlotState::Untried, Some(TARGET)), vec![Step::Return, Step::ProveOld]),
        (Step::Activate, "boot-1", armed, vec![Step::Deactivate, Step::Return, Step::ProveOld]),
        (Step::Prove, "boot-2", trial, vec![Step::GiveUp, Step::Return, Step::ProveOld]),
    ];
    for (last, boot, mut disk, before) in cases {
        let mut journal = Journal::decode(&begun(last)).unwrap();
        assert_eq!((op(&journal).at, op(&journal).reached), (Step::Later, Step::Later));
        let (steps, outcome) = goes_on(&mut journal, boot, &mut disk);
        assert_eq!(steps, [&before[..], &undone[..]].concat(), "{last:?}");
        let why = "a later version of slipwayd had begun a step that this version does not know";
        assert_eq!(outcome, Outcome::CameBack(why.to_owned()), "{last:?}");
        assert!(!disk.is_trial() && disk.once.is_none(), "{last:?}");
    }
}

/// It runs, and is the default: there is no way back, and the rest is done.
#[test]
fn behind_the_confirmation_it_goes_on() {
    let copy = written_by_later(&came_to(Goal::Upgrade, Step::Confirm), "1", |value| {
        value["operation"]["at"] = json!("polish");
        value["operation"]["reached"] = json!("polish");
    });
    let mut confirmed = Disk { default: Slot::B, ..disk(Slot::B, SlotState::Good) };
    for boot in ["boot-2", "boot-3"] {
        let mut journal = Journal::decode(&copy).unwrap();
        let (steps, outcome) = goes_on(&mut journal, boot, &mut confirmed);
        assert_eq!(steps, [Step::Prove, Step::Confirm, Step::Uncordon, Step::Unlock], "{boot}");
        assert_eq!(outcome, Outcome::Reached);
    }
}

/// A rollback that a later version has begun, back to this one, in which it came to a step of its own.
#[test]
fn a_rollback_to_this_version_is_reached() {
    let copy = written_by_later(&came_to(Goal::Rollback, Step::Activate), "1", |value| {
        value["operation"]["at"] = json!("say-goodbye");
        value["operation"]["reached"] = json!("say-goodbye");
    });
    let mut journal = Journal::decode(&copy).unwrap();
    let mut other = Disk { running: Slot::B, default: Slot::B, ..Disk::new(SlotState::Good, Some(OLDER)) };
    let (steps, outcome) = goes_on(&mut journal, "boot-2", &mut other);
    assert_eq!((steps, outcome), (vec![Step::Prove, Step::Uncordon, Step::Unlock], Outcome::Reached));
}

#[test]
fn an_unknown_goal_or_course_is_undone() {
    let of = |key: &'static str, value: Value| {
        move |journal: &mut Value| match key {
            "goal" => journal["operation"]["request"]["goal"] = value,
            _ => journal["operation"]["course"] = value,
        }
    };
    for (key, value, told) in [
        ("goal", json!("reprovision"), "goal"),
        ("course", json!("paused"), "way"),
        ("course", json!({"sideways": {"by": 3}}), "way"),
    ] {
        let copy = written_by_later(&came_to(Goal::Upgrade, Step::Prove), "2", of(key, value.clone()));
        let journal = Journal::decode(&copy).unwrap();
        if key == "course" {
            assert_eq!(op(&journal).course, Course::Later(value));
        }
        for (boot, running) in [("boot-2", Slot::B), ("boot-3", Slot::A)] {
            let mut journal = journal.clone();
            let (steps, outcome) = goes_on(&mut journal, boot, &mut disk(running, SlotState::Tried));
            let given_up = [Step::GiveUp, Step::Return];
            let given_up = if running == Slot::B { &given_up[..] } else { &[] };
            assert_eq!(steps, [given_up, &[Step::ProveOld, Step::Uncordon, Step::Unlock][..]].concat());
            let Outcome::CameBack(why) = outcome else { panic!("{outcome:?}") };
            assert!(why.starts_with("a later version of slipwayd had ") && why.contains(told), "{why}");
        }
    }
    // What is the default is never taken for what was asked for, and is not given up.
    let copy = written_by_later(&came_to(Goal::Upgrade, Step::Confirm), "2", of("goal", json!("reprovision")));
    let mut confirmed = Disk { default: Slot::B, ..disk(Slot::B, SlotState::Good) };
    let (steps, outcome) = goes_on(&mut Journal::decode(&copy).unwrap(), "boot-2", &mut confirmed);
    assert_eq!(steps, [Step::ProveOld, Step::Uncordon, Step::Unlock]);
    assert!(matches!(outcome, Outcome::CameBack(_)), "{outcome:?}");
}

/// It is told as it is, stays as it is, and its request begins nothing again.
#[test]
fn an_end_of_a_later_version_is_kept() {
    let mut journal = came_to(Goal::Upgrade, Step::Cordon);
    let facts = facts("boot-1", &Disk::new(SlotState::Good, Some(OLDER)));
    journal.take(Next::End(Outcome::Reached), &facts);
    for outcome in [json!("postponed"), json!({"half": {"of": 3}})] {
        let copy = written_by_later(&journal, "2", |value| {
            value["ended"][0]["outcome"] = outcome.clone();
            value["ended"][0]["reached"] = json!("warm-up");
        });
        let mut read = Journal::decode(&copy).unwrap();
        assert_eq!(Journal::decode(&read.encode().unwrap()).as_ref(), Ok(&read));
        let kept = &read.ended[0];
        assert_eq!((&kept.outcome, kept.reached), (&Outcome::Later(outcome.clone()), Some(Step::Later)));
        assert!(kept.outcome.to_string().contains(&outcome.to_string()), "{}", kept.outcome);
        let asked = read.ask(read.ended[0].request.clone(), Shape::default(), &facts);
        assert_eq!(asked, Ok(Asked::Ended(Outcome::Later(outcome))));
        assert_eq!(read.operation, None);
    }
}

/// Its checksum says that nothing of it is lost.
#[test]
fn what_is_not_understood_is_not_damaged() {
    let journal = came_to(Goal::Upgrade, Step::Cordon);
    let changes: [fn(&mut Value); 3] = [
        |value| value["operation"]["from"]["slot"] = json!("C"),
        |value| value["ended"] = json!({"how": "as an object"}),
        |value| value["seq"] = json!("seven"),
    ];
    for change in changes {
        for version in ["1", "2", "2.1"] {
            let copy = written_by_later(&journal, version, change);
            let why = Journal::decode(&copy).unwrap_err();
            assert!(matches!(&why, Unreadable::Later { version: said, .. } if said == version), "{why:?}");
            assert!(why.to_string().contains("it is whole") && !why.to_string().contains("damaged"), "{why}");
            let torn = &copy[..copy.len() - 1];
            assert_eq!(Journal::decode(torn), Err(Unreadable::Damaged));
        }
    }
    // More words in the first line.
    let copy = written_by_later(&journal, "3", |_| {});
    let text = String::from_utf8(copy).unwrap().replacen('\n', " zstd\n", 1);
    assert_eq!(Journal::decode(text.as_bytes()), Ok(journal.clone()));
    let id = journal.operation.map(|op| op.id());
    assert_eq!(id, Some(Uuid::from_u128(1)));
}
