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
pub struct Rollback {
    /// Nothing runs from the disk.
    pub offline: bool,
}

impl Change for Rollback {
    fn to_verify(&self, system: &SystemFacts) -> Option<Slot> {
        first_unverified(Slot::BOTH, system)
    }

    fn decide(&self, base: &RequestBase, system: &SystemFacts) -> Result<Plan, Refusals> {
        if self.offline { plan::rollback_offline(base, system) } else { plan::rollback(base, system) }
    }
}

pub fn run(
    disk: &DiskRequest,
    request: Rollback,
    options: ChangeOptions,
    observer: &mut dyn Observer,
) -> Result<Box<ChangeReport>, Failure> {
    let access = if request.offline { Access::Whole } else { Access::BootState };
    installed_disk::change(disk, access, &request, options, observer)
}
