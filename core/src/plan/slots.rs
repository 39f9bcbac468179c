//! What the plans that change the boot state share: which slot runs, which one is the target, how boot.env is written,
//! how a plan is put together.

use crate::prelude::*;

use super::{Goal, Plan, Refusal, Refusals, Step, SystemFacts, VolumeHolds, meta::MetaChange, step::ends};
use crate::{
    boot::{
        env::{BootEnv, Marker},
        running::Running,
        slot::{PerSlot, Slot, SlotState},
    },
    disk::{layout::Part, meta::Adv},
    media::medium_id::MediumId,
    units::{Extent, MIB},
};

/// META tag in which machined finds the label to return to.
const META_UPGRADE: u8 = 0x06;

/// What becomes of EPHEMERAL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ephemeral {
    /// It stays.
    Kept,
    /// It is made anew, as what it was.
    Anew,
    /// It is left blank.
    Blank,
}

/// Where the system runs that asks for an upgrade.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunsFrom {
    /// On this disk. The slot that runs is kept.
    Inside,
    /// In memory, started from a medium, which is to be known by the disk if it has a name. The slot that boots by default is
    /// kept.
    Medium(Option<MediumId>),
}

impl RunsFrom {
    /// The slot that is kept, as far as anybody knows.
    pub fn kept(self, system: &SystemFacts) -> Option<Slot> {
        match self {
            RunsFrom::Inside => system.running.slot(),
            RunsFrom::Medium(_) => system.env.as_ref().map(|env| env.default),
        }
    }

    const fn medium(self) -> Option<MediumId> {
        match self {
            RunsFrom::Inside => None,
            RunsFrom::Medium(id) => id,
        }
    }
}

/// What every request carries.
#[derive(Clone, Debug)]
pub struct RequestBase {
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
    /// As found. Where both copies are lost, and a slot of this disk runs that is whole and was not a trial, what can be rebuilt.
    pub fn of(system: &SystemFacts, now: u64) -> Result<Self, Refusal> {
        let [Some(first), Some(second)] = system.env_at else { return Err(Refusal::NoBootEnv) };
        let env = match (&system.env, system.running) {
            (Some(env), _) => env.clone(),
            (None, Running::This { slot, trial: false }) if system.slots[slot].damage().is_none() => {
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

    /// Write the state that counts to a copy that says anything else: what a cut between two copies left, or damage.
    pub fn heal(&mut self) -> Vec<Step> {
        let env = self.env.clone();
        let stale = |n: &usize| self.copies[*n].as_ref() != Some(&env);
        let steps = BootEnv::write_order(&self.copies).into_iter().filter(stale).map(|n| Step::WriteBootEnv {
            copy: n as u8 + 1,
            offset: self.at[n],
            env: env.clone(),
            commit: false,
        });
        let steps = steps.collect();
        self.copies = [Some(env.clone()), Some(env)];
        steps
    }
}

/// The slot that is kept, which is the one to come back to, and the target, which is the other.
pub struct Slots {
    pub kept: Slot,
    /// What it is, for people: `slot A, which runs`.
    pub name: String,
    pub target: Slot,
    pub copies: EnvCopies,
    /// The medium that is at work.
    medium: Option<MediumId>,
}

impl Slots {
    /// Who is who, where an upgrade may take place at all.
    pub fn of(origin: RunsFrom, system: &SystemFacts, now: u64) -> Result<Self, Refusal> {
        let (kept, what) = match origin {
            RunsFrom::Inside => (running(system, now)?, "runs"),
            RunsFrom::Medium(medium) => (default(system, medium)?, "boots by default"),
        };
        let (name, medium) = (format!("slot {kept}, which {what}"), origin.medium());
        Ok(Slots { kept, name, target: !kept, copies: EnvCopies::of(system, now)?, medium })
    }

    /// What there is to come back to while the target is written or not tried: the slot that is kept. If that is damaged on
    /// the disk, the target is left as it is where it is the only one that boots; else there is a warning.
    pub fn way_back(&self, system: &SystemFacts) -> Result<Option<String>, Refusal> {
        let (kept, target, env) = (self.kept, self.target, &self.copies.env);
        let boots =
            env.states[target] == SlotState::Good || env.once == Some(target) || system.next.slot == Some(target);
        match system.slots[kept].damage() {
            None => Ok(None),
            Some(why) if boots && system.slots[target].damage().is_none() => {
                Err(Refusal::OnlyWayBack { running: kept, target, why: why.to_owned() })
            }
            Some(why) => Ok(Some(format!(
                "{}, is damaged on the disk ({why}): until slot {target} is confirmed there is nothing to come back to",
                self.name
            ))),
        }
    }

    /// What the medium that is at work still has to say in boot.env, where the upgrade itself changes nothing there.
    pub fn unsaid(&self) -> Option<BootEnv> {
        let medium = self.medium.filter(|id| self.copies.env.medium != Some(*id))?;
        Some(self.copies.env.installed_by(medium))
    }

    /// META, the wipe of EPHEMERAL if that is asked for, and the commit.
    pub fn activation(
        &mut self,
        draft: &mut Draft,
        tags: &[(u8, Vec<u8>)],
        ephemeral: Ephemeral,
    ) -> Result<(), Refusals> {
        let label = [(META_UPGRADE, self.kept.to_string().into_bytes())];
        draft.set_meta(draft.meta_with(tags.iter().chain(&label))?);
        if ephemeral != Ephemeral::Kept {
            draft.wipe_ephemeral(&mut self.copies, ephemeral == Ephemeral::Blank);
        }
        let mut armed = self.copies.env.armed(self.target, draft.base.now);
        armed.format_ephemeral &= ephemeral == Ephemeral::Kept;
        armed.medium = self.medium.or(armed.medium);
        draft.extend(Part::Esp, self.copies.write(&armed, true));
        Ok(())
    }
}

/// The slot that runs, seen from inside.
fn running(system: &SystemFacts, now: u64) -> Result<Slot, Refusal> {
    let Running::This { slot: running, trial } = system.running else {
        return Err(Refusal::NotRunning(system.running));
    };
    let (env, target) = (EnvCopies::of(system, now)?.env, !running);
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
    Ok(running)
}

/// The slot that boots by default on a disk that nothing runs from. Only where there is one answer to what boots: nothing
/// is rebuilt from outside, and no trial is pending but this medium's own. (A try that is spent leaves one answer.)
fn default(system: &SystemFacts, medium: Option<MediumId>) -> Result<Slot, Refusal> {
    let unsettled = |why: String| Err(Refusal::Unsettled(why));
    if let Some(slot) = system.running.slot() {
        return unsettled(format!("slot {slot} of it runs"));
    }
    let Some(env) = &system.env else { return unsettled("both copies of boot.env are lost".to_owned()) };
    let (default, state) = (env.default, env.states[env.default]);
    if let Some(trial) = env.once.filter(|_| medium.is_none() || env.medium != medium) {
        return unsettled(format!("slot {trial} is to be tried at the next boot"));
    }
    if state != SlotState::Good {
        return unsettled(format!("slot {default} is the default, and {state}"));
    }
    if let Some(why) = system.slots[default].damage() {
        return unsettled(format!("slot {default}, the default, is damaged on the disk ({why})"));
    }
    Ok(default)
}

/// A plan being put together.
pub struct Draft<'a> {
    pub base: &'a RequestBase,
    pub system: &'a SystemFacts,
    /// To be done before anything is written.
    prepare: Vec<Step>,
    steps: Vec<Step>,
    /// Partitions that are written to.
    touched: Vec<Part>,
    meta: MetaChange,
    pub warnings: Vec<String>,
}

impl<'a> Draft<'a> {
    /// Nothing to do.
    pub fn new(base: &'a RequestBase, system: &'a SystemFacts) -> Self {
        let (prepare, steps, touched, warnings) = (vec![], vec![], vec![], vec![]);
        Draft { base, system, prepare, steps, touched, meta: MetaChange::default(), warnings }
    }

    /// Steps that write to a partition.
    pub fn extend(&mut self, part: Part, steps: impl IntoIterator<Item = Step>) {
        let before = self.steps.len();
        self.steps.extend(steps);
        if self.steps.len() > before && !self.touched.contains(&part) {
            self.touched.push(part);
        }
    }

    /// Change META.
    pub fn set_meta(&mut self, mut change: MetaChange) {
        self.extend(Part::Meta, core::mem::take(&mut change.steps));
        self.meta = change;
    }

    /// META with more tags; refused where what is there is garbage and would be lost.
    pub fn meta_with<'t>(&self, tags: impl Iterator<Item = &'t (u8, Vec<u8>)>) -> Result<MetaChange, Refusals> {
        let meta = &self.system.meta;
        if meta.valid == [false, false] && !meta.blank {
            return Err(Refusal::MetaDamaged.into());
        }
        let mut adv: Adv = meta.adv.clone();
        for (tag, value) in tags {
            adv.set(*tag, value.clone()).map_err(Refusal::from)?;
        }
        Ok(MetaChange::new(self.system.gpt.part(Part::Meta), meta, &adv, None))
    }

    /// No label to return to in META any more; nothing where there is none, or no META that can be read.
    pub fn forget_label(&mut self) {
        let meta = &self.system.meta;
        if meta.get(META_UPGRADE).is_some() && meta.valid != [false, false] {
            let mut adv = meta.adv.clone();
            adv.remove(META_UPGRADE);
            let extent = self.system.gpt.part(Part::Meta);
            self.set_meta(MetaChange::new(extent, meta, &adv, Some(META_UPGRADE)));
        }
    }

    /// The marker of a slot that is good from now on.
    pub fn mark_good(&mut self, slot: Slot, seq: u64) {
        let Some(offset) = self.system.slots[slot].marker_at else {
            self.warnings.push(format!(
                "slot {slot} has no marker of its own: if both copies of boot.env are lost, GRUB may boot the other one"
            ));
            return;
        };
        let marker = Marker { state: SlotState::Good, seq };
        self.extend(slot.into(), [Step::WriteMarker { slot, offset, marker }]);
    }

    /// EPHEMERAL made anew, as what it was, or blank. What it is to become is on the medium before what it was is gone, so that
    /// an interrupted wipe is finished by the next run. Nothing is to be tried meanwhile.
    pub fn wipe_ephemeral(&mut self, copies: &mut EnvCopies, blank: bool) {
        let held = self.system.held(Part::Ephemeral);
        let format =
            !blank && (held == VolumeHolds::Xfs || (held == VolumeHolds::Other && copies.env.format_ephemeral));
        if copies.env.once.is_some() || copies.env.format_ephemeral != format {
            let mut intent = copies.env.disarmed();
            intent.format_ephemeral = format;
            self.extend(Part::Esp, copies.write(&intent, false));
        }
        self.wipe(Part::Ephemeral, format);
    }

    /// A volume of the OS made anew. First what makes the old content unrecognisable, so that a cut leaves a blank
    /// volume and not a damaged one; blank again after the discard: not every device reads zeros then.
    pub fn wipe(&mut self, part: Part, format: bool) {
        let extent = self.system.gpt.part(part);
        let (head, tail) = ends(extent);
        let blank = Step::Blank { part, head, tail };
        // The first sector goes alone: with the rest in one flush a cut could leave a superblock and nothing behind it.
        let sector = self.system.sector.bytes();
        let none = Extent { offset: extent.end(), len: 0 };
        let first = Step::Blank { part, head: Extent { offset: extent.offset, len: sector }, tail: none };
        self.extend(part, [first, blank.clone(), Step::Discard { part, extent }, blank]);
        if format {
            let uuid = self.system.gpt.guid(part);
            self.prepare.push(Step::PrepareXfs { part, extent, uuid });
            self.extend(part, [Step::WriteXfs { part, extent }]);
        } else {
            self.warnings.push(format!("{part} is left blank: the OS makes its own file system there"));
        }
    }

    /// The plan. `result` is what is true once it is carried out, `meanwhile` what is on the disk when it fails before
    /// its commit.
    pub fn plan(self, goal: Goal, result: String, meanwhile: String) -> Plan {
        let label = &self.system.gpt;
        let forget = self.touched.iter().map(|part| Step::ForgetCached { part: *part, extent: label.part(*part) });
        let steps = self.prepare.into_iter().chain(self.steps).chain(forget).collect();
        Plan {
            goal,
            disk: self.base.disk.clone(),
            disk_guid: label.disk_guid,
            system: None,
            table: None,
            meta: self.meta.tags,
            meta_legacy: self.meta.legacy,
            warnings: self.warnings,
            result,
            meanwhile,
            steps,
        }
    }
}

/// The first MiB of a slot zeroed: nothing of what it held is found any more, by GRUB or by us.
pub fn blank_slot(slot: Slot, extent: Extent) -> Step {
    let head = Extent { offset: extent.offset, len: MIB.min(extent.len) };
    Step::Blank { part: slot.into(), head, tail: Extent { offset: extent.end(), len: 0 } }
}
