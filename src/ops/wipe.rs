//! Make STATE or EPHEMERAL anew.

use slipway_core::{
    boot::slot::Slot,
    disk::layout::Part,
    plan::{self, Plan, Refusals, RequestBase, SystemFacts, WipeRequest},
    report::{ChangeReport, Observer},
};

use super::{Change, ChangeOptions, DiskRequest, installed_disk};
use crate::{device::Access, error::Failure};

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Wipe {
    /// The volumes, each once, in order of number.
    pub parts: Vec<Part>,
    /// Make file systems on them; none for what was there.
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

/// Wipe. The disk must be out of use.
pub fn run(
    disk: &DiskRequest,
    request: Wipe,
    options: ChangeOptions,
    observer: &mut dyn Observer,
) -> Result<Box<ChangeReport>, Failure> {
    installed_disk::change(disk, Access::Whole, &request, options, observer)
}
