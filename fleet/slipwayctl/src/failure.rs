//! The end of the program, and the exit status.

use slipway_node_api::{reason::Reason, text::clean_and_cut};
use slipway_node_client::{Error, chain};
use tonic::{Code, Status};

/// The most bytes of what a node says.
const LONGEST: usize = 2048;

/// Why a command did not do what it should.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// It was tried, and did not work.
    #[error("{0}")]
    Failed(String),
    /// The command line, the configuration or a file is wrong.
    #[error("{0}")]
    Usage(String),
    /// The node says no, for a reason with a stable word.
    #[error("refused ({reason}): {message}")]
    Refused { reason: String, message: String },
    /// The other side does not answer, or one side does not trust the other.
    #[error("unreachable: {0}")]
    Unreachable(String),
    /// It is not over yet, and goes on.
    #[error("{0}")]
    Unfinished(String),
}

impl Failure {
    /// The same of one node of several.
    pub fn at(self, node: &str) -> Self {
        let of = |text: String| format!("{node}: {text}");
        match self {
            Self::Failed(text) => Self::Failed(of(text)),
            Self::Usage(text) => Self::Usage(of(text)),
            Self::Refused { reason, message } => Self::Refused { reason, message: of(message) },
            Self::Unreachable(text) => Self::Unreachable(of(text)),
            Self::Unfinished(text) => Self::Unfinished(of(text)),
        }
    }

    /// The exit status.
    pub fn code(&self) -> u8 {
        match self {
            Self::Failed(_) => 1,
            Self::Usage(_) => 2,
            Self::Refused { .. } => 3,
            Self::Unreachable(_) => 4,
            Self::Unfinished(_) => 5,
        }
    }

    /// One word for it.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Failed(_) => "failed",
            Self::Usage(_) => "usage",
            Self::Refused { .. } => "refused",
            Self::Unreachable(_) => "unreachable",
            Self::Unfinished(_) => "unfinished",
        }
    }

    /// A file that cannot be used.
    pub fn file(path: &std::path::Path, why: impl std::fmt::Display) -> Self {
        Self::Usage(format!("{}: {why}", path.display()))
    }
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        // The node's words, which are not to forge lines of this program.
        let message = clean_and_cut(status.message(), LONGEST);
        match (Reason::of(&status), status.code()) {
            (Some(Reason::Failed), _) => Self::Failed(message),
            (Some(reason), _) => Self::Refused { reason: reason.name().to_owned(), message },
            // A node of another version may have other reasons.
            (
                None,
                Code::FailedPrecondition | Code::InvalidArgument | Code::PermissionDenied | Code::ResourceExhausted,
            ) => Self::Refused { reason: "other".to_owned(), message },
            (None, Code::OutOfRange) => Self::Refused { reason: "too-large".to_owned(), message },
            (None, Code::Unimplemented) => Self::Refused {
                reason: "unimplemented".to_owned(),
                message: "the node does not know this call".to_owned(),
            },
            (None, Code::Internal) => Self::Failed(message),
            (None, _) => Self::Unreachable(chain(&status)),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::Address(_) | Error::File { .. } => Self::Usage(error.to_string()),
            Error::Unreachable(why) => Self::Unreachable(why),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_node_says_becomes_an_exit_status() {
        assert_eq!(Failure::from(Reason::Busy.status("it is under way")).code(), 3);
        assert_eq!(Failure::from(Reason::Failed.status("the journal cannot be written")).code(), 1);
        assert_eq!(Failure::from(Status::unavailable("no answer")).code(), 4);
        assert_eq!(Failure::from(Status::unimplemented("")).code(), 3);
        assert_eq!(Failure::from(Status::permission_denied("no")).code(), 3);
        // One that lies does not clean its words.
        for status in [Status::internal("a\x1b[2J\nb"), Status::failed_precondition("a\x1b[2J\nb")] {
            assert!(Failure::from(status).to_string().ends_with("a [2J b"));
        }
    }
}
