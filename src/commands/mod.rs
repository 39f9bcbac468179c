//! Turns the arguments of each verb into a request, one short file for each. [`crate::ops`] carries the requests out.

mod change;
mod checksum;
mod defaults;
mod generate;
mod image;
mod imager;
mod inspect;
mod install;
mod meta;
mod pull;
mod request;
mod stdin;
mod unattended;
mod upgrade;

use slipway_core::report::{FailureKind, Report};

use defaults::Defaults;

use crate::{
    cli::{Cli, Imager, Progress, Verb, environment::Environment},
    error::{Failure, OrFail as _},
    ops,
};

pub use image::image_request;
pub use imager::image_request as imager_request;

pub fn run(cli: Cli, environment: Environment) -> Result<Report, Failure> {
    let progress = &mut Progress::new(cli.progress);
    match cli.verb {
        Verb::Install(args) => install::run(*args, Defaults::read(environment, progress)?, progress),
        Verb::Image(args) => image::run(&args, environment, progress),
        Verb::Unattended(args) => unattended::run(&args, Defaults::read(environment, progress)?, progress),
        Verb::Upgrade(args) => upgrade::run(&args, &Defaults::read(environment, progress)?, progress),
        Verb::Stage(args) => upgrade::stage(&args, environment, progress),
        Verb::Activate(args) => change::activate(&args, progress),
        Verb::Confirm(args) => change::confirm(&args, progress),
        Verb::Rollback(args) => change::rollback(&args, progress),
        Verb::Repair(args) => change::repair(&args, progress),
        Verb::Wipe(args) => change::wipe(&args, progress),
        Verb::Status(args) => {
            let report = ops::status::run(&args.target.request(), args.full, progress)?;
            Ok(Report::Status(Box::new(report)))
        }
        Verb::Verify(args) => ops::verify::run(&args.request(), progress).map(Report::Verify),
        Verb::Inspect(args) => inspect::run(args, progress),
        Verb::Pull(args) => pull::run(args, progress),
        Verb::Checksum(args) => checksum::run(args, progress),
        Verb::Meta(args) => meta::run(args.verb, progress),
        Verb::Completions { shell } => Ok(generate::completions(shell)),
        Verb::Man { dir } => generate::man(&dir),
    }
}

/// The program under its other name, `imager`.
pub fn imager(args: &Imager) -> Result<Report, Failure> {
    imager::run(args)
}

/// An argument that cannot be parsed is wrong input.
fn input<T>(result: Result<T, String>) -> Result<T, Failure> {
    result.map_err(anyhow::Error::msg).or_fail(FailureKind::Input)
}
