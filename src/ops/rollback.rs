//! Go back: cancel a pending trial, give up the running one, or make the other slot the default.

use slipway_core::{
    boot::slot::Slot,
    digest::Sha256,
    plan::{self, Plan, Refusals, RequestBase, SystemFacts},
    report::{ChangeReport, Observer},
};

use super::{Change, ChangeOptions, DiskRequest, InstalledDisk, installed_disk};
use crate::{device::Access, error::Failure};

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Rollback;

impl Change for Rollback {
    fn prepare(&mut self, disk: &mut InstalledDisk, observer: &mut dyn Observer) -> Result<(), Failure> {
        Slot::BOTH.into_iter().for_each(|slot| disk.verify_slot(slot, observer));
        Ok(())
    }

    fn decide(&self, base: &RequestBase, system: &SystemFacts) -> Result<Plan, Refusals> {
        plan::rollback(base, system)
    }

    fn payload(&self, _: &SystemFacts) -> Option<Sha256> {
        None
    }
}

/// Roll back.
pub fn run(
    disk: &DiskRequest,
    options: ChangeOptions,
    observer: &mut dyn Observer,
) -> Result<Box<ChangeReport>, Failure> {
    installed_disk::change(disk, Access::Write, &mut Rollback, options, observer)
}
