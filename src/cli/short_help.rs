//! `-h` fits a screen: what a verb is for, and the options that most runs need. `--help` has everything.

use clap::{Arg, Command, CommandFactory as _};

use super::Cli;

/// Options that few runs need, by their long names. Those with a heading of their own are for `--help` as well.
const RARE: &[&str] = &[
    "allow-any-version",
    "allow-older",
    "arch",
    "boot-menu",
    "config",
    "efi-loader",
    "keep-bootloader",
    "limit-rate",
    "lock-timeout",
    "meta",
    "no-snapshot",
    "plan-hash",
    "platform",
    "preserve",
    "progress",
    "retry-bad",
    "sector-size",
    "seed",
    "strict",
    "verbose",
    "zero",
];

/// The command line of the program.
pub fn command() -> Command {
    shortened(Cli::command())
}

fn shortened(command: Command) -> Command {
    command.mut_args(short).mut_subcommands(shortened)
}

fn short(arg: Arg) -> Arg {
    let is_rare = arg.get_long().is_some_and(|long| RARE.contains(&long));
    let is_apart = arg.get_help_heading().is_some();
    // Leave out the values of a switch. Show its default where that is not `false`.
    let is_switch = arg.get_value_names().is_some_and(|names| names.len() == 1 && names[0] == "BOOL");
    let is_off = arg.get_default_values().iter().all(|value| value == "false");
    let hidden = arg.is_hide_short_help_set() || is_rare || is_apart;
    let arg = arg.hide_short_help(hidden);
    if is_switch { arg.hide_possible_values(true).hide_default_value(is_off) } else { arg }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: usize = 40;
    const COLUMNS: usize = 80;

    fn check(command: Command, path: &str) {
        let mut command = command.term_width(COLUMNS);
        let help = command.render_help().to_string();
        let lines = help.lines().count();
        assert!(lines <= LINES, "`{path} -h` has {lines} lines:\n{help}");
        let all: Vec<Command> = command.get_subcommands().cloned().collect();
        all.into_iter().for_each(|sub| {
            let path = format!("{path} {}", sub.get_name());
            check(sub, &path);
        });
    }

    #[test]
    fn the_short_help_of_every_verb_fits_a_screen() {
        let mut command = command();
        command.build();
        check(command, "installer");
    }

    #[test]
    fn every_rare_option_exists() {
        let mut command = command();
        command.build();
        let has = |long: &str| {
            command.get_subcommands().any(|sub| sub.get_arguments().any(|arg| arg.get_long() == Some(long)))
        };
        for long in RARE {
            assert!(has(long), "--{long}");
        }
    }
}
