//! `installer push SOURCE docker://REFERENCE`.

use slipway_core::report::{Observer, Report};

use crate::{cli::PushArgs, error::Failure, ops::push};

pub fn run(args: PushArgs, observer: &mut dyn Observer) -> Result<Report, Failure> {
    let PushArgs { source, to, registry } = args;
    push::run(&push::Request { source, to: to.0, registry: registry.options() }, observer).map(Report::Push)
}
