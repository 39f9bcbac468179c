//! The snapshot of the kept system, taken on the way to a trial.
//!
//! Before the trial is armed:
//!
//! 1. **Drop** the snapshots that lie in both slots, by their heads: what the target holds is older than what runs now, and
//!    a trial begins with that.
//! 2. **Write** the content into the kept slot, behind its files. It is taken right before: an upgrade may have written for
//!    minutes by then.
//! 3. **Name** it: one sector, the head.
//!
//! If power is lost before the commit, no trial is due, and the boot state says that the other system has not run since: the
//! snapshot is not put back, and the next activation takes another one.

use crate::prelude::*;

use super::{
    Goal, HeadChange, Plan, Refusal, Refusals, RequestBase, SlotFacts, SnapshotRequest, Step, SystemFacts, draft::Draft,
};
use crate::{
    boot::{env::BootEnv, slot::Slot},
    digest::Sha256,
    snapshot::{
        HEAD_BYTES,
        head::{self, Found},
        head_at, room,
    },
    units::Extent,
};

impl Draft<'_> {
    /// Keep what belongs to the system in `kept`, if that was asked for, and drop what was kept before.
    pub fn snapshot(&mut self, kept: Slot, request: Option<&SnapshotRequest>) -> Result<(), Refusals> {
        self.drop_snapshot(!kept);
        let Some(request) = request else {
            // A snapshot that was not put back yet still belongs to the system. Any other is older than the present files. Of one
            // of a later version that is unknown.
            if !self.is_due(kept) && !matches!(self.system.snapshots[kept], Found::Later(_)) {
                self.drop_snapshot(kept);
            }
            return Ok(());
        };
        request.is_allowed(self.system)?;
        self.warn_if_due(kept);
        let SlotFacts { manifest, later, lists_lost, .. } = &self.system.slots[kept];
        if manifest.is_none() {
            if !later.is_empty() {
                self.warnings.push(format!(
                    "slot {kept} does not say which system it holds: no snapshot is taken, and a way back puts nothing \
                     back"
                ));
                return Ok(());
            }
            // One read may fail by chance, after which the way back would lack the configuration.
            let lost = lists_lost.as_deref().unwrap_or("it has no manifest.json");
            let why =
                format!("{lost}; a snapshot of the configuration needs that, and --no-snapshot goes on without one");
            return Err(Refusal::NotWhole { slot: kept, why }.into());
        }
        self.take_snapshot(kept);
        Ok(())
    }

    /// By the boot state on the disk: once the other slot is written again, nothing says any more that its system ran.
    fn is_due(&self, slot: Slot) -> bool {
        let SystemFacts { snapshots, slots, env, .. } = self.system;
        head::due(&snapshots[slot], slot, slots[slot].system(), env.as_ref()).is_ok()
    }

    /// From here on it is not put back unasked.
    pub fn warn_if_due(&mut self, kept: Slot) {
        if self.is_due(kept) {
            self.warnings.push(format!(
                "the snapshot of slot {kept} was never put back, and after this no start does it: the next trial that is armed \
                 drops it; `installer snapshot restore` would put it back first"
            ));
        }
    }

    /// Write the present files into a slot, as the snapshot of the system in it.
    fn take_snapshot(&mut self, slot: Slot) {
        self.drop_snapshot(slot);
        let version = self.system.slots[slot].manifest.as_ref().and_then(|manifest| manifest.version.clone());
        let of = HeadChange::Of { system: owner(self.system, slot), version, taken: self.base.now };
        let head = Step::WriteSnapshotHead { slot, extent: self.head(slot), head: of };
        let content = Step::WriteSnapshot { slot, extent: content(self.system.gpt.part(slot.into())) };
        self.extend(slot.into(), [content, head]);
    }

    /// Have the snapshot in a slot count no more, if there may be one.
    pub fn drop_snapshot(&mut self, slot: Slot) {
        let step = Step::WriteSnapshotHead { slot, extent: self.head(slot), head: HeadChange::Dropped };
        if self.system.snapshots[slot].is_something() && !self.steps.contains(&step) {
            self.extend(slot.into(), [step]);
        }
    }

    fn head(&self, slot: Slot) -> Extent {
        let sector = self.system.sector.bytes();
        Extent { len: sector, ..head_at(self.system.gpt.part(slot.into())) }
    }
}

/// The range in which a content lies.
const fn content(part: Extent) -> Extent {
    let room = room(part);
    Extent { len: room.len - HEAD_BYTES, ..room }
}

/// The system in a slot, as heads name it: zeros if its manifest is lost.
pub fn owner(system: &SystemFacts, slot: Slot) -> Sha256 {
    system.slots[slot].system().unwrap_or(Sha256([0; 32]))
}

/// Keep the present files as the snapshot of the system in `slot`, which does not run: another system's configuration is about
/// to take its place. Nothing to do if it is kept already, by a run that was interrupted.
pub fn keep_aside(base: &RequestBase, system: &SystemFacts, slot: Slot) -> Plan {
    let mut draft = Draft::new(base, system);
    draft.warnings.clear();
    if system.snapshots[slot].waits_for(Some(owner(system, slot))).is_none() {
        draft.take_snapshot(slot);
    }
    let result = format!("the files that were there are kept in slot {slot}");
    draft.plan(Goal::Snapshot, result, "the configuration is what it was".to_owned())
}

/// The snapshot in `slot` was put back, and is not put back again.
pub fn snapshot_is_put_back(base: &RequestBase, system: &SystemFacts, slot: Slot) -> Plan {
    let mut draft = Draft::new(base, system);
    draft.warnings.clear();
    if let Some(head) = system.snapshots[slot].head() {
        let head = HeadChange::PutBack(Box::new(head.put_back()));
        draft.extend(slot.into(), [Step::WriteSnapshotHead { slot, extent: draft.head(slot), head }]);
        draft.is_about_slot(slot);
    }
    let result = format!("the snapshot of slot {slot} is put back");
    draft.plan(Goal::Snapshot, result, "the configuration is put back, and will be once more".to_owned())
}

/// A step as a line of a dry run.
pub fn described(step: &Step) -> String {
    match step {
        Step::WriteSnapshotHead { slot, head, .. } => match head {
            HeadChange::Dropped => format!("write      BOOT-{slot}: the snapshot in it counts no more"),
            HeadChange::Of { .. } => format!("write      BOOT-{slot}: the head of the snapshot"),
            HeadChange::PutBack(_) => format!("write      BOOT-{slot}: its snapshot was put back"),
        },
        Step::WriteSnapshot { slot, .. } => {
            format!("write      BOOT-{slot}: snapshot of the configuration, behind all files")
        }
        _ => String::new(),
    }
}

/// What becomes of the configuration of a slot that is gone back to, if a snapshot of it is there. The way back never depends
/// on it.
pub fn on_the_way_back(system: &SystemFacts, slot: Slot, env: &BootEnv) -> Option<String> {
    let found = &system.snapshots[slot];
    let held = system.slots[slot].system();
    match (found, head::due(found, slot, held, Some(env))) {
        (_, Ok(head)) => Some(format!(
            "its snapshot, {} files, is put back when slot {slot} starts, and the files that are there now are kept in slot {}",
            head.files, !slot
        )),
        (Found::Damaged, _) => Some(format!("the snapshot in slot {slot} is damaged: no configuration is put back")),
        (Found::Later(why), _) => Some(format!(
            "only a later version of the installer can read the snapshot in slot {slot} ({why}): it is put back if the system in \
             that slot has one"
        )),
        (Found::Unreadable(why), _) => {
            Some(format!("the end of slot {slot} cannot be read ({why}): if a snapshot is there, it is not put back"))
        }
        _ => None,
    }
}
