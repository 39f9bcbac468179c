//! Cleans up when a signal ends the program: side files, and the programs that it has started.

use std::{
    fs, io, mem,
    path::PathBuf,
    process::Child,
    sync::{Mutex, MutexGuard, PoisonError},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

#[derive(PartialEq, Eq)]
enum Leftover {
    Path(PathBuf),
    Child(Pid),
}

static LEFTOVERS: Mutex<Vec<Leftover>> = Mutex::new(Vec::new());

fn leftovers() -> MutexGuard<'static, Vec<Leftover>> {
    LEFTOVERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Make a side file or directory that removes itself on drop.
pub fn side<T>(make: impl FnOnce() -> io::Result<T>, path: impl FnOnce(&T) -> PathBuf) -> io::Result<T> {
    // Under the lock: nothing comes to be after `everything`.
    let mut all = leftovers();
    let made = make()?;
    all.push(Leftover::Path(path(&made)));
    Ok(made)
}

/// A program that was started and has not ended as far as is known.
pub struct Running(Pid);

/// Start a program. Keep the second until it is waited for.
pub fn started(start: impl FnOnce() -> io::Result<Child>) -> io::Result<(Child, Running)> {
    let mut all = leftovers();
    let child = start()?;
    let pid = Pid::from_raw(child.id().cast_signed());
    all.push(Leftover::Child(pid));
    Ok((child, Running(pid)))
}

impl Drop for Running {
    fn drop(&mut self) {
        leftovers().retain(|one| *one != Leftover::Child(self.0));
    }
}

/// End the programs and remove the files, right before the program exits. From here on no others can be made.
pub fn everything() {
    let all = leftovers();
    // Programs before the files that they write.
    for one in all.iter().rev() {
        // It may be gone.
        let _ = match one {
            Leftover::Child(pid) => kill(*pid, Signal::SIGKILL).map_err(Into::into),
            Leftover::Path(path) if path.is_dir() => fs::remove_dir_all(path),
            Leftover::Path(path) => fs::remove_file(path),
        };
    }
    mem::forget(all);
}
