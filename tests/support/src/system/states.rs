//! Installed disks in the states that people meet, as probing would find them.

use slipway_core::{
    boot::{
        env::{BootEnv, BootFailure, Fault, Marker},
        rule::next_boot,
        running::Running,
        slot::{PerSlot, Slot, SlotState},
    },
    plan::SystemFacts,
    units::SectorSize,
};

use super::{blank, installed, payload, random::view, slot};

/// 2026-01-31 12:00 UTC.
const NOW: u64 = 1_769_860_800;

/// Another boot state, and what boots by it.
pub fn with_env(mut facts: SystemFacts, edit: impl FnOnce(BootEnv) -> BootEnv) -> SystemFacts {
    let env = edit(facts.env.unwrap());
    facts.env_copies = [Some(env.clone()), Some(env.clone())];
    facts.env = Some(env);
    settled(facts)
}

/// The slot that boots next, by the boot rule.
pub fn settled(mut facts: SystemFacts) -> SystemFacts {
    let views = PerSlot::new(|slot| view(&facts, slot));
    facts.next = next_boot(facts.env.as_ref(), &views);
    facts
}

/// 1.0.0 in slot A, which runs.
pub fn healthy() -> SystemFacts {
    with_env(installed(SectorSize::S512), |_| BootEnv::installed(NOW))
}

/// And 1.1.0 in slot B, not activated.
pub fn staged() -> SystemFacts {
    let mut facts = healthy();
    facts.slots.b = slot(&facts.gpt, Slot::B, &payload(1), Some(Marker { state: SlotState::Untried, seq: 1 }));
    with_env(facts, |env| env.deactivated(Slot::B, NOW).staged(Slot::B, NOW))
}

/// The next boot tries it.
pub fn pending() -> SystemFacts {
    with_env(staged(), |env| env.armed(Slot::B, NOW))
}

/// It was tried, and the old system runs again. GRUB has changed the state.
pub fn tried() -> SystemFacts {
    with_env(pending(), |env| BootEnv { once: None, states: PerSlot { b: SlotState::Tried, ..env.states }, ..env })
}

/// It was rolled back before it was tried.
pub fn cancelled() -> SystemFacts {
    with_env(pending(), |env| env.disarmed())
}

/// The next upgrade was interrupted while it wrote to slot B.
pub fn interrupted() -> SystemFacts {
    let facts = tried();
    let slots = PerSlot { b: blank(), ..facts.slots.clone() };
    with_env(SystemFacts { slots, ..facts }, |env| env.deactivated(Slot::B, NOW))
}

/// GRUB was to start this slot, and found this.
pub fn refused(facts: SystemFacts, slot: Slot, fault: Fault) -> SystemFacts {
    with_env(facts, |env| BootEnv { refused: Some(BootFailure { slot, fault }), ..env })
}

/// It is being tried.
pub fn on_trial() -> SystemFacts {
    SystemFacts { running: Running::This { slot: Slot::B, trial: true }, ..tried() }
}

/// It was confirmed and runs.
pub fn confirmed() -> SystemFacts {
    let mut facts = with_env(on_trial(), |env| env.confirmed(Slot::B, &[], NOW));
    let seq = facts.env.as_ref().map_or(0, |env| env.seq);
    facts.slots.b.marker = Some(Marker { state: SlotState::Good, seq });
    facts
}

/// The kernel of a slot is damaged.
pub fn damaged(mut facts: SystemFacts, slot: Slot) -> SystemFacts {
    let what = "vmlinuz: damaged: its SHA-256 is not the one listed".to_owned();
    (facts.slots[slot].boot_problem, facts.slots[slot].verifies) = (Some(what), false);
    settled(facts)
}

/// Both copies of the boot state are lost.
pub fn without_boot_state(facts: SystemFacts) -> SystemFacts {
    settled(SystemFacts { env: None, env_copies: [None, None], ..facts })
}

/// Seen from a rescue system.
pub fn from_outside(facts: SystemFacts) -> SystemFacts {
    SystemFacts { running: Running::Unknown, ..facts }
}
