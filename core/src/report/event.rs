//! Progress: what happens while a command runs, as events. `--progress json` prints one [`EventLine`] a line.

use crate::prelude::*;

use serde::{Deserialize, Serialize};

/// One line of `--progress json`; `assets/event.schema.json` is its schema.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct EventLine {
    /// Counts from 1. A gap means that lines were dropped because nobody read them.
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
        /// What it is.
        text: String,
        /// Bytes it moves; 0 where they are not counted.
        total_bytes: u64,
    },
    /// A step of a plan begins.
    Step {
        /// Its number, from 1.
        step: usize,
        /// How many steps there are.
        of: usize,
        /// What it is.
        text: String,
        /// Bytes it moves; 0 where they are not counted.
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
        /// What it is.
        text: String,
    },
}

/// Hears of progress.
pub trait Observer {
    /// A phase outside a plan begins: what it is, and the bytes it moves (0: not counted).
    fn phase(&mut self, text: &str, bytes: u64);
    /// A step begins: its number from 1, how many there are, what it is, and the bytes it moves (0: not counted).
    fn step(&mut self, number: usize, of: usize, text: &str, bytes: u64);
    /// More bytes of the current phase or step are done.
    fn advance(&mut self, bytes: u64);
    /// Something the user should know; not an error.
    fn note(&mut self, text: &str);
}
