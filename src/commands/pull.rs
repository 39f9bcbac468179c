//! `installer pull SOURCE oci:DIR`.

use slipway_core::report::{Observer, Report};

use crate::{cli::PullArgs, error::Failure, ops::pull};

pub fn run(args: PullArgs, observer: &mut dyn Observer) -> Result<Report, Failure> {
    let (registry, trust) = (args.registry.options(), args.trust.request());
    let PullArgs { source, to, arch, reuse, .. } = args;
    pull::run(&pull::Request { source, to, arch, reuse, registry, trust }, observer).map(Report::Pull)
}
