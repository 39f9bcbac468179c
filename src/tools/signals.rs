//! Signals of the programs that are started. This program blocks those that it waits for in a thread of their own
//! (`cli/signals.rs`), and a child inherits that.
#![expect(unsafe_code, reason = "what a child does before it executes a program has no safe form")]

use std::{os::unix::process::CommandExt as _, process::Command};

use nix::sys::signal::SigSet;

/// It can be ended by signals as usual; Ctrl-C ends this program, which ends the child. So the child fails by itself
/// only for reasons of its own.
pub fn in_child(command: &mut Command) {
    command.process_group(0);
    unblocked_in_child(command);
}

/// Prepares a program that talks with its user: it stays in the group that the terminal listens to.
pub fn unblocked_in_child(command: &mut Command) {
    // Only where it is needed: with it, the whole process is copied to start a program.
    if SigSet::thread_get_mask().is_ok_and(|blocked| blocked == SigSet::empty()) {
        return;
    }
    // SAFETY: between fork and exec: one system call, no allocation.
    unsafe { command.pre_exec(|| Ok(SigSet::empty().thread_set_mask()?)) };
}
