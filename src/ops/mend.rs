//! Repairs of the partition table and of LBA 0. Without these a disk does not read as one of ours, so each is a plan of its own,
//! and the next `repair` finds what else is lost.

use anyhow::Context as _;
use slipway_core::{
    disk::{
        gpt_grow::{GrownGpt, Place},
        identity::DiskIdentity,
    },
    plan::{self, Asked, Plan, RequestBase, Step},
    report::{ChangeReport, FailureKind, Observer},
};

use super::{ChangeOptions, PlanChanged, WrittenOver, after_failure};
use crate::{
    bootloader::Loaders,
    device::{BlockIo, Disk},
    error::{Failure, OrFail as _},
    execute::{self, Sources},
    probe::{self, MendedLba0, MendedTable},
};

/// A disk that is to be mended, and the bytes that its plan refers to.
pub struct Mend {
    pub plan: Plan,
    new: New,
}

enum New {
    /// LBA 0.
    Lba0(Vec<u8>),
    /// The table, and LBA 1 before, if it could be read.
    Table(GrownGpt, Option<Vec<u8>>),
}

fn base(name: &str) -> RequestBase {
    RequestBase { disk: name.to_owned(), now: 0, asked: Asked::default() }
}

/// None if LBA 0 is not lost, or no table of ours stands behind it. `name` is for people; `loaders` may have the boot code that
/// the disk was installed with, and is asked only if the disk has lost its own.
pub fn look_at_lba0<'l>(
    disk: &dyn BlockIo,
    name: &str,
    loaders: &dyn Fn() -> Option<&'l Loaders>,
) -> Result<Option<Mend>, Failure> {
    let code = |at| loaders()?.bios.as_ref().map(|bios| (bios.boot_code(at), bios.core_image(at)));
    let mended = probe::mended_lba0(disk, &code).context(name.to_owned()).or_fail(FailureKind::Install)?;
    let mend = |MendedLba0 { facts, bytes }| Mend { plan: plan::lba0(&base(name), &facts), new: New::Lba0(bytes) };
    Ok(mended.map(mend))
}

/// None if the table is whole, or if it is not certain what it held. `name` is for people.
pub fn look_at_table(disk: &dyn BlockIo, name: &str) -> Result<Option<Mend>, Failure> {
    let mended = super::ours(probe::mended_table(disk), name)?;
    let mend = |MendedTable { facts, lba1, .. }| Mend {
        plan: plan::mend_table(&base(name), &facts),
        new: New::Table(facts.table, lba1),
    };
    Ok(mended.map(mend))
}

impl Mend {
    pub fn carry_out(&self, disk: &dyn BlockIo, observer: &mut dyn Observer) -> Result<(), Failure> {
        disk.claim(&self.plan.steps.iter().flat_map(Step::writes).collect::<Vec<_>>())
            .context("claiming the partition table")
            .or_fail(FailureKind::Install)?;
        let none = Sources::default();
        let sources = match &self.new {
            New::Lba0(bytes) => Sources { lba0: Some(bytes), ..none },
            New::Table(table, lba1) => Sources { grown: Some((table, lba1.as_deref())), ..none },
        };
        execute::run(&self.plan, disk, sources, observer).map_err(|failed| match self.new {
            New::Lba0(_) => after_failure::of_lba0(failed, disk),
            New::Table(..) => after_failure::of_table(failed, disk),
        })?;
        self.is_there(disk).context(self.plan.disk.clone()).or_fail(FailureKind::Install)
    }

    fn is_there(&self, disk: &dyn BlockIo) -> Result<(), WrittenOver> {
        match &self.new {
            New::Lba0(_) => drop(probe::gpt(disk).map_err(WrittenOver::NotSeen)?),
            New::Table(table, lba1) => {
                let is_left = probe::mended_table(disk).map_err(WrittenOver::NotSeen)?.is_some();
                let is_primary =
                    |step: &Step| matches!(step, Step::WritePrimaryGpt { .. } | Step::WritePrimaryHeader { .. });
                let is_written = self.plan.steps.iter().any(is_primary);
                let primary = if is_written { Some(table.header(Place::Home)) } else { lba1.as_deref() };
                // A table that is whole may be another program's.
                if is_left || probe::lba1(disk).as_deref() != primary {
                    return Err(WrittenOver::Table);
                }
            }
        }
        Ok(())
    }

    pub fn run(
        self,
        disk: &Disk,
        options: &ChangeOptions,
        observer: &mut dyn Observer,
    ) -> Result<Box<ChangeReport>, Failure> {
        self.plan.warnings.iter().for_each(|warning| observer.note(warning));
        reported(&self.plan, disk.identity(), options, || self.carry_out(disk, observer))
    }
}

/// The report on a plan of the partition table, which is carried out if it is the one that was asked for.
pub fn reported(
    plan: &Plan,
    identity: &DiskIdentity,
    options: &ChangeOptions,
    carry_out: impl FnOnce() -> Result<(), Failure>,
) -> Result<Box<ChangeReport>, Failure> {
    let (plan_hash, dry_run) = (plan.hash(), options.dry_run);
    if let Some(asked) = options.plan_hash.filter(|asked| *asked != plan_hash) {
        let changed = PlanChanged::NotAsked { asked, now: plan_hash };
        return Err(changed).context(identity.path.clone()).or_fail(FailureKind::Install);
    }
    let changed = !dry_run && !plan.steps.is_empty();
    if changed {
        carry_out()?;
    }
    Ok(Box::new(ChangeReport {
        changed,
        dry_run,
        disk: identity.clone(),
        payload: None,
        bytes_fetched: 0,
        bytes_reused: 0,
        bytes_written: 0,
        plan_hash,
        plan: plan.clone(),
    }))
}
