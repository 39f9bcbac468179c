//! The commands.

mod ask;
mod contexts;
mod generate;
mod look;
mod pages;
mod wait;

use crate::{
    cli::{Cli, Command},
    config::resolve,
    connect::{Client, connect},
    failure::Failure,
    fleet,
    show::Output,
};

/// Do what the command line says.
pub async fn run(cli: Cli, output: &Output) -> Result<(), Failure> {
    let Cli { target, command } = cli;
    let client = async || -> Result<Client, Failure> { connect(&resolve(&target)?).await };
    match command {
        Command::Status => look::status(client().await?, output).await,
        Command::Plan { goal } => ask::plan(client().await?, goal, output).await,
        Command::Ask(goal) => ask::ask(&resolve(&target)?, goal, output).await,
        Command::Abort { id, why, as_is } => ask::abort(client().await?, id, why, as_is, output).await,
        Command::Confirm => ask::confirm(client().await?, output).await,
        Command::Watch { after, no_follow } => {
            // Before any request.
            let after = after.as_deref().map(look::parse_position).transpose()?;
            look::watch(client().await?, after, no_follow, output).await
        }
        Command::Health => look::health(client().await?, output).await,
        Command::Version => look::version(client().await?, output).await,
        Command::Logs { service, log, lines } => look::logs(client().await?, service, log, lines, output).await,
        Command::Dmesg { log } => look::logs(client().await?, String::new(), log, None, output).await,
        Command::Fleet(of) => fleet::run(&target, of.kubeconfig.as_deref(), of.verb, output).await,
        Command::Gen { dir, what } => generate::run(&dir, what, output),
        Command::Config { what } => contexts::run(&target, what, output),
        Command::Completions { shell } => pages::completions(shell),
        Command::Man { dir } => pages::man(&dir, output),
    }
}
