//! LAYER 4: one file per verb, all of the same shape: settle what was asked, look, decide, do, report.

mod activate;
mod change;
mod confirm;
mod generate;
mod inspect;
mod install;
mod meta;
mod rollback;
mod seal;
mod status;
mod upgrade;
mod verify;
mod wipe;

use std::{fs, time::SystemTime};

use anyhow::Context as _;

use crate::{
    cli::{Cli, DiskArgs, Verb},
    device::{Access, Disk},
    error::{Failure, Kind, OrFail as _},
    execute::Observer as _,
    plan::SystemFacts,
    probe,
    report::{Progress, Report},
};

/// Run a command.
pub fn run(cli: Cli) -> Result<Report, Failure> {
    let mut progress = Progress::new(cli.progress);
    match cli.verb {
        Verb::Install(args) if args.upgrade => {
            if args.zero {
                progress.note("--zero has no effect with --upgrade");
            }
            upgrade::run((*args).into(), &mut progress)
        }
        Verb::Install(args) => install::run(*args, &mut progress),
        Verb::Upgrade(args) => upgrade::run(*args, &mut progress),
        Verb::Stage(args) => upgrade::stage(*args, &mut progress),
        Verb::Activate(args) => activate::run(&args, &mut progress),
        Verb::Confirm(args) => confirm::run(&args, &mut progress),
        Verb::Rollback(args) => rollback::run(args, &mut progress),
        Verb::Wipe(args) => wipe::run(&args, &mut progress),
        Verb::Status(args) => status::run(&args),
        Verb::Verify(args) => verify::run(&args, &mut progress),
        Verb::Inspect(args) => inspect::run(&args, &mut progress),
        Verb::Seal(args) => seal::run(&args, &mut progress),
        Verb::Meta(args) => meta::run(args.verb, &mut progress),
        Verb::Completions { shell } => Ok(generate::completions(shell)),
        Verb::Man { dir } => generate::man(&dir),
    }
}

/// Open an installed disk.
fn open(target: &DiskArgs, access: Access) -> Result<Disk, Failure> {
    Disk::open(&target.disk, access, None, target.lock_timeout).or_fail(Kind::Install)
}

/// Open an installed disk and look at it.
fn look(target: &DiskArgs, access: Access) -> Result<(Disk, SystemFacts), Failure> {
    let disk = open(target, access)?;
    let cmdline = fs::read_to_string("/proc/cmdline").context("/proc/cmdline").or_fail(Kind::Environment)?;
    let context = || target.disk.display().to_string();
    let system = probe::system(&disk, &cmdline).with_context(context).or_fail(Kind::Install)?;
    Ok((disk, system))
}

/// Seconds since 1970 UTC.
fn now() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(0, |since| since.as_secs())
}

/// What an argument means, or wrong input.
fn input<T>(result: Result<T, String>) -> Result<T, Failure> {
    result.map_err(anyhow::Error::msg).or_fail(Kind::Input)
}
