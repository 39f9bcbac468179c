//! Every command line that a message names is one that the program takes: by the definition of the command line itself.

use std::{
    fs,
    path::{Path, PathBuf},
};

use clap::{CommandFactory as _, Parser as _, error::ErrorKind};
use slipway::{cli::Cli, error::Failure, report_failure};
use slipway_core::{
    boot::{running::Running, slot::Slot},
    kernel::arch::Arch,
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

/// Refusals of an upgrade whose remedies name flags.
fn of_an_upgrade() -> Vec<Refusal> {
    vec![
        Refusal::NotRunning(Running::Unknown),
        Refusal::Arch { want: Arch::Amd64, have: Arch::Arm64 },
        Refusal::Version { from: "1".to_owned(), to: "9".to_owned(), why: "too far" },
        Refusal::Unsigned(Slot::A),
        Refusal::Older { slot: Slot::A, has: 2, offered: Some(1) },
        Refusal::LaterSlot { slot: Slot::A, what: "x".to_owned(), allow: "--allow-older" },
        Refusal::KnownBad { version: None },
        Refusal::KernelArgsLost(Slot::A),
    ]
}

/// Words behind `--` that stand in no command.
fn bare_flags(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split('`').step_by(2).flat_map(str::split_whitespace);
    words.filter_map(|word| Some(word.strip_prefix("--")?.trim_end_matches([',', ';', '.', ':', ')'])))
}

/// A flag that a remedy names is the verb's own, or the remedy says whose it is; and so does the message, which has it too.
#[test]
fn flags_in_remedies_are_those_of_the_verb() {
    let mut command = Cli::command();
    command.build();
    let takes = |verb: &str, flag: &str| {
        let verb = command.find_subcommand(verb).unwrap();
        verb.get_arguments().any(|arg| arg.get_long() == Some(flag))
    };
    let mut count = 0;
    for verb in ["upgrade", "stage", "auto-upgrade", "unattended"] {
        let refusals = of_an_upgrade();
        let kind = Refusals(of_an_upgrade()).kind();
        let report =
            report_failure::report(&Failure { kind, error: anyhow::Error::new(Refusals(refusals)) }, Some(verb));
        for refusal in &report.refusals {
            let remedy = refusal.remedy.as_deref().unwrap();
            count += bare_flags(remedy).count();
            let is_others = remedy.contains("`installer upgrade`");
            let takes_it = |flag: &&str| takes(verb, flag) || (is_others && takes("upgrade", flag));
            let lacking = bare_flags(remedy).find(|flag| !takes_it(flag));
            assert_eq!(lacking, None, "{verb}: {remedy}");
            assert!(report.message.contains(&format!("; {remedy}")), "{verb}: {remedy:?} is not in {}", report.message);
        }
        let offline = takes(verb, "offline");
        assert_eq!(report.message.contains("give --offline"), offline, "{verb}: {}", report.message);
    }
    assert!(count > 40, "they name flags: {count}");
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
