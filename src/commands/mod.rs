//! Turns the arguments of each verb into a request, which [`crate::ops`] carries out. Most verbs have a file of their own;
//! `change` has those that change the state of a disk.

mod asked;
mod auto_upgrade;
mod bootloader;
mod change;
mod completions;
mod defaults;
mod efi;
mod image;
mod imager;
mod inspect;
mod install;
mod man;
mod payload;
mod request;
mod stdin;
mod upgrade;

use slipway_core::report::{FailureKind, HistoryReport, Observer, Report, StatusReport};

use defaults::Defaults;

use crate::{
    cli::{
        Cli, Imager, Output, Progress, Tracker, Verb, environment::Environment, name_of, terminal::columns_of_stdout,
    },
    error::{Failure, OrFail as _},
    ops,
};

pub use image::image_request;
pub use imager::image_request as imager_request;
pub use stdin::StdinError;

/// Result of a run, and the notes that were told on the way.
pub type Ended = (Result<Report, Failure>, Vec<String>);

pub fn run(cli: Cli, environment: Environment) -> Ended {
    let mut tracker = Tracker::begin(Progress::new(cli.progress), name_of(&cli.verb), cli.output);
    let result = carry_out(cli.verb, environment, &mut tracker);
    let told = tracker.end(&result);
    (result, told)
}

fn carry_out(verb: Verb, environment: Environment, progress: &mut dyn Observer) -> Result<Report, Failure> {
    match verb {
        Verb::Install(args) => install::run(*args, Defaults::read(environment, progress)?, progress),
        Verb::Image(args) => image::run(&args, environment, progress),
        Verb::Unattended(args) => install::unattended(&args, Defaults::read(environment, progress)?, progress),
        Verb::Upgrade(args) => upgrade::run(&args, &Defaults::read(environment, progress)?, progress),
        Verb::AutoUpgrade(args) => auto_upgrade::run(*args, environment, progress),
        Verb::Stage(args) => upgrade::stage(&args, environment, progress),
        Verb::Activate(args) => change::activate(&args, progress),
        Verb::Confirm(args) => change::confirm(&args, progress),
        Verb::Guard(args) => change::guard(args, progress),
        Verb::Rollback(args) => change::rollback(&args, progress),
        Verb::Repair(args) => change::repair(&args, progress),
        Verb::Bootloader(args) => bootloader::run(args.verb, progress),
        Verb::Grow(args) => change::grow(&args, progress),
        Verb::Wipe(args) => change::wipe(&args, progress),
        Verb::Status(args) => {
            let report = ops::status::run(&args.target.request(progress)?, args.full, progress)?;
            Ok(Report::Status(Box::new(StatusReport { columns: columns_of_stdout(), ..report })))
        }
        Verb::History(args) => {
            let report = ops::history::run(&args.target.request(progress)?, args.limit)?;
            Ok(Report::History(HistoryReport { columns: columns_of_stdout(), ..report }))
        }
        Verb::Verify(args) => {
            ops::verify::run(&args.request(progress)?, progress).map(|report| Report::Verify(Box::new(report)))
        }
        Verb::Support(args) => inspect::support(&args, progress),
        Verb::Inspect(args) => inspect::run(args, progress),
        Verb::Pull(args) => payload::pull(args, progress),
        Verb::Push(args) => payload::push(args, progress),
        Verb::Chunk(args) => payload::chunk(&args, progress),
        Verb::Checksum(args) => payload::checksum(args, progress),
        Verb::Sign(args) => payload::sign(args, progress),
        Verb::Attest(args) => payload::attest(args, progress),
        Verb::Uki(args) => efi::uki(*args, &environment, progress),
        Verb::Keys(args) => efi::keys(args, progress),
        Verb::Enroll(args) => efi::enroll(args, progress),
        Verb::Meta(args) => change::meta(args.verb, progress),
        Verb::Snapshot(args) => change::snapshot(args.verb, progress),
        Verb::Completions { shell } => Ok(completions::completions(shell)),
        Verb::Man { dir } => man::man(&dir),
    }
}

/// The program under its other name, `imager`.
pub fn imager(args: &Imager) -> Ended {
    let mut tracker = Tracker::begin(Progress::new(args.progress), "imager", Output::Human);
    let result = imager::run(args, &mut tracker);
    let told = tracker.end(&result);
    (result, told)
}

/// An argument that cannot be parsed is wrong input.
fn input<T>(result: Result<T, String>) -> Result<T, Failure> {
    result.map_err(anyhow::Error::msg).or_fail(FailureKind::Input)
}
