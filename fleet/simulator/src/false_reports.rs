//! Nodes that lie: each field of a report, false.

use slipway_rollout::facts::{Failure, FailureEvidence, RollbackState};

use crate::{
    NEW, OLD,
    clock::{DAY, Seconds},
    random::Random,
    view::Report,
};

/// The subject of a node's lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// It obeyed this token.
    Token(u64),
    /// It is well, has been so for ever, and nothing is under way.
    Well,
    /// It is not well.
    Ill,
    /// An operation disturbs it.
    Busy,
    /// The payload runs; or it does not.
    Runs(bool),
    /// The payload is in its other slot; or it is not.
    Staged(bool),
    /// It failed like this.
    Failed(FailureEvidence),
    /// It can go back, or cannot, for whatever reason.
    GoesBack(u8),
    /// It has been as it is since then, in seconds from the start.
    Since(Seconds),
    /// It obeyed what it was asked last, is well, and runs the old payload: it came back, and does not say why.
    ComesBack,
    /// The same, and in between, for some minutes each time, that it runs the new payload.
    Flickers,
    /// Some of these at once, by this seed.
    Several(u64),
}

impl Lie {
    /// Any of them.
    pub fn any(random: &mut Random) -> Self {
        let evidence = [
            FailureEvidence::NotStaged,
            FailureEvidence::BeforeReboot,
            FailureEvidence::AfterReboot,
            FailureEvidence::Unknown,
        ];
        match random.below(16) {
            0 => Self::Token(u64::MAX),
            1 => Self::Token((1 << 53) - 1),
            2 => Self::Token(random.below(100)),
            3 => Self::Well,
            4 => Self::Ill,
            5 => Self::Busy,
            6 => Self::Runs(random.coin()),
            7 => Self::Staged(random.coin()),
            8 => Self::Failed(evidence[random.place(evidence.len())]),
            9 => Self::GoesBack(u8::try_from(random.below(4)).unwrap_or(0)),
            10 => Self::Since(random.from_to(-100, 0) * DAY),
            11 => Self::ComesBack,
            12 | 13 => Self::Flickers,
            _ => Self::Several(random.number()),
        }
    }

    /// Tells whether it says at this time that it runs the new payload, if that depends on the time.
    pub fn runs_at(self, now: Seconds) -> Option<bool> {
        (self == Self::Flickers).then_some(now / 600 % 2 == 1)
    }

    /// The report with this lie in it; `asked` is the highest token that the node was asked with.
    pub fn falsify(self, mut report: Report, asked: u64) -> Report {
        match self {
            Self::Token(token) => report.token = token,
            Self::Well => (report.well, report.busy, report.since) = (true, false, -3_000_000_000),
            Self::Ill => report.well = false,
            Self::Busy => report.busy = true,
            Self::Runs(new) => report.runs = if new { NEW } else { OLD },
            Self::Staged(is_so) => report.staged = is_so.then_some(NEW),
            Self::Failed(evidence) => report.failed = Some(Failure { evidence, why: "a lie".to_owned() }),
            Self::GoesBack(0) => report.rollback = RollbackState::Available,
            Self::GoesBack(1) => report.rollback = RollbackState::Unavailable,
            Self::GoesBack(2) => report.rollback = RollbackState::Denied("a lie".to_owned()),
            Self::GoesBack(_) => report.rollback = RollbackState::Failed("a lie".to_owned()),
            Self::Since(since) => report.since = since,
            Self::ComesBack | Self::Flickers => {
                (report.runs, report.staged, report.failed) = (OLD, Some(NEW), None);
                (report.well, report.busy, report.token) = (true, false, asked);
            }
            Self::Several(seed) => {
                let mut random = Random::new(seed);
                for _ in 0..random.from_to(2, 5) {
                    // Several within several would have no end.
                    let lie = Self::any(&mut random);
                    if !matches!(lie, Self::Several(_)) {
                        report = lie.falsify(report, asked);
                    }
                }
            }
        }
        report
    }
}
