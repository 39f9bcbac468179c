//! Shows the changes of a disk, and how each trial ended.

use slipway_core::{
    plan::SystemFacts,
    report::{HistoryEntry, HistoryReport, Now},
};

use super::{
    DiskRequest, pstore,
    reading::{self, Reader},
    utc,
};
use crate::error::Failure;

/// At most `limit` entries, the newest.
pub fn run(request: &DiskRequest, limit: Option<usize>) -> Result<HistoryReport, Failure> {
    let disk = request.look()?;
    let mut reader = Reader::new(&disk)?;
    let look = |_: Option<&_>| super::ours(reader.look(), &request.path.display().to_string());
    let (system, _) = reading::settled(&disk, look, |system| lost(system) == 0)?;
    let lost = lost(&system);
    let entries = entries(&system, limit.unwrap_or(usize::MAX));
    let (disk, kept) = (disk.identity().clone(), system.history.is_some());
    Ok(HistoryReport { disk, kept, entries, lost, columns: None })
}

/// The number of records that cannot be read.
fn lost(system: &SystemFacts) -> u32 {
    system.history.as_ref().map_or(0, |history| history.lost(system.env.as_ref()))
}

/// The newest first.
pub(super) fn entries(system: &SystemFacts, limit: usize) -> Vec<HistoryEntry> {
    let Some(history) = &system.history else { return vec![] };
    let panic = pstore::panic(system);
    let now = Now { env: system.env.as_ref(), running: system.running, panic: panic.as_deref(), utc };
    let mut entries = HistoryEntry::all(history, now);
    entries.truncate(limit);
    entries
}
