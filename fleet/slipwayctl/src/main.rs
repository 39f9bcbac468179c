//! `slipwayctl`: asks the nodes of a cluster to stage, upgrade, roll back; watches them; shows the
//! fleet; makes certificates.
//!
//! * [`authority`]: a directory with a CA, and what it signs
//! * [`cli`]: the command line
//! * [`config`]: the file with contexts, and the connection of each: TLS or the Unix socket
//! * [`failure`]: how it ends, and the exit status
//! * [`commands`]: what each command does
//! * [`fleet`]: the rollouts of a cluster, and people's word to them
//! * [`kubernetes`]: the versions of the control plane, and their upgrade
//! * [`output`]: where answers are printed, in each form
//! * [`show`]: what nodes say, for people

mod authority;
mod cli;
mod commands;
mod config;
mod failure;
mod fleet;
mod kubernetes;
mod output;
mod show;

use std::{path::Path, process::ExitCode};

use cli::Cli;
use failure::Failure;
use output::Output;

fn main() -> ExitCode {
    // kubectl runs a program of this name for `kubectl slipway`.
    let own = std::env::args_os().next();
    let is_plugin = own.is_some_and(|path| Path::new(&path).file_stem().is_some_and(|name| name == "kubectl-slipway"));
    let cli = match slipway_program::parse_as::<Cli>(is_plugin.then_some("kubectl slipway")) {
        Ok(cli) => cli,
        Err(code) => return code,
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
