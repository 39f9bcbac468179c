//! Lines for whoever looks, on every console that the firmware has, and keys that somebody presses.

use core::time::Duration;

use slipway_boot::slot::Slot;
use uefi::{boot, println, proto::console::text::Key, system};

const TICK: Duration = Duration::from_millis(100);
/// How long a key that was held may go on: it has repeated itself, and the firmware keeps many of them.
const MAX_HELD_TICKS: u32 = 400;
const QUIET_TICKS: u32 = 10;
const CHOICE_TICKS: u32 = 300;

/// Prints a line.
pub fn say(line: &str) {
    println!("slipway: {line}");
}

/// A key that was pressed, without waiting for one.
pub fn key() -> Option<Key> {
    system::with_stdin(|stdin| stdin.read_key().ok().flatten())
}

/// Whether a key comes within this time.
pub fn pressed_within(time: Duration) -> bool {
    let ticks = time.as_millis() / TICK.as_millis();
    (0..ticks).any(|_| {
        boot::stall(TICK);
        key().is_some()
    })
}

/// Waits until no key comes for a second. False if one is stuck: it must not choose.
pub fn released() -> bool {
    let mut quiet = 0;
    for _ in 0..MAX_HELD_TICKS {
        boot::stall(TICK);
        quiet = if key().is_some() { 0 } else { quiet + 1 };
        if quiet == QUIET_TICKS {
            return true;
        }
    }
    false
}

/// One of these slots, by its letter, within 30 s.
pub fn pressed(slots: &[Slot]) -> Option<Slot> {
    for _ in 0..CHOICE_TICKS {
        if let Some(Key::Printable(letter)) = key() {
            let letter = char::from(letter).to_ascii_uppercase();
            if let Some(slot) = slots.iter().find(|slot| slot_letter(**slot) == letter) {
                return Some(*slot);
            }
        }
        boot::stall(TICK);
    }
    None
}

const fn slot_letter(slot: Slot) -> char {
    match slot {
        Slot::A => 'A',
        Slot::B => 'B',
    }
}
