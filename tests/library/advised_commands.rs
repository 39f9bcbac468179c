//! Every command line that a message names is one that the program takes: by the definition of the command line itself.

use std::{
    fs,
    path::{Path, PathBuf},
};

use clap::{CommandFactory as _, Parser as _, error::ErrorKind};
use slipway::{cli::Cli, error::Failure, report_failure};
use slipway_core::{
    boot::running::Running,
    plan::{Refusal, Refusals},
};
use slipway_test_support::{project, verbs};

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// A source with its strings of several lines in one.
fn joined(text: &str) -> String {
    let mut lines = text.split("\\\n");
    let first = lines.next().unwrap_or_default().to_owned();
    lines.fold(first, |joined, line| joined + line.trim_start())
}

/// What stands between two of these marks, if it is a command line of ours.
fn between(text: &str, mark: char) -> impl Iterator<Item = &str> {
    text.lines().flat_map(move |line| line.split(mark).skip(1).step_by(2)).filter(|it| it.starts_with("installer "))
}

/// As a user types it: an example for each value that the message fills in.
fn typed(command: &str) -> Vec<String> {
    let mut filled = String::new();
    let mut rest = command;
    while let Some((before, behind)) = rest.split_once('{') {
        let (name, after) = behind.split_once('}').unwrap_or((behind, ""));
        filled.push_str(before);
        filled.push_str(match name {
            "offline" | "force" => "",
            "verb" => "status",
            "name" | "flag" => "x",
            _ => "/x",
        });
        rest = after;
    }
    filled.push_str(rest);
    let example = |word: &str| match word.trim_end_matches(['…', ',']) {
        "SOURCE" => "dir:/x".to_owned(),
        "KEY=VALUE" => "0x0a=x".to_owned(),
        other => other.to_owned(),
    };
    let words = filled.split_whitespace().take_while(|word| !matches!(*word, "<" | ">" | "|"));
    words.map(example).collect()
}

/// `DIR`, `--sign-command` without its value.
fn is_placeholder(word: &str) -> bool {
    word.starts_with("--") || word.chars().filter(char::is_ascii_uppercase).count() > 2
}

#[test]
fn every_advised_command_line_parses() {
    let mut files = Vec::new();
    for dir in ["src", "core/src", "core/boot/src", "payload/src"] {
        sources(&project().join(dir), &mut files);
    }
    let (mut wrong, mut count) = (Vec::new(), 0);
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        // Tests of a file stand at its end.
        let text = joined(text.split("#[cfg(test)]").next().unwrap_or_default());
        for command in between(&text, '`').chain(between(&text, '"')) {
            // Verbs of a verb, as the head of a file lists them.
            if command.contains('|') {
                continue;
            }
            let words = typed(command);
            count += 1;
            let Err(error) = Cli::try_parse_from(&words) else { continue };
            // A message may name a verb alone, and it may fill in a value of any kind.
            let is_short = matches!(
                error.kind(),
                ErrorKind::MissingRequiredArgument
                    | ErrorKind::MissingSubcommand
                    | ErrorKind::DisplayHelp
                    | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
            );
            let is_filled = matches!(error.kind(), ErrorKind::InvalidValue | ErrorKind::ValueValidation)
                && (command.contains('{') || words.iter().any(|word| is_placeholder(word)));
            if !is_short && !is_filled {
                wrong.push(format!("{}: {command}: {}", file.display(), error.kind()));
            }
        }
    }
    assert!(count > 50, "the sources name commands: {count}");
    assert_eq!(wrong, Vec::<String>::new());
}

/// A remedy names no flag that the verb does not take.
#[test]
fn a_remedy_fits_the_verb() {
    for words in verbs().into_iter().filter(|words| words.len() == 1) {
        let refusal = Refusal::NotRunning(Running::Unknown);
        let kind = refusal.kind();
        let failure = Failure { kind, error: anyhow::Error::new(Refusals(vec![refusal])) };
        let report = report_failure::report(&failure, Some(&words[0]));
        let mut command = Cli::command();
        command.build();
        let verb = command.find_subcommand(&words[0]).unwrap();
        let takes = |command: &clap::Command| command.get_arguments().any(|arg| arg.get_long() == Some("offline"));
        let takes_it = takes(verb) || verb.get_subcommands().any(takes);
        for remedy in [report.remedy.as_deref(), report.refusals[0].remedy.as_deref()] {
            assert_eq!(remedy.unwrap().contains("--offline"), takes_it, "{words:?}: {remedy:?}");
        }
    }
}
