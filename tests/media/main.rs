//! Size: gate
//! Needs: root boot-assets payloads programs
//!
//! What is made in files: disk images, ISOs, archives for network boots, and profiles of `imager`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods, reason = "tests")]

mod disk_image;
mod imager;
mod live;
mod secure_boot;

use slipway_test_support::world::{Outcome, World, tool};

/// Refused with this exit code and these words; nothing new lies in the directory.
#[track_caller]
fn refused(world: &World, code: i32, texts: &[&str], attempt: impl FnOnce() -> Outcome) {
    let list = || tool!("ls", "-lA", "--time-style=full-iso", world.path(""));
    let before = list();
    attempt().exits(code).says(texts);
    assert_eq!(list(), before);
}
