//! The chunks of a payload that the disk has already, before it is written there.

use std::{collections::BTreeMap, io, sync::atomic::Ordering};

use super::{Executor, Sources, Tally};
use crate::{
    device::BlockIo,
    payload::delta::{Old, OldDisk, Said},
    transfer::StreamError,
};
use slipway_core::{
    delta::reuse::Moved,
    disk::{fat::Placed, layout::Part},
    plan::{Content, Plan, Step, VolumeFile},
    units::Extent,
};

/// Reads past the page cache, which knows nothing of writes meanwhile.
pub struct Slots<'d>(pub &'d dyn BlockIo);

impl OldDisk for Slots<'_> {
    fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.0.read_back(offset, buf)
    }
}

/// The chunks on the disk of a payload that is only read.
pub fn old_of<'o>(files: &[Vec<Extent>], slots: &'o Slots<'o>) -> Old<'o> {
    let (before, to) = (vec![], BTreeMap::new());
    Old { disk: slots, files: files.to_vec(), before, to, is_interrupted: false, said: Said::default() }
}

/// The chunks on the disk of the payload that a step of the plan writes into this volume. `None` if the caller knows of none that
/// could be reused. `files` are those of the volume, and where they go.
pub(super) fn old<'o>(
    plan: &Plan,
    sources: &Sources<'_>,
    (part, extent): (Part, Extent),
    files: &[(&VolumeFile, Extent)],
    slots: &'o Slots<'o>,
) -> Option<Old<'o>> {
    if sources.old.is_empty() {
        return None;
    }
    let is_this = |step: &&Step| matches!(step, Step::WriteVolume { part: p, .. } if *p == part);
    let before = plan.steps.iter().take_while(|step| !is_this(step)).flat_map(Step::writes);
    let texts = files.iter().filter(|(file, _)| file.from != Content::Payload).map(|(_, to)| *to);
    let before = before.chain(texts).collect();
    let payload = files.iter().filter(|(file, _)| file.from == Content::Payload);
    let to: BTreeMap<_, _> = payload.map(|(file, to)| (file.path.clone(), *to)).collect();
    let is_interrupted = !sources.old.iter().flatten().any(|old| extent.contains(*old));
    Some(Old { disk: slots, files: sources.old.to_vec(), before, to, is_interrupted, said: Said::default() })
}

/// The bytes that a plan would fetch, and those it would take from the disk. Writes nothing. `None`: unknown.
pub fn would_move(plan: &Plan, disk: &dyn BlockIo, sources: &Sources<'_>) -> Option<(Moved, Vec<String>)> {
    let (part, extent) = plan.steps.iter().find_map(|step| match step {
        Step::WriteVolume { part: part @ (Part::BootA | Part::BootB), extent } => Some((*part, *extent)),
        _ => None,
    })?;
    let volume = plan.volume(part)?;
    let layout = volume.lay_out(part, extent, disk.sector_size()).ok()?;
    let to = |placed: &Placed| Extent { offset: extent.offset + placed.offset, len: placed.padded };
    let files: Vec<_> = volume.files.iter().zip(layout.files.iter().map(to)).collect();
    let slots = Slots(disk);
    let old = old(plan, sources, (part, extent), &files, &slots)?;
    Some((sources.payload?.would_move(&old)?, old.said.why()))
}

impl Executor<'_, '_> {
    /// Tells what came of it. True: the error comes from what was reused, so that all is to be written again, from the source
    /// alone.
    pub(super) fn came_of(&mut self, old: &Old, result: &anyhow::Result<()>) -> bool {
        if let Some(Tally { reused, .. }) = self.sources.tally {
            reused.fetch_add(old.said.reused(), Ordering::Relaxed);
        }
        old.said.why().iter().for_each(|why| self.observer.note(why));
        let Err(error) = result else { return false };
        let of_disk = matches!(error.downcast_ref(), Some(StreamError::Disk { .. } | StreamError::Thread(_)));
        let is_to_blame = !of_disk && old.is_to_blame(error);
        if is_to_blame {
            let again = "the index of chunks, or what was reused by it, is not the payload's: all of it is fetched";
            self.observer.note(&format!("{again} ({error:#})"));
        }
        is_to_blame
    }
}
