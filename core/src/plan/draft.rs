//! Assembles a plan, in the same way for every change of an installed disk.

use crate::prelude::*;

mod markers;

use alloc::collections::BTreeMap;

use super::{
    Goal, Plan, Refusal, Refusals, RequestBase, Step, SystemFacts, Volume, VolumeHolds,
    bootloader::{BootloaderChange, KernelLook},
    env_copies::EnvCopies,
    history::{self, About},
    meta::MetaChange,
    step::ends,
};
use crate::{
    boot::{
        slot::{PerSlot, Slot},
        trial::Failed,
    },
    disk::layout::Part,
    text::quoted,
    units::Extent,
};

pub use markers::latest;

/// META tag in which machined finds the label of the slot to return to.
pub(crate) const META_UPGRADE: u8 = 0x06;

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
        let format = !blank && (held == VolumeHolds::Xfs || (held != VolumeHolds::Luks && copies.env.format_ephemeral));
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
