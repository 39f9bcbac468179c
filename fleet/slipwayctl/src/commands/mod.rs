//! The commands.

mod certificates;
mod contexts;
mod join;
mod look;
mod operations;
mod support;
mod wait;

use std::{fs, path::Path};

use clap::CommandFactory as _;
use clap_complete::Shell;
use serde_json::json;
use slipway_node_client::Client;

use crate::{
    cli::{Cli, Command, Form, Node, Target},
    config::resolve,
    failure::Failure,
    fleet, kubernetes,
    output::Output,
};

/// Do what the command line says: of several nodes one after the other, also when one of them fails.
pub async fn run(cli: Cli, output: &Output) -> Result<(), Failure> {
    if matches!(cli.target.output, Form::Name | Form::Wide) && !cli.command.shows_objects() {
        let why = "this command shows no objects: --output wide and name are for `status`, `config list`, `fleet` and \
                   `kubernetes status`; text, json and yaml are for all";
        return Err(Failure::Usage(why.to_owned()));
    }
    let names = match (&cli.target.context, &cli.command) {
        (Some(names), command)
            if names.contains(',')
                && !matches!(command, Command::Fleet(_) | Command::Kubernetes(_) | Command::Support(_)) =>
        {
            names.clone()
        }
        _ => return one(cli, output).await,
    };
    let names: Vec<&str> = names.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
    if names.is_empty() {
        return Err(Failure::Usage("--context names no context: write NAME, or NAME,NAME".to_owned()));
    }
    if !cli.command.is_look() || cli.target.endpoint.is_some() {
        let why = "several contexts: only what changes nothing is asked of several nodes. A NodePool upgrades several, one \
                   after the other";
        return Err(Failure::Usage(why.to_owned()));
    }
    let mut failures = Vec::new();
    if !cli.command.is_stream() {
        output.begin_list();
    }
    for name in names {
        let target = Target { context: Some(name.to_owned()), ..cli.target.clone() };
        output.at(name)?;
        if let Err(failure) = one(Cli { target, command: cli.command.clone() }, output).await {
            output.list_failure(name, &failure);
            failures.push(failure.at(name));
        }
    }
    output.end_list()?;
    let last = failures.pop();
    failures.iter().for_each(|failure| output.failure(failure));
    last.map_or(Ok(()), Err)
}

async fn one(cli: Cli, output: &Output) -> Result<(), Failure> {
    let Cli { target, command } = cli;
    let client = async || -> Result<Client, Failure> { resolve(&target)?.connect().await };
    match command {
        Command::Status => look::status(client().await?, output).await,
        Command::Plan { goal } => operations::plan(client().await?, goal, output).await,
        Command::Ask(goal) => operations::ask(&resolve(&target)?, goal, output).await,
        Command::Abort { id, why, as_is } => operations::abort(client().await?, id, why, as_is, output).await,
        Command::Confirm => operations::confirm(client().await?, output).await,
        Command::Watch { after, no_follow } => {
            // Before any request.
            let after = after.as_deref().map(look::parse_position).transpose()?;
            look::watch(client().await?, after, no_follow, output).await
        }
        Command::Health => look::health(client().await?, output).await,
        Command::Version => look::version(client().await?, output).await,
        Command::Logs { service, log, lines } => look::logs(client().await?, service, log, lines, output).await,
        Command::Dmesg { log } => look::logs(client().await?, String::new(), log, None, output).await,
        Command::Support(of) => support::run(&target, &of, output).await,
        Command::Fleet(of) => fleet::run(&target, &of.api, of.verb, output).await,
        Command::Kubernetes(of) => kubernetes::run(&target, of, output).await,
        Command::Node { what: Node::Join(of) } => join::run(&of, output),
        Command::Gen { dir, what } => certificates::run(&dir, what, output),
        Command::Config { what } => contexts::run(&target, what, output),
        Command::Completions { shell } => completions(shell, output),
        Command::Man { dir } => man(&dir, output),
    }
}

/// Print the completions of a shell.
fn completions(shell: Shell, output: &Output) -> Result<(), Failure> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "slipwayctl", &mut text);
    output.put(&String::from_utf8_lossy(&text))
}

/// Write a manual page for each command.
fn man(dir: &Path, output: &Output) -> Result<(), Failure> {
    fs::create_dir_all(dir).map_err(|e| Failure::file(dir, e))?;
    clap_mangen::generate_to(Cli::command(), dir).map_err(|e| Failure::file(dir, e))?;
    output.answer(&json!({ "pages": dir }), &format!("manual pages are in {}", dir.display()))
}
