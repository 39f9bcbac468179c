//! `installer rollback`.

use super::change::Target;
use crate::{
    cli::{ChangeArgs, Progress, RollbackArgs},
    error::Failure,
    execute::Sources,
};
use slipway_core::{boot::slot::Slot, plan, report::Report};

pub fn run(args: RollbackArgs, progress: &mut Progress) -> Result<Report, Failure> {
    let change = ChangeArgs { dry_run: args.change.dry_run || args.check, ..args.change };
    let mut target = Target::open(&change.target, false)?;
    Slot::BOTH.into_iter().for_each(|slot| target.check(slot, progress));
    target.change(&change, Sources::default(), None, plan::rollback, progress).map(Report::Change)
}
