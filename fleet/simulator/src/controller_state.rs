//! A controller's own state: its current work, its remaining work, and its writes.

use std::{collections::VecDeque, rc::Rc};

use jiff::Timestamp;
use slipway_rollout::{
    attempts::History,
    decide::Action,
    facts::{Interruption, Retry},
    ledger::{Ledger, Limits, Node, Proof},
};

use crate::{clock::Seconds, view::View};

/// The times that controllers count with their own clock: of a soak, of its interruptions, and of repeats.
pub type Counted = (Option<Timestamp>, Option<Interruption>, Option<Retry>);

/// One thing to do.
#[derive(Clone, Debug)]
pub enum PendingAction {
    /// The decision.
    Decided(Action),
    /// So many waves are over.
    Passed(usize),
    /// It is over.
    Finished,
    /// The times that controllers count with their own clock.
    Remember(Box<Counted>),
    /// The grants of each node, counted.
    Attempts(History),
    /// A mutant: a grant goes without a proof.
    Drop(String),
}

/// A change of an object.
#[derive(Clone, Debug)]
pub enum Change {
    Grant(Node),
    Free(String, Proof),
    /// A mutant: without a proof.
    Drop(String),
    Pause(String),
    Deny(String),
    Passed(usize),
    Finished,
    Remember(Box<Counted>),
    Attempts(History),
}

/// A write that is on its way.
#[derive(Clone, Debug)]
pub struct Write {
    pub version: u64,
    /// The ledger that is written; `None` for a change of the rollout.
    pub ledger: Option<Rc<Ledger>>,
    pub change: Change,
    pub view: Rc<View>,
    /// When it was made, by the clock of who made it.
    pub made: Seconds,
}

/// The current work of a controller.
#[derive(Clone, Debug)]
pub struct Work {
    pub pool: usize,
    pub ledger: Rc<Ledger>,
    pub version: u64,
    pub rollout_version: u64,
    pub read: Seconds,
    pub view: Option<Rc<View>>,
    pub limits: Option<Limits>,
    pub todo: VecDeque<PendingAction>,
    pub wait: Seconds,
}

/// A controller.
#[derive(Clone, Debug, Default)]
pub struct Controller {
    /// The number of this life: messages to an earlier one are not heard.
    pub life: u64,
    pub is_up: bool,
    /// The error of its clock.
    pub offset: Seconds,
    /// Until then it can ask no node.
    pub blind_until: Seconds,
    /// The least age, until then, of the objects that it watches.
    pub lag: (Seconds, Seconds),
    pub work: Option<Work>,
    /// When it looks the next time, if that is planned.
    pub look_at: Option<Seconds>,
    /// When each pool is to be looked at.
    pub due: Vec<Seconds>,
    /// Its earlier reading, for a mutant.
    pub before: Rc<Ledger>,
}

/// The result of an accepted write.
#[derive(Clone, Debug)]
pub enum WriteResult {
    Ledger(u64, Rc<Ledger>),
    Rollout(u64),
}
