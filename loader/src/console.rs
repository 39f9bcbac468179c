//! Lines for a person at any console of the firmware, and keys that are pressed there. A machine may have neither: nothing
//! here fails, and nothing here allocates, so that a panic can be told as well.
#![expect(unsafe_code, reason = "whether the firmware has a console stands in its system table, which is a pointer")]

use core::{
    fmt::{self, Write},
    time::Duration,
};

use slipway_boot::slot::Slot;
use uefi::{
    CStr16, boot,
    proto::console::text::{Input, Key, Output},
    system, table,
};

const TICK: Duration = Duration::from_millis(100);
/// Limit for a key that was held: it has repeated itself, and the firmware keeps many of them.
const MAX_HELD_TICKS: u32 = 400;
const QUIET_TICKS: u32 = 10;
const CHOICE_TICKS: u32 = 300;

/// Prints a line.
pub fn print(line: &str) {
    print_fmt(format_args!("{line}"));
}

/// Prints a line, without an allocation.
pub fn print_fmt(line: fmt::Arguments<'_>) {
    let mut console = Console { units: [0; ROOM], filled: 0 };
    // It takes everything, and fails never.
    let _ = console.write_fmt(format_args!("slipway: {line}"));
    console.push('\r');
    console.push('\n');
    console.print();
}

/// A key that was pressed, without waiting for one.
pub fn key() -> Option<Key> {
    if !has(|console| !console.stdin.is_null()) {
        return None;
    }
    system::with_stdin(|stdin: &mut Input| stdin.read_key().ok().flatten())
}

/// Characters that are printed at once.
const ROOM: usize = 64;

/// The text to be printed next, in UTF-16, with room for the zero at its end.
struct Console {
    units: [u16; ROOM],
    filled: usize,
}

impl Console {
    fn push(&mut self, character: char) {
        // Firmware may fail on a character it has no glyph for, and a disk may name anything.
        let plain = matches!(character, ' '..='~' | '\r' | '\n');
        self.units[self.filled] = if plain { character as u16 } else { u16::from(b'?') };
        self.filled += 1;
        if self.filled == ROOM - 1 {
            self.print();
        }
    }

    fn print(&mut self) {
        self.units[self.filled] = 0;
        if let Ok(text) = CStr16::from_u16_with_nul(&self.units[..=self.filled])
            && has(|console| !console.stdout.is_null())
        {
            // It need not be seen.
            let _ = system::with_stdout(|stdout: &mut Output| stdout.output_string(text));
        }
        self.filled = 0;
    }
}

impl Write for Console {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // A line stays one.
        text.chars().for_each(|c| self.push(if c.is_control() { '?' } else { c }));
        Ok(())
    }
}

fn has(console: impl Fn(&uefi_raw::table::system::SystemTable) -> bool) -> bool {
    let Some(system) = table::system_table_raw() else { return false };
    // SAFETY: the firmware has handed it to the entry point, and it lives as long as the loader: nothing ends the boot services
    // here, which is all that could move it.
    let system = unsafe { system.as_ref() };
    !system.boot_services.is_null() && console(system)
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

/// The slot whose letter is pressed within 30 s.
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
