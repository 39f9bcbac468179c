//! Lines for whoever looks: on every console that the firmware has.

use uefi::{println, proto::console::text::Key, system};

/// Prints a line.
pub fn say(line: &str) {
    println!("slipway: {line}");
}

/// A key that was pressed, without waiting for one.
pub fn key() -> Option<Key> {
    system::with_stdin(|stdin| stdin.read_key().ok().flatten())
}
