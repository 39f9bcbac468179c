//! Verifies the staged slot again, and has the next boot try it once.

use slipway_core::{
    boot::slot::Slot,
    digest::Sha256,
    plan::{self, ActivateRequest, Plan, Refusals, RequestBase, RunsFrom, SystemFacts},
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
    /// Whether a slot of this disk is running.
    pub runs_from: RunsFrom,
    /// Keep EPHEMERAL. Otherwise it is erased, so nothing may use it.
    pub preserve: bool,
}

impl Change for Activate {
    fn to_verify(&self, system: &SystemFacts) -> Option<Slot> {
        let kept = self.runs_from.kept(system)?;
        first_unverified([!kept, kept], system)
    }

    fn decide(&self, base: &RequestBase, system: &SystemFacts) -> Result<Plan, Refusals> {
        let Activate { runs_from, preserve } = *self;
        plan::activate(&ActivateRequest { base: base.clone(), runs_from, preserve }, system)
    }

    fn payload(&self, system: &SystemFacts) -> Option<Sha256> {
        self.runs_from.kept(system).and_then(|kept| system.slots[!kept].payload())
    }
}

pub fn run(
    disk: &DiskRequest,
    request: Activate,
    options: ChangeOptions,
    observer: &mut dyn Observer,
) -> Result<Box<ChangeReport>, Failure> {
    let inside = request.runs_from == RunsFrom::Inside;
    let access = if inside { Access::Write } else { Access::Whole };
    let opened = disk.open(access, observer)?;
    let installed = installed_disk::look(disk, &opened)?;
    if inside {
        Clones::look(&opened, &installed.system.gpt).check(observer)?;
    }
    installed.change(&request, Sources::default(), options, observer)
}
