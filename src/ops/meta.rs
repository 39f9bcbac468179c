//! Lists, reads, sets and deletes tags of META.

use std::collections::BTreeMap;

use anyhow::{Context as _, anyhow};
use slipway_core::{
    disk::{layout::Part, meta::Meta},
    plan::{self, GptFacts, Plan},
    report::{FailureKind, MetaReport, Observer},
};

use super::{DiskRequest, WrittenOver, after_failure, reading};
use crate::{
    device::{Access, BlockIo, Disk},
    error::{Failure, OrFail as _},
    execute::{self, Sources},
    probe::{self, ProbeError, meta_of},
};

pub fn list(disk: &DiskRequest) -> Result<MetaReport, Failure> {
    let opened = disk.look()?;
    let found = MetaOnDisk::settled(&opened, &disk.path.display().to_string())?;
    found.is_known(found.meta.adv.iter().next().is_some())?;
    Ok(MetaReport::new(&found.meta, None, false))
}

pub fn get(disk: &DiskRequest, key: u8) -> Result<MetaReport, Failure> {
    let opened = disk.look()?;
    let found = MetaOnDisk::settled(&opened, &disk.path.display().to_string())?;
    found.is_known(found.meta.get(key).is_some())?;
    let meta = found.meta;
    meta.get(key).ok_or_else(|| anyhow!("META has no tag {key:#04x}")).or_fail(FailureKind::Input)?;
    Ok(MetaReport { bare: true, ..MetaReport::new(&meta, Some(key), false) })
}

#[derive(Clone, Debug)]
pub enum Change {
    Set(u8, Vec<u8>),
    Delete(u8),
}

impl Change {
    const fn key(&self) -> u8 {
        match self {
            Change::Set(key, _) | Change::Delete(key) => *key,
        }
    }
}

/// Keeps all other tags.
pub fn change(disk: &DiskRequest, change: &Change, observer: &mut dyn Observer) -> Result<MetaReport, Failure> {
    let opened = disk.open(Access::Write, observer)?;
    let found = MetaOnDisk::look(&opened, &disk.path.display().to_string())?;
    let plan = found.plan(&opened.identity().path, change)?;
    found.carry_out(&plan, change, observer)
}

pub struct MetaOnDisk<'d> {
    disk: &'d dyn BlockIo,
    gpt: GptFacts,
    meta: Meta,
    unreadable: Vec<String>,
}

impl<'d> MetaOnDisk<'d> {
    /// `name` is for error messages.
    pub fn look(disk: &'d dyn BlockIo, name: &str) -> Result<Self, Failure> {
        super::ours(Self::find(disk), name)
    }

    fn find(disk: &'d dyn BlockIo) -> Result<Self, ProbeError> {
        let gpt = probe::gpt(disk)?;
        let (meta, unreadable) = meta_of(disk, gpt.part(Part::Meta));
        Ok(MetaOnDisk { disk, gpt, meta, unreadable: unreadable.into_iter().flatten().collect() })
    }

    /// Reads while other programs may write.
    fn settled(disk: &'d Disk, name: &str) -> Result<Self, Failure> {
        let whole =
            |found: &Self| found.unreadable.is_empty() && found.meta.valid == [true; 2] && found.meta.copies_equal;
        reading::settled(disk, |_| Self::look(disk, name), whole).map(|(found, _)| found)
    }

    /// Fails if nothing was found and something could not be read: it may be there.
    fn is_known(&self, found: bool) -> Result<(), Failure> {
        if found || self.unreadable.is_empty() {
            return Ok(());
        }
        Err(anyhow!("{}", self.unreadable.join("; "))).or_fail(FailureKind::Install)
    }

    pub fn plan(&self, name: &str, change: &Change) -> Result<Plan, Failure> {
        let (set, remove) = match change {
            Change::Set(key, value) => ([(*key, value.clone())].into(), None),
            Change::Delete(key) => (BTreeMap::new(), Some(*key)),
        };
        let plan = plan::meta(name, self.gpt.part(Part::Meta), &self.meta, set, remove).or_fail(FailureKind::Input)?;
        let mut plan = plan::beside_others(plan, &self.gpt).map_err(|refusals| super::refused(refusals, name))?;
        plan.warnings.extend(self.unreadable.iter().cloned());
        Ok(plan)
    }

    /// The report shows the tags read back from the disk.
    pub fn carry_out(&self, plan: &Plan, change: &Change, observer: &mut dyn Observer) -> Result<MetaReport, Failure> {
        plan.warnings.iter().for_each(|warning| observer.note(warning));
        execute::run(plan, self.disk, Sources::default(), observer)
            .map_err(|failed| after_failure::of_meta(failed, plan, self.disk))?;
        // Wherever META is now.
        let found = Self::find(self.disk).map_err(WrittenOver::NotSeen);
        let found = found.with_context(|| plan.disk.clone()).or_fail(FailureKind::Install)?;
        if found.gpt.part(Part::Meta) != self.gpt.part(Part::Meta) {
            return Err(WrittenOver::TableUnderMeta).context(plan.disk.clone()).or_fail(FailureKind::Install);
        }
        let wanted = match change {
            Change::Set(_, value) => Some(value.as_slice()),
            Change::Delete(_) => None,
        };
        if found.meta.get(change.key()) != wanted {
            return Err(WrittenOver::Meta).context(plan.disk.clone()).or_fail(FailureKind::Install);
        }
        let deleted = wanted.is_none().then(|| (change.key(), self.meta.get(change.key()).is_some()));
        Ok(MetaReport { deleted, ..MetaReport::new(&found.meta, Some(change.key()), !plan.steps.is_empty()) })
    }
}
