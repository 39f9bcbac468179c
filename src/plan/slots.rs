//! What the plans that change the boot state share: which slot runs, which one is the target, and how boot.env is
//! written.

use super::{Held, Refusal, Refusals, Step, SystemFacts, meta::MetaChange, step::ends};
use crate::model::{
    bootenv::{BootEnv, Marker},
    layout::Part,
    meta::Adv,
    running::Running,
    slot::{PerSlot, Slot, SlotState},
    units::{Extent, MIB},
};

/// META tag in which machined finds the label to return to.
const META_UPGRADE: u8 = 0x06;

/// What every request carries.
#[derive(Clone, Debug)]
pub struct Ask {
    /// The disk, for people.
    pub disk: String,
    /// Seconds since 1970 UTC.
    pub now: u64,
}

/// The boot state that counts, and where its copies lie.
pub struct EnvCopies {
    /// The state before the first write of the plan.
    pub env: BootEnv,
    at: [u64; 2],
    copies: [Option<BootEnv>; 2],
}

impl EnvCopies {
    /// As found. Where both copies are lost, and a slot of this disk runs that was not a trial, what can be rebuilt.
    pub fn of(system: &SystemFacts, now: u64) -> Result<Self, Refusal> {
        let [Some(first), Some(second)] = system.env_at else { return Err(Refusal::NoBootEnv) };
        let env = match (&system.env, system.running) {
            (Some(env), _) => env.clone(),
            (None, Running::This { slot, trial: false }) => {
                let marks = PerSlot::new(|s| system.slots[s].marker.clone().filter(|_| system.slots[s].verifies));
                BootEnv::rebuilt(slot, &marks, now)
            }
            (None, _) => return Err(Refusal::BootEnvLost),
        };
        Ok(EnvCopies { env, at: [first, second], copies: system.env_copies.clone() })
    }

    /// Write a new state to both copies, the one that counts last. `commit` marks what the plan is for.
    pub fn write(&mut self, env: &BootEnv, commit: bool) -> Vec<Step> {
        let mut steps = Vec::new();
        let mut committed = false;
        for n in BootEnv::write_order(&self.copies) {
            self.copies[n] = Some(env.clone());
            let in_force = BootEnv::pick(&self.copies) == Some(env);
            let commit = commit && in_force && !committed;
            committed |= in_force;
            steps.push(Step::WriteBootEnv { copy: n as u8 + 1, offset: self.at[n], env: env.clone(), commit });
        }
        self.env = env.clone();
        steps
    }
}

/// The running slot, which is the one to come back to, and the target, which is the other.
pub struct Slots {
    pub running: Slot,
    pub target: Slot,
    pub copies: EnvCopies,
}

impl Slots {
    /// Who is who, where an upgrade may take place at all.
    pub fn of(system: &SystemFacts, now: u64) -> Result<Self, Refusal> {
        let Running::This { slot: running, trial } = system.running else {
            return Err(Refusal::NotRunning(system.running));
        };
        let copies = EnvCopies::of(system, now)?;
        let (env, target) = (&copies.env, !running);
        let state = env.states[running];
        if trial && state != SlotState::Good {
            return Err(Refusal::Unconfirmed(running));
        }
        if env.default == target && system.slots[target].damage().is_none() {
            return Err(Refusal::NotDefault { running, default: target });
        }
        if env.default == target && state != SlotState::Good {
            return Err(Refusal::NotGood { slot: running, state });
        }
        Ok(Slots { running, target, copies })
    }

    /// The only way back must be whole before the other slot, if that boots, is written.
    pub fn way_back(&self, system: &SystemFacts) -> Result<Option<String>, Refusal> {
        let (running, other) = (&system.slots[self.running], &system.slots[self.target]);
        let other_boots = self.copies.env.states[self.target] == SlotState::Good && other.verifies;
        match running.damage() {
            None => Ok(None),
            Some(why) if other_boots => {
                Err(Refusal::OnlyWayBack { running: self.running, target: self.target, why: why.to_owned() })
            }
            Some(why) => Ok(Some(format!(
                "slot {}, which runs, is damaged on the disk ({why}): until slot {} is confirmed there is nothing to come \
                 back to",
                self.running, self.target
            ))),
        }
    }

    /// META, the wipe of EPHEMERAL if that is asked for, and the commit.
    pub fn activation(
        &mut self,
        ask: &Ask,
        system: &SystemFacts,
        tags: &[(u8, Vec<u8>)],
        preserve: bool,
    ) -> Result<Activation, Refusals> {
        let mut adv = adv_of(system)?;
        let label = [(META_UPGRADE, self.running.to_string().into_bytes())];
        for (tag, value) in tags.iter().chain(&label) {
            adv.set(*tag, value.clone()).map_err(|e| Refusals(vec![e.into()]))?;
        }
        let meta = MetaChange::new(system.label.part(Part::Meta), &system.meta, &adv, None);
        let wipe = if preserve {
            Wipe::default()
        } else {
            Wipe::of(system, Part::Ephemeral, system.held(Part::Ephemeral) == Held::Xfs)
        };
        let mut steps = meta.steps.clone();
        steps.extend(wipe.steps);
        let armed = self.copies.env.armed(self.target, ask.now);
        steps.extend(self.copies.write(&armed, true));
        let mut touched = vec![Part::Esp, Part::Meta];
        touched.extend((!preserve).then_some(Part::Ephemeral));
        let warnings = wipe.warnings;
        Ok(Activation { meta, prepare: wipe.prepare, steps, touched, warnings })
    }
}

/// The second half of an upgrade.
pub struct Activation {
    pub meta: MetaChange,
    /// To be done before anything is written.
    pub prepare: Vec<Step>,
    pub steps: Vec<Step>,
    /// Partitions that are written to.
    pub touched: Vec<Part>,
    pub warnings: Vec<String>,
}

/// Steps that make a volume of the OS anew.
#[derive(Default)]
pub struct Wipe {
    /// To be done before anything is written.
    pub prepare: Vec<Step>,
    pub steps: Vec<Step>,
    pub warnings: Vec<String>,
}

impl Wipe {
    /// First what makes the old content unrecognisable, so that a cut leaves a blank volume and not a damaged one.
    /// Blank again after the discard: not every device reads zeros then.
    pub fn of(system: &SystemFacts, part: Part, format: bool) -> Self {
        let extent = system.label.part(part);
        let (head, tail) = ends(extent);
        let blank = Step::Blank { part, head, tail };
        let mut wipe = Wipe { steps: vec![blank.clone(), Step::Discard { part, extent }, blank], ..Wipe::default() };
        if format {
            wipe.prepare.push(Step::PrepareXfs { part, extent, uuid: system.label.guid(part) });
            wipe.steps.push(Step::WriteXfs { part, extent });
        } else {
            wipe.warnings.push(format!("{part} is left blank: the OS makes its own file system there"));
        }
        wipe
    }
}

/// The first MiB of a slot zeroed: nothing of what it held is found any more, by GRUB or by us.
pub fn blank_slot(slot: Slot, extent: Extent) -> Step {
    let head = Extent { offset: extent.offset, len: MIB.min(extent.len) };
    Step::Blank { part: slot.into(), head, tail: Extent { offset: extent.end(), len: 0 } }
}

/// The marker of a slot that is good from now on. None where the slot has none that can be written.
pub fn mark_good(system: &SystemFacts, slot: Slot, seq: u64) -> Option<Step> {
    let offset = system.slots[slot].marker_at?;
    Some(Step::WriteMarker { slot, offset, marker: Marker { state: SlotState::Good, seq } })
}

/// META without the label to return to; nothing where there is none, or no META that can be read.
pub fn forget_label(system: &SystemFacts) -> MetaChange {
    let mut adv = system.meta.adv.clone();
    if system.meta.get(META_UPGRADE).is_none() || (system.meta.valid == [false, false] && !system.meta.blank) {
        return MetaChange::default();
    }
    let forget = if adv.remove(META_UPGRADE) { None } else { Some(META_UPGRADE) };
    MetaChange::new(system.label.part(Part::Meta), &system.meta, &adv, forget)
}

/// What the kernel is to forget of partitions that were written behind their nodes.
pub fn forget_cached(system: &SystemFacts, parts: &[Part]) -> Vec<Step> {
    parts.iter().map(|part| Step::ForgetCached { part: *part, extent: system.label.part(*part) }).collect()
}

/// The tags of META; refused where what is there is garbage and would be lost.
fn adv_of(system: &SystemFacts) -> Result<Adv, Refusals> {
    if system.meta.valid == [false, false] && !system.meta.blank {
        return Err(Refusals(vec![Refusal::MetaDamaged]));
    }
    Ok(system.meta.adv.clone())
}
