//! Signals by which somebody wants this program to end.

use std::{fs, future::pending};

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Ends with such a signal: of Ctrl-C, of a kubelet or an init system, or of a terminal that is closed.
pub async fn interrupted() {
    let [interrupt, terminate] = [SignalKind::interrupt(), SignalKind::terminate()].map(signal);
    let hangup = if ignores_hangups() { None } else { Some(signal(SignalKind::hangup())) };
    // Without a handler a signal ends the program as ever.
    let (Ok(mut interrupt), Ok(mut terminate), Ok(mut hangup)) = (interrupt, terminate, hangup.transpose()) else {
        return pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        () = next(hangup.as_mut()) => {}
    }
}

async fn next(signal: Option<&mut Signal>) {
    match signal {
        Some(signal) => _ = signal.recv().await,
        None => pending().await,
    }
}

/// Who started this program may want it to outlive the terminal, as `nohup` does.
fn ignores_hangups() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    // A bit for each signal, from 1 on.
    ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}
