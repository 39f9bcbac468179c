//! `installer confirm`.

use super::change::Target;
use crate::{
    cli::{ChangeArgs, Progress},
    error::Failure,
    execute::Sources,
};
use slipway_core::{plan, report::Report};

pub fn run(args: &ChangeArgs, progress: &mut Progress) -> Result<Report, Failure> {
    let mut target = Target::open(&args.target, false)?;
    let running = target.system.running.slot();
    if let Some(slot) = running.filter(|s| target.system.env.as_ref().is_some_and(|env| env.default != *s)) {
        target.check(slot, progress);
    }
    let payload = running.and_then(|s| target.system.slots[s].payload());
    target.change(args, Sources::default(), payload, plan::confirm, progress).map(Report::Change)
}
