//! Erases STATE or EPHEMERAL and makes them anew.

use slipway_core::{
    boot::slot::Slot,
    disk::layout::Part,
    plan::{self, Plan, Refusals, RequestBase, SystemFacts, WipeRequest},
    report::{ChangeReport, Observer},
};

use super::{Change, ChangeOptions, DiskRequest, installed_disk};
use crate::{device::Access, error::Failure};

#[derive(Clone, Debug)]
pub struct Wipe {
    /// Each once, in order of partition number.
    pub parts: Vec<Part>,
    /// Make file systems on them. None: only where there was one, or where boot.env says that there is to be one.
    pub format: Option<bool>,
}

impl Change for Wipe {
    fn to_verify(&self, _: &SystemFacts) -> Option<Slot> {
        None
    }

    fn decide(&self, base: &RequestBase, system: &SystemFacts) -> Result<Plan, Refusals> {
        plan::wipe(&WipeRequest { base: base.clone(), parts: self.parts.clone(), format: self.format }, system)
    }
}

/// Refused while anything uses one of the volumes. The rest of the disk may be in use.
pub fn run(
    disk: &DiskRequest,
    request: Wipe,
    options: ChangeOptions,
    observer: &mut dyn Observer,
) -> Result<Box<ChangeReport>, Failure> {
    installed_disk::change(disk, Access::Write, &request, options, observer)
}
