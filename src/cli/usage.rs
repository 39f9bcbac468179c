//! A hint for a command line that clap refuses, where its own says nothing of what was meant.

use clap::{
    CommandFactory as _, Error,
    error::{ContextKind, ContextValue, ErrorKind},
};

use super::Cli;

/// `verb` is the one on the command line.
pub fn hint(error: &Error, verb: Option<&str>) -> Option<String> {
    let is_about = |flag: &str| match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(arg)) => arg.contains(flag),
        _ => false,
    };
    if error.kind() != ErrorKind::InvalidValue || !is_about("--output") {
        return None;
    }
    let cli = Cli::command();
    let makes_file = cli.find_subcommand(verb?)?.get_arguments().any(|arg| arg.get_long() == Some("out"));
    let file = if makes_file { "; --out FILE names the file to make" } else { "" };
    Some(format!("-o is short for --output, the format of the report (human or json){file}"))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[test]
    fn who_means_a_file_is_told_which_flag_names_it() {
        let of = |line: &str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            hint(&Cli::try_parse_from(&words).unwrap_err(), Some(words[1]))
        };
        for line in ["installer image --kind raw -o disk.raw", "installer image --kind raw --output=disk.raw"] {
            assert!(of(line).is_some_and(|hint| hint.contains("--out FILE names the file")), "{line}");
        }
        assert!(of("installer status -o yaml").is_some_and(|hint| !hint.contains("--out FILE")));
        assert_eq!(of("installer image --kind nosuch --out x"), None);
    }
}
