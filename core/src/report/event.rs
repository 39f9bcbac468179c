//! Progress of a running command as events. `--progress json` prints one [`EventLine`] per line.

use crate::prelude::*;

use serde::{Deserialize, Serialize};

/// One line of `--progress json`. Schema: `assets/event.schema.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct EventLine {
    /// Counts from 1. A gap means that lines were dropped because the reader was too slow.
    pub seq: u64,
    /// What happened.
    #[serde(flatten)]
    pub event: Event,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum Event {
    /// A phase outside a plan begins, such as checking the payload.
    Phase {
        /// What it does.
        text: String,
        /// Bytes to move; 0 if not counted.
        total_bytes: u64,
    },
    /// A step of a plan begins.
    Step {
        /// Its number, from 1.
        step: usize,
        /// Number of steps.
        of: usize,
        /// What it does.
        text: String,
        /// Bytes to move; 0 if not counted.
        total_bytes: u64,
    },
    /// How far the current phase or step is.
    Bytes {
        /// Bytes done.
        done_bytes: u64,
        /// Bytes in all.
        total_bytes: u64,
    },
    /// Something the user should know; not an error.
    Note {
        /// As a sentence.
        text: String,
    },
}

/// Receives the progress of a running command. Byte counts of 0 mean "not counted".
pub trait Observer {
    /// A phase outside a plan begins.
    fn phase(&mut self, text: &str, bytes: u64);
    /// Step `number` (from 1) of `of` begins.
    fn step(&mut self, number: usize, of: usize, text: &str, bytes: u64);
    /// More bytes of the current phase or step are done.
    fn advance(&mut self, bytes: u64);
    /// Something the user should know; not an error.
    fn note(&mut self, text: &str);
}
