//! Kinds of failures and their exit codes, from the Talos installer's public table.

use serde::{Deserialize, Serialize};

/// Kinds of failures, by what the caller can do next. The number is the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FailureKind {
    /// An unknown flag or verb, or any other error.
    Other = 1,
    /// The input is wrong: an argument's value, a payload, a file. Nothing was written.
    Input = 2,
    /// Not supported by this version. Nothing was written.
    Unsupported = 3,
    /// The environment lacks something: boot assets, memory for a side file. Nothing was written.
    Environment = 4,
    /// An external program is missing or failed, or a registry did not deliver. Nothing was written to the disk.
    Dependency = 5,
    /// The target disk: refused (nothing was written), locked, or failed part-way.
    Install = 7,
}

impl FailureKind {
    /// Exit code of the process.
    pub const fn exit_code(self) -> u8 {
        self as u8
    }
}
