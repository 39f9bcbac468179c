//! LAYER 4: one file per verb, all of the same shape: settle what was asked, look, decide, do, report.

mod activate;
mod change;
mod checksum;
mod confirm;
mod generate;
mod image;
mod imager;
mod inspect;
mod install;
mod layout;
mod live;
mod meta;
mod payload;
mod pull;
mod rollback;
mod said;

mod status;
mod stdin;
mod unattended;
mod upgrade;
mod verify;
mod wipe;

use std::{fs, time::SystemTime};

use anyhow::Context as _;

use said::Said;

use crate::{
    cli::{Cli, DiskArgs, Imager, Progress, Verb, environment::Environment},
    device::{Access, Disk},
    error::{Failure, OrFail as _},
    execute::Observer as _,
    probe,
};
use slipway_core::{
    plan::SystemFacts,
    report::{FailureKind, Report},
};

/// Run a command.
pub fn run(cli: Cli, environment: Environment) -> Result<Report, Failure> {
    let mut progress = Progress::new(cli.progress);
    match cli.verb {
        Verb::Install(mut args) => {
            let said = Said::all(environment, &mut progress)?;
            let extra = std::mem::take(&mut args.system.extra_kernel_arg);
            args.system.extra_kernel_arg = said.extra_kernel_args(extra, &mut progress);
            let disk = said.disk(args.disk.as_deref(), &mut progress)?;
            if !args.upgrade {
                return install::run(&args, &disk, &said, &mut progress);
            }
            if args.zero == Some(true) {
                progress.note("--zero has no effect with --upgrade");
            }
            upgrade::run(args.upgrade_of(disk), &said, &mut progress)
        }
        Verb::Image(args) => image::run(&args, &Said::environment(environment), &mut progress),
        Verb::Unattended(args) => {
            let said = Said::all(environment, &mut progress)?;
            unattended::run(*args, &said, &mut progress)
        }
        Verb::Upgrade(args) => {
            let said = Said::all(environment, &mut progress)?;
            upgrade::run(*args, &said, &mut progress)
        }
        Verb::Stage(args) => upgrade::stage(*args, &Said::environment(environment), &mut progress),
        Verb::Activate(args) => activate::run(&args, &mut progress),
        Verb::Confirm(args) => confirm::run(&args, &mut progress),
        Verb::Rollback(args) => rollback::run(args, &mut progress),
        Verb::Wipe(args) => wipe::run(&args, &mut progress),
        Verb::Status(args) => status::run(&args),
        Verb::Verify(args) => verify::run(&args, &mut progress),
        Verb::Inspect(args) => inspect::run(&args, &mut progress),
        Verb::Pull(args) => pull::run(&args, &mut progress),
        Verb::Checksum(args) => checksum::run(&args, &mut progress),
        Verb::Meta(args) => meta::run(args.verb, &mut progress),
        Verb::Completions { shell } => Ok(generate::completions(shell)),
        Verb::Man { dir } => generate::man(&dir),
    }
}

/// `imager`, the other name of the program.
pub fn imager(args: &Imager) -> Result<Report, Failure> {
    imager::run(args)
}

/// Open an installed disk.
fn open(target: &DiskArgs, access: Access) -> Result<Disk, Failure> {
    Disk::open(&target.disk, access, None, target.lock_timeout).or_fail(FailureKind::Install)
}

/// Open an installed disk and look at it.
fn look(target: &DiskArgs, access: Access) -> Result<(Disk, SystemFacts), Failure> {
    let disk = open(target, access)?;
    let context = || target.disk.display().to_string();
    let system = probe::system(&disk, &kernel_cmdline()?).with_context(context).or_fail(FailureKind::Install)?;
    Ok((disk, system))
}

/// The command line of the running kernel.
fn kernel_cmdline() -> Result<String, Failure> {
    fs::read_to_string("/proc/cmdline").context("/proc/cmdline").or_fail(FailureKind::Environment)
}

/// Seconds since 1970 UTC.
fn now() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(0, |since| since.as_secs())
}

/// What an argument means, or wrong input.
fn input<T>(result: Result<T, String>) -> Result<T, Failure> {
    result.map_err(anyhow::Error::msg).or_fail(FailureKind::Input)
}
