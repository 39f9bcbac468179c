//! `installer upgrade` and `installer stage`.

use slipway_core::{
    disk::layout::Part,
    report::{Observer, Report},
};

use super::{change::renewal, defaults::Defaults, request::meta_tags};
use crate::{
    cli::{StageArgs, UpgradeArgs, environment::Environment},
    error::Failure,
    ops::{
        self, KernelArgsRequest,
        bootloader::Renewal,
        upgrade::{Afterwards, KernelArgsChoice, Request},
    },
};

pub fn run(args: &UpgradeArgs, defaults: &Defaults, observer: &mut dyn Observer) -> Result<Report, Failure> {
    let afterwards = activated(args.preserve, defaults);
    let request = Request {
        meta: meta_tags(&args.meta, defaults)?,
        renewal: renewal(&args.renewal),
        snapshot: !args.keep.no_snapshot,
        ..request(&args.stage, afterwards, defaults)
    };
    carry_out(&args.stage, &request, observer)
}

pub fn stage(args: &StageArgs, environment: Environment, observer: &mut dyn Observer) -> Result<Report, Failure> {
    let request = request(args, Afterwards::Staged, &Defaults::environment(environment));
    carry_out(args, &request, observer)
}

/// An EPHEMERAL that the OS encrypts is left blank, not formatted.
pub fn activated(preserve: bool, defaults: &Defaults) -> Afterwards {
    Afterwards::Activated { preserve, blank_ephemeral: defaults.encrypted().contains(&Part::Ephemeral) }
}

fn request(args: &StageArgs, afterwards: Afterwards, defaults: &Defaults) -> Request {
    Request {
        runs_from: args.offline.runs_from(),
        source: args.source.request(),
        afterwards,
        kernel_args: KernelArgsChoice::Kept(KernelArgsRequest {
            platform: args.platform.map(|platform| platform.0),
            config: args.config.clone(),
            extra: args.extra_kernel_arg.clone(),
            payload_only: defaults.payload_only(),
        }),
        meta: vec![],
        exceptions: args.exceptions.exceptions(),
        arch: args.arch,
        limit_rate: args.limit_rate,
        renewal: Renewal::Keep,
        snapshot: false,
    }
}

fn carry_out(args: &StageArgs, request: &Request, observer: &mut dyn Observer) -> Result<Report, Failure> {
    let disk = args.change.target.request(observer)?;
    ops::upgrade::run(&disk, request, args.change.options(), observer).map(Report::Change)
}
