//! Code that the fleet's programs share: the end of a wrong command line, the way to an API server, a service's log and listener.
//!
//! * [`log`]: levels, spans, text or JSON
//! * [`api_server`]: the way to an API server
//! * [`listen`]: the address at which a service listens

use std::process::ExitCode;

use clap::{Parser, error::ErrorKind};

pub mod api_server;
#[cfg(feature = "service")]
pub mod listen;
#[cfg(feature = "service")]
pub mod log;

/// The arguments of this process. If there are none to go on with, the message is printed, and the process ends with
/// the code that is returned: 0 after `--help` and `--version`, 2 for a wrong or missing value, 1 for anything else, such
/// as an unknown flag. The installer has the same codes.
pub fn parse<P: Parser>() -> Result<P, ExitCode> {
    parse_as(None)
}

/// The same of a program that people call by another name than its file's: usage lines have it.
pub fn parse_as<P: Parser>(name: Option<&'static str>) -> Result<P, ExitCode> {
    let mut command = P::command();
    if let Some(name) = name {
        command = command.bin_name(name);
    }
    let parsed = command
        .try_get_matches_from_mut(std::env::args_os())
        .and_then(|mut matches| P::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command)));
    parsed.map_err(|error| {
        // A closed standard output changes nothing about the code.
        let _ = error.print();
        ExitCode::from(code(error.kind()))
    })
}

fn code(kind: ErrorKind) -> u8 {
    match kind {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => 0,
        ErrorKind::InvalidValue | ErrorKind::ValueValidation | ErrorKind::MissingRequiredArgument => 2,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Parser)]
    struct Args {
        #[arg(long)]
        #[allow(dead_code, reason = "only whether it can be read counts")]
        port: u16,
    }

    #[test]
    fn a_wrong_value_is_not_a_wrong_flag() {
        let of = |args: &[&str]| code(Args::try_parse_from([&["p"], args].concat()).unwrap_err().kind());
        assert_eq!([of(&["--help"]), of(&["--port", "x"]), of(&[]), of(&["--ports", "1"])], [0, 2, 2, 1]);
    }
}
