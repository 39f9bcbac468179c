//! Virtual time, and what clocks show then.

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
