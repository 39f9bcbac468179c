//! Where a plan puts its entry in the history, what the entry says, and how the history reads.

use slipway_core::{
    boot::{
        env::{BootEnv, BootFailure, Fault},
        history::{Ending, Entry, History, RECORD_BYTES, TrialEnd, Verb, new_file},
        running::Running,
        slot::{Slot, SlotState},
    },
    disk::{
        identity::{DiskIdentity, DiskKind},
        layout::Part,
    },
    plan::{self, Asked, Plan, RequestBase, RunsFrom, Step, SystemFacts, UpgradeRequest, WipeRequest},
    report::{HistoryEntry, HistoryReport, Now},
    units::SectorSize,
};
use slipway_test_support::{
    assert_golden,
    system::{self, activate_request, base, installed, payload},
};

/// The file with these entries in it.
pub fn ring(entries: &[Entry]) -> History {
    let mut bytes = new_file(&entries[0], RECORD_BYTES).into_bytes();
    for entry in entries {
        let at = (entry.n as usize - 1) % 64 * RECORD_BYTES;
        bytes[at..at + RECORD_BYTES].copy_from_slice(entry.render().as_bytes());
    }
    History::decode(0x10_0000, &bytes).unwrap()
}

fn with_env(facts: SystemFacts, env: BootEnv) -> SystemFacts {
    SystemFacts { env_copies: [Some(env.clone()), Some(env.clone())], env: Some(env), ..facts }
}

/// Payload 1 in slot B in this state; the history has the install and an entry for that.
pub fn disk(state: SlotState, verb: Verb) -> SystemFacts {
    let facts = installed(SectorSize::S512);
    let slots = slipway_core::boot::slot::PerSlot {
        b: system::slot(&facts.gpt, Slot::B, &payload(1), None),
        ..facts.slots.clone()
    };
    let mut env = facts.env.clone().unwrap().deactivated(Slot::B, 1).armed(Slot::B, 2);
    (env.once, env.states.b, env.history) = (None, state, Some(2));
    let history = ring(&[
        Entry { slot: Some(Slot::A), version: Some("1.0.0".into()), ..Entry::new(1, 1_800_000_000, Verb::Install) },
        Entry { slot: Some(Slot::B), version: Some("1.1.0".into()), ..Entry::new(2, 1_800_000_600, verb) },
    ]);
    with_env(SystemFacts { history: Some(history), slots, ..facts }, env)
}

/// The entry that a plan writes, and where.
fn entry(plan: &Plan) -> (usize, Entry) {
    let found: Vec<_> =
        plan.steps.iter().enumerate().filter(|(_, step)| matches!(step, Step::WriteHistory { .. })).collect();
    let [(at, step @ Step::WriteHistory { entry, .. })] = found[..] else { panic!("{found:?}") };
    assert!(plan.is_optional(step), "no verb fails for its entry");
    (at, entry.clone())
}

/// Everything that a change needs comes first, then its entry, then the sector that names it.
fn stands_before_the_commit(plan: &Plan, n: u32) -> Entry {
    let (at, entry) = entry(plan);
    assert_eq!(entry.n, n, "{plan}");
    let commit = plan.steps.iter().position(Step::is_commit).unwrap();
    assert_eq!(at + 1, commit, "{plan}");
    for (step_at, step) in plan.steps.iter().enumerate() {
        match step {
            Step::WriteBootEnv { env, .. } => {
                assert_eq!(env.history, Some(if step_at < at { n - 1 } else { n }), "{plan}")
            }
            Step::WriteVolume { .. } | Step::Verify { .. } | Step::WriteXfs { .. } => assert!(step_at < at, "{plan}"),
            _ => {}
        }
    }
    entry
}

#[test]
fn an_entry_stands_before_the_commit_that_names_it() {
    let upgrade = |facts: &SystemFacts, request: UpgradeRequest| plan::upgrade(&request, facts, &payload(2)).unwrap();
    let staged = disk(SlotState::Untried, Verb::Stage);
    for (request, verb) in [
        (system::upgrade(), Verb::Upgrade),
        (UpgradeRequest { preserve: false, ..system::upgrade() }, Verb::Upgrade),
        (UpgradeRequest { activate: false, ..system::upgrade() }, Verb::Stage),
    ] {
        let entry = stands_before_the_commit(&upgrade(&staged, request), 3);
        let what = (entry.verb, entry.slot, entry.version.as_deref(), entry.ended);
        assert_eq!(what, (verb, Some(Slot::B), Some("1.2.0"), None));
    }
    let activate = plan::activate(&activate_request(3, RunsFrom::Inside), &staged).unwrap();
    assert_eq!(stands_before_the_commit(&activate, 3).version.as_deref(), Some("1.1.0"));
    let menu = stands_before_the_commit(&plan::boot_menu(&base(3), false, &staged).unwrap(), 3);
    assert_eq!((menu.verb, menu.menu, menu.slot), (Verb::Menu, Some(false), None));
    let trial =
        SystemFacts { running: Running::This { slot: Slot::B, trial: true }, ..disk(SlotState::Tried, Verb::Upgrade) };
    let entry = stands_before_the_commit(&plan::confirm(&base(3), &trial).unwrap(), 3);
    assert_eq!(entry.ended.map(|end| end.how), Some(Ending::Confirmed));
    let asked = Asked { by: Some("root".into()), reason: Some("slow".into()), panic: None };
    let given_up = plan::rollback(&RequestBase { asked, ..base(3) }, &trial).unwrap();
    let entry = stands_before_the_commit(&given_up, 3);
    assert_eq!((entry.by.as_deref(), entry.reason.as_deref()), (Some("root"), Some("slow")));
    assert_eq!(entry.ended.map(|end| (end.slot, end.how)), Some((Slot::B, Ending::GivenUp)));
}

/// An entry that never took effect keeps its number, so that nothing can make it true. And nothing is entered where
/// nothing changes.
#[test]
fn an_entry_that_did_not_take_effect_stays() {
    let mut facts = disk(SlotState::Untried, Verb::Stage);
    let env = BootEnv { history: Some(1), ..facts.env.clone().unwrap() };
    facts = with_env(facts, env);
    let plan = plan::upgrade(&system::upgrade(), &facts, &payload(2)).unwrap();
    let (_, next) = entry(&plan);
    assert_eq!((next.n, next.after), (3, Some(1)));
    // Its own record is not written, as with a bad sector there.
    let commit = plan.steps.iter().find_map(|step| match step {
        Step::WriteBootEnv { env, commit: true, .. } => Some(env.clone()),
        _ => None,
    });
    let after = with_env(facts.clone(), commit.unwrap());
    let effects: Vec<_> = report(&after).entries.iter().map(|entry| entry.took_effect).collect();
    assert_eq!((effects, report(&after).lost), (vec![None, Some(true)], 1), "what was cut off is not said to be done");
    let nothing = plan::repair(&base(3), &facts, None, false).unwrap();
    assert!(!nothing.steps.iter().any(|step| matches!(step, Step::WriteHistory { .. })), "{nothing}");
}

/// `wipe` does not write boot.env: its entry is the last that is written, and says so.
#[test]
fn what_boot_env_does_not_change_is_entered_once_it_is_done() {
    let request = WipeRequest { base: base(3), parts: vec![Part::State], format: Some(true) };
    let plan = plan::wipe(&request, &disk(SlotState::Untried, Verb::Stage)).unwrap();
    let (at, entry) = entry(&plan);
    assert_eq!((entry.n, entry.done, entry.volumes.as_slice()), (3, true, [Part::State].as_slice()));
    assert!(plan.steps[at + 1..].iter().all(|step| step.writes().is_empty()), "{plan}");
    assert!(plan.steps.iter().any(|step| matches!(step, Step::ForgetCached { part: Part::Esp, .. })), "{plan}");
}

#[test]
fn the_next_change_tells_how_a_trial_ended() {
    let ended = |refused: Option<Fault>, history: Option<History>| {
        let facts = disk(SlotState::Tried, Verb::Upgrade);
        let refused = refused.map(|fault| BootFailure { slot: Slot::B, fault });
        let env = BootEnv { refused, ..facts.env.clone().unwrap() };
        let history = history.or(facts.history.clone());
        let facts = with_env(SystemFacts { history, ..facts }, env);
        let asked = Asked { panic: Some("Kernel panic".into()), ..Asked::default() };
        let request = UpgradeRequest { base: RequestBase { asked, ..base(3) }, ..system::upgrade() };
        entry(&plan::upgrade(&request, &facts, &payload(2)).unwrap()).1.ended
    };
    let (slot, version) = (Slot::B, Some("1.1.0".to_owned()));
    let end = |how, panic: Option<&str>| {
        Some(TrialEnd { slot, version: version.clone(), how, panic: panic.map(str::to_owned) })
    };
    assert_eq!(ended(None, None), end(Ending::NotConfirmed, Some("Kernel panic")));
    assert_eq!(ended(Some(Fault::Digest), None), end(Ending::Refused, None));
    assert_eq!(ended(Some(Fault::Load), None), end(Ending::NotLoaded, None));
    let told = Entry { ended: end(Ending::NotConfirmed, None), after: Some(1), ..Entry::new(2, 0, Verb::Upgrade) };
    let armed = Entry { slot: Some(slot), ..Entry::new(1, 0, Verb::Upgrade) };
    assert_eq!(ended(None, Some(ring(&[armed, told]))), None, "it is told already");
}

fn report(facts: &SystemFacts) -> HistoryReport {
    let utc = |seconds: u64| format!("2027-01-15T08:{:02}:00Z", seconds / 60 % 60);
    let now = Now {
        env: facts.env.as_ref(),
        running: facts.running,
        panic: Some("Kernel panic - not syncing: \x1b[1m"),
        utc,
    };
    let history = facts.history.as_ref().unwrap();
    let disk = DiskIdentity { path: "/dev/sda".into(), kind: DiskKind::Disk, model: None, serial: None, wwid: None };
    let lost = history.lost(facts.env.as_ref());
    HistoryReport { disk, kept: true, entries: HistoryEntry::all(history, now), lost, columns: None }
}

#[test]
fn texts() {
    let facts = disk(SlotState::Tried, Verb::Upgrade);
    let by = |by: &str| Some(by.to_owned());
    let reason =
        "health check failed: the API server at 10.0.0.1:6443 does not answer since 10 minutes, and nobody knows why";
    let end = |how| Some(TrialEnd { slot: Slot::B, version: Some("1.1.0".into()), how, panic: None });
    let entries = [
        Entry {
            slot: Some(Slot::A),
            version: Some("1.0.0".into()),
            by: by("image"),
            ..Entry::new(1, 60, Verb::Install)
        },
        Entry {
            slot: Some(Slot::B),
            version: Some("1.1.0".into()),
            by: by("root, from machined"),
            after: Some(1),
            ..Entry::new(2, 120, Verb::Upgrade)
        },
        Entry {
            slot: Some(Slot::A),
            by: by("root, login somebody-with-a-long-name, from health-agent"),
            reason: Some(reason.into()),
            ended: end(Ending::GivenUp),
            after: Some(2),
            ..Entry::new(3, 180, Verb::Rollback)
        },
        Entry {
            volumes: vec![Part::State, Part::Ephemeral],
            done: true,
            after: Some(3),
            ..Entry::new(5, 240, Verb::Wipe)
        },
        Entry {
            slot: Some(Slot::B),
            version: Some("1.2.0\n".into()),
            after: Some(3),
            ..Entry::new(6, 300, Verb::Upgrade)
        },
        Entry { slot: Some(Slot::B), version: Some("1.3.0".into()), after: Some(6), ..Entry::new(7, 360, Verb::Stage) },
    ];
    let env = BootEnv { history: Some(6), ..facts.env.clone().unwrap() };
    let facts = with_env(SystemFacts { history: Some(ring(&entries)), ..facts }, env.clone());
    let at = |columns| HistoryReport { columns: Some(columns), ..report(&facts) }.to_string();
    assert_golden("tests/golden/history.txt", &format!("{}\n\n{}\n", at(80), at(40)));
    assert_eq!(report(&facts).to_string(), at(80), "where nobody looks at a width");
    for columns in [80, 66, 40] {
        let text = at(columns);
        let long = text.lines().filter(|line| line.chars().count() > columns.into());
        assert_eq!(long.collect::<Vec<_>>(), Vec::<&str>::new(), "at {columns}");
    }
    // It runs, or boot.env is lost: no end is known, and of the newest entry not whether it is true.
    let running = SystemFacts { running: Running::This { slot: Slot::B, trial: true }, ..facts.clone() };
    assert_eq!(report(&running).entries[1].trial, None);
    let lost = SystemFacts { env: None, ..facts };
    let effects: Vec<_> = report(&lost).entries.iter().map(|entry| entry.took_effect).collect();
    assert_eq!(effects, [None, Some(true), Some(true), Some(true), Some(true), Some(true)]);
}
