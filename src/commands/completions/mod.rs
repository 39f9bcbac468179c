//! `installer completions SHELL`: scripts for bash, zsh and fish.
//!
//! Each is a head, written by hand, which knows how to complete sources and disks, and a table that is made from the
//! definition of the command line. (The scripts of clap_complete do not: they know neither, and in fish no argument
//! without a flag.)

mod bash;
mod fish;
mod zsh;

use std::{any::TypeId, path::PathBuf};

use clap::{Arg, ArgAction, Command, CommandFactory as _};
use slipway_core::{media::profile::Draft, report::Report};

use crate::{
    cli::{Cli, Imager, InspectTarget, Shell},
    payload::{LayoutRef, SourceRef},
};

pub fn completions(shell: Shell) -> Report {
    let mut verbs = Vec::new();
    for program in [Cli::command(), Imager::command()] {
        let mut program = program.disable_help_subcommand(true);
        program.build();
        collect(&program, &[], &mut verbs);
    }
    Report::Text(match shell {
        Shell::Bash => bash::script(&verbs),
        Shell::Zsh => zsh::script(&verbs),
        Shell::Fish => fish::script(&verbs),
    })
}

/// A program, or a verb of one.
struct Verb {
    /// The words that lead to it; the first is the program's name.
    words: Vec<String>,
    about: String,
    /// Its own verbs.
    verbs: Vec<String>,
    flags: Vec<Flag>,
    /// Arguments without a flag.
    places: Vec<Flag>,
}

/// A flag, or an argument without one.
struct Flag {
    /// `--disk`, or the name of the argument.
    name: String,
    help: String,
    /// None if it takes none.
    value: Option<Value>,
    /// The value has to be in the same word: `--force=true`.
    equals: bool,
    repeats: bool,
}

/// Kind of a value.
enum Value {
    Words(Vec<String>),
    Source,
    /// A source that can be written.
    Layout,
    Disk,
    DiskOrSource,
    File,
    Directory,
    /// Nothing that could be offered.
    Text,
}

fn collect(command: &Command, above: &[String], found: &mut Vec<Verb>) {
    let words = [above, &[command.get_name().to_owned()]].concat();
    let shown = || command.get_arguments().filter(|arg| !arg.is_hide_set());
    found.push(Verb {
        about: first_sentence(&command.get_about().map(ToString::to_string).unwrap_or_default()),
        verbs: command.get_subcommands().map(|verb| verb.get_name().to_owned()).collect(),
        flags: shown().filter(|arg| !arg.is_positional()).map(Flag::of).collect(),
        places: shown().filter(|arg| arg.is_positional()).map(Flag::of).collect(),
        words: words.clone(),
    });
    command.get_subcommands().for_each(|verb| collect(verb, &words, found));
}

impl Flag {
    fn of(arg: &Arg) -> Self {
        let name = arg.get_long().map_or_else(|| arg.get_id().to_string(), |long| format!("--{long}"));
        let values = arg.get_num_args().is_some_and(|values| values.takes_values());
        Flag {
            name,
            help: first_sentence(&arg.get_help().map(ToString::to_string).unwrap_or_default()),
            value: values.then(|| Value::of(arg)),
            equals: arg.is_require_equals_set(),
            repeats: matches!(arg.get_action(), ArgAction::Append),
        }
    }
}

impl Value {
    fn of(arg: &Arg) -> Self {
        let possible = arg.get_possible_values();
        if !possible.is_empty() {
            return Value::words(possible.iter().filter(|value| !value.is_hide_set()).map(|value| value.get_name()));
        }
        let parsed = arg.get_value_parser().type_id();
        let named = arg.get_value_names().and_then(|names| names.first()).map_or("", |name| name.as_str());
        match arg.get_id().as_str() {
            "disk" => Value::Disk,
            "sector_size" => Value::words(["512", "4096"]),
            "output_kind" => Value::words(["image", "iso"]),
            "profile" => Value::words(Draft::base_names().chain(["-"])),
            _ if parsed == TypeId::of::<SourceRef>() => Value::Source,
            _ if parsed == TypeId::of::<LayoutRef>() => Value::Layout,
            _ if parsed == TypeId::of::<InspectTarget>() => Value::DiskOrSource,
            _ if parsed == TypeId::of::<PathBuf>() && named == "DIR" => Value::Directory,
            _ if parsed == TypeId::of::<PathBuf>() => Value::File,
            _ => Value::Text,
        }
    }

    fn words<'a>(words: impl IntoIterator<Item = &'a str>) -> Self {
        Value::Words(words.into_iter().map(str::to_owned).collect())
    }
}

/// Beside a flag there is no room for more: neither for the forms of a value, behind a colon, nor for the default, in
/// brackets.
fn first_sentence(help: &str) -> String {
    let end = [". ", ": ", "; ", " ["].into_iter().filter_map(|stop| help.find(stop)).min();
    help[..end.unwrap_or(help.len())].trim_end_matches(['.', ' ']).to_owned()
}

/// In single quotes, as bash and zsh read it.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}
