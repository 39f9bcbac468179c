//! Disks, payloads and moments in which the boot state must not be changed: refused with the exit code of the public
//! table, with a text that names the reason and what helps, and without a byte written.

mod disk;
mod disk_in_use;
mod held_slot;
mod moment;
mod payload;
mod way_back;

use slipway_test_support::world::{self, Node, Outcome};

/// The promise of every test here: refused with this exit code and these words, and not a byte written.
#[track_caller]
fn refused(node: &Node, code: i32, texts: &[&str], attempt: impl FnOnce() -> Outcome) {
    world::refused(&node.disk, code, texts, attempt);
}
