//! The steps of a growth.

use anyhow::{Context as _, anyhow, bail};
use slipway_core::{
    disk::gpt_grow::{GrownGpt, Place},
    plan::Step,
    units::Extent,
};

use super::{ChangedMeanwhile, Executor, Expect};
use crate::probe;

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

    fn primary_header(&self, extent: Extent, entries: Place) -> anyhow::Result<Vec<Expect>> {
        let (grown, over) = self.sources.grown.ok_or_else(|| anyhow!("the plan needs a table"))?;
        self.table_is_as_planned(grown, over)?;
        self.small(extent.offset, grown.header(entries).to_vec())
    }

    /// Checks that LBA 1 is as it was when the plan was made, or as an earlier step of the plan wrote it. It has the checksum
    /// of the entries, so no program changes the table without it. `over`: None if it could not be read.
    pub(super) fn table_is_as_planned(&self, grown: &GrownGpt, over: Option<&[u8]>) -> anyhow::Result<()> {
        let found = probe::lba1(self.disk);
        let own = [Place::Away, Place::Home].map(|place| Some(grown.header(place)));
        if found.as_deref() == over || own.contains(&found.as_deref()) {
            Ok(())
        } else {
            Err(ChangedMeanwhile::new("the partition table").into())
        }
    }
}
