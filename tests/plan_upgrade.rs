//! The plans that change an installed disk: their text (golden files; `SLIPWAY_UPDATE_GOLDEN=1` rewrites them) and the
//! laws that hold for every request and every disk.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "tests")]

mod system;

use std::{collections::BTreeMap, fs, path::PathBuf};

use proptest::prelude::*;
use slipway::{
    model::{
        bootenv::{BootEnv, Marker},
        bootrule::{SlotView, next_boot},
        layout::Part,
        meta::{ADV_BYTES, Adv, Meta},
        running::Running,
        slot::{PerSlot, Slot, SlotState},
        units::SectorSize,
    },
    plan::{self, ActivateRequest, Goal, Held, Plan, Refusals, Step, SystemFacts, UpgradeRequest, WipeRequest},
};
use system::{ask, blank, installed, payload};

// ---------------------------------------------------------------------------------------------------
// Texts.

fn golden(name: &str, plan: &Plan) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    let text = format!("{plan}  then: {}\n  when it fails before its commit: {}\n", plan.result, plan.meanwhile);
    if std::env::var_os("SLIPWAY_UPDATE_GOLDEN").is_some() {
        fs::write(&path, &text).unwrap();
    }
    let expected = fs::read_to_string(&path).expect("golden file: SLIPWAY_UPDATE_GOLDEN=1 writes it");
    assert_eq!(text, expected, "{}", path.display());
}

/// Payload 1 staged in slot B.
fn staged() -> SystemFacts {
    let mut facts = installed(SectorSize::S512);
    let env = facts.env.unwrap().deactivated(Slot::B, 1).staged(Slot::B, 1);
    facts.slots.b = system::slot(&facts.label, Slot::B, &payload(1), Some(Marker { state: SlotState::Trial, seq: 1 }));
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
    let stage = UpgradeRequest { activate: false, ..request };
    golden("stage.txt", &plan::upgrade(&stage, &facts, &payload(1)).unwrap());
    let activate = ActivateRequest { ask: ask(3), preserve: true };
    golden("activate.txt", &plan::activate(&activate, &staged()).unwrap());
    golden("confirm.txt", &plan::confirm(&ask(3), &trial()).unwrap());
    golden("give-up.txt", &plan::rollback(&ask(3), &trial()).unwrap());
    let mut confirmed = trial();
    let env = confirmed.env.unwrap().confirmed(Slot::B, None, 3);
    confirmed.slots.b.marker = Some(Marker { state: SlotState::Good, seq: env.seq });
    confirmed.env_copies = [Some(env.clone()), Some(env.clone())];
    confirmed.env = Some(env);
    golden("rollback.txt", &plan::rollback(&ask(4), &confirmed).unwrap());
    let wipe = WipeRequest { ask: ask(3), parts: vec![Part::State, Part::Ephemeral], format: None };
    golden("wipe.txt", &plan::wipe(&wipe, &facts).unwrap());
}

// ---------------------------------------------------------------------------------------------------
// Laws.

const STATES: [SlotState; 5] = [SlotState::Empty, SlotState::Trial, SlotState::Tried, SlotState::Good, SlotState::Bad];

/// What is drawn at random of one slot.
#[derive(Clone, Debug)]
struct RandomSlot {
    /// Payload in it; 3 for no file system.
    payload: u8,
    marker: Option<(bool, u64)>,
    /// 0 nobody looked, 1 whole, 2 squashfs damaged, 3 kernel damaged.
    damage: u8,
}

fn random_slot() -> impl Strategy<Value = RandomSlot> {
    (0u8..4, prop::option::of((any::<bool>(), 0u64..9)), 0u8..4).prop_map(|(payload, marker, damage)| RandomSlot {
        payload,
        marker,
        damage,
    })
}

prop_compose! {
    fn random_env()(
        seq in prop_oneof![1u64..9, Just(999_999_998), Just(999_999_999)],
        default_b: bool,
        armed: bool,
        (a, b) in (0usize..5, 0usize..5),
        bad in prop::collection::vec(0u8..3, 0..3),
        format_ephemeral: bool,
    ) -> BootEnv {
        let default = if default_b { Slot::B } else { Slot::A };
        let mut env = BootEnv { seq, default, format_ephemeral, ..BootEnv::installed(0) };
        env.once = armed.then_some(!default);
        env.states = PerSlot { a: STATES[a], b: STATES[b] };
        bad.into_iter().for_each(|n| env.remember_bad(Some(payload(n).manifest().payload_digest())));
        env
    }
}

prop_compose! {
    fn random_system()(
        env in random_env(),
        older in random_env(),
        copies in 0u8..6,
        running_b: bool,
        running_trial: bool,
        known in 0u8..10,
        slots in (random_slot(), random_slot()),
        meta in 0u8..4,
        held in 0u8..3,
        sectors_4096: bool,
    ) -> SystemFacts {
        let mut facts = installed(if sectors_4096 { SectorSize::S4096 } else { SectorSize::S512 });
        let stale = BootEnv { seq: env.seq.min(older.seq).saturating_sub(1), ..older };
        let some = |e: &BootEnv| Some(e.clone());
        facts.env_copies = match copies {
            0 => [None, None],
            1 => [some(&env), None],
            2 => [None, some(&env)],
            3 => [some(&stale), some(&env)],
            4 => [some(&env), some(&stale)],
            _ => [some(&env), some(&env)],
        };
        facts.env = BootEnv::pick(&facts.env_copies).cloned();
        let slot = if running_b { Slot::B } else { Slot::A };
        facts.running = if known == 0 { Running::Unknown } else { Running::This { slot, trial: running_trial } };
        for (slot, random) in [(Slot::A, slots.0), (Slot::B, slots.1)] {
            facts.slots[slot] = slot_facts(&facts, slot, &random);
        }
        let mut adv = Adv::default();
        adv.set(6, b"B".to_vec()).unwrap();
        let good = [adv.encode(), adv.encode(), vec![0; ADV_BYTES * 2]].concat();
        facts.meta = match meta {
            0 => Meta { blank: true, ..Meta::decode(&[]) },
            1 => Meta::decode(&[7; 4 * ADV_BYTES]),
            2 => Meta::decode(&[vec![0; ADV_BYTES], adv.encode(), vec![0; ADV_BYTES * 2]].concat()),
            _ => Meta::decode(&good),
        };
        let views = PerSlot::new(|s| view(&facts, s));
        facts.next = next_boot(facts.env.as_ref(), &views);
        let held = [Held::Xfs, Held::Luks, Held::Other][usize::from(held)];
        facts.data = BTreeMap::from([(Part::State, held), (Part::Ephemeral, held)]);
        facts
    }
}

fn view(facts: &SystemFacts, slot: Slot) -> SlotView {
    SlotView { verifies: facts.slots[slot].verifies, marker: facts.slots[slot].marker.clone() }
}

fn slot_facts(facts: &SystemFacts, slot: Slot, random: &RandomSlot) -> plan::SlotFacts {
    if random.payload == 3 {
        return blank();
    }
    let state = |good| if good { SlotState::Good } else { SlotState::Trial };
    let marker = random.marker.map(|(good, seq)| Marker { state: state(good), seq });
    let mut found = system::slot(&facts.label, slot, &payload(random.payload), marker);
    match random.damage {
        1 => found.whole = Some(Ok(())),
        2 => found.whole = Some(Err("rootfs.squashfs: damaged".to_owned())),
        3 => {
            (found.boots, found.verifies) = (Some("vmlinuz: damaged".to_owned()), false);
            found.whole = Some(Err("vmlinuz: damaged".to_owned()));
        }
        _ => {}
    }
    found
}

/// What is drawn at random of a request: which verb, and its flags.
fn decide(verb: u8, flags: [bool; 3], n: u8, facts: &SystemFacts) -> Result<Plan, Refusals> {
    let [preserve, retry_bad, allow_any_version] = flags;
    let request = UpgradeRequest {
        activate: verb == 0,
        preserve: preserve || verb == 1,
        retry_bad,
        allow_any_version,
        ask: ask(100),
        ..system::upgrade()
    };
    match verb {
        0 | 1 => plan::upgrade(&request, facts, &payload(n)),
        2 => plan::activate(&ActivateRequest { ask: ask(100), preserve }, facts),
        3 => plan::confirm(&ask(100), facts),
        4 => plan::rollback(&ask(100), facts),
        _ => plan::wipe(&WipeRequest { ask: ask(100), parts: vec![Part::Ephemeral], format: None }, facts),
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
            assert!(other.writes().is_empty(), "{other:?} in a plan for {}", facts.label.disk_guid);
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

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn laws(facts in random_system(), verb in 0u8..6, flags: [bool; 3], n in 0u8..3) {
        let Ok(plan) = decide(verb, flags, n, &facts) else { return Ok(()) };
        prop_assert_eq!(&plan, &decide(verb, flags, n, &facts).unwrap(), "the same inputs give the same plan");
        let json = serde_json::to_string(&plan).unwrap();
        prop_assert_eq!(&serde_json::from_str::<Plan>(&json).unwrap(), &plan);
        for step in &plan.steps {
            let part = allowed(step, &facts);
            for extent in step.writes().iter().filter(|e| e.len > 0) {
                let part = part.unwrap();
                prop_assert!(facts.label.part(part).contains(*extent), "{:?} outside {}", step, part);
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
        prop_assert!(!wiped || verb == 5 || !flags[0]);
        prop_assert!(plan.steps.iter().all(|s| allowed(s, &facts) != Some(Part::State)));
        boot_state_laws(&plan, &facts)?;
        always_boots(&plan, &facts)?;
    }
}

/// The laws are about something: of the random requests every verb is planned, not only refused.
#[test]
fn every_verb_is_planned_for_the_usual_disk() {
    let goals = [(installed(SectorSize::S4096), 0, Goal::Upgrade), (installed(SectorSize::S512), 1, Goal::Stage)];
    for (facts, verb, goal) in goals {
        let plan = decide(verb, [true; 3], 1, &facts).unwrap();
        assert_eq!((plan.goal, plan.system.is_some()), (goal, true));
    }
    for (facts, verb, goal) in
        [(staged(), 2, Goal::Activate), (trial(), 3, Goal::Confirm), (trial(), 4, Goal::Rollback)]
    {
        let plan = decide(verb, [true; 3], 1, &facts).unwrap();
        assert_eq!((plan.goal, plan.steps.iter().any(Step::is_commit)), (goal, true));
    }
}

/// A plan is named by what it does to which disk: another payload, another boot state, other tags, another disk.
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
    assert_ne!(first, hash(&other, 1));
    let mut other = facts;
    other.label.disk_guid = uuid::Uuid::from_u128(99);
    assert_ne!(first, hash(&other, 1));
}
