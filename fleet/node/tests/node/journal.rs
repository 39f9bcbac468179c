//! The journal on the medium: a damaged copy does not count, and a journal of a released version stays
//! readable.

use std::{collections::BTreeSet, fs, path::Path};

use proptest::{collection::vec, prelude::*};
use serde_json::Value;
use slipway_core::boot::slot::{Slot, SlotState};
use slipway_node::{
    cordon::NodeState,
    facts::Facts,
    journal::{Asked, Journal, Refusal, Unreadable},
    operation::{Course, Installed, Learned, Moved, Operation, Shape, Tried},
    request::{Goal, Request},
    sequence::{self, FORWARD, Limits, Next, Outcome},
    step::Step,
};
use uuid::Uuid;

use crate::world::disk::{Disk, OLD, OLDER, TARGET, digest};

/// A journal with something in every part.
fn full() -> Journal {
    let facts = |boot: &str, uptime| Facts {
        boot: boot.to_owned(),
        uptime,
        disk: Some(Disk::new(SlotState::Good, Some(OLDER)).seen()),
        node: Some(NodeState { unschedulable: true, ..Default::default() }),
        member: Some(0x8e9e_05c5_2164_694d),
        ..Facts::default()
    };
    let mut journal = Journal { seq: 40, ..Journal::default() };
    let shape = Shape { kubernetes: true, etcd: true };
    journal.deny(digest(OLDER), "reboot: the machine came back to the old system");
    let first = crate::request(Goal::Rollback, true, Some(6));
    let granted = |token, facts| Facts { grant: Some(token), ..facts };
    assert_eq!(journal.ask(first, shape, &granted(6, facts("boot-1", 10))), Ok(Asked::New));
    assert_eq!(journal.take(Next::End(Outcome::CameBack("drain: a pod".to_owned())), &facts("boot-1", 11)), None);
    let second = Request {
        id: Uuid::from_u128(2),
        payload: Some(digest(TARGET)),
        ..crate::request(Goal::Upgrade, false, Some(7))
    };
    assert_eq!(journal.ask(second, shape, &granted(7, facts("boot-2", 20))), Ok(Asked::New));
    for step in [Step::Stage, Step::Cordon, Step::Leave, Step::Stop] {
        assert_eq!(journal.take(Next::Begin(step), &facts("boot-2", 30)), Some(step));
        crate::settle(
            &mut journal,
            Tried::Done(match step {
                Step::Stage => {
                    Learned::Staged(Installed { slot: Slot::B, payload: Some(digest(TARGET)) }, Moved::default())
                }
                _ => Learned::Nothing,
            }),
        );
    }
    journal.take(Next::Begin(Step::Release), &facts("boot-2", 40));
    crate::settle(&mut journal, Tried::Blocked("a process holds /var".to_owned()));
    journal.operation.as_mut().unwrap().abort = Some("somebody wants it to end".to_owned());
    journal
}

/// Files here are never written anew: a new version of the journal gets a file of its own.
#[test]
fn the_journal_of_version_1_is_read() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/journal-1");
    let kept = fs::read(path).unwrap();
    let mut expected = full();
    // Fields that came later.
    expected.ended[0].reached = None;
    expected.operation.as_mut().unwrap().moved = None;
    assert_eq!(Journal::decode(&kept), Ok(expected));
}

/// Paths of all keys in the JSON of a journal; items of a list are one.
fn keys(journal: &[u8]) -> BTreeSet<String> {
    fn walk(at: &str, value: &Value, found: &mut BTreeSet<String>) {
        match value {
            Value::Object(fields) => fields.iter().for_each(|(key, value)| {
                let at = format!("{at}.{key}");
                walk(&at, value, found);
                found.insert(at);
            }),
            Value::Array(items) => items.iter().for_each(|item| walk(at, item, found)),
            _ => {}
        }
    }
    let mut found = BTreeSet::new();
    let json = std::str::from_utf8(journal).unwrap().split_once('\n').unwrap().1;
    walk("", &serde_json::from_str(json).unwrap(), &mut found);
    found
}

/// The last file has every field that is written today. A new field needs a new file: the release that has it promises to read
/// it. `SLIPWAY_UPDATE_GOLDEN=1` writes one that is not there yet.
#[test]
fn every_field_of_the_journal_is_in_a_file_that_is_kept() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/journal-0.1.0");
    let today = full().encode().unwrap();
    if std::env::var_os("SLIPWAY_UPDATE_GOLDEN").is_some() && !path.exists() {
        fs::write(&path, &today).unwrap();
    }
    let kept = fs::read(path).unwrap();
    assert_eq!(Journal::decode(&kept), Ok(full()));
    let (today, kept) = (keys(&today), keys(&kept));
    assert!(today.len() > 20, "{today:?}");
    assert_eq!(today.difference(&kept).collect::<Vec<_>>(), Vec::<&String>::new(), "write a new file, with these");
    let new: BTreeSet<_> = keys(b"head\n{\"seq\":1,\"mood\":{\"is\":1}}").difference(&kept).cloned().collect();
    assert_eq!(new, [".mood", ".mood.is"].map(str::to_owned).into(), "what is new is found");
}

#[test]
fn a_journal_is_what_was_written() {
    for journal in [Journal::default(), full()] {
        assert_eq!(Journal::decode(&journal.encode().unwrap()), Ok(journal));
    }
}

/// Every bit of a copy, and every length of it.
#[test]
fn a_damaged_copy_never_counts() {
    let old = full();
    let new = Journal { seq: old.seq + 1, operation: None, ..old.clone() };
    let read = |copies: [&[u8]; 2]| Journal::newest(copies.into_iter().filter_map(|copy| Journal::decode(copy).ok()));
    let (old_copy, new_copy) = (old.encode().unwrap(), new.encode().unwrap());
    assert_eq!(read([&old_copy, &new_copy]), Some(new.clone()));
    assert_eq!(read([&new_copy, &old_copy]), Some(new.clone()));
    for bit in 0..new_copy.len() * 8 {
        let mut copy = new_copy.clone();
        copy[bit / 8] ^= 1 << (bit % 8);
        // A letter of the checksum may become the same digit in upper case; and a journal of any version is read.
        let is_version = bit / 8 == "slipway-journal ".len();
        let is_same =
            (is_version || copy.eq_ignore_ascii_case(&new_copy)) && Journal::decode(&copy).as_ref() == Ok(&new);
        assert!(is_same || read([&copy, &old_copy]) == Some(old.clone()), "bit {bit}");
    }
    for len in 0..new_copy.len() {
        assert_eq!(read([&old_copy, &new_copy[..len]]), Some(old.clone()), "{len} bytes");
        // A file that was longer before, and was not cut.
        let longer = [&new_copy[..], &old_copy[..len.min(old_copy.len())]].concat();
        assert!(len == 0 || read([&longer, &old_copy]) == Some(old.clone()), "{len} bytes more");
    }
    assert_eq!(read([&[], &[]]), None);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_bytes_make_it_panic(bytes in vec(any::<u8>(), 0..400), head in "slipway-journal [0-2] [0-9a-f]{0,9} [0-9]{0,3}\n") {
        prop_assert_eq!(Journal::decode(&bytes), Err(Unreadable::Damaged));
        let _ = Journal::decode(&[head.as_bytes(), &bytes].concat());
    }

    /// The checksum fits, what it is of does not.
    #[test]
    fn no_json_makes_it_panic(json in "[\\[\\]{}\":,0-9a-z ]{0,60}") {
        let crc = crc32fast::hash(json.as_bytes());
        let copy = format!("slipway-journal 1 {crc:08x} {}\n{json}", json.len());
        let _ = Journal::decode(copy.as_bytes());
        let later = format!("slipway-journal 2 {crc:08x} {}\n{json}", json.len());
        prop_assert_ne!(Journal::decode(later.as_bytes()), Err(Unreadable::Damaged));
    }
}

#[test]
fn a_payload_that_is_denied_is_found_however_it_is_named() {
    let mut journal = Journal::default();
    journal.deny(digest(TARGET), "it was not well");
    let facts = Facts {
        boot: "b".to_owned(),
        uptime: 0,
        disk: Some(Disk::new(SlotState::Empty, None).seen()),
        ..Facts::default()
    };
    let any = crate::request(Goal::Upgrade, true, None);
    let named = Request { payload: Some(digest(TARGET)), ..any.clone() };
    let asked = journal.ask(named, Shape::default(), &facts);
    assert!(matches!(&asked, Err(Refusal::Denied { payload, .. }) if *payload == digest(TARGET)));
    // There is a way back from it, for a node that was at fault itself.
    assert!(asked.unwrap_err().to_string().contains("root runs `installer upgrade` on it"));
    assert_eq!(journal.ask(any, Shape::default(), &facts), Ok(Asked::New));
    // The running payload is not denied: a person has made it well.
    let mut runs = journal.clone();
    runs.operation.as_mut().unwrap().from.payload = Some(digest(TARGET));
    for (journal, is_back) in [(&mut journal, true), (&mut runs, false)] {
        let to = Installed { slot: Slot::B, payload: Some(digest(TARGET)) };
        crate::settle(journal, Tried::Done(Learned::Staged(to, Moved::default())));
        assert_eq!(journal.operation.as_ref().unwrap().course != Course::Forward, is_back);
    }
    assert!(journal.denial(digest(OLD)).is_none());
}

#[test]
fn lists_have_an_end_and_the_newest_comes_first() {
    let mut journal = Journal::default();
    (0..100).for_each(|n| journal.deny(digest(n), "why"));
    journal.deny(digest(90), "again");
    assert_eq!(
        (journal.denied.len(), journal.denied[0].payload, journal.denied[1].payload),
        (32, digest(90), digest(99))
    );
    assert_eq!(journal.denied[0].why, "again");
    assert!(journal.denied[1..].iter().all(|denied| denied.payload != digest(90)));
}

/// A request that cannot work is refused before anything begins.
#[test]
fn what_cannot_be_is_refused() {
    // A grant for a payload that is never tried here again has come to its end.
    let mut denies = Journal { token: 2, ..Journal::default() };
    denies.deny(digest(TARGET), "it was not well");
    let names = Request { payload: Some(digest(TARGET)), ..crate::request(Goal::Upgrade, true, Some(3)) };
    let granted = |facts| Facts { grant: Some(3), ..facts };
    let facts = Facts {
        boot: "b".to_owned(),
        uptime: 0,
        disk: Some(Disk::new(SlotState::Good, Some(OLDER)).seen()),
        ..Facts::default()
    };
    assert_eq!(
        denies.ask(names.clone(), Shape::default(), &facts),
        Err(Refusal::NotGranted { token: 3 }),
        "the ledger has not named it"
    );
    assert!(matches!(denies.ask(names, Shape::default(), &granted(facts)), Err(Refusal::Denied { .. })));
    assert_eq!((denies.token, &denies.operation), (3, &None));
    let ask = |goal: Goal, source: &str, disk: Option<Disk>| {
        let facts = Facts { boot: "b".to_owned(), uptime: 0, disk: disk.map(|disk| disk.seen()), ..Facts::default() };
        let request = Request { source: source.to_owned(), ..crate::request(goal, true, Some(3)) };
        let mut journal = Journal { token: 2, ..Journal::default() };
        let asked = journal.ask(request, Shape::default(), &granted(facts));
        assert_eq!((journal.operation.is_some(), journal.token == 3), (asked.is_ok(), asked.is_ok()));
        asked
    };
    let states = [SlotState::Empty, SlotState::Untried, SlotState::Tried, SlotState::Bad];
    let disk = |b| Some(Disk::new(b, Some(OLDER)));
    for b in states {
        assert!(matches!(ask(Goal::Rollback, "", disk(b)), Err(Refusal::Invalid(_))), "{b}");
        assert_eq!(ask(Goal::Upgrade, "image", disk(b)), Ok(Asked::New));
    }
    assert_eq!(ask(Goal::Rollback, "", disk(SlotState::Good)), Ok(Asked::New));
    // `installer upgrade` or `installer rollback` has asked for the other slot, which a reboot would go to.
    assert_eq!(ask(Goal::Reboot, "", disk(SlotState::Untried)), Ok(Asked::New));
    for b in [SlotState::Untried, SlotState::Good] {
        let elsewhere = disk(b).map(|disk| Disk { once: Some(Slot::B), ..disk });
        assert!(matches!(ask(Goal::Reboot, "", elsewhere.clone()), Err(Refusal::Invalid(_))), "{b}");
        assert_eq!(ask(Goal::Upgrade, "image", elsewhere), Ok(Asked::New));
    }
    let on_trial = disk(SlotState::Tried).map(|disk| Disk { running: Slot::B, ..disk });
    for (goal, source) in [(Goal::Stage, "image"), (Goal::Upgrade, "image"), (Goal::Rollback, ""), (Goal::Reboot, "")] {
        assert_eq!(ask(goal, source, on_trial.clone()), Err(Refusal::OnTrial));
        assert_eq!(ask(goal, source, None), Err(Refusal::UnknownDisk));
        let wrong = if source.is_empty() { "image" } else { "" };
        assert!(matches!(ask(goal, wrong, disk(SlotState::Good)), Err(Refusal::Invalid(_))));
    }
}

/// A fleet that sees a node late grants it once more. The node is asked for what it has done: that grant must be free.
#[test]
fn a_token_of_a_request_that_is_over_is_obeyed_with_nothing_to_do() {
    let mut journal = full();
    let facts = Facts {
        boot: "boot-2".to_owned(),
        uptime: 50,
        disk: Some(Disk::new(SlotState::Good, Some(OLDER)).seen()),
        ..Facts::default()
    };
    journal.take(Next::End(Outcome::Reached), &facts);
    let again = Request { token: Some(9), ..journal.ended[0].request.clone() };
    let obeyed = journal.token;
    assert_eq!(journal.ask(again.clone(), Shape::default(), &facts), Ok(Asked::Ended(Outcome::Reached)));
    assert_eq!(journal.token, obeyed, "the ledger has not named it");
    let facts = Facts { grant: Some(9), ..facts };
    assert_eq!(journal.ask(again.clone(), Shape::default(), &facts), Ok(Asked::Ended(Outcome::Reached)));
    assert_eq!((journal.token, &journal.operation), (9, &None));
    let late = Request { token: Some(8), ..again };
    assert_eq!(journal.ask(late, Shape::default(), &facts), Ok(Asked::Ended(Outcome::Reached)));
    assert_eq!(journal.token, 9);
}

/// As of a script that has one name for all that it asks for: it would be told that it is done.
#[test]
fn a_name_is_not_taken_for_another_request() {
    let facts = Facts { disk: Some(Disk::new(SlotState::Good, Some(OLDER)).seen()), ..facts_of("boot") };
    let of = |goal: Goal, source: &str, payload| Request {
        source: source.to_owned(),
        payload,
        ..crate::request(goal, true, None)
    };
    for payload in [None, Some(digest(TARGET))] {
        let mut journal = Journal::default();
        let ask = |request: Request, journal: &mut Journal| journal.ask(request, Shape::default(), &facts);
        let first = of(Goal::Upgrade, "os:1", payload);
        assert_eq!(ask(first.clone(), &mut journal), Ok(Asked::New));
        for is_over in [false, true] {
            if is_over {
                journal.take(Next::End(Outcome::Reached), &facts);
            }
            let same = if is_over { Asked::Ended(Outcome::Reached) } else { Asked::UnderWay };
            assert_eq!(ask(first.clone(), &mut journal), Ok(same.clone()));
            let mirrored = ask(of(Goal::Upgrade, "mirror/os:1", payload), &mut journal);
            assert_eq!(mirrored.ok(), payload.map(|_| same), "the digest says what it is");
            for other in [of(Goal::Upgrade, "os:2", Some(digest(OLD))), of(Goal::Rollback, "", None)] {
                let before = journal.clone();
                assert!(
                    matches!(ask(other, &mut journal), Err(Refusal::Invalid(why)) if why.contains("name of its own"))
                );
                assert_eq!(journal, before);
            }
        }
    }
}

/// A stolen certificate, or a liar on the way, sends a very high token: a node that remembered it would refuse all that the
/// fleet gives later. Whatever is asked for, and however it is answered.
#[test]
fn only_the_ledger_raises_the_highest_token() {
    let good = Facts { disk: Some(Disk::new(SlotState::Good, Some(OLDER)).seen()), ..facts_of("boot-2") };
    let on_trial = Disk { running: Slot::B, ..Disk::new(SlotState::Tried, Some(OLDER)) };
    let disks = [good.disk.clone(), Some(on_trial.seen()), None];
    let mut before = full();
    before.take(Next::End(Outcome::Reached), &good);
    before.deny(digest(TARGET), "it was not well");
    let known = before.ended[0].request.id;
    let (obeyed, highest) = (before.token, (1 << 53) - 1);
    for goal in [Goal::Stage, Goal::Upgrade, Goal::Rollback, Goal::Reboot] {
        let any = crate::request(goal, true, None);
        for token in [obeyed + 1, highest, u64::MAX] {
            for grant in [None, Some(obeyed), Some(obeyed + 2)] {
                let new = Uuid::from_u128(77);
                let of = |disk| [(new, None, disk), (known, None, disk), (new, Some(digest(TARGET)), disk)];
                for (id, payload, disk) in disks.iter().flat_map(of) {
                    let request = Request { id, payload, token: Some(token), ..any.clone() };
                    let facts = Facts { grant, disk: disk.clone(), ..good.clone() };
                    let mut journal = before.clone();
                    let asked = journal.ask(request.clone(), Shape::default(), &facts);
                    assert_eq!(journal, before, "{request:?} {asked:?}");
                }
            }
        }
        // The node obeys the fleet's next grant.
        let next = Request { id: Uuid::from_u128(77), token: Some(obeyed + 1), ..any };
        let facts = Facts { grant: Some(obeyed + 1), ..good.clone() };
        let mut journal = before.clone();
        assert_eq!(journal.ask(next, Shape::default(), &facts), Ok(Asked::New));
        assert_eq!(journal.token, obeyed + 1);
    }
}

/// A stage disturbs nothing: one of another payload takes its place at once, and nothing else does.
#[test]
fn a_stage_of_another_payload_supersedes_a_stage() {
    let facts = Facts { disk: Some(Disk::new(SlotState::Good, Some(OLDER)).seen()), ..facts_of("boot") };
    let of = |n: u128, goal: Goal, source: &str| Request {
        id: Uuid::from_u128(n),
        source: source.to_owned(),
        ..crate::request(goal, true, None)
    };
    let under_way = |goal: Goal| {
        let mut journal = Journal::default();
        assert_eq!(journal.ask(of(1, goal, "os:nope"), Shape::default(), &facts), Ok(Asked::New));
        journal
    };
    let mut journal = under_way(Goal::Stage);
    let busy = Err(Refusal::Busy(Uuid::from_u128(1)));
    assert_eq!(journal.ask(of(2, Goal::Upgrade, "os:nope"), Shape::default(), &facts), busy, "the same target");
    assert_eq!(journal.ask(of(2, Goal::Rollback, ""), Shape::default(), &facts), busy, "it writes no payload");
    assert!(matches!(journal.ask(of(2, Goal::Stage, ""), Shape::default(), &facts), Err(Refusal::Invalid(_))));
    assert_eq!(journal.operation.as_ref().map(Operation::id), Some(Uuid::from_u128(1)), "what is refused ends nothing");
    assert_eq!(journal.ask(of(3, Goal::Stage, "os:2"), Shape::default(), &facts), Ok(Asked::New));
    let ended = &journal.ended[0];
    assert_eq!((ended.request.id, ended.failed), (Uuid::from_u128(1), false), "nothing is said of the payload");
    assert!(matches!(&ended.outcome, Outcome::CameBack(why) if why.contains(&Uuid::from_u128(3).to_string())));
    // The findings of the old operation count for nothing.
    let before = journal.clone();
    journal.settle(Uuid::from_u128(1), Tried::Failed("no room".to_owned()));
    assert_eq!(journal, before);
    let mut journal = under_way(Goal::Upgrade);
    assert_eq!(journal.ask(of(2, Goal::Stage, "os:2"), Shape::default(), &facts), busy, "an upgrade is not superseded");
    journal.operation = None;
    assert_eq!(journal.ask(of(4, Goal::Stage, "os:2"), Shape::default(), &facts), Ok(Asked::New));
}

/// A typo in the image of an upgrade is corrected by another one: until the payload is staged nothing is disturbed.
#[test]
fn an_upgrade_of_another_payload_supersedes_one_that_is_not_staged() {
    let facts = Facts {
        disk: Some(Disk::new(SlotState::Good, Some(OLDER)).seen()),
        grant: Some(7),
        node: Some(NodeState::default()),
        ..facts_of("boot")
    };
    let of = |n: u128, source: &str, token| Request {
        id: Uuid::from_u128(n),
        source: source.to_owned(),
        token,
        ..crate::request(Goal::Upgrade, true, None)
    };
    let shape = Shape { kubernetes: true, etcd: false };
    let begun = |step: Step, token| {
        let mut journal = Journal::default();
        assert_eq!(journal.ask(of(1, "typo/os:1", token), shape, &facts), Ok(Asked::New));
        journal.take(Next::Begin(step), &facts);
        journal
    };
    let busy = Err(Refusal::Busy(Uuid::from_u128(1)));
    let mut journal = begun(Step::Stage, None);
    journal.settle(Uuid::from_u128(1), Tried::Blocked("no such host".to_owned()));
    assert_eq!(journal.ask(of(2, "typo/os:1", None), shape, &facts), busy, "the same target");
    assert_eq!(journal.ask(of(2, "os:1", Some(7)), shape, &facts), busy, "the fleet ends no person's upgrade");
    assert_eq!(journal.ask(of(2, "os:1", None), shape, &facts), Ok(Asked::New));
    assert!(matches!(&journal.ended[0].outcome, Outcome::CameBack(why) if why.starts_with("superseded by")));
    assert_eq!((journal.ended[0].failed, journal.denied.len()), (false, 0), "nothing is said of the payload");
    for step in FORWARD.into_iter().filter(|step| *step > Step::Stage) {
        assert_eq!(begun(step, None).ask(of(2, "os:1", None), shape, &facts), busy, "{step}");
    }
    assert_eq!(begun(Step::Stage, Some(7)).ask(of(2, "os:1", None), shape, &facts), busy, "it has the fleet's grant");
    let mut journal = begun(Step::Stage, None);
    journal.take(Next::TurnBack("an admin ends it".to_owned()), &facts);
    assert_eq!(journal.ask(of(2, "os:1", None), shape, &facts), busy, "it is on its way back");
}

fn facts_of(boot: &str) -> Facts {
    Facts { boot: boot.to_owned(), uptime: 0, disk: None, ..Facts::default() }
}

#[test]
fn a_registry_is_asked_less_and_less_often() {
    let facts =
        |uptime| Facts { uptime, disk: Some(Disk::new(SlotState::Good, Some(OLDER)).seen()), ..facts_of("boot") };
    let request = crate::request(Goal::Stage, true, None);
    let mut op = Operation::new(request, Shape::default(), &facts(0)).unwrap();
    op.begin(Step::Stage, &facts(0));
    let limits = Limits::default();
    let (mut tries, mut uptime) = (0, 0);
    while uptime <= limits.stage {
        uptime += sequence::next_try(&op, &facts(uptime), limits);
        tries += 1;
    }
    assert!((10..40).contains(&tries), "{tries} tries in an hour");
    assert_eq!(uptime, limits.stage + 1, "the last is when its time is over");
    op.begin(Step::Drain, &facts(100));
    assert_eq!(sequence::next_try(&op, &facts(700), limits), 5);
}
