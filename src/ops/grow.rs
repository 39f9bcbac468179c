//! Gives EPHEMERAL the rest of a disk that is larger than its partition table says.

use anyhow::Context as _;
use slipway_core::{
    disk::{gpt_grow::GrownGpt, identity::DiskIdentity, layout::Part},
    plan::{self, GrowFacts, Plan},
    report::{ChangeReport, FailureKind, Observer},
    units::Extent,
};

use super::{ChangeOptions, DiskRequest, WrittenOver, after_failure, mend};
use crate::{
    device::{Access, BlockIo},
    error::{Failure, OrFail as _},
    execute::{self, Sources},
    probe,
};

/// A disk that is to grow, as it was found, and its plan.
pub struct Growing<'d> {
    disk: &'d dyn BlockIo,
    facts: GrowFacts,
    lba1: Option<Vec<u8>>,
    pub plan: Plan,
    table: Option<GrownGpt>,
}

impl<'d> Growing<'d> {
    /// `name` is for people.
    pub fn look(disk: &'d dyn BlockIo, name: &str) -> Result<Self, Failure> {
        let (facts, lba1) = super::ours(probe::grow_facts(disk), name)?;
        let (plan, table) = plan::grow(name, &facts).map_err(|refusals| super::refused(refusals, name))?;
        Ok(Growing { disk, facts, lba1, plan, table })
    }

    /// Nothing else may use the bytes that EPHEMERAL is to get, nor any byte of an image file.
    fn claim(&self) -> Result<(), Failure> {
        let end = self.facts.gpt.part(Part::Ephemeral).end();
        let rest = Extent { offset: end, len: self.facts.disk_bytes - end };
        let claimed = self.disk.claim(&[rest]);
        claimed.context("claiming the end of the disk").or_fail(FailureKind::Install)
    }

    pub fn carry_out(&self, observer: &mut dyn Observer) -> Result<(), Failure> {
        if self.plan.steps.iter().any(|step| !step.writes().is_empty()) {
            self.claim()?;
        }
        let grown = self.table.as_ref().map(|table| (table, self.lba1.as_deref()));
        execute::run(&self.plan, self.disk, Sources { grown, ..Sources::default() }, observer)
            .map_err(|failed| after_failure::of_grow(failed, &self.plan, self.disk))?;
        self.is_there().with_context(|| self.plan.disk.clone()).or_fail(FailureKind::Install)
    }

    fn finish(
        self,
        identity: &DiskIdentity,
        options: &ChangeOptions,
        observer: &mut dyn Observer,
    ) -> Result<Box<ChangeReport>, Failure> {
        self.plan.warnings.iter().for_each(|warning| observer.note(warning));
        mend::reported(&self.plan, identity, options, || self.carry_out(observer))
    }

    fn is_there(&self) -> Result<(), WrittenOver> {
        let found = probe::gpt(self.disk).map_err(WrittenOver::NotSeen)?;
        let mut parts = self.facts.gpt.parts;
        let growth = self.plan.growth.map(|growth| growth.after);
        parts[Part::Ephemeral.index()].len = growth.unwrap_or_default();
        if (found.disk_guid, found.parts) == (self.facts.gpt.disk_guid, parts) {
            Ok(())
        } else {
            Err(WrittenOver::Table)
        }
    }
}

pub fn run(
    disk: &DiskRequest,
    options: &ChangeOptions,
    observer: &mut dyn Observer,
) -> Result<Box<ChangeReport>, Failure> {
    // Mostly there is nothing to do. This check takes no lock, and wakes no program that watches for writers.
    let looked = disk.look()?;
    if let Ok(growing) = Growing::look(&looked, &looked.identity().path)
        && growing.plan.steps.is_empty()
    {
        return growing.finish(looked.identity(), options, observer);
    }
    drop(looked);
    let opened = disk.open(Access::Write, observer)?;
    let identity = opened.identity();
    Growing::look(&opened, &identity.path)?.finish(identity, options, observer)
}
