//! Shared parts of all plans that change the boot state: the kept slot and the target, writing boot.env, and
//! assembling a plan.

use crate::prelude::*;

mod markers;

use alloc::collections::BTreeMap;

use super::{
    Asked, Goal, Plan, Refusal, Refusals, Step, SystemFacts, Volume, VolumeHolds,
    bootloader::{BootloaderChange, KernelLook},
    history::{self, About},
    meta::MetaChange,
    rebuild_boot_state::{current_or_rebuilt, default_if_lost},
    snapshot_request::SnapshotRequest,
    step::ends,
};
use crate::{
    boot::{
        env::BootEnv,
        running::Running,
        slot::{PerSlot, Slot, SlotState},
        trial::Failed,
    },
    disk::layout::Part,
    media::medium_id::MediumId,
    text::quoted,
    units::Extent,
};

pub use markers::latest;

/// META tag in which machined finds the label of the slot to return to.
pub(crate) const META_UPGRADE: u8 = 0x06;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ephemeral {
    Kept,
    /// Wiped; XFS is made again if it held XFS.
    Wiped,
    /// Wiped and left blank: the OS encrypts it.
    Blank,
}

/// Place that the installer runs from. It decides the slot that an upgrade keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunsFrom {
    /// On this disk. The running slot is kept.
    Inside,
    /// On a live medium. The slot that boots by default is kept, and boot.env records the medium if it has an ID.
    Medium(Option<MediumId>),
    /// Anywhere, and nothing runs from this disk. The slot that boots by default is kept.
    Offline,
}

impl RunsFrom {
    /// The slot to keep, if that is known.
    pub fn kept(self, system: &SystemFacts) -> Option<Slot> {
        match self {
            RunsFrom::Inside => system.running.slot(),
            RunsFrom::Medium(_) | RunsFrom::Offline => system.env.as_ref().map(|env| env.default),
        }
    }

    const fn medium(self) -> Option<MediumId> {
        match self {
            RunsFrom::Inside | RunsFrom::Offline => None,
            RunsFrom::Medium(id) => id,
        }
    }
}

/// The part that every request carries.
#[derive(Clone, Debug)]
pub struct RequestBase {
    /// Path of the disk, for people.
    pub disk: String,
    /// Seconds since 1970 UTC.
    pub now: u64,
    /// For the history.
    pub asked: Asked,
}

/// The boot state in force, and where its two copies lie.
pub struct EnvCopies {
    pub env: BootEnv,
    /// Both copies were lost, and `env` was made from the slots' markers.
    pub is_rebuilt: bool,
    at: [Option<u64>; 2],
    copies: [Option<BootEnv>; 2],
    /// The copy that counts.
    counts: Option<usize>,
    /// The number of the entry that the change leaves in the history.
    entry: Option<u32>,
}

impl EnvCopies {
    /// The boot state as found. If both copies are lost it is rebuilt from the markers and the running slot, but only
    /// inside a system of this disk that is undamaged. One copy that can be written is enough.
    pub fn read(system: &SystemFacts, now: u64) -> Result<Self, Refusal> {
        let whole = |slot: &Slot| system.slots[*slot].damage().is_none();
        Self::or_rebuilt(system, now, || system.running.slot().filter(whole).and_then(|_| default_if_lost(system)))
    }

    /// The boot state as found, or rebuilt with `default` as the slot that boots.
    pub fn or_rebuilt(system: &SystemFacts, now: u64, default: impl FnOnce() -> Option<Slot>) -> Result<Self, Refusal> {
        if system.env_at == [None; 2] {
            return Err(Refusal::NoBootEnv);
        }
        let env = current_or_rebuilt(system, now, default)?;
        let entry = system.history.as_ref().and_then(|history| history.next(system.env.as_ref()));
        let (at, copies, counts) = (system.env_at, system.env_copies.clone(), system.env_counts());
        Ok(EnvCopies { env, is_rebuilt: system.env.is_none(), at, copies, counts, entry })
    }

    /// Write a new state to both copies. The order keeps one valid copy on the disk at all times. With `commit`, the
    /// first write that puts the state in force is marked as the commit point, and the state names the plan's entry in the
    /// history.
    pub fn write(&mut self, env: &BootEnv, commit: bool) -> Vec<Step> {
        let entry = self.entry.filter(|_| commit).or(env.history);
        let env = &BootEnv { history: entry, ..env.clone() };
        let mut steps = Vec::new();
        let mut committed = false;
        for n in BootEnv::write_order(self.counts) {
            let Some(offset) = self.at[n] else { continue };
            let over = self.copies[n].replace(env.clone());
            let in_force = BootEnv::pick(&self.copies) == Some(env);
            let commit = commit && in_force && !committed;
            committed |= in_force;
            steps.push(Step::WriteBootEnv { copy: n as u8 + 1, offset, env: env.clone(), over, commit });
        }
        self.env = env.clone();
        self.counts = BootEnv::which(&self.copies);
        steps
    }

    /// Repair a copy that differs from the state in force, after damage or a power loss between the two writes.
    pub fn heal(&mut self) -> Vec<Step> {
        let env = self.env.clone();
        let mut steps = Vec::new();
        for n in BootEnv::write_order(self.counts) {
            let Some(offset) = self.at[n].filter(|_| self.copies[n].as_ref() != Some(&env)) else { continue };
            let over = self.copies[n].replace(env.clone());
            steps.push(Step::WriteBootEnv { copy: n as u8 + 1, offset, env: env.clone(), over, commit: false });
        }
        steps
    }
}

/// The kept slot, which is the fallback, and the target, which is the other.
pub struct Slots {
    pub kept: Slot,
    /// The kept slot for people, such as `slot A, which runs`.
    pub name: String,
    pub target: Slot,
    pub copies: EnvCopies,
    origin: RunsFrom,
}

impl Slots {
    /// Decides the roles of the slots, or refuses where they are not certain.
    pub fn new(origin: RunsFrom, system: &SystemFacts, now: u64) -> Result<Self, Refusal> {
        let (kept, what) = match origin {
            RunsFrom::Inside => (running(system, now)?, "runs"),
            RunsFrom::Medium(medium) => {
                let own_trial = |env: &BootEnv| medium.is_some() && env.medium == medium;
                (default(system, own_trial, false)?, "boots by default")
            }
            RunsFrom::Offline => {
                if let Some(slot) = system.running.slot() {
                    return Err(Refusal::NotOffline(slot));
                }
                // The verb decides which trials may be pending.
                let kept = default(system, |_| true, true)?;
                (kept, if system.slots[kept].damage().is_some() { "is the default" } else { "boots by default" })
            }
        };
        let name = format!("slot {kept}, which {what}");
        Ok(Slots { kept, name, target: !kept, copies: EnvCopies::read(system, now)?, origin })
    }

    /// Offline, a pending trial is settled inside the system, unless the request is for the same trial: then an
    /// earlier run was interrupted, or this is the second. A damaged slot is no trial any more.
    pub fn check_pending(&self, system: &SystemFacts, is_asked_for: bool) -> Result<(), Refusal> {
        match self.copies.env.once.filter(|trial| system.slots[*trial].damage().is_none()) {
            Some(trial) if self.origin == RunsFrom::Offline && !is_asked_for => {
                Err(pending(system, &self.copies.env, trial))
            }
            _ => Ok(()),
        }
    }

    /// State of the disk until the commit, for people.
    pub fn meanwhile(&self, system: &SystemFacts) -> String {
        let is_whole = system.slots[self.kept].damage().is_none();
        let kept = format!("{}, {}", self.name, if is_whole { "still boots" } else { "is damaged as before" });
        format!("{kept}, and slot {} is not tried", self.target)
    }

    /// Checks the fallback. A damaged kept slot is an error if the target is the only slot that boots, because then the
    /// target must not be overwritten. Otherwise it is a warning.
    pub fn check_fallback(&self, system: &SystemFacts) -> Result<Option<String>, Refusal> {
        let (kept, target, env) = (self.kept, self.target, &self.copies.env);
        let boots =
            env.states[target] == SlotState::Good || env.once == Some(target) || system.next.slot == Some(target);
        match system.slots[kept].damage() {
            None => Ok(None),
            Some(why) if boots && system.slots[target].damage().is_none() => {
                let boots_next = env.once == Some(target);
                Err(Refusal::OnlyWayBack { running: kept, target, why: why.to_owned(), boots_next })
            }
            Some(why) => Ok(Some(format!(
                "{}, is damaged on the disk ({why}): until slot {target} is confirmed there is no slot to fall back to",
                self.name
            ))),
        }
    }

    /// The boot state that records the live medium, if boot.env does not name it yet. For runs that write no slot.
    pub fn with_medium(&self) -> Option<BootEnv> {
        let medium = self.origin.medium().filter(|id| self.copies.env.medium != Some(*id))?;
        Some(self.copies.env.installed_by(medium))
    }

    /// Steps 6 and 7 of an upgrade: the snapshot, META, the wipe of EPHEMERAL if asked for, and the commit.
    pub fn activation(
        &mut self,
        draft: &mut Draft,
        tags: &[(u8, Vec<u8>)],
        ephemeral: Ephemeral,
        snapshot: Option<&SnapshotRequest>,
    ) -> Result<(), Refusals> {
        draft.snapshot(self.kept, snapshot, &self.copies.env)?;
        let label = [(META_UPGRADE, self.kept.to_string().into_bytes())];
        draft.set_meta(draft.meta_with(tags.iter().chain(&label))?);
        if ephemeral != Ephemeral::Kept {
            draft.wipe_ephemeral(&mut self.copies, ephemeral == Ephemeral::Blank);
        }
        let mut armed = self.copies.env.armed(self.target, draft.base.now);
        // The wipe above is done, so the note that one is under way ends with the commit.
        armed.format_ephemeral &= ephemeral == Ephemeral::Kept;
        armed.medium = self.origin.medium().or(armed.medium);
        draft.extend(Part::Esp, self.copies.write(&armed, true));
        Ok(())
    }
}

/// The running slot, if it may serve as the fallback.
fn running(system: &SystemFacts, now: u64) -> Result<Slot, Refusal> {
    let Running::This { slot: running, trial } = system.running else {
        return Err(Refusal::NotRunning(system.running));
    };
    let (env, target) = (EnvCopies::read(system, now)?.env, !running);
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

fn pending(system: &SystemFacts, env: &BootEnv, trial: Slot) -> Refusal {
    only_the_trial_boots(system, env, trial)
        .unwrap_or_else(|| Refusal::Unsettled(format!("slot {trial} is to be tried at the next boot")))
}

/// A trial that nothing may cancel or overwrite: what it would fall back to is damaged.
pub fn only_the_trial_boots(system: &SystemFacts, env: &BootEnv, trial: Slot) -> Option<Refusal> {
    let (default, is_damaged) = (env.default, |slot: Slot| system.slots[slot].damage().is_some());
    (is_damaged(default) && !is_damaged(trial)).then_some(Refusal::OnlyTheTrialBoots { trial, default })
}

/// The default slot of a disk that nothing runs from. Refused unless the next boot is certain: a lost boot state is not
/// rebuilt from outside, and no trial may be pending except one of our own. `may_be_damaged`: it is enough that the
/// other slot is not the one that boots, so that nothing is lost if that one is written.
fn default(system: &SystemFacts, own_trial: impl Fn(&BootEnv) -> bool, may_be_damaged: bool) -> Result<Slot, Refusal> {
    let unsettled = |why: String| Err(Refusal::Unsettled(why));
    if let Some(slot) = system.running.slot() {
        return unsettled(format!("its slot {slot} is running"));
    }
    let Some(env) = &system.env else { return unsettled("both copies of boot.env are lost".to_owned()) };
    let (default, state) = (env.default, env.states[env.default]);
    if let Some(trial) = env.once.filter(|_| !own_trial(env)) {
        return Err(pending(system, env, trial));
    }
    if state != SlotState::Good && !(may_be_damaged && system.next.slot.is_none()) {
        return unsettled(format!("its default, slot {default}, is {}", state.plain()));
    }
    let other_boots = env.states[!default] == SlotState::Good && system.slots[!default].damage().is_none();
    if let Some(why) = system.slots[default].damage().filter(|_| other_boots || !may_be_damaged) {
        return unsettled(format!("its default, slot {default}, is damaged on the disk ({why})"));
    }
    Ok(default)
}

/// A plan being assembled.
pub struct Draft<'a> {
    pub base: &'a RequestBase,
    pub system: &'a SystemFacts,
    /// Comes before everything else: steps that can fail without touching the disk.
    prepare: Vec<Step>,
    pub(super) steps: Vec<Step>,
    /// The kernel must forget its caches of these partitions.
    touched: Vec<Part>,
    meta: MetaChange,
    about: About,
    /// The new ESP, if it is made again.
    pub esp: Option<Volume>,
    pub bootloader: Option<BootloaderChange>,
    /// The reason that keeps Slipway's loader from starting the kernel of each slot.
    pub kernels: PerSlot<KernelLook>,
    pub warnings: Vec<String>,
}

impl<'a> Draft<'a> {
    pub fn new(base: &'a RequestBase, system: &'a SystemFacts) -> Self {
        let (prepare, steps, touched) = (vec![], vec![], vec![]);
        let warnings = system.warnings();
        let about = About { asked: base.asked.clone(), ..About::default() };
        let meta = MetaChange::default();
        let seen = system.bootloader.as_ref().map(|found| found.kernels(system.env.as_ref()));
        let kernels = seen.unwrap_or_else(|| PerSlot::new(|_| Ok(None)));
        Draft { base, system, prepare, steps, touched, meta, about, esp: None, bootloader: None, kernels, warnings }
    }

    /// Sets the slot that the change is about, and its version afterwards: for the history.
    pub fn is_about(&mut self, slot: Slot, version: Option<String>) {
        (self.about.slot, self.about.version) = (Some(slot), version);
    }

    /// Sets the slot with the version that is in it already.
    pub fn is_about_slot(&mut self, slot: Slot) {
        let version = self.system.slots[slot].manifest.as_ref().and_then(|m| m.version.clone());
        self.is_about(slot, version);
    }

    /// Whether the boot menu is on afterwards: for the history.
    pub const fn is_about_menu(&mut self, on: bool) {
        self.about.menu = Some(on);
    }

    /// A reason that a person has to answer for, beside any that was given in words. First, because a long text is cut
    /// at its end.
    pub fn is_because(&mut self, reason: &str) {
        let said = self.about.asked.reason.take();
        self.about.asked.reason = Some(said.map_or_else(|| reason.to_owned(), |said| format!("{reason}; {said}")));
    }

    /// Why the running trial is not confirmed, in place of entry `again` of the history.
    pub fn is_about_failure(&mut self, failed: Failed, again: Option<u32>) {
        self.about.failed = Some((failed, again));
    }

    pub fn extend(&mut self, part: Part, steps: impl IntoIterator<Item = Step>) {
        let before = self.steps.len();
        self.steps.extend(steps);
        if self.steps.len() > before && !self.touched.contains(&part) {
            self.touched.push(part);
        }
    }

    /// Change META, in one go with other changes there.
    pub fn set_meta(&mut self, change: MetaChange) {
        let MetaChange { set, removed, steps } = change;
        let here = |step: &Step| matches!(step, Step::WriteMetaCopy { .. } | Step::WriteMetaLegacy { .. });
        let steps: Vec<_> = steps.into_iter().filter(|step| !self.steps.contains(step) || !here(step)).collect();
        self.extend(Part::Meta, steps);
        self.meta.set.extend(set);
        self.meta.removed.extend(removed);
    }

    /// META with more tags. Refused if META holds something unreadable that would be lost.
    pub fn meta_with<'t>(&self, tags: impl Iterator<Item = &'t (u8, Vec<u8>)>) -> Result<MetaChange, Refusals> {
        let meta = &self.system.meta;
        if meta.valid == [false, false] && !meta.blank {
            return Err(Refusal::MetaDamaged.into());
        }
        let set = tags.cloned().collect();
        Ok(MetaChange::new(self.system.gpt.part(Part::Meta), meta, set, None).map_err(Refusal::from)?)
    }

    /// Drop the label of the slot to return to from META. Nothing to do if there is none or META cannot be read.
    pub fn forget_label(&mut self) {
        let meta = &self.system.meta;
        if meta.get(META_UPGRADE).is_some() && meta.valid != [false, false] {
            let extent = self.system.gpt.part(Part::Meta);
            // Less always fits.
            if let Ok(change) = MetaChange::new(extent, meta, BTreeMap::new(), Some(META_UPGRADE)) {
                self.set_meta(change);
            }
        }
    }

    /// Wipe EPHEMERAL, and make XFS on it again if it held XFS and `blank` is false.
    ///
    /// boot.env records the volumes to be made before the old content goes, so that the next run can finish an
    /// interrupted wipe. A pending trial is cancelled: it must not boot with half an EPHEMERAL.
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

    /// Wipe STATE or EPHEMERAL. Both ends are zeroed first, so that a power loss leaves a blank volume, not a damaged
    /// one. They are zeroed again after the discard, because not every device reads zeros then.
    pub fn wipe(&mut self, part: Part, format: bool) {
        self.about.volumes.push(part);
        let extent = self.system.gpt.part(part);
        let (head, tail) = ends(extent);
        let blank = Step::Blank { part, head, tail };
        // The first sector goes alone. In one flush with the rest, a power loss could leave a superblock with nothing
        // behind it.
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

    fn changes_meta(&self) -> bool {
        self.steps.iter().any(|step| matches!(step, Step::WriteMetaCopy { .. } | Step::WriteMetaLegacy { .. }))
    }

    pub fn plan(mut self, goal: Goal, result: String, meanwhile: String) -> Plan {
        let gpt = &self.system.gpt;
        let writes_env = |step: &Step| matches!(step, Step::WriteBootEnv { .. });
        if self.system.env.is_none() && (self.esp.is_some() || self.steps.iter().any(writes_env)) {
            let disk = quoted(&self.base.disk);
            self.warnings.push(format!(
                "the boot menu is on, because nothing says whether it was off: `installer bootloader menu off --disk {disk}` \
                 takes it away"
            ));
        }
        self.warnings.extend(self.system.losses(goal, &self.steps));
        let meta_found = self.changes_meta().then(|| self.system.meta.adv.digest());
        // A new ESP has a new history, with this entry in it.
        let keeps = self.esp.is_none();
        let recorded = keeps && history::record(goal, self.base.now, self.about, self.system, &mut self.steps);
        if recorded && !self.touched.contains(&Part::Esp) {
            self.touched.push(Part::Esp);
        }
        let forget = self.touched.iter().map(|part| Step::ForgetCached { part: *part, extent: gpt.part(*part) });
        let steps = self.prepare.into_iter().chain(self.steps).chain(forget).collect();
        Plan {
            goal,
            disk: self.base.disk.clone(),
            disk_guid: gpt.disk_guid,
            system: None,
            table: None,
            meta: self.meta.set,
            meta_removed: self.meta.removed,
            left: vec![],
            meta_found,
            esp: self.esp,
            boot_env_at: self.system.env_at,
            warnings: self.warnings,
            result,
            meanwhile,
            growth: None,
            bootloader: self.bootloader,
            steps,
        }
    }
}
