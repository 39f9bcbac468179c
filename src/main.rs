//! The program turns argv and the environment into an exit code. The library does the work.

use std::{
    env,
    ffi::OsString,
    io::{self, IsTerminal as _, stderr, stdout},
    os::unix::ffi::OsStringExt,
    path::Path,
    process::ExitCode,
};

use clap::{
    Command, CommandFactory as _, FromArgMatches as _, Parser as _,
    error::{ContextKind, ErrorKind},
};
use nix::libc;
use slipway::{
    cli::{
        Cli, Imager, Output, advice::Advice, argv, colour, environment::Environment, output, short_help, signals, usage,
    },
    commands::{self, Ended},
    error::{Failure, OrFail as _},
    report_failure,
};
use slipway_core::report::{FailureKind, FailureReport, MetaReport, Report};

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
    signals::hold_back_file_size();
    let args: Vec<OsString> = env::args_os().collect();
    // One program under three names: Talos' images call `imager` by its own, machined calls `installer`, people `slipway`.
    let name = args.first().map(Path::new).and_then(Path::file_name).unwrap_or_default();
    if name == "imager" {
        let advice = Advice::new(&args);
        let caller = Caller { output: Output::Human, verbose: false, verb: Some("imager".to_owned()), advice };
        return match Imager::try_parse_from(&args) {
            Ok(imager) => caller.ended(commands::imager(&imager)),
            Err(error) => caller.usage(error, Imager::command(), &args),
        };
    }
    let (verb, advice) = (argv::verb(&args), Advice::new(&args));
    let caller = Caller { output: argv::output(&args), verbose: false, verb, advice };
    // Read before the arguments: bad data in the environment is wrong input, even with --help.
    let environment =
        Environment::read(|name| env::var_os(name).map(OsStringExt::into_vec)).or_fail(FailureKind::Input);
    let environment = match environment {
        Ok(environment) => environment,
        Err(failure) => return caller.failed(&failure, vec![]),
    };
    let command = short_help::command();
    let command = if name == "slipway" { command.name("slipway") } else { command };
    match command.try_get_matches_from(&args).and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => {
            let advice = caller.advice.on_inspected(&cli.verb);
            let caller = Caller { output: cli.output, verbose: cli.verbose, advice, ..caller };
            caller.ended(commands::run(cli, environment))
        }
        Err(error) => caller.usage(error, Cli::command(), &args),
    }
}

/// Receiver of the result. However a run ends, it puts one report on stdout or, for people, a line on stderr.
struct Caller {
    output: Output,
    /// For people: with every detail.
    verbose: bool,
    verb: Option<String>,
    advice: Advice,
}

impl Caller {
    fn ended(&self, (result, told): Ended) -> ExitCode {
        match result {
            Ok(report) => self.done(report, told),
            Err(failure) => self.failed(&failure, told),
        }
    }

    fn done(&self, report: Report, told: Vec<String>) -> ExitCode {
        let is_bad = report.is_bad();
        let written = match self.print(self.advice.complete(report), told) {
            // A reader that has seen enough, such as head(1), does not change the result.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            other => other,
        };
        if let Err(error) = &written {
            say(&format!(
                "error: the verb has done what was asked; only its report cannot be written to stdout: {error}"
            ));
        }
        match written {
            _ if is_bad => ExitCode::from(FailureKind::Install.exit_code()),
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::from(FailureKind::Other.exit_code()),
        }
    }

    fn failed(&self, failure: &Failure, told: Vec<String>) -> ExitCode {
        let report = self.advice.complete_failure(report_failure::report(failure, self.verb.as_deref()), failure);
        let remedy = report.remedy.as_deref().filter(|remedy| !report.message.contains(remedy));
        let remedy = remedy.map_or_else(String::new, |remedy| format!("\nnext step: {remedy}"));
        say(&format!("error: {}{remedy}", report.message));
        self.print_failure(report, told);
        ExitCode::from(failure.kind.exit_code())
    }

    /// Maps clap's errors to the public exit codes.
    fn usage(&self, mut error: clap::Error, command: Command, args: &[OsString]) -> ExitCode {
        if error.kind() == ErrorKind::InvalidUtf8 {
            let (text, kind) = (usage::not_utf8(command, args), FailureKind::Input);
            say(&format!("error: {text}"));
            self.print_failure(report_failure::usage(&text, kind, self.verb.as_deref()), vec![]);
            return ExitCode::from(kind.exit_code());
        }
        usage::hide_logins(&mut error);
        let hint = usage::hint(&error, self.verb.as_deref());
        if hint.is_some() {
            // clap's own tip, to put `--` in front of a flag, leads astray.
            error.remove(ContextKind::Suggested);
        }
        let printed = error.print();
        hint.iter().for_each(|hint| say(&format!("hint: {hint}")));
        let kind = match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => return answered(printed),
            ErrorKind::InvalidValue | ErrorKind::ValueValidation | ErrorKind::MissingRequiredArgument => {
                FailureKind::Input
            }
            _ => FailureKind::Other,
        };
        let text = [Some(error.to_string()), hint].into_iter().flatten().collect::<Vec<_>>().join("\n");
        self.print_failure(report_failure::usage(&text, kind, self.verb.as_deref()), vec![]);
        ExitCode::from(kind.exit_code())
    }

    /// For programs only: people have it on stderr. If stdout is closed or full, the exit code must be enough.
    fn print_failure(&self, report: FailureReport, told: Vec<String>) {
        if self.output == Output::Json {
            let _ = self.print(Report::Failure(Box::new(report)), told);
        }
    }

    fn print(&self, report: Report, told: Vec<String>) -> io::Result<()> {
        let text = match (self.output, report) {
            // The answer is on stdout already.
            (_, Report::Text(text)) if text.is_empty() => String::new(),
            // Scripts and messages of `completions` and `man` are no data: they stay as they are.
            (_, Report::Text(text)) => output::human(text.trim_end()),
            (Output::Json, report) => output::document(report, told)?,
            // A script gets the value of a tag as it is.
            (Output::Human, report @ Report::Meta(MetaReport { bare: true, .. })) if !stdout().is_terminal() => {
                format!("{report}\n")
            }
            (Output::Human, report) => {
                let text = output::human(&if self.verbose { format!("{report:#}") } else { report.to_string() });
                // No value from outside may look as if it were said by us.
                if matches!(report, Report::Meta(_)) { text } else { colour::stdout(text) }
            }
        };
        output::write(&stdout(), text.as_bytes(), output::PATIENCE)
    }
}

/// The exit code of a text that was asked for: a script must not take half of it for all. As for a report, a reader may have seen
/// enough.
fn answered(printed: io::Result<()>) -> ExitCode {
    match printed {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            say(&format!("error: the text cannot be written to stdout: {error}"));
            ExitCode::from(FailureKind::Other.exit_code())
        }
        _ => ExitCode::SUCCESS,
    }
}

/// Writes the last line of a failed run. If stderr is closed or full, the exit code must be enough.
fn say(text: &str) {
    let _ = output::write(&stderr(), colour::stderr(output::human(text)).as_bytes(), output::PATIENCE);
}
