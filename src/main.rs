//! The program: argv in, exit code out. Everything else is in the library.

use std::{
    io::{Write as _, stderr, stdout},
    process::ExitCode,
};

use clap::{Parser as _, error::ErrorKind};
use slipway::{
    cli::{Cli, Output},
    commands,
    error::Kind,
    report::Report,
};

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    let output = cli.output;
    match commands::run(cli) {
        Ok(report) => print(&report, output),
        Err(failure) => {
            // Closed output is nothing an exit code could tell better.
            let _ = writeln!(stderr(), "error: {failure}");
            ExitCode::from(failure.kind.exit_code())
        }
    }
}

/// Help is a success; a value that is wrong is wrong input; anything else is an unknown flag or verb.
fn usage(error: &clap::Error) -> ExitCode {
    let _ = error.print();
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => ExitCode::SUCCESS,
        ErrorKind::InvalidValue | ErrorKind::ValueValidation => ExitCode::from(Kind::Input.exit_code()),
        _ => ExitCode::from(Kind::Other.exit_code()),
    }
}

fn print(report: &Report, output: Output) -> ExitCode {
    let text = match (output, report) {
        (Output::Json, Report::Text(text)) => serde_json::to_string(text),
        (Output::Json, report) => serde_json::to_string_pretty(report),
        (Output::Human, report) => Ok(report.to_string()),
    };
    match text {
        Ok(text) if writeln!(stdout(), "{text}").and_then(|()| stdout().flush()).is_ok() => {
            if report.is_bad() {
                ExitCode::from(Kind::Install.exit_code())
            } else {
                ExitCode::SUCCESS
            }
        }
        _ => {
            let _ = writeln!(stderr(), "error: the report cannot be written to stdout");
            ExitCode::from(Kind::Other.exit_code())
        }
    }
}
