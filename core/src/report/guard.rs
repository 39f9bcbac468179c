//! The answer of `guard`.

use crate::prelude::*;

use core::fmt;

use serde::{Deserialize, Serialize};

use crate::boot::slot::Slot;

/// Why the guard of a trial has ended. (Where it reboots the machine, it answers no more.)
#[derive(Debug, Serialize, Deserialize, schemars::JsonSchema)]
pub struct GuardReport {
    /// The slot on trial; `null` if none is.
    pub slot: Option<Slot>,
    /// The reason, as a sentence.
    pub why: String,
}

impl fmt::Display for GuardReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.slot {
            Some(slot) => write!(f, "guard: the trial of slot {slot} is over: {}", self.why),
            None => write!(f, "guard: nothing to do: {}", self.why),
        }
    }
}
