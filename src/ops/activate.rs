//! Verifies the staged slot again, and has the next boot try it once.

use slipway_core::{
    boot::slot::Slot,
    digest::Sha256,
    plan::{self, ActivateRequest, Plan, Refusals, RequestBase, SystemFacts},
    report::{ChangeReport, Observer},
};

use super::{
    Change, ChangeOptions, DiskRequest,
    clones::Clones,
    installed_disk::{self, first_unverified},
};
use crate::{device::Access, error::Failure, execute::Sources};

#[derive(Clone, Copy, Debug)]
pub struct Activate {
    /// Keep EPHEMERAL. Otherwise it is erased, so nothing may use the disk.
    pub preserve: bool,
}

impl Change for Activate {
    fn to_verify(&self, system: &SystemFacts) -> Option<Slot> {
        let running = system.running.slot()?;
        first_unverified([!running, running], system)
    }

    fn decide(&self, base: &RequestBase, system: &SystemFacts) -> Result<Plan, Refusals> {
        plan::activate(&ActivateRequest { base: base.clone(), preserve: self.preserve }, system)
    }

    fn payload(&self, system: &SystemFacts) -> Option<Sha256> {
        system.running.slot().and_then(|running| system.slots[!running].payload())
    }
}

pub fn run(
    disk: &DiskRequest,
    request: Activate,
    options: ChangeOptions,
    observer: &mut dyn Observer,
) -> Result<Box<ChangeReport>, Failure> {
    let access = if request.preserve { Access::Write } else { Access::Whole };
    let opened = disk.open(access)?;
    let installed = installed_disk::look(disk, &opened)?;
    Clones::look(&opened, &installed.system.gpt).check(observer)?;
    installed.change(&request, Sources::default(), options, observer)
}
