//! Foreign partitions that lie on bytes of ours, and partitions of ours that lie elsewhere than the table says: a write there
//! is refused.

use crate::prelude::*;

use super::{Goal, GptFacts, Plan, Refusal, Refusals, Step, facts::Intruder};
use crate::{disk::layout::Part, units::Extent};

/// Refuses a plan that writes to a partition of ours on which a foreign one lies, or that lies elsewhere.
///
/// The ways back write single sectors that hold blocks of ours already. They go on, without the steps that only tidy
/// up.
pub fn beside_others(mut plan: Plan, gpt: &GptFacts) -> Result<Plan, Refusals> {
    let is_way_back = matches!(plan.goal, Goal::Confirm | Goal::Rollback | Goal::Repair);
    let is_ours = |step: &Step| matches!(step, Step::WriteBootEnv { .. } | Step::WriteMarker { .. });
    if !is_way_back && let Some((_, why)) = misplaced(&plan, gpt) {
        return Err(Refusal::Misplaced(why.clone()).into());
    }
    let mut steps = core::mem::take(&mut plan.steps);
    if is_way_back {
        steps.retain(|step| is_ours(step) || !plan.is_optional(step) || met(step, gpt).is_none());
    }
    let mut overwritten: Vec<&Intruder> =
        steps.iter().filter(|step| !(is_way_back && is_ours(step))).filter_map(|step| met(step, gpt)).collect();
    overwritten.dedup();
    if !overwritten.is_empty() {
        return Err(Refusals(overwritten.into_iter().cloned().map(Refusal::Intruder).collect()));
    }
    plan.steps = steps;
    Ok(plan)
}

fn misplaced<'f>(plan: &Plan, gpt: &'f GptFacts) -> Option<&'f (Part, String)> {
    let writes: Vec<Extent> = plan.steps.iter().flat_map(Step::writes).collect();
    gpt.misplaced.iter().find(|(part, _)| writes.iter().any(|write| write.meets(gpt.part(*part))))
}

fn met<'f>(step: &Step, gpt: &'f GptFacts) -> Option<&'f Intruder> {
    let writes = step.writes();
    let meets = |intruder: &&Intruder| writes.iter().any(|write| write.meets(gpt.part(intruder.on)));
    gpt.intruders.iter().find(meets)
}
