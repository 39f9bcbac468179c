//! Failures and their exit codes: the Talos installer's public table.

use std::fmt;

/// What kind of failure, by what its caller may do next. The number is the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// An unknown flag or verb, or an error of no other kind.
    Other = 1,
    /// What was given is wrong: an argument's value, a payload, a file. Nothing was written.
    Input = 2,
    /// Not supported by this version. Nothing was written.
    Unsupported = 3,
    /// The environment lacks something: boot assets, room for temporary files. Nothing was written.
    Environment = 4,
    /// An external program is missing or failed, or a registry did not give what was asked for. Nothing was written to
    /// the disk.
    Dependency = 5,
    /// Anything about the target disk: refused (nothing was written), locked, or failed part-way.
    Install = 7,
}

impl Kind {
    /// Process exit code.
    pub const fn exit_code(self) -> u8 {
        self as u8
    }
}

/// A failed command.
#[derive(Debug)]
pub struct Failure {
    /// Which exit code.
    pub kind: Kind,
    /// What happened, outermost first.
    pub error: anyhow::Error,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        for cause in self.error.chain().map(ToString::to_string) {
            // Some errors tell their cause themselves.
            if !text.ends_with(&cause) {
                text = if text.is_empty() { cause } else { format!("{text}: {cause}") };
            }
        }
        f.write_str(&text)
    }
}

/// Sort an error into a kind.
pub trait OrFail<T> {
    /// Make it a [`Failure`] of this kind.
    fn or_fail(self, kind: Kind) -> Result<T, Failure>;
}

impl<T, E: Into<anyhow::Error>> OrFail<T> for Result<T, E> {
    fn or_fail(self, kind: Kind) -> Result<T, Failure> {
        self.map_err(|e| Failure { kind, error: e.into() })
    }
}
