//! Lists, reads, sets and deletes tags of META.

use anyhow::{Context as _, anyhow};
use slipway_core::{
    disk::{
        layout::Part,
        meta::{Adv, Meta},
    },
    plan::{self, Plan},
    report::{FailureKind, MetaReport, Observer},
    units::Extent,
};

use super::DiskRequest;
use crate::{
    device::{Access, BlockIo},
    error::{Failure, OrFail as _},
    execute::{self, Sources},
    probe::{self, meta_of},
};

pub fn list(disk: &DiskRequest) -> Result<MetaReport, Failure> {
    let opened = disk.open(Access::Read)?;
    Ok(MetaReport::new(&MetaOnDisk::look(&opened, &disk.path.display().to_string())?.meta, None, false))
}

pub fn get(disk: &DiskRequest, key: u8) -> Result<MetaReport, Failure> {
    let opened = disk.open(Access::Read)?;
    let meta = MetaOnDisk::look(&opened, &disk.path.display().to_string())?.meta;
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
    let opened = disk.open(Access::Write)?;
    let found = MetaOnDisk::look(&opened, &disk.path.display().to_string())?;
    let plan = found.plan(&opened.identity().path, change)?;
    found.carry_out(&plan, change, observer)
}

pub struct MetaOnDisk<'d> {
    disk: &'d dyn BlockIo,
    extent: Extent,
    meta: Meta,
}

impl<'d> MetaOnDisk<'d> {
    /// `name` is for error messages.
    pub fn look(disk: &'d dyn BlockIo, name: &str) -> Result<Self, Failure> {
        let look = || {
            let gpt = probe::gpt(disk)?;
            let meta = meta_of(disk, &gpt)?;
            Ok::<_, probe::ProbeError>(MetaOnDisk { disk, extent: gpt.part(Part::Meta), meta })
        };
        look().with_context(|| name.to_owned()).or_fail(FailureKind::Install)
    }

    pub fn plan(&self, name: &str, change: &Change) -> Result<Plan, Failure> {
        let mut adv: Adv = self.meta.adv.clone();
        let forget = match change {
            Change::Set(key, value) => adv.set(*key, value.clone()).map(|()| None).or_fail(FailureKind::Input)?,
            // The legacy area is only touched for a tag that is not in the ADV.
            Change::Delete(key) => (!adv.remove(*key)).then_some(*key),
        };
        Ok(plan::meta(name, self.extent, &self.meta, &adv, forget))
    }

    /// The report shows what was read back from the disk.
    pub fn carry_out(&self, plan: &Plan, change: &Change, observer: &mut dyn Observer) -> Result<MetaReport, Failure> {
        plan.warnings.iter().for_each(|warning| observer.note(warning));
        execute::run(plan, self.disk, Sources::default(), observer)?;
        let mut bytes = vec![0; self.extent.len as usize];
        self.disk.read_back(self.extent.offset, &mut bytes).or_fail(FailureKind::Install)?;
        Ok(MetaReport::new(&Meta::decode(&bytes), Some(change.key()), !plan.steps.is_empty()))
    }
}
