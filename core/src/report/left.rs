//! What a run that did not come to its end has left on the disk, and what to do.

use crate::prelude::*;

use core::fmt;

/// Nothing was written, and that is certain.
pub const NOTHING_WRITTEN: &str = "nothing was written";

/// What a run has left that failed, or that a signal ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// What is on the disk, as a sentence.
    pub state: String,
    /// What to do, as a sentence; none if nothing more is known than what is always right.
    pub remedy: Option<&'static str>,
}

impl Left {
    /// The remedy where a second run converges.
    pub const AGAIN: &str = "run the same command again";
    /// The remedy where a person has to look.
    pub const STATUS: &str = "run `installer status`";

    /// With a remedy.
    pub fn new(state: impl Into<String>, remedy: &'static str) -> Self {
        Self { state: state.into(), remedy: Some(remedy) }
    }

    /// Without a remedy of its own.
    pub fn state(state: impl Into<String>) -> Self {
        Self { state: state.into(), remedy: None }
    }

    /// Before the first write.
    pub fn nothing_written() -> Self {
        Self::state(NOTHING_WRITTEN)
    }
}

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.state)?;
        self.remedy.map_or(Ok(()), |remedy| write!(f, "; {remedy}"))
    }
}
