//! Rollback: back to the other slot, for good. One sector of boot.env is the commit.

use super::{
    Ask, Goal, Plan, Refusal, Refusals, SystemFacts,
    slots::{EnvCopies, forget_cached, forget_label, mark_good},
};
use crate::model::{
    bootenv::BootEnv,
    layout::Part,
    running::Running,
    slot::{Slot, SlotState},
};

/// Decide. A trial that is pending is cancelled; a trial that runs is given up; else the other slot becomes the
/// default.
pub fn rollback(ask: &Ask, system: &SystemFacts) -> Result<Plan, Refusals> {
    let mut copies = EnvCopies::of(system, ask.now)?;
    let env = copies.env.clone();
    let back = Back::of(&env, system)?;
    let version = |slot: Slot| system.slots[slot].version();
    let default = env.default;
    let (next, result) = match back {
        Back::Cancel(slot) => {
            (Some(env.disarmed()), format!("slot {slot} is not tried; slot {default}, {}, boots", version(default)))
        }
        Back::GiveUp(slot) => (
            Some(env.given_up(slot, system.slots[slot].payload(), ask.now)),
            format!("the trial of slot {slot} is given up; slot {default}, {}, boots next", version(default)),
        ),
        Back::To(slot) => {
            // A slot that was damaged on the disk says nothing against its payload.
            let left = system.slots[default].payload().filter(|_| system.slots[default].damage().is_none());
            let next = env.rolled_back(slot, left);
            (Some(next), format!("slot {slot}, {}, is the default and boots next", version(slot)))
        }
        Back::Already => (None, format!("slot {default}, {}, boots next already", version(default))),
    };
    let (mut steps, mut touched) = (Vec::new(), Vec::new());
    let mut meta = super::meta::MetaChange::default();
    if let Some(next) = next {
        steps.extend(copies.write(&next, true));
        touched.push(Part::Esp);
        if let Back::To(slot) = back {
            let marker = mark_good(system, slot, next.seq);
            touched.extend(marker.is_some().then_some(Part::from(slot)));
            steps.extend(marker);
        }
        meta = forget_label(system);
        touched.extend((!meta.steps.is_empty()).then_some(Part::Meta));
        steps.extend(std::mem::take(&mut meta.steps));
    }
    steps.extend(forget_cached(system, &touched));
    Ok(Plan {
        goal: Goal::Rollback,
        disk: ask.disk.clone(),
        system: None,
        table: None,
        meta: meta.tags,
        meta_legacy: meta.legacy,
        warnings: vec![],
        result,
        meanwhile: "the boot state is the old one; run the same command again".to_owned(),
        steps,
    })
}

/// What going back means.
enum Back {
    /// The trial of this slot, armed and not booted yet, is cancelled.
    Cancel(Slot),
    /// The trial of this slot, which runs, has failed.
    GiveUp(Slot),
    /// This slot becomes the default.
    To(Slot),
    /// The other slot boots next as it is.
    Already,
}

impl Back {
    fn of(env: &BootEnv, system: &SystemFacts) -> Result<Self, Refusal> {
        let whole = |slot: Slot| match system.slots[slot].damage() {
            Some(why) => Err(Refusal::NotWhole { slot, why: why.to_owned() }),
            None => Ok(()),
        };
        if let Some(slot) = env.once {
            return Ok(Back::Cancel(slot));
        }
        match system.running {
            Running::This { slot, trial: true } if env.states[slot] == SlotState::Tried => {
                whole(env.default).map(|()| Back::GiveUp(slot))
            }
            Running::This { slot, .. } if slot != env.default => Ok(Back::Already),
            _ => {
                let to = !env.default;
                match env.states[to] {
                    SlotState::Good => whole(to).map(|()| Back::To(to)),
                    state => Err(Refusal::NoWayBack { slot: to, state }),
                }
            }
        }
    }
}
