//! Flags and verbs, by the definition of the command line itself.

use std::collections::BTreeSet;

use clap::{ArgAction, CommandFactory as _, Parser as _};
use slipway::cli::Cli;
use slipway_test_support::verbs;

fn definition(words: &[String]) -> clap::Command {
    let mut command = Cli::command();
    command.build();
    words.iter().fold(command, |command, word| command.find_subcommand(word).unwrap().clone())
}

#[test]
fn every_flag_and_verb_is_documented() {
    for words in verbs() {
        let command = definition(&words);
        assert!(command.get_about().is_some_and(|about| !about.to_string().is_empty()), "{words:?}");
        for arg in command.get_arguments() {
            let help = arg.get_help().or(arg.get_long_help()).map(ToString::to_string).unwrap_or_default();
            assert!(help.len() > 5, "{words:?}: {} has no help", arg.get_id());
        }
    }
}

/// Of all verbs.
const BOOLEAN: &[&str] = &[
    "allow-any-version",
    "allow-older",
    "allow-unsigned",
    "boot",
    "boot-menu",
    "dry-run",
    "force",
    "format-data",
    "full",
    "ignore-secure-boot",
    "include-well-known-certs",
    "inhibitors",
    "keep-bootloader",
    "no-snapshot",
    "offline",
    "plain-http",
    "preserve",
    "reboot-only",
    "retry-bad",
    "strict",
    "tls-verify",
    "upgrade",
    "verbose",
    "zero",
];

/// `--flag`, `--flag=true` and `--flag=false`: callers in Go write them out.
#[test]
fn every_boolean_flag_takes_its_value_or_none() {
    let mut seen = BTreeSet::new();
    for words in verbs() {
        let command = definition(&words);
        let boolean = |arg: &&clap::Arg| {
            let values = arg.get_possible_values();
            let names: Vec<&str> = values.iter().map(|v| v.get_name()).collect();
            matches!(arg.get_action(), ArgAction::SetTrue | ArgAction::SetFalse) || names == ["true", "false"]
        };
        for flag in command.get_arguments().filter(boolean).map(|arg| arg.get_long().unwrap()) {
            seen.insert(flag.to_owned());
            let typed: Vec<&str> = words.iter().map(String::as_str).collect();
            let required: &[&str] = match typed.first().copied().unwrap_or_default() {
                "" => &["status", "--disk=x"],
                "image" => &["--kind=raw", "--out=x"],
                "inspect" => &["dir:x"],
                "unattended" | "checksum" => &[],
                "completions" | "man" | "keys" | "enroll" => &["bash"],
                "uki" => &["--out=x"],
                "snapshot" if typed.len() == 1 => &["list", "--disk=x"],
                "bootloader" if typed.len() == 1 => &["status", "--disk=x"],
                "bootloader" if typed[1] == "menu" => &["--disk=x", "off"],
                "meta" => match typed[1..] {
                    [] => &["list", "--disk=x"],
                    ["list"] => &["--disk=x"],
                    ["set"] => &["--disk=x", "1=x"],
                    _ => &["--disk=x", "1"],
                },
                "sign" => &["dir:x", "--key=x"],
                "attest" => &["oci:x", "--predicate=x", "--type=cyclonedx", "--key=x"],
                "pull" => &["oci:x", "oci:y"],
                "push" => &["oci:x", "docker://x/y"],
                "chunk" => &["oci:x"],
                "support" => &["x.tar.gz"],
                "wipe" => &["--disk=x", "STATE"],
                _ => &["--disk=x"],
            };
            for spelling in [format!("--{flag}"), format!("--{flag}=true"), format!("--{flag}=false")] {
                let argv = ["installer"].into_iter().chain(words.iter().map(String::as_str)).chain([spelling.as_str()]);
                let parsed = Cli::try_parse_from(argv.chain(required.iter().copied()));
                assert!(parsed.is_ok(), "{words:?} {spelling}: {}", parsed.unwrap_err());
            }
        }
    }
    assert_eq!(seen, BTreeSet::from_iter(BOOLEAN.iter().map(|flag| (*flag).to_owned())));
}
