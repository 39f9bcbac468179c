//! Make the running trial the default.

use slipway_core::{
    digest::Sha256,
    plan::{self, Plan, Refusals, RequestBase, SystemFacts},
    report::{ChangeReport, Observer},
};

use super::{Change, ChangeOptions, DiskRequest, InstalledDisk, installed_disk};
use crate::{device::Access, error::Failure};

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Confirm;

impl Change for Confirm {
    fn prepare(&mut self, disk: &mut InstalledDisk, observer: &mut dyn Observer) -> Result<(), Failure> {
        let system = &disk.system;
        let is_default = |slot| system.env.as_ref().is_none_or(|env| env.default == slot);
        // Only a slot that is to become the default has to be whole.
        if let Some(running) = system.running.slot().filter(|slot| !is_default(*slot)) {
            disk.verify_slot(running, observer);
        }
        Ok(())
    }

    fn decide(&self, base: &RequestBase, system: &SystemFacts) -> Result<Plan, Refusals> {
        plan::confirm(base, system)
    }

    fn payload(&self, system: &SystemFacts) -> Option<Sha256> {
        system.running.slot().and_then(|running| system.slots[running].payload())
    }
}

/// Confirm.
pub fn run(
    disk: &DiskRequest,
    options: ChangeOptions,
    observer: &mut dyn Observer,
) -> Result<Box<ChangeReport>, Failure> {
    installed_disk::change(disk, Access::Write, &mut Confirm, options, observer)
}
