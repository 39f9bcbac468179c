//! The events, one line each, where a trace is wanted.

use crate::clock::{Seconds, stamp};

/// The lines, or nothing.
#[derive(Clone, Debug, Default)]
pub struct Trace(Option<Vec<String>>);

impl Trace {
    /// One that keeps what it is told.
    pub fn kept() -> Self {
        Self(Some(Vec::new()))
    }

    /// This happened. The text is made only if a trace is wanted.
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
