//! The interface from the sequence to the world. The real one is [`Machine`](crate::machine::Machine).

use slipway_node::{
    facts::Facts,
    operation::{Operation, Tried},
    step::Step,
};

/// The events of a step, for a watcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// A part of the step began.
    Part(String),
    /// Bytes of this part: done, and in all. 0 of 0 if they are not counted.
    Bytes(u64, u64),
    /// Something people should know.
    Note(String),
}

/// Where a step tells how far it is, and learns that it should end.
pub trait Watcher: Sync {
    /// Something happened.
    fn tell(&self, progress: Progress);
    /// An admin wants the operation to end: a long step ends early and says that it is blocked.
    fn wants_end(&self) -> bool;
}

/// The interface from the sequence to the world.
pub trait World: Send {
    /// Look at the node. With an operation, look also at what its next steps must know.
    fn facts(&mut self, op: Option<&Operation>) -> Facts;
    /// Do a step. It may have been done before, and may be done again.
    fn perform(&mut self, step: Step, op: &Operation, watcher: &dyn Watcher) -> Tried;
}
