//! Reports of a node, and of a liar: each field, true or false, in any combination.

use slipway_rollout::{
    facts::{Failure, FailureEvidence, NodeReport, ObservedNode, RollbackState},
    ledger::{HIGHEST, Node},
};

use crate::{NEW, OLD, noon};

/// A node's report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Said {
    /// It does not answer.
    Nothing,
    /// It answers.
    Report {
        runs: bool,
        staged: bool,
        well: bool,
        busy: bool,
        /// The highest token that it obeyed.
        token: u64,
        failed: Option<Kind>,
    },
}

/// The failure of an attempt: [`FailureEvidence`], in an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    NotStaged,
    BeforeReboot,
    AfterReboot,
    Unknown,
}

const BOTH: [bool; 2] = [false, true];

impl Said {
    /// All that a liar may say, where the highest token that was given is this one.
    pub fn lies(epoch: u64) -> Vec<Self> {
        let mut tokens = vec![0, epoch, HIGHEST];
        tokens.dedup();
        let kinds = [Kind::NotStaged, Kind::BeforeReboot, Kind::AfterReboot, Kind::Unknown].map(Some);
        let mut lies = vec![Self::Nothing];
        for (runs, staged) in BOTH.into_iter().flat_map(|runs| BOTH.map(|staged| (runs, staged))) {
            for (well, busy) in BOTH.into_iter().flat_map(|well| BOTH.map(|busy| (well, busy))) {
                for token in tokens.iter().copied() {
                    let failed = kinds.into_iter().chain([None]);
                    lies.extend(failed.map(|failed| Self::Report { runs, staged, well, busy, token, failed }));
                }
            }
        }
        lies
    }

    /// The highest token that it names; 0 where it does not answer.
    pub fn token(self) -> u64 {
        if let Self::Report { token, .. } = self { token } else { 0 }
    }

    /// As a controller sees it.
    pub fn observed(self, node: &Node) -> ObservedNode {
        let Self::Report { runs, staged, well, busy, token, failed } = self else {
            return ObservedNode { node: node.clone(), report: None };
        };
        let failed = failed.map(|kind| Failure {
            evidence: match kind {
                Kind::NotStaged => FailureEvidence::NotStaged,
                Kind::BeforeReboot => FailureEvidence::BeforeReboot,
                Kind::AfterReboot => FailureEvidence::AfterReboot,
                Kind::Unknown => FailureEvidence::Unknown,
            },
            why: "it says so".to_owned(),
        });
        let report = NodeReport {
            runs: if runs { NEW } else { OLD },
            staged: staged.then_some(NEW),
            well,
            since: noon(),
            busy,
            token,
            failed,
            rollback: RollbackState::Unavailable,
            other_kubelet: None,
        };
        ObservedNode { node: node.clone(), report: Some(report) }
    }
}
