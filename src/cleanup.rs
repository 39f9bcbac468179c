//! Cleans up when a signal ends the program: side files, and the programs that it has started.

use std::{
    io, mem,
    process::Child,
    sync::{Mutex, MutexGuard, PoisonError},
};

use nix::{
    sys::signal::{Signal, kill, killpg},
    unistd::Pid,
};
use slipway_payload::side_file;

static CHILDREN: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

fn children() -> MutexGuard<'static, Vec<Pid>> {
    CHILDREN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A program that was started and has not ended as far as is known.
pub struct Running(Pid);

/// Start a program. Keep the second until it is waited for.
pub fn started(start: impl FnOnce() -> io::Result<Child>) -> io::Result<(Child, Running)> {
    // Under the lock: nothing comes to be after `everything`.
    let mut all = children();
    let child = start()?;
    let pid = Pid::from_raw(child.id().cast_signed());
    all.push(pid);
    Ok((child, Running(pid)))
}

impl Drop for Running {
    fn drop(&mut self) {
        children().retain(|one| *one != self.0);
    }
}

/// End the programs and remove the files, right before the program exits. From here on no others can be made.
pub fn everything() {
    // Programs before the files that they write.
    let all = children();
    for pid in all.iter().rev() {
        // With all that it has started, unless it talks with its user in the terminal's group. It may be gone.
        let _ = killpg(*pid, Signal::SIGKILL).or_else(|_| kill(*pid, Signal::SIGKILL));
    }
    mem::forget(all);
    side_file::remove_all();
}
