//! Goes back: cancels a pending trial, gives up the running one, or makes the other slot the default.

use slipway_core::{
    boot::slot::Slot,
    plan::{self, Plan, Refusals, RequestBase, SystemFacts},
    report::{ChangeReport, Observer},
};

use super::{
    Change, ChangeOptions, DiskRequest,
    installed_disk::{self, first_unverified},
};
use crate::{device::Access, error::Failure};

#[derive(Clone, Copy, Debug)]
pub struct Rollback;

impl Change for Rollback {
    fn to_verify(&self, system: &SystemFacts) -> Option<Slot> {
        first_unverified(Slot::BOTH, system)
    }

    fn decide(&self, base: &RequestBase, system: &SystemFacts) -> Result<Plan, Refusals> {
        plan::rollback(base, system)
    }
}

pub fn run(
    disk: &DiskRequest,
    options: ChangeOptions,
    observer: &mut dyn Observer,
) -> Result<Box<ChangeReport>, Failure> {
    installed_disk::change(disk, Access::BootState, &Rollback, options, observer)
}
