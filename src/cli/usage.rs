//! A hint for a command line that clap refuses, where its own says nothing of what was meant.

use std::{any::TypeId, ffi::OsString, path::PathBuf};

use clap::{
    Command, CommandFactory as _, Error,
    error::{ContextKind, ContextValue, ErrorKind},
};
use slipway_core::{redact::redact_value, text::quoted};

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
        ErrorKind::UnknownArgument => taken_without_flag(verb, arg),
        _ => None,
    }
}

/// What a wrong value has before its `@` may be a password: it is not shown.
pub fn hide_logins(error: &mut Error) {
    for kind in [ContextKind::InvalidValue, ContextKind::InvalidArg, ContextKind::InvalidSubcommand] {
        if let Some(ContextValue::String(value)) = error.get(kind)
            && value.contains('@')
        {
            let clean = redact_value(value);
            error.insert(kind, ContextValue::String(clean));
        }
    }
}

/// The verb takes this by its place.
fn taken_without_flag(verb: &Command, arg: &str) -> Option<String> {
    let name = arg.strip_prefix("--")?.to_uppercase();
    let mut names = verb.get_positionals().flat_map(|arg| arg.get_value_names().unwrap_or_default());
    let is_taken = names.any(|names| names.split('|').any(|taken| taken == name));
    let called = ["installer", verb.get_name(), &name].join(" ");
    is_taken.then(|| format!("`{called}` takes it without {arg}"))
}

/// Why a command line is refused with an argument that is not UTF-8: clap does not say which one it is.
pub fn not_utf8(mut cli: Command, args: &[OsString]) -> String {
    cli.build();
    let arg = which(&cli, args).unwrap_or_else(|| "an argument".to_owned());
    format!("{arg}: the value is not UTF-8 text")
}

/// A path may be any bytes.
fn which(cli: &Command, args: &[OsString]) -> Option<String> {
    let mut verb = cli;
    for (at, arg) in args.iter().enumerate().skip(1) {
        let Some(text) = arg.to_str() else {
            let lossy = arg.to_string_lossy();
            let flag = match lossy.split_once('=') {
                Some((flag, _)) if flag.starts_with('-') => Some(flag),
                _ => args[at - 1].to_str().filter(|before| before.starts_with('-')),
            };
            let known =
                verb.get_arguments().find(|arg| arg.get_long() == flag.and_then(|flag| flag.strip_prefix("--")));
            if flag.is_some() && known.is_some_and(|arg| arg.get_value_parser().type_id() == TypeId::of::<PathBuf>()) {
                continue;
            }
            return Some(flag.map_or_else(|| format!("{lossy:?}"), str::to_owned));
        };
        verb = verb.find_subcommand(text).unwrap_or(verb);
    }
    None
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt as _;

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
        for flag in ["disk", "source"] {
            let said = format!("`installer inspect {}` takes it without --{flag}", flag.to_uppercase());
            for line in [format!("installer inspect --{flag} x"), format!("installer inspect --{flag}=x")] {
                assert_eq!(of(&line).as_deref(), Some(said.as_str()), "{line}");
            }
        }
        for line in ["installer keys create x y", "installer install --nosuch", "installer inspect --nosuch x"] {
            assert_eq!(of(line), None, "{line}");
        }
    }

    #[test]
    fn what_is_not_utf8_is_named() {
        let of = |line: &[u8]| {
            let args: Vec<_> = line.split(|byte| *byte == b' ').map(|arg| OsString::from_vec(arg.to_vec())).collect();
            let error = Cli::try_parse_from(&args).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidUtf8, "{}", line.escape_ascii());
            let text = not_utf8(Cli::command(), &args);
            text.strip_suffix(": the value is not UTF-8 text").unwrap().to_owned()
        };
        for line in [&b"installer install --meta 0x0a=\xff"[..], b"installer install --disk \xff --meta=0x0a=\xff"] {
            assert_eq!(of(line), "--meta");
        }
        assert_eq!(of(b"installer install --slot-size \xff"), "--slot-size");
        assert_eq!(of(b"installer rollback --disk=\xff --reason=\xff"), "--reason");
        assert_eq!(of(b"installer meta set 0x0a=\xff"), "\"0x0a=\u{fffd}\"");
    }
}
