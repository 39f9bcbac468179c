//! Why a call is refused. The word is stable, and is in the metadata `slipway-reason` of the answer.

use slipway_node::journal::Refusal;
use tonic::{Code, Status, metadata::MetadataValue};

use crate::text::clean_and_cut;

/// The key in the metadata.
pub const KEY: &str = "slipway-reason";
/// The most bytes of a message, without what to do.
const LONGEST: usize = 2048;

/// Why a call is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The caller's roles do not suffice.
    Forbidden,
    /// The certificate of the connection is not trusted any more.
    Distrusted,
    /// The message cannot be understood.
    Malformed,
    /// Another operation is under way.
    Busy,
    /// The fleet has granted something newer.
    StaleToken,
    /// The fleet has not granted it to this node.
    NotGranted,
    /// The fleet's ledger cannot be read.
    NoLedger,
    /// The payload was tried, and was not well.
    PayloadDenied,
    /// The system that runs is not confirmed.
    OnTrial,
    /// The disk's boot state cannot be read.
    UnknownDisk,
    /// The request contradicts itself.
    Invalid,
    /// The operation is not the one that is under way.
    NotUnderWay,
    /// The operation has come too far.
    TooLate,
    /// There is nothing to confirm.
    NotOnTrial,
    /// More calls at once than the node allows.
    TooManyCalls,
    /// More watches at once than the node allows.
    TooManyWatches,
    /// Events that are not there yet.
    AheadOfLog,
    /// Events that this reader did not take in time.
    MissedEvents,
    /// The call is for another node.
    OtherNode,
    /// The requested thing is not on this node.
    NotHere,
    /// etcd does not do it, or does not answer.
    Etcd,
    /// The node goes down before the outcome is known.
    GoesDown,
    /// The node failed.
    Failed,
}

impl Reason {
    /// Every reason.
    pub const ALL: [Self; 23] = [
        Self::Forbidden,
        Self::Distrusted,
        Self::Malformed,
        Self::Busy,
        Self::StaleToken,
        Self::NotGranted,
        Self::NoLedger,
        Self::PayloadDenied,
        Self::OnTrial,
        Self::UnknownDisk,
        Self::Invalid,
        Self::NotUnderWay,
        Self::TooLate,
        Self::NotOnTrial,
        Self::TooManyCalls,
        Self::TooManyWatches,
        Self::AheadOfLog,
        Self::MissedEvents,
        Self::OtherNode,
        Self::NotHere,
        Self::Etcd,
        Self::GoesDown,
        Self::Failed,
    ];

    /// Its word, its code, and what to do.
    fn row(self) -> (&'static str, Code, &'static str) {
        match self {
            Self::Forbidden => ("forbidden", Code::PermissionDenied, "ask with a certificate of that role"),
            Self::Distrusted => {
                ("distrusted", Code::Unauthenticated, "connect again, with a certificate that is valid and not revoked")
            }
            Self::Malformed => ("malformed", Code::InvalidArgument, "correct the request"),
            Self::Busy => ("busy", Code::FailedPrecondition, "`slipwayctl status` shows how far it is"),
            Self::StaleToken => ("stale-token", Code::FailedPrecondition, "take a new grant from the fleet"),
            Self::NotGranted => {
                ("not-granted", Code::FailedPrecondition, "send a token that the fleet granted to this node, or none")
            }
            Self::NoLedger => {
                ("no-ledger", Code::Unavailable, "see that the node reaches the API server, then ask again")
            }
            Self::PayloadDenied => {
                ("payload-denied", Code::FailedPrecondition, "else build and publish a corrected payload")
            }
            Self::OnTrial => ("on-trial", Code::FailedPrecondition, "`slipwayctl confirm` or `slipwayctl rollback`"),
            Self::UnknownDisk => (
                "unknown-disk",
                Code::FailedPrecondition,
                "run `installer status` on the node: does the system run from `disk` in its slipwayd.toml?",
            ),
            Self::Invalid => ("invalid", Code::InvalidArgument, "correct the request"),
            Self::NotUnderWay => ("not-under-way", Code::NotFound, "`slipwayctl status` names the one that is"),
            Self::TooLate => ("too-late", Code::FailedPrecondition, "wait for its end, then roll back"),
            Self::NotOnTrial => ("not-on-trial", Code::FailedPrecondition, "nothing needs to be done"),
            Self::TooManyCalls => ("too-many-calls", Code::ResourceExhausted, "try again later"),
            Self::TooManyWatches => ("too-many-watches", Code::ResourceExhausted, "end another watch first"),
            Self::AheadOfLog => ("ahead-of-log", Code::OutOfRange, "take the position from `Status`"),
            // Clients of Talos try again when a node is unavailable, and then get all that is kept.
            Self::MissedEvents => ("missed-events", Code::Unavailable, "ask again for all that the node still has"),
            Self::OtherNode => ("other-node", Code::FailedPrecondition, "connect to that node itself"),
            Self::NotHere => ("not-here", Code::Unimplemented, "another role or another try gets the same answer"),
            Self::Etcd => ("etcd", Code::Unavailable, "look at the members of etcd, then try again"),
            Self::GoesDown => ("goes-down", Code::Unavailable, "ask again when it is back"),
            Self::Failed => ("failed", Code::Internal, "the node's own log says more"),
        }
    }

    /// The word in the metadata.
    pub fn name(self) -> &'static str {
        self.row().0
    }

    /// The code of the answer.
    pub fn code(self) -> Code {
        self.row().1
    }

    /// The answer, for `what`.
    pub fn status(self, what: impl std::fmt::Display) -> Status {
        let (word, code, to_do) = self.row();
        // It is sent as a header, and may quote what came.
        let what = clean_and_cut(&what.to_string(), LONGEST);
        let mut status = Status::new(code, format!("{what}; {to_do}"));
        status.metadata_mut().insert(KEY, MetadataValue::from_static(word));
        status
    }

    /// The reason in an answer; `None` if it did not come from a node.
    pub fn of(status: &Status) -> Option<Self> {
        let word = status.metadata().get(KEY)?.to_str().ok()?;
        Self::ALL.into_iter().find(|reason| reason.name() == word)
    }
}

impl From<&Refusal> for Reason {
    fn from(refused: &Refusal) -> Self {
        match refused {
            Refusal::Busy(_) => Self::Busy,
            Refusal::StaleToken { .. } => Self::StaleToken,
            Refusal::NotGranted { .. } => Self::NotGranted,
            Refusal::Denied { .. } => Self::PayloadDenied,
            Refusal::OnTrial => Self::OnTrial,
            Refusal::UnknownDisk => Self::UnknownDisk,
            Refusal::Invalid(_) => Self::Invalid,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_different_and_come_back() {
        for reason in Reason::ALL {
            assert_eq!(Reason::of(&reason.status("it cannot be")), Some(reason));
            assert!(reason.name().bytes().all(|byte| byte == b'-' || byte.is_ascii_lowercase()));
        }
        assert_eq!(Reason::of(&Status::unavailable("no answer")), None);
    }

    #[test]
    fn an_answer_says_what_to_do() {
        let status = Reason::from(&Refusal::OnTrial).status(Refusal::OnTrial);
        assert_eq!(status.code(), Code::FailedPrecondition);
        assert!(status.message().contains("slipwayctl confirm"), "{}", status.message());
        let long = Reason::Failed.status("x".repeat(1 << 20));
        assert!(long.message().len() < 4096 && long.message().ends_with("; the node's own log says more"));
    }
}
