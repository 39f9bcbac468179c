//! `installer activate`.

use super::change::Target;
use crate::{
    cli::{ActivateArgs, Progress},
    error::Failure,
    execute::Sources,
};
use slipway_core::{
    plan::{self, ActivateRequest},
    report::Report,
};

pub fn run(args: &ActivateArgs, progress: &mut Progress) -> Result<Report, Failure> {
    let mut target = Target::open(&args.change.target, !args.preserve)?;
    if let Some(running) = target.system.running.slot() {
        target.check(!running, progress);
        target.check(running, progress);
    }
    let payload = target.system.running.slot().and_then(|s| target.system.slots[!s].payload());
    let decide = |base: &plan::RequestBase, system: &plan::SystemFacts| {
        plan::activate(&ActivateRequest { base: base.clone(), preserve: args.preserve }, system)
    };
    target.change(&args.change, Sources::default(), payload, decide, progress).map(Report::Change)
}
