//! Kinds of failures and their exit codes, from the Talos installer's public table.

use serde::{Deserialize, Serialize};

use super::FailureId;

/// Kinds of failures, by what the caller can do next. The number is the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FailureKind {
    /// An unknown flag or verb, a report that cannot be written, or any other error.
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
    /// A signal ended the run. Its number is added to the exit code.
    Interrupted = 128,
}

impl FailureKind {
    /// All kinds, by exit code.
    pub const ALL: [FailureKind; 7] = [
        FailureKind::Other,
        FailureKind::Input,
        FailureKind::Unsupported,
        FailureKind::Environment,
        FailureKind::Dependency,
        FailureKind::Install,
        FailureKind::Interrupted,
    ];

    /// Exit code of the process; of an interruption the first of several.
    pub const fn exit_code(self) -> u8 {
        self as u8
    }

    /// Meaning of the exit code, for help and manual pages.
    pub const fn meaning(self) -> &'static str {
        match self {
            FailureKind::Other => "unknown flag or verb, any other failure, or only the report cannot be written",
            FailureKind::Input => {
                "wrong input (a value, the environment, a machine config or a payload), nothing was written"
            }
            FailureKind::Unsupported => "not supported",
            FailureKind::Environment => "the environment lacks something, or the version policy forbids the upgrade",
            FailureKind::Dependency => {
                "an external program (a health check, too) is missing or failed, or a registry did not deliver, nothing was \
                 written"
            }
            FailureKind::Install => {
                "anything about the target disk, or the file that `image` makes: refused, already there, locked, \
                 damaged, or failed part-way (the message says what is on it)"
            }
            FailureKind::Interrupted => {
                "and the number of the signal that ended the run: 130 after Ctrl-C, 143 after SIGTERM (the message says \
                 what is on the disk and how to go on)"
            }
        }
    }
}

impl FailureKind {
    /// The identifier of a failure of this kind that has none of its own.
    pub const fn other(self) -> FailureId {
        match self {
            FailureKind::Other => FailureId::Other,
            FailureKind::Input => FailureId::InputOther,
            FailureKind::Unsupported => FailureId::UnsupportedOther,
            FailureKind::Environment => FailureId::EnvironmentOther,
            FailureKind::Dependency => FailureId::DependencyOther,
            FailureKind::Install => FailureId::InstallOther,
            FailureKind::Interrupted => FailureId::Interrupted,
        }
    }
}
