//! The second half of an upgrade: the staged system is tried at the next boot. Its order is argued at the head of
//! `src/plan/upgrade.rs`.

use super::{
    Ask, Goal, Plan, Refusal, Refusals, SystemFacts,
    meta::MetaChange,
    slots::{Activation, Slots, forget_cached},
};
use crate::model::slot::SlotState;

/// What was asked for.
#[derive(Clone, Debug)]
pub struct ActivateRequest {
    /// Disk and time.
    pub ask: Ask,
    /// Keep EPHEMERAL.
    pub preserve: bool,
}

/// Decide.
pub fn activate(request: &ActivateRequest, system: &SystemFacts) -> Result<Plan, Refusals> {
    let mut slots = Slots::of(system, request.ask.now)?;
    let (target, env) = (slots.target, slots.copies.env.clone());
    if env.states[target] != SlotState::Trial || env.default == target {
        return Err(Refusal::NotStaged { slot: target, state: env.states[target] }.into());
    }
    if let Some(why) = system.slots[target].damage() {
        return Err(Refusal::NotWhole { slot: target, why: why.to_owned() }.into());
    }
    let armed = env.once == Some(target);
    let mut plan = Plan {
        goal: Goal::Activate,
        disk: request.ask.disk.clone(),
        system: None,
        table: None,
        meta: MetaChange::default().tags,
        meta_legacy: None,
        warnings: vec![],
        result: format!("the next boot tries slot {target}, {}, once", system.slots[target].version()),
        meanwhile: format!("slot {} still boots; run the same command again", slots.running),
        steps: vec![],
    };
    if armed && request.preserve {
        return Ok(plan);
    }
    let first = if armed { slots.copies.write(&env.disarmed(), false) } else { vec![] };
    let Activation { meta, prepare, steps, touched, warnings } =
        slots.activation(&request.ask, system, &[], request.preserve)?;
    plan.steps = [prepare, first, steps, forget_cached(system, &touched)].concat();
    (plan.meta, plan.meta_legacy, plan.warnings) = (meta.tags, meta.legacy, warnings);
    Ok(plan)
}
