//! State of a disk after a plan failed: told from the facts found there then, not from the plan.

use crate::prelude::*;

use super::{Goal, Plan, Step, SystemFacts, VolumeHolds};
use crate::{boot::env::BootEnv, disk::layout::Part, report::Left};

/// The state, by the facts that were found after the failure. `before` is the boot state that the plan was made for.
pub fn state_after_failure(plan: &Plan, before: Option<&BootEnv>, now: &SystemFacts) -> Left {
    let envs: Vec<&BootEnv> = plan.steps.iter().filter_map(written).collect();
    let volumes = plan.steps.iter().filter_map(|step| match step {
        Step::Blank { part: part @ (Part::State | Part::Ephemeral), .. } => Some(*part),
        _ => None,
    });
    let mut volumes: Vec<Part> = volumes.collect();
    volumes.dedup();
    let volumes: String = volumes.iter().map(|part| format!("{part} {}, ", holds(now.held(*part)))).collect();
    let boots = format!("{volumes}{}", boots(now));
    match (envs.last(), &now.env) {
        (Some(last), Some(env)) if *last == env && plan.goal != Goal::Wipe => {
            Left::new(format!("the change is in force, {boots}"), "run the same command again for the steps after it")
        }
        (Some(_), env) if env.as_ref() != before && !envs.iter().any(|one| Some(*one) == env.as_ref()) => {
            let state =
                format!("another program has changed the boot state, or the disk returns something else: {boots}");
            Left::new(state, Left::STATUS)
        }
        (Some(_), _) => Left::new(format!("the change is not in force: {boots}"), Left::AGAIN),
        (None, _) => Left::new(boots, Left::AGAIN),
    }
}

fn written(step: &Step) -> Option<&BootEnv> {
    match step {
        Step::WriteBootEnv { env, .. } => Some(env),
        _ => None,
    }
}

/// The slot that the next boot starts, and the states of both.
fn boots(now: &SystemFacts) -> String {
    let next = match (now.next.slot, now.next.trial) {
        (Some(slot), true) => format!("slot {slot} is tried next"),
        (Some(slot), false) => format!("slot {slot} boots next"),
        (None, _) => "no slot boots".to_owned(),
    };
    let by = match &now.env {
        Some(env) => format!("A {}, B {}", env.states.a.plain(), env.states.b.plain()),
        None => "both copies of boot.env are lost".to_owned(),
    };
    format!("{next} ({by})")
}

const fn holds(held: VolumeHolds) -> &'static str {
    match held {
        VolumeHolds::Xfs => "begins like XFS",
        VolumeHolds::Luks => "begins like an encrypted volume",
        VolumeHolds::Blank => "is blank",
        VolumeHolds::Other => "is half made, holds something else, or cannot be read",
    }
}
