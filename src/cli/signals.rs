//! Ctrl-C, SIGTERM and a terminal that is gone end the program between two instants of which it knows what is on the
//! disk.
//!
//! The signals are blocked in all threads, and one thread waits for them. One that was ignored when the program started,
//! as under `nohup`, stays ignored.

use std::{fs, thread};

use nix::sys::signal::{SigSet, Signal};

/// Call `ends` with the first of the signals that comes. Must be called before any other thread is started: they inherit
/// what is blocked.
pub fn watch(ends: impl FnOnce(Signal) + Send + 'static) {
    let mut signals = SigSet::empty();
    let ignored = ignored(&fs::read_to_string("/proc/self/status").unwrap_or_default());
    let all = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];
    all.into_iter().filter(|signal| ignored & bit(*signal) == 0).for_each(|signal| signals.add(signal));
    if signals == SigSet::empty() || signals.thread_block().is_err() {
        return;
    }
    let waiting = thread::Builder::new().spawn(move || {
        if let Ok(signal) = signals.wait() {
            ends(signal);
        }
    });
    if waiting.is_err() {
        // As without all this: they end the program at once.
        let _ = signals.thread_unblock();
    }
}

/// A file that may grow no further (`ulimit -f`) is an error like any other from here on (EFBIG), and no signal that ends the
/// program without a word. Must be called before any other thread is started.
pub fn hold_back_file_size() {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGXFSZ);
    // Where it cannot be blocked, it ends the program, as it did.
    let _ = signals.thread_block();
}

const fn bit(signal: Signal) -> u64 {
    1 << (signal as u64 - 1)
}

/// The signals that are ignored, as bits (proc_pid_status(5)).
fn ignored(status: &str) -> u64 {
    let bits = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    bits.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_ignored_at_the_start() {
        let status = "Name:\tinstaller\nSigBlk:\t0000000000004007\nSigIgn:\t0000000000001003\nSigCgt:\t0\n";
        let found = ignored(status);
        assert!(
            found & bit(Signal::SIGINT) != 0 && found & bit(Signal::SIGHUP) != 0 && found & bit(Signal::SIGTERM) == 0
        );
        assert_eq!(ignored("Name:\tinstaller\n"), 0);
    }
}
