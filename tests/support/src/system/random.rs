//! Disks, boot states and requests drawn at random: also those that nothing leads to.

use std::collections::BTreeMap;

use proptest::prelude::*;
use slipway_core::{
    boot::{
        env::{BootEnv, BootFailure, Fault, Marker},
        rule::{SlotView, next_boot},
        running::Running,
        slot::{PerSlot, Slot, SlotState},
    },
    disk::{
        layout::Part,
        meta::{ADV_BYTES, Adv, Meta},
    },
    media::medium_id::MediumId,
    plan::{
        self, ActivateRequest, Exceptions, Plan, Refusals, RunsFrom, SystemFacts, UpgradeRequest, VolumeHolds,
        WipeRequest,
    },
    units::SectorSize,
};

use super::{activate_request, base, blank, installed, payload};

/// The medium of an upgrade from a live system.
pub const MEDIUM: MediumId = MediumId(0x5eed);
const STATES: [SlotState; 5] =
    [SlotState::Empty, SlotState::Untried, SlotState::Tried, SlotState::Good, SlotState::Bad];

/// The random state of one slot.
#[derive(Clone, Debug)]
struct RandomSlot {
    /// Payload in it; 3 for no file system.
    payload: u8,
    marker: Option<(bool, u64)>,
    /// 0 not looked at, 1 whole, 2 squashfs damaged, 3 kernel damaged.
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
        usual in 0u8..4,
        bad in prop::collection::vec(0u8..3, 0..3),
        format_ephemeral: bool,
        medium in 0u8..3,
        (mark, written, tried) in (0u8..8, any::<bool>(), 0u8..3),
        no_menu: bool,
    ) -> BootEnv {
        let default = if default_b { Slot::B } else { Slot::A };
        let mut env = BootEnv { seq, default, format_ephemeral, no_menu, ..BootEnv::installed(0) };
        env.once = armed.then_some(!default);
        env.medium = [None, Some(MEDIUM), Some(MediumId(1))][usize::from(medium)];
        env.states = PerSlot { a: STATES[a], b: STATES[b] };
        env.since[!default] = written.then_some(1);
        env.last_trial = [None, Some(default), Some(!default)][usize::from(tried)];
        let fault = if mark % 2 == 0 { Fault::Digest } else { Fault::Load };
        let slot = if mark < 2 { default } else { !default };
        env.refused = (mark < 4).then_some(BootFailure { slot, fault });
        // Most boot states are such as the installer makes.
        if usual > 0 {
            env.states[default] = SlotState::Good;
            env.states[!default] = if armed { SlotState::Untried } else { env.states[!default] };
        }
        // Some as earlier versions wrote it.
        let held = |n| super::slot(&super::gpt(SectorSize::S512), Slot::A, &payload(n), None);
        bad.into_iter().for_each(|n| env.remember_bad(if n % 2 == 0 { held(n).system() } else { held(n).payload() }));
        env
    }
}

prop_compose! {
    /// A disk, and what runs.
    pub fn random_system()(
        env in random_env(),
        older in random_env(),
        copies in 0u8..6,
        running_b: bool,
        running_trial: bool,
        known in 0u8..10,
        slots in (random_slot(), random_slot()),
        meta in 0u8..4,
        held in 0u8..4,
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
        let held = [VolumeHolds::Xfs, VolumeHolds::Luks, VolumeHolds::Other, VolumeHolds::Blank][usize::from(held)];
        facts.data = BTreeMap::from([(Part::State, held), (Part::Ephemeral, held)]);
        facts
    }
}

/// The state in which the boot rule finds a slot.
pub fn view(facts: &SystemFacts, slot: Slot) -> SlotView {
    SlotView { verifies: facts.slots[slot].verifies, marker: facts.slots[slot].marker.clone() }
}

fn slot_facts(facts: &SystemFacts, slot: Slot, random: &RandomSlot) -> plan::SlotFacts {
    if random.payload == 3 {
        return blank();
    }
    let state = |good| if good { SlotState::Good } else { SlotState::Untried };
    let marker = random.marker.map(|(good, seq)| Marker { state: state(good), seq });
    let mut found = super::slot(&facts.gpt, slot, &payload(random.payload), marker);
    match random.damage {
        1 => found.whole = Some(Ok(())),
        2 => found.whole = Some(Err("rootfs.squashfs: damaged".to_owned())),
        3 => {
            (found.boot_problem, found.verifies) = (Some("vmlinuz: damaged".to_owned()), false);
            found.whole = Some(Err("vmlinuz: damaged".to_owned()));
        }
        _ => {}
    }
    found
}

/// A random request: its verb and its flags.
pub fn decide(verb: u8, flags: [bool; 4], n: u8, facts: &SystemFacts) -> Result<Plan, Refusals> {
    let [preserve, retry_bad, allow_any_version, blank_ephemeral] = flags;
    let request = UpgradeRequest {
        activate: verb == 0,
        preserve: preserve || verb == 1,
        blank_ephemeral,
        exceptions: Exceptions { retry_bad, allow_any_version, allow_older: false },
        allow_unsigned: false,
        base: base(100),
        ..super::upgrade()
    };
    match verb {
        0 | 1 => plan::upgrade(&request, facts, &payload(n)),
        2 => plan::activate(&ActivateRequest { preserve, ..activate_request(100, RunsFrom::Inside) }, facts),
        3 => plan::confirm(&base(100), facts),
        4 => plan::rollback(&base(100), facts),
        6 => {
            let request =
                UpgradeRequest { runs_from: RunsFrom::Medium(Some(MEDIUM)), activate: true, preserve: true, ..request };
            plan::upgrade(&request, facts, &payload(n))
        }
        7 | 8 => {
            let request = UpgradeRequest { runs_from: RunsFrom::Offline, activate: verb == 7, ..request };
            plan::upgrade(&UpgradeRequest { preserve: preserve || verb == 8, ..request }, facts, &payload(n))
        }
        9 => plan::activate(&ActivateRequest { preserve, ..activate_request(100, RunsFrom::Offline) }, facts),
        10 => plan::rollback_offline(&base(100), facts),
        11 => plan::repair(&base(100), facts, None, false),
        _ => plan::wipe(&WipeRequest { base: base(100), parts: vec![Part::Ephemeral], format: None }, facts),
    }
}
