//! Volumes of the OS made anew: blank at once, so that a cut leaves no half of a file system, then formatted.

use super::{
    Ask, Goal, Held, Plan, Refusals, SystemFacts,
    slots::{Wipe, forget_cached},
};
use crate::model::layout::Part;

/// What was asked for.
#[derive(Clone, Debug)]
pub struct WipeRequest {
    /// Disk and time.
    pub ask: Ask,
    /// Which volumes: STATE, EPHEMERAL.
    pub parts: Vec<Part>,
    /// Make XFS file systems on them, if they are not encrypted.
    pub format: bool,
}

/// Decide.
pub fn wipe(request: &WipeRequest, system: &SystemFacts) -> Result<Plan, Refusals> {
    let wipes = request.parts.iter().map(|part| {
        // Its successor is the OS' own affair, which has the key.
        Wipe::of(system, *part, request.format && system.held(*part) != Held::Luks)
    });
    let mut plan = Plan {
        goal: Goal::Wipe,
        disk: request.ask.disk.clone(),
        system: None,
        table: None,
        meta: Default::default(),
        meta_legacy: None,
        warnings: vec![],
        result: format!("wiped: {}", request.parts.iter().map(|p| p.name()).collect::<Vec<_>>().join(", ")),
        meanwhile: "volumes may be blank or incomplete; the system boots; run the same command again".to_owned(),
        steps: vec![],
    };
    let mut steps = Vec::new();
    for wipe in wipes {
        plan.steps.extend(wipe.prepare);
        steps.extend(wipe.steps);
        plan.warnings.extend(wipe.warnings);
    }
    plan.steps.extend(steps);
    plan.steps.extend(forget_cached(system, &request.parts));
    Ok(plan)
}
