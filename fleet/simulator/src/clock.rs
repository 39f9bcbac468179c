//! Virtual time, the time that clocks show then, and the trace of a run.

use jiff::{Timestamp, ToSpan as _};

/// Seconds of virtual time since the start.
pub type Seconds = i64;

/// A day, in seconds.
pub const DAY: Seconds = 86_400;

/// When every run starts: midnight before a Monday, in UTC.
pub fn start() -> Timestamp {
    Timestamp::UNIX_EPOCH + 494_520.hours()
}

/// The time that a clock shows which is so far off.
pub fn stamp(at: Seconds, offset: Seconds) -> Timestamp {
    start() + (at + offset).seconds()
}

/// The events of a run, one line each. Empty unless a trace is wanted.
#[derive(Clone, Debug, Default)]
pub struct Trace(Option<Vec<String>>);

impl Trace {
    /// A trace that keeps its lines.
    pub fn kept() -> Self {
        Self(Some(Vec::new()))
    }

    /// Add an event. The text is made only if a trace is wanted.
    pub fn say(&mut self, at: Seconds, what: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.0 {
            lines.push(format!("{} {}", stamp(at, 0), what()));
        }
    }

    /// The kept lines.
    pub fn lines(&self) -> &[String] {
        self.0.as_deref().unwrap_or_default()
    }
}
