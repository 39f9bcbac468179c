//! Programs: how the one under test ended, and others that judge what it did.

use std::{path::Path, sync::LazyLock};

use assert_cmd::Command;
use clap::CommandFactory as _;
use serde_json::Value;
use slipway::cli::Cli;
use slipway_core::report::Document;

use super::PATIENCE;

/// The end of a run of the program.
pub struct Outcome {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Outcome {
    /// Run to the end. However it ends, it must not be a panic, a signal or a hang.
    #[track_caller]
    pub fn of(command: &mut Command) -> Self {
        let output = command.output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        let Some(code) = output.status.code() else {
            panic!("did not end by itself in time ({}): {command:?}\n{stdout}{stderr}", output.status);
        };
        assert!(!stderr.contains("panicked at"), "{command:?}\n{stderr}");
        if Path::new(command.get_program()).ends_with("installer") {
            let lacking = lacking_flags(command, &stderr);
            assert_eq!(lacking, Vec::<String>::new(), "flags that the verb does not take: {command:?}\n{stderr}");
        }
        Outcome { code, stdout, stderr }
    }

    #[track_caller]
    pub fn succeeds(self) -> Self {
        self.exits(0)
    }

    #[track_caller]
    pub fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, code, "exit code; it said:\n{}{}", self.stdout, self.stderr);
        self
    }

    /// Its error message holds each of these texts.
    #[track_caller]
    pub fn says(self, texts: &[&str]) -> Self {
        for text in texts {
            assert!(self.stderr.contains(text), "{text:?} is not in:\n{}", self.stderr);
        }
        self
    }

    /// Stdout as the one JSON document it has to be.
    #[track_caller]
    pub fn json(&self) -> Value {
        let value: Value = serde_json::from_str(&self.stdout).unwrap_or_else(|e| panic!("{e}: {}", self.stdout));
        // A reader in Rust gets the same report back.
        let read: Document = serde_json::from_str(&self.stdout).unwrap_or_else(|e| panic!("{e}: {}", self.stdout));
        assert_eq!(serde_json::to_value(&read).unwrap(), value);
        value
    }
}

/// Flags that a message names, and that the verb does not take: those of another verb stand in a whole command, between
/// backticks.
fn lacking_flags(command: &Command, stderr: &str) -> Vec<String> {
    static CLI: LazyLock<clap::Command> = LazyLock::new(|| {
        let mut cli = Cli::command();
        cli.build();
        cli
    });
    let args: Vec<_> = command.get_args().map(|arg| arg.to_string_lossy()).collect();
    let verb = args.iter().try_fold(&*CLI, |verb, arg| verb.find_subcommand(&**arg).ok_or(verb));
    let (Ok(verb) | Err(verb)) = verb;
    let takes = |flag: &&str| verb.get_arguments().any(|arg| arg.get_long() == Some(flag));
    let is_given = |flag: &&str| args.iter().any(|arg| arg.strip_prefix("--").is_some_and(|arg| arg.starts_with(flag)));
    // What a command line is wrong about; and where a note says whose flags they are, or what to give in their place.
    if ["\nUsage: ", "(flags of `"].iter().any(|text| stderr.contains(text)) {
        return vec![];
    }
    let from = stderr.find("error: ").or_else(|| stderr.find("note: ")).unwrap_or(stderr.len());
    let words = stderr[from..].split('`').step_by(2).flat_map(str::split_whitespace);
    let flags = words.filter_map(|word| word.trim_start_matches('(').strip_prefix("--"));
    let names = flags.map(|flag| flag.split(|c: char| !c.is_ascii_lowercase() && c != '-').next().unwrap_or_default());
    names
        .filter(|flag| flag.starts_with(char::is_alphabetic) && !takes(flag) && !is_given(flag))
        .map(str::to_owned)
        .collect()
}

/// Another program, to be found where administrators' programs are, too.
pub fn program(name: &str) -> Command {
    let mut command = Command::new(name);
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/sbin:/sbin")).env("LC_ALL", "C").timeout(PATIENCE);
    command
}

/// Run a command that must succeed, and return its stdout.
#[track_caller]
pub fn finished_bytes(command: &mut Command) -> Vec<u8> {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}; hack/test installs what is missing"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        text(&output.stdout),
        text(&output.stderr)
    );
    output.stdout
}

/// The same as text.
#[track_caller]
pub fn finished(command: &mut Command) -> String {
    String::from_utf8(finished_bytes(command)).unwrap()
}

/// `tool!("sgdisk", "-v", image)`: run another program that must succeed, and return its stdout.
#[macro_export]
macro_rules! tool {
    ($program:expr $(, $arg:expr)* $(,)?) => {
        $crate::world::finished($crate::world::program($program)$(.arg($arg))*)
    };
}
pub use tool;

/// `fsck.vfat -n` finds a file system it would not change: it prints its version, a line that counts, and
/// nothing else.
#[track_caller]
pub fn assert_clean_fat(volume: &Path) {
    let report = tool!("fsck.vfat", "-n", volume);
    let lines: Vec<&str> = report.lines().collect();
    let counts = lines.last().is_some_and(|line| line.ends_with(" clusters"));
    assert!(lines.len() == 2 && lines[0].starts_with("fsck.fat ") && counts, "fsck.vfat: {report}");
}
