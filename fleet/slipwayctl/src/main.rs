//! `slipwayctl`: asks the nodes of a cluster to stage, upgrade, roll back; watches them; shows the
//! fleet; makes certificates.
//!
//! * [`cli`]: the command line
//! * [`config`]: the file with contexts, and where a call goes
//! * [`connect`]: TLS or the Unix socket
//! * [`failure`]: how it ends, and the exit status
//! * [`commands`]: what each command does
//! * [`fleet`]: the rollouts of a cluster, and people's word to them
//! * [`show`]: answers and events for people, and as JSON

mod cli;
mod commands;
mod config;
mod connect;
mod failure;
mod fleet;
mod show;

use std::process::ExitCode;

use clap::{Parser as _, error::ErrorKind};

use cli::Cli;
use failure::Failure;
use show::Output;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    let output = Output::new(cli.target.output);
    // One thread: there is one connection.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let ended = match runtime {
        Ok(runtime) => runtime.block_on(commands::run(cli, &output)),
        Err(e) => Err(Failure::Failed(format!("the system gives no event queue: {e}"))),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output.failure(&failure);
            ExitCode::from(failure.code())
        }
    }
}

/// As the installer's: 1 for an unknown flag or verb, 2 for a wrong value.
fn usage(error: &clap::Error) -> ExitCode {
    let _ = error.print();
    ExitCode::from(match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => 0,
        ErrorKind::InvalidValue | ErrorKind::ValueValidation | ErrorKind::MissingRequiredArgument => 2,
        _ => 1,
    })
}
