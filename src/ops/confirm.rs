//! Makes the running trial the default.

use slipway_core::{
    boot::slot::Slot,
    digest::Sha256,
    plan::{self, Plan, Refusals, RequestBase, SystemFacts},
    report::{ChangeReport, FailureKind, Observer},
};

use super::{
    Change, ChangeOptions, DiskRequest,
    health::{self, Checks, NotWell},
    installed_disk::{self, first_unverified},
};
use crate::{
    device::Access,
    error::{Failure, OrFail as _},
};

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

/// `checks` are run first if there is a trial to confirm, and not in a dry run.
pub fn run(
    disk: &DiskRequest,
    checks: Option<&Checks>,
    options: ChangeOptions,
    observer: &mut dyn Observer,
) -> Result<Box<ChangeReport>, Failure> {
    if let Some(checks) = checks.filter(|_| !options.dry_run) {
        pass(disk, checks, observer)?;
    }
    installed_disk::change(disk, Access::BootState, &Confirm, options, observer)
}

/// The disk is not locked meanwhile: checks take time, and may look at it themselves.
fn pass(disk: &DiskRequest, checks: &Checks, observer: &mut dyn Observer) -> Result<(), Failure> {
    let opened = disk.look()?;
    if plan::unconfirmed(&installed_disk::look(disk, &opened)?.system).is_none() {
        return Ok(());
    }
    drop(opened);
    let Err(NotWell(failed)) = checks.run(observer) else { return Ok(()) };
    if let Err(e) = health::record(disk, &failed, observer) {
        observer.note(&format!("this is not recorded on the disk: {e}"));
    }
    Err(NotWell(failed)).or_fail(FailureKind::Dependency)
}
