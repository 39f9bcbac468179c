//! The plans that change an installed disk: their text (golden files; `SLIPWAY_UPDATE_GOLDEN=1` rewrites them) and the
//! laws that hold for every request and every disk.

use proptest::prelude::*;
use slipway_core::{
    boot::{
        env::{BootEnv, BootFailure, Fault, Marker},
        rule::{SlotView, next_boot},
        running::Running,
        slot::{PerSlot, Slot, SlotState},
    },
    digest::Sha256,
    disk::{
        layout::Part,
        meta::{ADV_BYTES, Adv, Meta},
    },
    payload::{facts::PayloadFacts, manifest::Manifest, version::Version},
    plan::{self, Goal, Plan, RunsFrom, Step, SystemFacts, UpgradeRequest, WipeRequest},
    units::SectorSize,
};
use slipway_test_support::{
    assert_golden,
    system::{
        self, activate_request, base, installed, payload,
        random::{MEDIUM, decide, random_system, view},
    },
};

fn golden(name: &str, plan: &Plan) {
    let text = format!("{plan}  then: {}\n  when it fails before its commit: {}\n", plan.result, plan.meanwhile);
    assert_golden(&format!("tests/golden/{name}"), &text);
}

/// Payload 1 staged in slot B.
fn staged() -> SystemFacts {
    let mut facts = installed(SectorSize::S512);
    let env = facts.env.unwrap().deactivated(Slot::B, 1).staged(Slot::B, 1);
    facts.slots.b = system::slot(&facts.gpt, Slot::B, &payload(1), Some(Marker { state: SlotState::Untried, seq: 1 }));
    facts.env_copies = [Some(env.clone()), Some(env.clone())];
    facts.env = Some(env);
    facts
}

/// Its trial runs.
fn trial() -> SystemFacts {
    let mut facts = staged();
    let mut env = facts.env.unwrap().armed(Slot::B, 2);
    (env.once, env.states.b) = (None, SlotState::Tried);
    facts.env_copies = [Some(env.clone()), Some(env.clone())];
    facts.env = Some(env);
    let mut adv = Adv::default();
    adv.set(6, b"A".to_vec()).unwrap();
    facts.meta = Meta::decode(&[adv.encode(), adv.encode(), vec![0; ADV_BYTES * 2]].concat());
    facts.running = Running::This { slot: Slot::B, trial: true };
    facts
}

#[test]
fn texts() {
    let facts = installed(SectorSize::S512);
    let request = system::upgrade();
    golden("upgrade.txt", &plan::upgrade(&request, &facts, &payload(1)).unwrap());
    let forced = UpgradeRequest { preserve: false, ..request.clone() };
    golden("upgrade-not-preserved.txt", &plan::upgrade(&forced, &facts, &payload(1)).unwrap());
    let encrypted = UpgradeRequest { preserve: false, blank_ephemeral: true, ..request.clone() };
    golden("upgrade-encrypted.txt", &plan::upgrade(&encrypted, &facts, &payload(1)).unwrap());
    let live = SystemFacts { running: Running::Unknown, ..facts.clone() };
    let from_medium = UpgradeRequest { runs_from: RunsFrom::Medium(Some(MEDIUM)), ..request.clone() };
    golden("upgrade-from-medium.txt", &plan::upgrade(&from_medium, &live, &payload(1)).unwrap());
    let offline = UpgradeRequest { runs_from: RunsFrom::Offline, ..request.clone() };
    golden("upgrade-offline.txt", &plan::upgrade(&offline, &live, &payload(1)).unwrap());
    // Tags that the request names are named; the one that every upgrade sets is not.
    let tags = UpgradeRequest { meta: vec![(10, b"x".to_vec())], ..request.clone() };
    let text = plan::upgrade(&tags, &facts, &payload(1)).unwrap().to_string();
    assert!(text.contains("META, first copy, sets tag 0x0a\n"), "{text}");
    let stage = UpgradeRequest { activate: false, ..request };
    golden("stage.txt", &plan::upgrade(&stage, &facts, &payload(1)).unwrap());
    golden("activate.txt", &plan::activate(&activate_request(3, RunsFrom::Inside), &staged()).unwrap());
    golden("confirm.txt", &plan::confirm(&base(3), &trial()).unwrap());
    golden("give-up.txt", &plan::rollback(&base(3), &trial()).unwrap());
    let mut confirmed = trial();
    let env = confirmed.env.unwrap().confirmed(Slot::B, &[], 3);
    confirmed.slots.b.marker = Some(Marker { state: SlotState::Good, seq: env.seq });
    confirmed.env_copies = [Some(env.clone()), Some(env.clone())];
    confirmed.env = Some(env);
    golden("rollback.txt", &plan::rollback(&base(4), &confirmed).unwrap());
    confirmed.running = Running::Unknown;
    golden("rollback-offline.txt", &plan::rollback_offline(&base(4), &confirmed).unwrap());
    let wipe = WipeRequest { base: base(3), parts: vec![Part::State, Part::Ephemeral], format: None };
    golden("wipe.txt", &plan::wipe(&wipe, &facts).unwrap());
}

/// Slot B was tried with payload 1 and came back.
fn came_back() -> SystemFacts {
    let mut facts = staged();
    let mut env = facts.env.unwrap().armed(Slot::B, 2);
    (env.once, env.states[Slot::B]) = (None, SlotState::Tried);
    facts.env_copies = [Some(env.clone()), Some(env.clone())];
    facts.env = Some(env);
    facts
}

/// What failed was these files with this command line. A mended command line makes another system.
#[test]
fn a_mended_command_line_is_another_system() {
    let refused = |facts: &SystemFacts, args: &[&str], cmdline: &str| {
        let mut request = system::upgrade();
        request.args.extra = args.iter().map(|arg| (*arg).to_owned()).collect();
        let payload = PayloadFacts { cmdline: Some(cmdline.to_owned()), ..payload(1) };
        match plan::upgrade(&request, facts, &payload) {
            Ok(_) => false,
            Err(refusals) => {
                assert!(refusals.to_string().contains("--retry-bad"), "{refusals}");
                true
            }
        }
    };
    let facts = came_back();
    let cmdline = payload(1).cmdline.unwrap();
    assert!(refused(&facts, &[], &cmdline));
    assert!(!refused(&facts, &["quiet"], &cmdline), "another argument of the user");
    assert!(!refused(&facts, &[], "console=ttyS1"), "another cmdline in the payload");
    // It is remembered when something else takes its place.
    let mut later = facts.clone();
    let plan = plan::upgrade(&system::upgrade(), &facts, &payload(2)).unwrap();
    let env = plan.steps.iter().find_map(|step| match step {
        Step::WriteBootEnv { env, .. } => Some(env.clone()),
        _ => None,
    });
    let env = env.unwrap();
    assert_eq!(env.bad, [facts.slots.b.system().unwrap()]);
    later.slots.b = system::blank();
    later.env_copies = [Some(env.clone()), Some(env.clone())];
    later.env = Some(env.clone());
    assert!(refused(&later, &[], &cmdline) && !refused(&later, &["quiet"], &cmdline));
    // Once it works, it is forgotten.
    let mut works = came_back();
    works.running = Running::This { slot: Slot::B, trial: true };
    let bad = vec![works.slots.b.system().unwrap(), Sha256([9; 32])];
    let env = BootEnv { bad, ..works.env.unwrap() };
    works.env_copies = [Some(env.clone()), Some(env.clone())];
    works.env = Some(env);
    let plan = plan::confirm(&base(4), &works).unwrap();
    let said =
        plan.steps.iter().any(|step| matches!(step, Step::WriteBootEnv { env, .. } if env.bad == [Sha256([9; 32])]));
    assert!(said, "{plan}");
}

/// A wrong digest is damage on the disk, which the next upgrade mends. A kernel that does not load is the system's own.
#[test]
fn what_grub_refused_for_a_wrong_digest_may_come_again() {
    for (fault, bad) in [(Fault::Digest, false), (Fault::Load, true)] {
        for (slot, blamed) in [(Slot::B, bad), (Slot::A, true)] {
            let mut facts = came_back();
            let env = BootEnv { refused: Some(BootFailure { slot, fault }), ..facts.env.unwrap() };
            facts.env_copies = [Some(env.clone()), Some(env.clone())];
            facts.env = Some(env);
            let again = plan::upgrade(&system::upgrade(), &facts, &payload(1));
            assert_eq!(again.is_err(), blamed, "{slot} {fault:?}");
            let other = plan::upgrade(&system::upgrade(), &facts, &payload(2)).unwrap();
            for step in &other.steps {
                if let Step::WriteBootEnv { env, .. } = step {
                    assert_eq!(env.bad.len(), usize::from(blamed), "{slot} {fault:?}");
                    assert_eq!(env.fault(Slot::B), None);
                }
            }
        }
    }
}

/// The boot menu starts an unconfirmed slot just as the default is started. If boot.env is lost meanwhile, that
/// does not make it the slot to keep.
#[test]
fn what_was_booted_by_hand_is_not_taken_for_confirmed() {
    let mut facts = trial();
    facts.running = Running::This { slot: Slot::B, trial: false };
    (facts.env, facts.env_copies) = (None, [None, None]);
    let refused = plan::confirm(&base(4), &facts).unwrap_err().to_string();
    assert!(refused.contains("nothing says that it was ever confirmed"), "{refused}");
    assert!(plan::upgrade(&system::upgrade(), &facts, &payload(2)).is_err());
    let default_after = |plan: Plan| {
        let mut envs = plan.steps.into_iter().filter_map(|step| match step {
            Step::WriteBootEnv { env, .. } => Some(env.default),
            _ => None,
        });
        envs.next_back().unwrap()
    };
    assert_eq!(default_after(plan::rollback(&base(4), &facts).unwrap()), Slot::A);
    // It was confirmed; or nothing says what was.
    let marks = [(SlotState::Good, facts.slots.a.marker.clone()), (SlotState::Untried, None)];
    for (state, other) in marks {
        facts.slots.b.marker = Some(Marker { state, seq: 2 });
        facts.slots.a.marker = other;
        assert_eq!(default_after(plan::confirm(&base(4), &facts).unwrap()), Slot::B);
    }
}

/// Where a step may write.
fn allowed(step: &Step, facts: &SystemFacts) -> Option<Part> {
    match step {
        Step::WriteVolume { part, .. }
        | Step::Blank { part, .. }
        | Step::Discard { part, .. }
        | Step::WriteXfs { part, .. } => Some(*part),
        Step::WriteBootEnv { .. } => Some(Part::Esp),
        Step::WriteMarker { slot, .. } => Some(Part::from(*slot)),
        Step::WriteMetaCopy { .. } | Step::WriteMetaLegacy { .. } => Some(Part::Meta),
        other => {
            assert!(other.writes().is_empty(), "{other:?} in a plan for {}", facts.gpt.disk_guid);
            None
        }
    }
}

/// What boots is never lost: the boot rule finds a slot after every step, if it did before the first.
fn always_boots(plan: &Plan, facts: &SystemFacts) -> Result<(), TestCaseError> {
    let mut copies = facts.env_copies.clone();
    // What GRUB loads though its squashfs is damaged is nothing to keep.
    let mut views = PerSlot::new(|s| SlotView { verifies: facts.slots[s].damage().is_none(), ..view(facts, s) });
    let boots = |copies: &[Option<BootEnv>; 2], views: &PerSlot<SlotView>| {
        next_boot(BootEnv::pick(copies), views).slot.is_some()
    };
    if !boots(&copies, &views) {
        return Ok(());
    }
    for (n, step) in plan.steps.iter().enumerate() {
        match step {
            Step::WriteBootEnv { copy, env, .. } => copies[usize::from(*copy) - 1] = Some(env.clone()),
            Step::Blank { part, .. } | Step::WriteVolume { part, .. } => {
                for slot in Slot::BOTH.into_iter().filter(|s| Part::from(*s) == *part) {
                    views[slot] = SlotView::default();
                }
            }
            Step::Verify { part, .. } => {
                Slot::BOTH.into_iter().filter(|s| Part::from(*s) == *part).for_each(|s| views[s].verifies = true);
            }
            _ => {}
        }
        prop_assert!(boots(&copies, &views), "nothing boots after step {n} of {plan}");
    }
    Ok(())
}

fn boot_state_laws(plan: &Plan, facts: &SystemFacts) -> Result<(), TestCaseError> {
    let mut seq = facts.env.as_ref().map_or(0, |env| env.seq);
    let mut inactive = PerSlot { a: 0, b: 0 };
    let mut unverified = None;
    for (n, step) in plan.steps.iter().enumerate() {
        match step {
            Step::WriteBootEnv { env, .. } => {
                prop_assert_ne!(env.once, Some(env.default), "the default is never on trial");
                prop_assert!(env.seq >= seq, "sequence numbers only grow");
                prop_assert_eq!(BootEnv::parse(env.render().as_bytes()), Some(env.clone()));
                prop_assert!(unverified.is_none(), "what was written is verified before anything is said of it");
                seq = env.seq;
                Slot::BOTH.into_iter().for_each(|s| inactive[s] += u8::from(env.states[s] == SlotState::Empty));
                if env.once.is_some() && step.is_commit() {
                    let rest = &plan.steps[n + 1..];
                    let last = |s: &Step| matches!(s, Step::WriteBootEnv { env: e, .. } if e == env);
                    prop_assert!(rest.iter().all(|s| last(s) || s.writes().is_empty()), "a trial is armed last");
                }
            }
            Step::WriteVolume { part, .. } => {
                let target = Slot::BOTH.into_iter().find(|s| Part::from(*s) == *part).unwrap();
                prop_assert!(inactive[target] >= 2, "both copies of boot.env say that the target is empty");
                unverified = Some(*part);
            }
            Step::Verify { part, .. } => unverified = unverified.filter(|p| p != part),
            _ => {}
        }
    }
    prop_assert!(plan.steps.iter().filter(|s| s.is_commit()).count() <= 1);
    if plan.system.is_some() {
        prop_assert_eq!(plan.steps.iter().filter(|s| s.is_commit()).count(), 1);
    }
    Ok(())
}

/// What comes before the first write, what after the commit, and how far boot.env counts.
fn order_laws(plan: &Plan, facts: &SystemFacts) -> Result<(), TestCaseError> {
    let mut wrote = false;
    let mut committed = None;
    let mut last = facts.env.clone();
    for step in &plan.steps {
        wrote |= !step.writes().is_empty();
        prop_assert!(!wrote || !matches!(step, Step::PrepareXfs { .. }), "what can fail is tried first");
        if let Step::WriteBootEnv { env, .. } = step {
            let before = last.as_ref().map_or(0, |env| env.seq);
            let is_marked = |s: &Slot| facts.slots[*s].marker.as_ref().is_some_and(|m| env.seq.abs_diff(m.seq) <= 1);
            let counts = env.seq == (before + 1).min(999_999_999) || Slot::BOTH.iter().any(is_marked);
            // The other copy of what was written before, or a copy that is mended.
            let same = last.as_ref().is_none_or(|last| last == env);
            prop_assert!(same || counts, "seq {before}, then {}", env.seq);
            last = Some(env.clone());
        }
        let follows = match step {
            // The second copy, or that a wipe is over, which the next run would make good.
            Step::WriteBootEnv { env, .. } => {
                committed.as_ref().is_none_or(|c: &BootEnv| env.once.is_none() || env == c)
            }
            Step::WriteMarker { .. } | Step::WriteMetaCopy { .. } | Step::WriteMetaLegacy { .. } => true,
            // "Nothing new, and EPHEMERAL made anew": its commit is that no trial is pending.
            Step::Blank { part, .. } | Step::Discard { part, .. } | Step::WriteXfs { part, .. } => {
                *part == Part::Ephemeral && plan.system.is_none()
            }
            other => other.writes().is_empty(),
        };
        prop_assert!(committed.is_none() || follows, "{step:?} after the commit of {plan}");
        if let (Step::WriteBootEnv { env, .. }, true) = (step, step.is_commit()) {
            committed = Some(env.clone());
        }
    }
    Ok(())
}

/// What is written to a slot may be, and META names the slot to come back to as long as there is a trial.
fn payload_laws(
    plan: &Plan,
    facts: &SystemFacts,
    kept: Option<Slot>,
    flags: [bool; 4],
    n: u8,
) -> Result<(), TestCaseError> {
    let [_, retry_bad, allow_any_version, _] = flags;
    if let (Some(system), Some(kept)) = (&plan.system, kept) {
        prop_assert_eq!(system.slot, !kept);
        let held = Manifest { cmdline: Some(system.cmdline.clone()), ..payload(n).manifest() };
        let name = held.system_digest();
        prop_assert!(retry_bad || !facts.env.as_ref().is_some_and(|env| env.bad.contains(&name)));
        let version = facts.slots[kept].manifest.as_ref().and_then(|m| Version::parse(m.version.as_deref()?));
        let new = payload(n).version.as_deref().and_then(Version::parse);
        if let (Some(old), Some(new)) = (version, new) {
            prop_assert!(allow_any_version || old.may_become(new).is_ok());
        }
    }
    let label = plan.meta.get(&6).map(|value| String::from_utf8_lossy(value).into_owned());
    let meta = plan.steps.iter().any(|s| matches!(s, Step::WriteMetaCopy { .. }));
    match plan.goal {
        Goal::Confirm | Goal::Rollback => prop_assert_eq!(label, None),
        Goal::Upgrade | Goal::Activate if meta && plan.steps.iter().any(arms) => {
            prop_assert_eq!(label, kept.map(|slot| slot.to_string()));
        }
        _ => {}
    }
    Ok(())
}

/// Only an upgrade from a live system says that a medium has done its work, and says so in the sector that arms its trial;
/// the others keep what is said. It writes to no slot but the one that does not boot, unless no slot is to be written.
fn medium_laws(plan: &Plan, facts: &SystemFacts, from_medium: bool) -> Result<(), TestCaseError> {
    let before = facts.env.as_ref().and_then(|env| env.medium);
    for step in &plan.steps {
        if let Step::WriteBootEnv { env, .. } = step {
            let done = env.once.is_some() || plan.system.is_none();
            let expected = if from_medium && done { Some(MEDIUM) } else { before };
            prop_assert_eq!(env.medium, expected, "in {} of {}", plan.describe(step), plan);
        }
        if let (true, Step::WriteVolume { part, .. }) = (from_medium, step) {
            let env = facts.env.as_ref().unwrap();
            prop_assert_eq!(Part::from(!env.default), *part);
            let own = env.once.is_some() && before == Some(MEDIUM);
            prop_assert!(own || facts.next.slot == Some(env.default), "what boots is without a doubt");
        }
    }
    Ok(())
}

/// What is not settled is not upgraded, unless neither slot boots. Where a trial pends that is whole, only it is armed again.
fn offline_laws(plan: &Plan, facts: &SystemFacts, flags: [bool; 4]) -> Result<(), TestCaseError> {
    let env = facts.env.as_ref().unwrap();
    if plan.goal == Goal::Rollback {
        let last = plan.steps.iter().rev().find_map(|step| match step {
            Step::WriteBootEnv { env, .. } => Some(env),
            _ => None,
        });
        if let Some(after) = last {
            prop_assert_eq!(after.once, None);
            let default = &facts.slots[after.default];
            prop_assert!(default.damage().is_none(), "back to what is damaged: {}", plan);
            prop_assert!(after.default == env.default || after.states[after.default] == SlotState::Good);
        }
        return Ok(());
    }
    let is_whole = |slot: &Slot| facts.slots[*slot].damage().is_none();
    let is_good = |slot: Slot| env.states[slot] == SlotState::Good && is_whole(&slot);
    let none_is_lost = !is_good(!env.default) && (!is_whole(&env.default) || facts.next.slot.is_none());
    prop_assert!(is_good(env.default) || none_is_lost, "{}", plan);
    if let (Some(trial), true) = (env.once.filter(is_whole), flags[0]) {
        prop_assert!(plan.system.is_none(), "a pending trial is overwritten: {}", plan);
        let keeps = |step: &Step| !matches!(step, Step::WriteBootEnv { env, .. } if env.once != Some(trial));
        prop_assert!(plan.steps.iter().all(keeps), "a pending trial is cancelled: {}", plan);
    }
    Ok(())
}

fn arms(step: &Step) -> bool {
    matches!(step, Step::WriteBootEnv { env, .. } if env.once.is_some())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn laws(mut facts in random_system(), verb in 0u8..11, flags: [bool; 4], n in 0u8..3) {
        let (from_medium, offline) = (verb == 6, verb > 6);
        // A live system runs from no disk; a few times it is asked for from the disk itself.
        if (from_medium && !flags[0]) || (offline && n > 0) {
            facts.running = Running::Unknown;
        }
        let plan = match decide(verb, flags, n, &facts) {
            Ok(plan) => plan,
            Err(refusals) => {
                prop_assert!(matches!(refusals.kind().exit_code(), 2 | 4 | 7));
                prop_assert!(refusals.to_string().lines().count() > 1, "{refusals}");
                return Ok(());
            }
        };
        prop_assert_eq!(&plan, &decide(verb, flags, n, &facts).unwrap(), "the same inputs give the same plan");
        prop_assert!(!offline || facts.running.slot().is_none(), "a disk that runs is not offline");
        let json = serde_json::to_string(&plan).unwrap();
        prop_assert_eq!(&serde_json::from_str::<Plan>(&json).unwrap(), &plan);
        for step in &plan.steps {
            let part = allowed(step, &facts);
            for extent in &step.writes() {
                prop_assert!(extent.len > 0, "{:?} writes nothing, beside what may be mounted", step);
                let part = part.unwrap();
                prop_assert!(facts.gpt.part(part).contains(*extent), "{:?} outside {}", step, part);
                let bulk = !matches!(step, Step::WriteMarker { .. });
                let running = facts.running.slot().map(Part::from);
                prop_assert!(!bulk || Some(part) != running, "the running slot is never written");
                if let Some(env) = facts.env.as_ref().filter(|_| bulk) {
                    let default = &facts.slots[env.default];
                    let kept = Part::from(env.default) == part && default.damage().is_none();
                    prop_assert!(!kept, "a default that is whole is never written");
                }
            }
        }
        // Volumes of the OS are touched when asked for, and only then.
        let wiped = plan.steps.iter().any(|s| allowed(s, &facts) == Some(Part::Ephemeral));
        prop_assert!(!wiped || verb == 5 || (!flags[0] && !from_medium));
        let formatted = plan.steps.iter().any(|s| matches!(s, Step::WriteXfs { .. } | Step::PrepareXfs { .. }));
        prop_assert!(!(formatted && verb == 0 && flags[3]), "an encrypted EPHEMERAL is left blank");
        prop_assert!(plan.steps.iter().all(|s| allowed(s, &facts) != Some(Part::State)));
        boot_state_laws(&plan, &facts)?;
        order_laws(&plan, &facts)?;
        if offline {
            offline_laws(&plan, &facts, flags)?;
        }
        let kept = if from_medium || offline { facts.env.as_ref().map(|env| env.default) } else { facts.running.slot() };
        payload_laws(&plan, &facts, kept, flags, n)?;
        always_boots(&plan, &facts)?;
        medium_laws(&plan, &facts, from_medium)?;
    }
}

/// The laws are about something: of the random requests every verb is planned, not only refused.
#[test]
fn every_verb_is_planned_for_the_usual_disk() {
    let goals = [(installed(SectorSize::S4096), 0, Goal::Upgrade), (installed(SectorSize::S512), 1, Goal::Stage)];
    for (facts, verb, goal) in goals {
        let plan = decide(verb, [true; 4], 1, &facts).unwrap();
        assert_eq!((plan.goal, plan.system.is_some()), (goal, true));
    }
    let goals = [(staged(), 2, Goal::Activate), (trial(), 3, Goal::Confirm), (trial(), 4, Goal::Rollback)];
    for (facts, verb, goal) in goals {
        let plan = decide(verb, [true; 4], 1, &facts).unwrap();
        assert_eq!((plan.goal, plan.steps.iter().any(Step::is_commit)), (goal, true));
    }
}

/// A plan is named by what it does to which disk: another payload, another boot state, another disk; but not other words.
#[test]
fn hashes() {
    let facts = installed(SectorSize::S512);
    let hash = |facts: &SystemFacts, n| plan::upgrade(&system::upgrade(), facts, &payload(n)).unwrap().hash();
    let first = hash(&facts, 1);
    assert_eq!(first, hash(&facts, 1));
    assert_ne!(first, hash(&facts, 2));
    let mut other = facts.clone();
    let env = BootEnv { seq: 5, ..facts.env.clone().unwrap() };
    other.env_copies = [Some(env.clone()), Some(env.clone())];
    other.env = Some(env);
    assert_ne!(first, hash(&other, 1));
    let mut other = facts.clone();
    other.meta.adv.set(10, vec![1]).unwrap();
    assert_ne!(first, hash(&other, 1), "what is kept belongs to the plan");
    let mut reworded = plan::upgrade(&system::upgrade(), &facts, &payload(1)).unwrap();
    (reworded.result, reworded.meanwhile, reworded.warnings) = Default::default();
    assert_eq!(first, reworded.hash());
    let mut other = facts;
    other.gpt.disk_guid = uuid::Uuid::from_u128(99);
    assert_ne!(first, hash(&other, 1));
}
