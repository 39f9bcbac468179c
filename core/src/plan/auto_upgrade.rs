//! Decision of a machine that upgrades itself, from facts alone: whether to upgrade, and whether to reboot.

use serde::{Deserialize, Serialize};

use super::{Plan, Refusal, Refusals, SystemFacts};
use crate::{
    boot::{
        running::Running,
        slot::{Slot, SlotState},
    },
    config::update::RebootPolicy,
    digest::Sha256,
};

/// The next action on the way to the image that the registry has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(tag = "next", rename_all = "kebab-case")]
pub enum Advance {
    /// Nothing: this slot runs as a trial, and is not confirmed yet.
    Unconfirmed {
        /// The slot.
        slot: Slot,
    },
    /// Nothing: only the reboot was asked for, and no slot waits for one.
    NothingWaits,
    /// Ask the registry which image its tag names.
    Ask,
    /// Nothing: this slot runs, and is what the registry has.
    UpToDate {
        /// The slot.
        slot: Slot,
    },
    /// The reboot: this slot holds what the registry has, and the next boot tries it.
    Reboot {
        /// The slot.
        slot: Slot,
    },
    /// Nothing: what the registry has was tried on this disk and given up.
    KnownBad,
    /// The upgrade.
    Upgrade,
}

/// The next step for the digest of the image that the registry has, once that was asked.
pub fn advance(system: &SystemFacts, registry: Option<Sha256>) -> Advance {
    let (Running::This { slot, trial }, Some(env)) = (system.running, &system.env) else {
        // The upgrade itself says why it is refused.
        return if registry.is_some() { Advance::Upgrade } else { Advance::Ask };
    };
    // A confirmed trial is good, though its command line stays.
    if trial && env.states[slot] != SlotState::Good {
        return Advance::Unconfirmed { slot };
    }
    let Some(registry) = registry else { return Advance::Ask };
    let holds = |slot: Slot| system.slots[slot].manifest.as_ref().and_then(|m| m.image) == Some(registry);
    match env.once {
        Some(next) if next != slot && holds(next) => Advance::Reboot { slot: next },
        // A trial of something else is pending: the upgrade cancels it.
        Some(_) => Advance::Upgrade,
        None if holds(slot) => Advance::UpToDate { slot },
        None if holds(!slot) && env.came_back(!slot) => Advance::KnownBad,
        None => Advance::Upgrade,
    }
}

/// The next step once the payload was looked at: another digest may name the same one. `planned` is the upgrade's plan
/// if both slots are undamaged on the disk.
pub fn advance_with(system: &SystemFacts, planned: Result<Plan, Refusals>) -> Result<Advance, Refusals> {
    match planned {
        Err(Refusals(all)) if all.iter().any(|refusal| matches!(refusal, Refusal::KnownBad { .. })) => {
            Ok(Advance::KnownBad)
        }
        Err(refusals) => Err(refusals),
        Ok(plan) if plan.steps.is_empty() => {
            let pending = pending(system).map(|slot| Advance::Reboot { slot });
            let running = system.running.slot().map(|slot| Advance::UpToDate { slot });
            Ok(pending.or(running).unwrap_or(Advance::Upgrade))
        }
        Ok(_) => Ok(Advance::Upgrade),
    }
}

/// The slot that waits for a reboot to be tried.
pub fn pending(system: &SystemFacts) -> Option<Slot> {
    system.env.as_ref()?.once.filter(|slot| system.running.slot() == Some(!*slot))
}

/// Whether to reboot into the slot that waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Reboot {
    /// No: another program does.
    Never,
    /// Not yet: no window is open.
    WaitsForWindow,
    /// Not yet: a program or a user holds it back.
    HeldBack,
    /// Now.
    Now,
}

/// Whether to reboot. Reasons that do not count under this policy are not looked at.
pub const fn reboot(policy: RebootPolicy, window_is_open: bool, held_back: bool) -> Reboot {
    match (policy, window_is_open, held_back) {
        (RebootPolicy::Never, ..) => Reboot::Never,
        (RebootPolicy::Window, false, _) => Reboot::WaitsForWindow,
        (RebootPolicy::Window | RebootPolicy::Now, _, true) => Reboot::HeldBack,
        (RebootPolicy::Window | RebootPolicy::Now, _, false) => Reboot::Now,
    }
}
