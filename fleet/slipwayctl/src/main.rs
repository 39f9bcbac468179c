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
//! * [`show`]: answers and events for people, and as JSON

mod authority;
mod cli;
mod commands;
mod config;
mod failure;
mod fleet;
mod kubernetes;
mod show;

use std::process::ExitCode;

use cli::Cli;
use failure::Failure;
use show::Output;

fn main() -> ExitCode {
    let cli = match slipway_program::parse::<Cli>() {
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
