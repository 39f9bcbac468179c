//! Programs: how the one under test ended, and others that judge what it did.

use std::path::Path;

use assert_cmd::Command;
use serde_json::Value;
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
