//! The steps of a growth.

use anyhow::{Context as _, anyhow, bail};
use slipway_core::{disk::gpt_grow::Place, plan::Step, units::Extent};

use super::{ChangedMeanwhile, Executor, Expect};

impl Executor<'_, '_> {
    pub(super) fn grow(&self, step: &Step) -> anyhow::Result<Vec<Expect>> {
        match step {
            Step::ClearEnd { extent, .. } => self.zeros(&[*extent]),
            Step::WriteEntries { extent } => self.small(extent.offset, self.gpt()?.entries),
            Step::WritePrimaryHeader { extent, entries, .. } => self.primary_header(*extent, *entries),
            Step::ResizePartition { part, extent } => {
                self.disk.resize_partition(*extent).with_context(|| format!("the kernel's partition {part}"))?;
                Ok(vec![])
            }
            Step::GrowXfs { part, extent, .. } => {
                self.disk.grow_xfs(*extent).with_context(|| format!("the file system of {part}"))?;
                Ok(vec![])
            }
            _ => bail!("this is no step of a growth"),
        }
    }

    // Headers that were written before belong to the table that was planned for.
    fn primary_header(&self, extent: Extent, entries: Place) -> anyhow::Result<Vec<Expect>> {
        let (grown, over) = self.sources.grown.ok_or_else(|| anyhow!("the plan needs a table"))?;
        let mut found = vec![0; extent.len as usize];
        self.disk.read_back(extent.offset, &mut found).context("reading LBA 1")?;
        if found != over && found != grown.header(Place::Away) {
            return Err(ChangedMeanwhile::new("the partition table").into());
        }
        self.small(extent.offset, grown.header(entries).to_vec())
    }
}
