//! Writes again what is lost and stands on the disk a second time, and boot.env if both copies are lost.

use anyhow::Context as _;
use slipway_core::{
    boot::slot::{Slot, SlotState},
    plan::{self, Plan, Refusals, RequestBase, SystemFacts},
    report::{ChangeReport, FailureKind, Observer},
};

use super::{
    Change, ChangeOptions, DiskRequest,
    installed_disk::{self, first_unverified},
};
use crate::{
    device::Access,
    error::{Failure, OrFail as _},
};

/// What could be repaired is, and something is left.
#[derive(Debug, thiserror::Error)]
#[error("{result}; not repaired:{}", listed(left))]
pub struct NotRepaired {
    /// What is true now, as a sentence.
    result: String,
    /// Each with its remedy.
    left: Vec<String>,
}

fn listed(left: &[String]) -> String {
    left.iter().map(|one| format!("\n  - {one}")).collect()
}

#[derive(Clone, Copy, Debug)]
pub struct Repair;

impl Change for Repair {
    /// What is called good must be whole before it is marked so.
    fn to_verify(&self, system: &SystemFacts) -> Option<Slot> {
        let good = |slot: &Slot| system.env.as_ref().is_none_or(|env| env.states[*slot] == SlotState::Good);
        first_unverified(Slot::BOTH.into_iter().filter(good), system)
    }

    fn decide(&self, base: &RequestBase, system: &SystemFacts) -> Result<Plan, Refusals> {
        plan::repair(base, system)
    }
}

pub fn run(
    disk: &DiskRequest,
    options: ChangeOptions,
    observer: &mut dyn Observer,
) -> Result<Box<ChangeReport>, Failure> {
    let report = installed_disk::change(disk, Access::BootState, &Repair, options, observer)?;
    if report.dry_run || report.plan.left.is_empty() {
        return Ok(report);
    }
    let Plan { result, left, .. } = report.plan;
    Err(NotRepaired { result, left }).context(report.disk.path).or_fail(FailureKind::Install)
}
