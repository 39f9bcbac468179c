//! Writes the structures that a disk has twice, boot.env and META: with care for other programs' writes meanwhile, and
//! with one copy where the other's sector is dead.

use slipway_core::{
    boot::{
        env::{BootEnv, PATHS},
        history::HISTORY,
    },
    disk::{
        layout::{META_BYTES, Part},
        meta::{ADV_BYTES, Adv, LEGACY_AT, Meta},
    },
    plan::{Goal, Step},
    units::Extent,
};

use super::{Executor, Expect};
use crate::probe;

/// Another program has changed the bytes that a step was about to replace. The step wrote nothing.
#[derive(Debug, thiserror::Error)]
#[error(
    "{what} is not what it was when the plan was made: another program has written to the disk, and what it wrote is left \
     alone"
)]
pub struct ChangedMeanwhile {
    what: String,
}

impl ChangedMeanwhile {
    pub(super) fn new(what: &str) -> Self {
        ChangedMeanwhile { what: what.to_owned() }
    }
}

/// A step that failed.
pub(super) struct Failed {
    pub n: usize,
    pub sentence: String,
    pub source: anyhow::Error,
}

impl Failed {
    /// Whether it was the disk that failed, and not another program that is at work on it.
    pub fn may_be_spared(&self) -> bool {
        self.source.downcast_ref::<ChangedMeanwhile>().is_none()
    }

    /// The note where the plan reaches its goal without the step, or (if it is not `spare`) with the other copy.
    pub fn spared(&self, step: &Step, spare: bool) -> String {
        let without = match step {
            Step::WriteMarker { .. } => "it counts only if both copies of the boot state are lost",
            Step::WriteMetaCopy { .. } | Step::WriteMetaLegacy { .. } if spare => {
                "META keeps the label of the slot to return to, which nothing in Slipway reads"
            }
            Step::WriteHistory { .. } => "`installer history` will not show this change",
            Step::FreeClusters { .. } => {
                "what the old boot loader had on the ESP stays lost until the next renewal or fsck"
            }
            Step::CountFree { .. } => "the ESP says a wrong number of free clusters until the next renewal or fsck",
            Step::ForgetCached { .. } => "until the next boot other programs may see the old content",
            _ => "the other copy is in force; another such failure would lose both",
        };
        // The sentence of a step has columns.
        let sentence = self.sentence.split_whitespace().collect::<Vec<_>>().join(" ");
        format!("failed: {sentence}: {:#}; {without}", self.source)
    }
}

impl Executor<'_, '_> {
    /// Check that a sector holds the same as when the plan was made. One that holds nothing known, or cannot be read,
    /// is written over.
    pub(super) fn still_holds<T: PartialEq>(
        &self,
        offset: u64,
        over: Option<&T>,
        parse: fn(&[u8]) -> Option<T>,
        what: &str,
    ) -> Result<(), ChangedMeanwhile> {
        let mut bytes = vec![0; self.disk.sector_size().bytes() as usize];
        let unknown = over.is_none() || self.unwritten.iter().any(|extent| extent.offset == offset);
        if !unknown && self.disk.read_back(offset, &mut bytes).is_ok() && parse(&bytes).as_ref() != over {
            return Err(ChangedMeanwhile { what: format!("{what} (byte {offset} of the disk)") });
        }
        Ok(())
    }

    /// Check that a copy of boot.env is still where it was when the plan was made: its old place may be another file's.
    pub(super) fn still_there(&self, copy: u8, offset: u64) -> Result<(), ChangedMeanwhile> {
        let path = PATHS[usize::from(copy != 1)];
        // If the ESP cannot be read any more, no program has moved the copy.
        let moved =
            self.esp().and_then(|esp| probe::boot_env_place(self.disk, esp, path)).is_some_and(|at| at != offset);
        if moved { Err(ChangedMeanwhile { what: path.to_owned() }) } else { Ok(()) }
    }

    /// Check that a record of the history is still in its place. If that cannot be looked up, it is not written.
    pub(super) fn is_in_history(&self, offset: u64) -> Result<(), ChangedMeanwhile> {
        let record = Extent { offset, len: self.disk.sector_size().bytes() };
        let found = self.esp().and_then(|esp| probe::history_place(self.disk, esp));
        let there = found.is_some_and(|file| file.contains(record));
        if there { Ok(()) } else { Err(ChangedMeanwhile { what: HISTORY.to_owned() }) }
    }

    pub(super) fn esp(&self) -> Option<Extent> {
        self.plan.steps.iter().find_map(|step| match step {
            Step::ForgetCached { part: Part::Esp, extent } => Some(*extent),
            _ => None,
        })
    }

    pub(super) fn meta_copy(&mut self, copy: u8, offset: u64) -> anyhow::Result<Vec<Expect>> {
        let adv = self.adv(copy, offset)?.encode();
        self.small(offset, adv)
    }

    pub(super) fn meta_legacy(&mut self, extent: Extent) -> anyhow::Result<Vec<Expect>> {
        let bytes = self.legacy(extent)?;
        self.small(extent.offset, bytes)
    }

    /// Whether the plan may reach its goal with the copy that the step after `n` writes.
    pub(super) fn other_copy_may_do(&self, n: usize) -> bool {
        let next = self.plan.steps.get(n + 1);
        self.plan.other_copy_follows(n) && !next.is_some_and(|next| self.is_left_alone(next))
    }

    /// Whether this step would write over the copy of META in force, and the other copy could not be written. A copy has many
    /// sectors: if this write failed as well, as on a file system that is full, or if the power failed, all tags would be lost.
    pub(super) fn is_left_alone(&self, step: &Step) -> bool {
        let Step::WriteMetaCopy { copy, offset } = step else { return false };
        let copies = Extent { len: 2 * ADV_BYTES as u64, ..meta_extent(*copy, *offset) };
        let failed = |extent: &Extent| extent.offset != *offset && copies.contains(*extent);
        let counts = self.meta.as_ref().is_none_or(|meta| meta.valid[usize::from(copy - 1)]);
        counts && self.unwritten.iter().any(failed)
    }

    /// Whether a reader finds the planned content of this copy, or of the other one.
    pub(super) fn is_found(&self, step: &Step) -> bool {
        // A new disk must be able to hold everything, and a repair is there for the second copy. Bytes that were not
        // flushed can be read, and are lost with the power.
        if matches!(self.plan.goal, Goal::Install | Goal::Repair) || self.disk.sync().is_err() {
            return false;
        }
        match step {
            Step::WriteBootEnv { env, .. } => {
                let copies = self.plan.boot_env_at.map(|at| {
                    let mut bytes = vec![0; self.disk.sector_size().bytes() as usize];
                    self.disk.read_back(at?, &mut bytes).ok()?;
                    BootEnv::parse(&bytes)
                });
                BootEnv::pick(&copies) == Some(env)
            }
            Step::WriteMetaCopy { copy, offset } => {
                let found = probe::meta_of(self.disk, meta_extent(*copy, *offset)).0;
                found.valid != [false, false]
                    && self.meta.as_ref().is_some_and(|m| self.changed(m).ok() == Some(found.adv))
            }
            _ => false,
        }
    }

    /// The tags to write.
    fn adv(&mut self, copy: u8, offset: u64) -> anyhow::Result<Adv> {
        let begins = !std::mem::replace(&mut self.meta_begun, true);
        let extent = meta_extent(copy, offset);
        let meta = self.look_at_meta(extent)?.clone();
        // The copy that counts goes last: the plan has decided which.
        let other_order = begins && extent.offset + meta.write_order()[0] != offset;
        // A program that has written META since has not seen our first copy.
        let mut bytes = vec![0; ADV_BYTES];
        let counts = meta.valid[usize::from(copy - 1)] && (meta.copies_equal || copy == 1 || !meta.valid[0]);
        let written = counts
            && self.disk.read_back(offset, &mut bytes).is_ok()
            && Adv::decode(&bytes).is_some_and(|found| found != meta.adv);
        if other_order || written {
            return Err(changed_meta().into());
        }
        self.changed(&meta)
    }

    /// The legacy area without the tags that are removed.
    fn legacy(&mut self, extent: Extent) -> anyhow::Result<Vec<u8>> {
        let start = extent.offset - LEGACY_AT as u64;
        let removed = &self.plan.meta_removed;
        let meta = self.look_at_meta(Extent { offset: start, len: META_BYTES })?;
        if let Some((_, bytes)) = removed.iter().find_map(|tag| meta.legacy_without(*tag)) {
            return Ok(bytes);
        }
        // Another program has dropped the tag already.
        let mut bytes = vec![0; extent.len as usize];
        self.disk.read_back(extent.offset, &mut bytes)?;
        Ok(bytes)
    }

    fn look_at_meta(&mut self, extent: Extent) -> anyhow::Result<&Meta> {
        // An install has just blanked it.
        if self.meta.is_none() && self.plan.table.is_some() {
            self.meta = Some(Meta::decode(&[]));
        }
        if self.meta.is_none() {
            // Writes of another program through the node of the partition may still be in its page cache, and would
            // overwrite the new tags later.
            if let Err(e) = self.disk.forget_cached(extent) {
                let what = "failed: dropping what the kernel cached of META";
                self.observer.note(&format!("{what}: {e}; what other programs wrote last may come over it later"));
            }
            let meta = probe::meta_of(self.disk, extent).0;
            if meta.valid == [false, false] && !meta.blank && self.plan.goal != Goal::Meta {
                return Err(changed_meta().into());
            }
            self.meta = Some(meta);
        }
        self.meta.as_ref().ok_or_else(|| changed_meta().into())
    }

    fn changed(&self, meta: &Meta) -> anyhow::Result<Adv> {
        let mut adv = meta.adv.clone();
        for (tag, value) in &self.plan.meta {
            adv.set(*tag, value.clone())?;
        }
        for tag in &self.plan.meta_removed {
            adv.remove(*tag);
        }
        Ok(adv)
    }
}

fn meta_extent(copy: u8, offset: u64) -> Extent {
    Extent { offset: offset - u64::from(copy - 1) * ADV_BYTES as u64, len: META_BYTES }
}

fn changed_meta() -> ChangedMeanwhile {
    ChangedMeanwhile::new("META")
}
