use proptest::prelude::*;

use super::*;
use crate::boot::slot::PerSlot;

fn entry(n: u32) -> Entry {
    Entry { slot: Some(Slot::B), version: Some("1.2.0".into()), ..Entry::new(n, 1_800_000_000, Verb::Upgrade) }
}

/// The file with these entries written one after the other.
fn file(entries: &[Entry], sector: usize) -> Vec<u8> {
    let mut bytes = new_file(&entries[0], sector).into_bytes();
    for entry in &entries[1..] {
        let at = place(entry.n) as usize * sector;
        bytes[at..at + RECORD_BYTES].copy_from_slice(entry.render().as_bytes());
    }
    bytes
}

fn env(history: Option<u32>) -> BootEnv {
    BootEnv { history, ..BootEnv::installed(0) }
}

#[test]
fn golden() {
    let first = Entry { by: Some("image".into()), ..entry(1) };
    let text = first.render();
    let json = r#"{"n":1,"time":1800000000,"verb":"upgrade","slot":"B","version":"1.2.0","by":"image"}"#;
    assert_eq!(text.trim_end(), format!("{} {json}", &Sha256::of(json.as_bytes()).to_string()[..16]));
    assert_eq!((text.len(), text.lines().count()), (RECORD_BYTES, 1));
    for sector in [512, 4096] {
        let file = new_file(&first, sector);
        assert_eq!(file.len(), 64 * sector);
        assert_eq!(History::decode(7, file.as_bytes()).unwrap().entries(), core::slice::from_ref(&first));
    }
    for bytes in [0, 64 * 511, 64 * 512 - 1, 64 * 512 + 1] {
        assert_eq!(History::decode(0, &vec![b' '; bytes]), None, "{bytes}");
    }
}

#[test]
fn the_longest_entry_fits() {
    for text in ["x", "\u{1}", "\\", "漢", "😀", "é"] {
        let long = Some(text.repeat(1000));
        let ended = TrialEnd { slot: Slot::B, version: long.clone(), how: Ending::NotConfirmed, panic: long.clone() };
        let all = Entry {
            slot: Some(Slot::B),
            version: long.clone(),
            volumes: vec![Part::State, Part::Ephemeral],
            by: long.clone(),
            reason: long,
            done: true,
            ended: Some(ended),
            ..Entry::new(MAX_NUMBER, 253_402_300_799, Verb::Activate)
        };
        let fitted = all.clone().fitted();
        assert_eq!(all.render().len(), RECORD_BYTES, "{text:?}");
        assert_eq!(Entry::parse(all.render().as_bytes()), Some(fitted.clone()), "{text:?}");
        assert!(fitted.reason.unwrap().ends_with('…'), "what was cut shows it");
        // The reason alone has room for all that it may be.
        let one = Entry { reason: Some("r".repeat(MAX_TEXT)), ..entry(1) };
        assert_eq!(one.clone().fitted(), one);
    }
}

/// A sector that is replaced in part: the old entry, the new one or none, and never another one.
#[test]
fn a_record_torn_at_any_byte_is_old_or_new_or_none() {
    let (old, new) = (entry(1), Entry { reason: Some("another one, which is longer".into()), ..entry(65) });
    let (was, comes) = (old.render().into_bytes(), new.render().into_bytes());
    let mut none = 0;
    for cut in 0..=RECORD_BYTES {
        for (front, rest) in [(&comes, &was), (&was, &comes)] {
            let found = Entry::parse(&[&front[..cut], &rest[cut..]].concat());
            none += usize::from(found.is_none());
            assert!(found.is_none_or(|found| found == old || found == new), "cut at {cut}");
        }
    }
    assert!(none > 100, "a tear in the text shows: {none}");
    let mut damaged = comes;
    for at in 0..comes_len(&damaged) {
        damaged[at] ^= 1;
        assert_eq!(Entry::parse(&damaged), None, "byte {at}");
        damaged[at] ^= 1;
    }
}

fn comes_len(record: &[u8]) -> usize {
    record.trim_ascii_end().len()
}

fn after(n: u32, after: u32) -> Entry {
    Entry { after: Some(after), ..entry(n) }
}

fn decoded(entries: &[Entry]) -> History {
    History::decode(0, &file(entries, 512)).unwrap()
}

/// Effects of the entries, from the oldest on.
fn effects(entries: &[Entry], named: Option<u32>) -> Vec<Option<bool>> {
    let history = decoded(entries);
    history.entries().iter().map(|entry| history.took_effect(entry, Some(&env(named)))).collect()
}

#[test]
fn what_nobody_names_is_not_in_force() {
    let (yes, no, unknown) = (Some(true), Some(false), None);
    let first = Entry { verb: Verb::Install, ..entry(1) };
    let done = |n, after| Entry { after: Some(after), done: true, ..entry(n) };
    type Row<'a> = (&'a str, &'a [Entry], Option<u32>, &'a [Option<bool>]);
    let rows: [Row; 10] = [
        ("cut off before the commit", &[first.clone(), after(2, 1)], Some(1), &[yes, no]),
        ("committed", &[first.clone(), after(2, 1)], Some(2), &[yes, yes]),
        ("cut off, and the next one", &[first.clone(), after(2, 1), after(3, 1)], Some(3), &[yes, no, yes]),
        ("the record of the next one was not written", &[first.clone(), after(2, 1)], Some(3), &[yes, unknown]),
        ("and one later", &[first.clone(), after(2, 1), after(4, 3)], Some(4), &[yes, unknown, yes]),
        ("boot.env is lost", &[first.clone(), after(2, 1), after(3, 2)], None, &[yes, yes, unknown]),
        ("and made again", &[first.clone(), after(2, 1), after(3, 2), entry(4)], Some(4), &[yes, yes, unknown, yes]),
        ("written once they were done", &[first.clone(), done(2, 1), done(3, 1)], Some(1), &[yes, yes, yes]),
        ("done behind one that was cut off", &[first.clone(), after(2, 1), done(3, 1)], Some(1), &[yes, no, yes]),
        ("a rescued disk", &[first, after(2, 1), done(3, 1), after(4, 1)], Some(4), &[yes, no, yes, yes]),
    ];
    for (what, entries, named, expected) in rows {
        assert_eq!(effects(entries, named), expected, "{what}");
    }
}

/// No two attempts have one number: boot.env names exactly one of them.
#[test]
fn a_number_is_given_once() {
    let two = decoded(&[entry(1), entry(2)]);
    for (named, next) in [(Some(1), 3), (Some(2), 3), (None, 3), (Some(4), 5)] {
        assert_eq!(two.next(Some(&env(named))), Some(next), "{named:?}");
    }
    assert_eq!((two.next(None), two.next(Some(&env(Some(MAX_NUMBER))))), (Some(3), None));
    // boot.env names one that could not be written.
    assert_eq!(two.lost(Some(&env(Some(4)))), 2);
}

#[test]
fn the_oldest_gives_way() {
    let mut entries = vec![entry(1)];
    entries.extend((2..=100).map(entry));
    let history = History::decode(1000, &file(&entries, 512)).unwrap();
    let numbers: Vec<u32> = history.entries().iter().map(|entry| entry.n).collect();
    assert_eq!(numbers, (37..=100).collect::<Vec<_>>());
    let named = env(Some(100));
    assert_eq!((history.lost(Some(&named)), history.next(Some(&named))), (0, Some(101)));
    assert_eq!(history.lost(Some(&env(Some(99)))), 0, "36 gave its place to 100, which did not take effect");
    let (at, over) = history.place(101);
    assert_eq!((at, over.map(|entry| entry.n)), (1000 + 36 * 512, Some(37)));
    // A record in another one's place does not count.
    let mut moved = file(&entries, 512);
    moved.copy_within(0..512, 512);
    let moved = History::decode(1000, &moved).unwrap();
    assert_eq!((moved.entries().len(), moved.lost(Some(&named))), (63, 1));
}

fn state(history: u32, b: SlotState) -> BootEnv {
    let states = PerSlot { a: SlotState::Good, b };
    BootEnv { states, last_trial: Some(Slot::B), ..env(Some(history)) }
}

const A: Running = Running::This { slot: Slot::A, trial: false };

#[test]
fn the_end_of_a_trial_is_told_once() {
    let ended = |n, last, how| {
        let end = TrialEnd { slot: Slot::B, version: None, how, panic: None };
        Entry { slot: Some(Slot::A), after: Some(last), ended: Some(end), ..Entry::new(n, 0, Verb::Rollback) }
    };
    let over = |entries: &[Entry], named| decoded(entries).over(&state(named, SlotState::Tried), A);
    let open = Some((Slot::B, Ending::NotConfirmed));
    assert_eq!(over(&[entry(1)], 1), open);
    assert_eq!(over(&[entry(1), ended(2, 1, Ending::NotConfirmed)], 2), None);
    assert_eq!(over(&[entry(1), ended(2, 1, Ending::NotConfirmed)], 1), None, "that was so before it was cut off");
    assert_eq!(over(&[entry(1), ended(2, 1, Ending::GivenUp)], 1), open, "it was not given up: that was cut off");
    assert_eq!(over(&[entry(1), ended(2, 1, Ending::NotConfirmed), after(3, 2)], 3), open, "of the trial before");
    assert_eq!(over(&[entry(1), after(2, 1)], 1), open, "of the one that was armed");
    let both = Entry { verb: Verb::Upgrade, slot: Some(Slot::B), ..ended(2, 1, Ending::NotConfirmed) };
    assert_eq!(over(&[entry(1), both.clone()], 2), open, "it ended one trial, and began the next");
    assert_eq!(over(&[entry(1), both], 1), None, "the next one never began");
    assert_eq!(over(&[Entry { verb: Verb::Stage, ..entry(1) }], 1), None, "none began");
}

#[test]
fn which_trial_is_over() {
    let over = |env: &BootEnv, running| decoded(&[entry(1)]).over(env, running);
    let tried = state(1, SlotState::Tried);
    assert_eq!(over(&tried, A), Some((Slot::B, Ending::NotConfirmed)));
    assert_eq!(over(&tried, Running::Unknown), Some((Slot::B, Ending::NotConfirmed)));
    assert_eq!(over(&tried, Running::This { slot: Slot::B, trial: true }), None, "it runs");
    for other in [SlotState::Untried, SlotState::Good, SlotState::Bad] {
        assert_eq!(over(&state(1, other), A), None, "{other}: no trial, or one that a verb has ended");
    }
    let emptied = state(1, SlotState::Empty);
    assert_eq!(over(&emptied, A), Some((Slot::B, Ending::NotConfirmed)), "an upgrade was cut off");
    assert_eq!(over(&BootEnv { last_trial: None, ..emptied }, A), None);
    for (fault, how) in [(Fault::Digest, Ending::Refused), (Fault::Load, Ending::NotLoaded)] {
        let refused = Some(crate::boot::env::BootFailure { slot: Slot::B, fault });
        assert_eq!(over(&BootEnv { refused, ..tried.clone() }, A), Some((Slot::B, how)));
    }
}

proptest! {
    #[test]
    fn any_entry_round_trips(
        n in 1..=MAX_NUMBER,
        time: u64,
        version in proptest::option::of("\\PC{0,80}"),
        by in proptest::option::of(".{0,80}"),
        reason in proptest::option::of(any::<String>()),
        panic in proptest::option::of(any::<String>()),
    ) {
        let ended = panic.map(|panic| TrialEnd {
            slot: Slot::A, version: version.clone(), how: Ending::NotConfirmed, panic: Some(panic),
        });
        let entry = Entry { version, by, reason, ended, ..Entry::new(n, time, Verb::Stage) };
        let record = entry.render();
        prop_assert_eq!(record.len(), RECORD_BYTES);
        prop_assert_eq!(record.lines().count(), 1);
        let fitted = entry.fitted();
        prop_assert_eq!(fitted.clone().fitted(), fitted.clone(), "cut once is cut");
        prop_assert_eq!(Entry::parse(record.as_bytes()), Some(fitted));
    }

    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600), at in 0usize..500) {
        let _ = Entry::parse(&bytes);
        let mut file = new_file(&entry(1), 512).into_bytes();
        file[at..at + bytes.len()].copy_from_slice(&bytes);
        let _ = History::decode(0, &file);
    }
}

/// A record with the digest of its text, as a later version would write it.
fn record(json: &str) -> String {
    let line = format!("{} {json}", &Sha256::of(json.as_bytes()).to_string()[..16]);
    format!("{line:<511}\n")
}

#[test]
fn entries_of_a_later_version_count() {
    let parse = |json: &str| Entry::parse(record(json).as_bytes());
    let full = r#"{"n":2,"time":5,"verb":"exchange","slot":"B","version":"2","volumes":["NEW"],"after":1,"by":"root","new":[]}"#;
    let later = parse(full).unwrap();
    let expected = Entry {
        slot: Some(Slot::B),
        version: Some("2".into()),
        by: Some("root".into()),
        ..Entry::new(2, 5, Verb::Later)
    };
    assert_eq!(later, Entry { after: Some(1), later: Some("exchange".into()), ..expected });
    // A known verb, with unknown values.
    let ended =
        parse(r#"{"n":3,"time":5,"verb":"upgrade","slot":"C","ended":{"slot":"B","how":"melted"},"done":true}"#)
            .unwrap();
    assert_eq!(
        (ended.slot, ended.ended.as_ref(), ended.done, ended.later.as_deref()),
        (None, None, true, Some("upgrade"))
    );
    // Without these nothing can be told.
    for json in [
        r#"{"verb":"exchange","time":5}"#,
        r#"{"n":"2","verb":"exchange"}"#,
        r#"{"n":2,"verb":"exchange","after":"1"}"#,
    ] {
        assert_eq!(parse(json), None, "{json}");
    }
    assert_eq!(parse(r#"{"n":0,"time":5,"verb":"exchange"}"#), None);

    // boot.env names the last entry, which names the one before, so both are in force.
    let mut bytes = file(&[Entry { verb: Verb::Install, ..entry(1) }], 512);
    bytes[512..1024].copy_from_slice(record(full).as_bytes());
    let history = History::decode(0, &bytes).unwrap();
    let named = env(Some(2));
    assert_eq!(
        history.entries().iter().map(|entry| history.took_effect(entry, Some(&named))).collect::<Vec<_>>(),
        [Some(true); 2]
    );
    assert_eq!((history.next(Some(&named)), history.lost(Some(&named))), (Some(3), 0));
    // An entry that is not in force keeps its number, too.
    assert_eq!(history.next(Some(&env(Some(1)))), Some(3));
}
