//! A hint for a command line that clap refuses, where its own says nothing of what was meant.

use clap::{
    CommandFactory as _, Error,
    error::{ContextKind, ContextValue, ErrorKind},
};
use slipway_core::text::quoted;

use super::Cli;
use crate::payload::SourceRef;

/// `verb` is the one on the command line.
pub fn hint(error: &Error, verb: Option<&str>) -> Option<String> {
    let Some(ContextValue::String(arg)) = error.get(ContextKind::InvalidArg) else { return None };
    let cli = Cli::command();
    let verb = cli.find_subcommand(verb?)?;
    let has = |flag: &str| verb.get_arguments().any(|arg| arg.get_long() == Some(flag));
    match error.kind() {
        ErrorKind::InvalidValue if arg.contains("--output") => {
            let file = if has("out") { "; --out FILE names the file to make" } else { "" };
            Some(format!("-o is short for --output, the format of the report (human or json){file}"))
        }
        // As other programs take them.
        ErrorKind::UnknownArgument if !arg.starts_with('-') => {
            let (flag, what) = match arg.parse::<SourceRef>() {
                Ok(_) => ("source", "payload"),
                Err(_) => ("disk", "disk"),
            };
            has(flag).then(|| format!("--{flag} {} names the {what}", quoted(arg)))
        }
        _ => None,
    }
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
        let disk = "--disk /dev/sda names the disk";
        for line in ["installer install /dev/sda", "installer status /dev/sda"] {
            assert_eq!(of(line).as_deref(), Some(disk), "{line}");
        }
        let source = "--source docker://registry.example/os:1 names the payload";
        assert_eq!(of("installer upgrade docker://registry.example/os:1").as_deref(), Some(source));
        for line in ["installer keys create x y", "installer install --nosuch"] {
            assert_eq!(of(line), None, "{line}");
        }
    }
}
