//! A controller's view, which may be old, and its decisions.

use std::rc::Rc;

use slipway_core::digest::Sha256;
use slipway_rollout::facts::{Facts, Failure, NodeReport, RollbackState};

use crate::{
    clock::{Seconds, stamp},
    policies::Terms,
};

/// A machine's own report. Since when is told as a length of time, whatever its clock says: who asks counts back from its
/// own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    pub runs: Sha256,
    pub staged: Option<Sha256>,
    pub well: bool,
    pub since: Seconds,
    pub busy: bool,
    pub token: u64,
    pub failed: Option<Failure>,
    pub rollback: RollbackState,
}

impl Report {
    /// As a controller takes it whose clock is so far off.
    pub fn taken(&self, offset: Seconds) -> NodeReport {
        NodeReport {
            runs: self.runs,
            staged: self.staged,
            well: self.well,
            since: stamp(self.since, offset),
            busy: self.busy,
            token: self.token,
            failed: self.failed.clone(),
            rollback: self.rollback.clone(),
            other_kubelet: None,
        }
    }
}

/// The input of a controller's decision.
#[derive(Clone, Debug)]
pub struct View {
    /// The place of its pool.
    pub pool: usize,
    pub facts: Facts,
    pub terms: Rc<Terms>,
    /// The policies of the pool that names nodes of this one, too, and the number of nodes that it names.
    pub younger: Option<(Rc<Terms>, u64)>,
    /// When it read the ledger, and then the rollout.
    pub read: Seconds,
    /// By how much the controller's clock was off.
    pub offset: Seconds,
    /// It could ask no node.
    pub is_blind: bool,
}
