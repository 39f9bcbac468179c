//! The facts that a command line tells even if it does not parse.

use std::ffi::{OsStr, OsString};

use clap::CommandFactory as _;

use super::{Cli, Output};

/// The format of the report. clap does not tell it of a command line that it refuses.
pub fn output(args: &[OsString]) -> Output {
    let args = flags(args);
    let apart = args.windows(2).any(|pair| (pair[0] == "--output" || pair[0] == "-o") && pair[1] == "json");
    let joined = ["--output=json", "-o=json", "-ojson"].iter().any(|one| args.contains(&OsStr::new(one)));
    if apart || joined { Output::Json } else { Output::Human }
}

/// The disk that it names.
pub fn disk(args: &[OsString]) -> Option<&str> {
    value(args, "--disk")
}

/// The architecture that it names.
pub fn arch(args: &[OsString]) -> Option<&str> {
    value(args, "--arch")
}

/// The value of a flag, the first one.
fn value<'a>(args: &'a [OsString], flag: &str) -> Option<&'a str> {
    let args = flags(args);
    (0..args.len()).find_map(|at| match args[at].to_str()?.strip_prefix(flag)? {
        "" => args.get(at + 1)?.to_str(),
        joined => joined.strip_prefix('='),
    })
}

/// Whether the disk is that of a machine that is switched off.
pub fn is_offline(args: &[OsString]) -> bool {
    flags(args).iter().any(|arg| *arg == "--offline" || *arg == "--offline=true")
}

/// All that can be flags.
fn flags(args: &[OsString]) -> Vec<&OsStr> {
    args.iter().map(OsString::as_os_str).take_while(|arg| *arg != "--").collect()
}

/// The verb: the first argument that is one. Only the flags of every verb stand before it, and no value of --output or
/// --progress is a verb. (--verbose has its value behind `=`.)
pub fn verb(args: &[OsString]) -> Option<String> {
    let cli = Cli::command();
    let verb = |arg: &OsString| Some(cli.find_subcommand(arg)?.get_name().to_owned());
    args.iter().skip(1).find_map(verb)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(line: &str) -> Vec<OsString> {
        line.split_whitespace().map(OsString::from).collect()
    }

    #[test]
    fn the_format_of_the_report() {
        for line in [
            "installer --output json x",
            "installer x --no-such --output=json",
            "installer --output json",
            "installer -o json x",
            "installer x -ojson --no-such",
            "installer -o=json",
        ] {
            assert_eq!(output(&args(line)), Output::Json, "{line}");
        }
        for line in ["installer", "installer --output human json", "installer x --output", "installer -- --output=json"]
        {
            assert_eq!(output(&args(line)), Output::Human, "{line}");
        }
    }

    #[test]
    fn the_disk() {
        let of = |line: &str| disk(&args(line)).map(str::to_owned);
        assert_eq!(of("installer status --disk x").as_deref(), Some("x"));
        assert_eq!(of("installer --no-such --disk=x --disk y").as_deref(), Some("x"));
        for line in ["installer status", "installer status --disk", "installer --disks x", "installer x -- --disk=y"] {
            assert_eq!(of(line), None, "{line}");
        }
        assert!(is_offline(&args("installer x --offline")) && is_offline(&args("installer --offline=true")));
        assert!(!is_offline(&args("installer x --offline=false")) && !is_offline(&args("installer x -- --offline")));
    }

    #[test]
    fn the_verb() {
        let of = |line: &str| verb(&args(line));
        assert_eq!(of("installer --output json status --disk verify").as_deref(), Some("status"));
        assert_eq!(of("meta --progress=none meta set").as_deref(), Some("meta"));
        assert_eq!(of("status --output json frobnicate"), None);
    }
}
