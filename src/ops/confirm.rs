//! Makes the running trial the default.

use slipway_core::{
    boot::slot::Slot,
    digest::Sha256,
    plan::{self, Plan, Refusals, RequestBase, SystemFacts},
    report::{ChangeReport, Observer},
};

use super::{
    Change, ChangeOptions, DiskRequest,
    installed_disk::{self, first_unverified},
};
use crate::{device::Access, error::Failure};

#[derive(Clone, Copy, Debug)]
pub struct Confirm;

impl Change for Confirm {
    // A slot that is the default already is not read again.
    fn to_verify(&self, system: &SystemFacts) -> Option<Slot> {
        let default = system.env.as_ref().map(|env| env.default);
        first_unverified(system.running.slot().filter(|running| Some(*running) != default), system)
    }

    fn decide(&self, base: &RequestBase, system: &SystemFacts) -> Result<Plan, Refusals> {
        plan::confirm(base, system)
    }

    fn payload(&self, system: &SystemFacts) -> Option<Sha256> {
        system.running.slot().and_then(|running| system.slots[running].payload())
    }
}

pub fn run(
    disk: &DiskRequest,
    options: ChangeOptions,
    observer: &mut dyn Observer,
) -> Result<Box<ChangeReport>, Failure> {
    installed_disk::change(disk, Access::BootState, &Confirm, options, observer)
}
