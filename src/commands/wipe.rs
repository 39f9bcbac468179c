//! `installer wipe`.

use super::change::Target;
use crate::{
    cli::{DataVolume, Progress, WipeArgs},
    error::Failure,
    execute::Sources,
};
use slipway_core::{
    disk::layout::Part,
    plan::{self, WipeRequest},
    report::Report,
};

pub fn run(args: &WipeArgs, progress: &mut Progress) -> Result<Report, Failure> {
    let target = Target::open(&args.change.target, true)?;
    let mut volumes = args.volumes.clone();
    volumes.sort();
    volumes.dedup();
    let part = |volume: &DataVolume| match volume {
        DataVolume::State => Part::State,
        DataVolume::Ephemeral => Part::Ephemeral,
    };
    let parts: Vec<Part> = volumes.iter().map(part).collect();
    let decide = |base: &plan::RequestBase, system: &plan::SystemFacts| {
        plan::wipe(&WipeRequest { base: base.clone(), parts: parts.clone(), format: args.format_data }, system)
    };
    target.change(&args.change, Sources::default(), None, decide, progress).map(Report::Change)
}
