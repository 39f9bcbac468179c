//! The program turns argv and the environment into an exit code. The library does the work.

use std::{
    env,
    io::{IsTerminal as _, stderr, stdout},
    os::unix::ffi::OsStringExt,
    path::Path,
    process::ExitCode,
};

use clap::{Parser as _, error::ErrorKind};
use nix::libc;
use slipway::{
    cli::{Cli, Imager, Output, environment::Environment, output},
    commands,
    error::{Failure, OrFail as _},
};
use slipway_core::report::{FailureKind, MetaReport, Report};

/// Makes glibc return freed buffers to the system at once. By default it raises its mmap threshold after each large
/// free, and then every thread keeps as much as the window of a zstd layer.
#[allow(unsafe_code, reason = "nix has no mallopt")]
fn keep_no_freed_memory() {
    const LARGE_BYTES: i32 = 128 << 10;
    // SAFETY: mallopt(3) only sets a number, and there is no other thread yet.
    unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE_BYTES) };
}

fn main() -> ExitCode {
    keep_no_freed_memory();
    // One program under two names: Talos' images call `imager` by its own name.
    let name = env::args_os().next().unwrap_or_default();
    if Path::new(&name).file_name().is_some_and(|name| name == "imager") {
        return match Imager::try_parse() {
            Ok(imager) => ended(commands::imager(&imager), Output::Human),
            Err(error) => usage(&error),
        };
    }
    // Read before the arguments: bad data in the environment is wrong input, even with --help.
    let environment =
        Environment::read(|name| env::var_os(name).map(OsStringExt::into_vec)).or_fail(FailureKind::Input);
    let environment = match environment {
        Ok(environment) => environment,
        Err(failure) => return failed(&failure),
    };
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    let output = cli.output;
    ended(commands::run(cli, environment), output)
}

fn ended(result: Result<Report, Failure>, output: Output) -> ExitCode {
    match result {
        Ok(report) => print(&report, output),
        Err(failure) => failed(&failure),
    }
}

fn failed(failure: &Failure) -> ExitCode {
    say(&format!("error: {failure}"));
    ExitCode::from(failure.kind.exit_code())
}

/// Writes the last line of a failed run. If stderr is closed or full, the exit code must be enough.
fn say(text: &str) {
    let _ = output::write(&stderr(), output::human(text).as_bytes(), output::PATIENCE);
}

/// Maps clap's errors to the public exit codes.
fn usage(error: &clap::Error) -> ExitCode {
    let _ = error.print();
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => ExitCode::SUCCESS,
        ErrorKind::InvalidValue | ErrorKind::ValueValidation => ExitCode::from(FailureKind::Input.exit_code()),
        _ => ExitCode::from(FailureKind::Other.exit_code()),
    }
}

fn print(report: &Report, output: Output) -> ExitCode {
    let text = match (output, report) {
        (Output::Json, Report::Text(text)) => serde_json::to_string(text).map(|text| output::json(&text)),
        (Output::Json, report) => serde_json::to_string_pretty(report).map(|text| output::json(&text)),
        // A script gets the value of a tag as it is.
        (Output::Human, Report::Meta(MetaReport { bare: true, .. })) if !stdout().is_terminal() => {
            Ok(format!("{report}\n"))
        }
        (Output::Human, report) => Ok(output::human(&report.to_string())),
    };
    let written = text.map_err(Into::into).and_then(|text| output::write(&stdout(), text.as_bytes(), output::PATIENCE));
    match written {
        Ok(()) if report.is_bad() => ExitCode::from(FailureKind::Install.exit_code()),
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("error: the report cannot be written to stdout: {error}"));
            ExitCode::from(FailureKind::Other.exit_code())
        }
    }
}
