//! Looks for what would fail in the middle of a plan, and can be told before its first write.

use std::{
    io,
    sync::{Mutex, PoisonError, mpsc::channel},
    thread,
};

use slipway_core::plan::Step;

use super::Executor;

/// The machine does not let a step be done. Nothing was written.
#[derive(Debug, thiserror::Error)]
pub(super) enum Foreseen {
    #[error(
        "cannot start the threads to read and hash with ({0}): raise the limit of processes (ulimit -u, pids.max) or of \
         memory (ulimit -v)"
    )]
    Threads(io::Error),
    #[error(
        "it writes up to byte {end}, and no file may be written behind byte {limit}: raise the limit of file sizes (ulimit -f, \
         LimitFSIZE=)"
    )]
    FileSize { end: u64, limit: u64 },
}

impl Executor<'_, '_> {
    /// The first step that cannot be done, from 0.
    pub(super) fn foreseen(&self) -> Option<(usize, Foreseen)> {
        let steps = || self.plan.steps.iter().enumerate();
        let limit = self.disk.limit();
        for (n, step) in steps().filter(|(_, step)| !self.plan.is_optional(step)) {
            if let Some(end) = step.writes().iter().map(|extent| extent.end()).max().filter(|end| *end > limit) {
                return Some((n, Foreseen::FileSize { end, limit }));
            }
        }
        let volumes = || steps().filter(|(_, step)| matches!(step, Step::WriteVolume { .. }));
        let (first, _) = volumes().next()?;
        let failed = start_together(threads_for(volumes().count())).err()?;
        Some((first, Foreseen::Threads(failed)))
    }
}

/// The most threads that run at once: two read each volume back, two hash and write one, one reads a layer ahead. A thread that
/// has ended may count for a moment longer.
const fn threads_for(volumes: usize) -> usize {
    2 * volumes + 3 + 2
}

/// Start so many threads that wait until all of them are there.
fn start_together(many: usize) -> io::Result<()> {
    let (hold, held) = channel::<()>();
    let held = &Mutex::new(held);
    thread::scope(move |scope| {
        // Until the sender is gone.
        let wait = move || held.lock().unwrap_or_else(PoisonError::into_inner).recv().is_ok();
        let start = |_| thread::Builder::new().spawn_scoped(scope, wait);
        let started: io::Result<Vec<_>> = (0..many).map(start).collect();
        drop(hold);
        started?.into_iter().for_each(|thread| drop(thread.join()));
        Ok(())
    })
}
