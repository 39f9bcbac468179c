//! `bootloader update`: the boot loaders of an installed disk become those of the installer. See `renewal.rs` for the order.

use crate::prelude::*;

use super::{
    Goal, Plan, Refusal, Refusals, RequestBase, RunsFrom, SystemFacts,
    bootloader::{Left, RenewalRequest},
    slots::{Draft, Slots},
};

/// Plan it, or report the reason against it. While a trial runs or is to run, only the old loader is known to boot.
pub fn update_bootloader(
    base: &RequestBase,
    runs_from: RunsFrom,
    request: &RenewalRequest,
    system: &SystemFacts,
) -> Result<Plan, Refusals> {
    let slots = Slots::of(runs_from, system, base.now)?;
    if let Some(trial) = slots.copies.env.once {
        return Err(Refusal::from(Left::TrialPending(trial)).into());
    }
    let mut draft = Draft::new(base, system);
    let change = draft.renew(request).map_err(Refusal::from)?;
    let meanwhile = "the old boot loader starts, or the new one, and each is whole";
    Ok(draft.plan(Goal::Bootloader, change.to_string(), meanwhile.to_owned()))
}
