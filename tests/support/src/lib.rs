//! What the test programs share. Its functions panic, as tests do, when what they need is missing.
#![allow(clippy::disallowed_methods, reason = "the rule about who starts programs is the installer's")]
#![allow(clippy::new_without_default, reason = "nothing here has a use for Default")]

pub mod container_image;
pub mod exit_code;
pub mod files;
pub mod fixtures;
pub mod golden;
pub mod grub_emu;
pub mod images;
pub mod port;
pub mod registry;
pub mod signing;
pub mod support_archive;
pub mod system;
pub mod verbs;
pub mod world;

use std::{
    io::{self, Write as _},
    path::{Path, PathBuf},
};

/// The root of the project.
pub fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned()
}

/// Say what a test leaves out, and why. Not by a macro: what a test prints that passes is not shown.
pub fn not_run(what: &str) {
    io::stderr().write_all(format!("NOT RUN: {what}\n").as_bytes()).unwrap();
}
