//! Progress of a running command as events. `--progress json` prints one [`EventLine`] per line.

use crate::prelude::*;

use serde::{Deserialize, Serialize};

use super::Left;

/// One line of `--progress json`. Schema: `assets/event.schema.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct EventLine {
    /// Counts from 1. A gap means that lines were dropped because the reader was too slow.
    pub seq: u64,
    /// When, RFC 3339, UTC, with milliseconds. Early versions did not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
    /// The event.
    #[serde(flatten)]
    pub event: Event,
}

/// The event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum Event {
    /// The first event of a run.
    Begin {
        /// Version of these events: a reader that knows this number knows all events of the run, or may skip them.
        schema: u32,
        /// The verb.
        verb: String,
        /// Version of the program.
        version: String,
    },
    /// A phase outside a plan begins, such as checking the payload.
    Phase {
        /// Its action.
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
        /// Its action.
        text: String,
        /// Bytes to move; 0 if not counted.
        total_bytes: u64,
    },
    /// The progress of the current phase or step.
    Bytes {
        /// Bytes done.
        done_bytes: u64,
        /// Bytes in all.
        total_bytes: u64,
        /// Bytes that came over the network so far, if parts of the payload are taken from the disk.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fetched_bytes: Option<u64>,
        /// Bytes of the payload that came from the disk so far.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reused_bytes: Option<u64>,
    },
    /// Something the user should know; not an error.
    Note {
        /// As a sentence.
        text: String,
    },
    /// Nothing goes on for a while, because another program, a server or the writer of stdin is to act first.
    Wait {
        /// The reason, and the longest time.
        text: String,
    },
    /// The last event of a run that came to its end.
    Done {
        /// 0, or 7 if the report tells of damage.
        exit_code: u8,
    },
    /// The last event of a run that failed, or that a signal ended.
    Failed {
        /// Exit code of the program.
        exit_code: u8,
        /// As on the last line of stderr.
        message: String,
    },
}

/// The `schema` of [`Event::Begin`].
pub const EVENT_SCHEMA: u32 = 1;

/// Receives the progress of a running command. Byte counts of 0 mean "not counted".
pub trait Observer {
    /// A plan begins that moves so many bytes in all.
    fn plan(&mut self, _bytes: u64) {}
    /// A phase outside a plan begins.
    fn phase(&mut self, text: &str, bytes: u64);
    /// Step `number` (from 1) of `of` begins.
    fn step(&mut self, number: usize, of: usize, text: &str, bytes: u64);
    /// More bytes of the current phase or step are done.
    fn advance(&mut self, bytes: u64);
    /// So many bytes came over the network so far, and so many from the disk.
    fn moved(&mut self, _fetched: u64, _reused: u64) {}
    /// Something the user should know; not an error.
    fn note(&mut self, text: &str);
    /// The same in the words of another program.
    fn quote(&mut self, text: &str) {
        self.note(text);
    }
    /// A disk is locked for writing from here on. `key` tells it apart from all others of this machine.
    fn holds(&mut self, _disk: &str, _key: &str) {}
    /// State of the disk if the command ends now, or at any time before this is called again.
    fn left(&mut self, _left: Left) {}
    /// The command waits until another program or a person acts.
    fn waits(&mut self, text: &str) {
        self.note(text);
    }
}
