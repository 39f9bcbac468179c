//! Writes snapshots into slots.

use anyhow::{Context as _, anyhow, bail};
use slipway_core::{
    boot::slot::Slot,
    digest::Sha256,
    plan::{HeadChange, Plan, Step},
    snapshot::{
        HEAD_BYTES,
        content::Content,
        head::{Head, State, TEXT_BYTES},
    },
    units::Extent,
};

use super::{Executor, Expect, Sources};
use crate::probe;

/// Takes what belongs to a system, when its turn has come.
pub trait TakesSnapshot {
    /// Also what the user should know about it.
    fn take(&self) -> anyhow::Result<(Content, Vec<String>)>;
}

/// Where the snapshot of a plan would lie if it were taken now.
pub fn snapshot_room(plan: &Plan, sources: &Sources) -> anyhow::Result<Option<Extent>> {
    let room = plan.steps.iter().find_map(|step| match step {
        Step::WriteSnapshot { extent, .. } => Some(*extent),
        _ => None,
    });
    let (Some(room), Some(source)) = (room, sources.snapshot) else { return Ok(None) };
    Ok(Some(place(room, source.take()?.0.encode()?.len())))
}

/// At the end of the room, to a whole 4 KiB.
const fn place(room: Extent, bytes: usize) -> Extent {
    let len = (bytes as u64).next_multiple_of(HEAD_BYTES);
    Extent { offset: room.end() - len, len }
}

impl Executor<'_, '_> {
    pub(super) fn write_snapshot(&mut self, slot: Slot, room: Extent) -> anyhow::Result<Vec<Expect>> {
        let source = self.sources.snapshot.ok_or_else(|| anyhow!("the plan needs what belongs to the system"))?;
        let (content, notes) = source.take()?;
        notes.iter().for_each(|note| self.observer.note(note));
        let mut bytes = content.encode()?;
        self.snapshot = Some((content.files() as u64, bytes.len() as u64, Sha256::of(&bytes)));
        // It may have 16 MiB, and so have these bytes.
        drop(content);
        let at = place(room, bytes.len());
        bytes.resize(at.len as usize, 0);
        let part = self.plan.steps.iter().find_map(|step| match step {
            Step::ForgetCached { part, extent } if *part == slot.into() => Some(*extent),
            _ => None,
        });
        let part = part.filter(|part| part.contains(at)).ok_or_else(|| anyhow!("the plan has no place for it"))?;
        // Another program may have mounted the slot and written into it.
        probe::snapshot_room(self.disk, part, Some(at))
            .map_err(|why| anyhow!("slot {slot} has no room for a snapshot: {why}"))?;
        self.small(at.offset, bytes)
    }

    pub(super) fn snapshot_head(
        &mut self,
        slot: Slot,
        extent: Extent,
        change: &HeadChange,
    ) -> anyhow::Result<Vec<Expect>> {
        let head = match change {
            HeadChange::Dropped => return self.zeros(&[extent]),
            HeadChange::PutBack(head) => (**head).clone(),
            HeadChange::Of { system, version, taken } => {
                let (files, bytes, sha256) =
                    self.snapshot.context("the plan names a snapshot that it does not write")?;
                let (disk, system, version) = (self.plan.disk_guid, *system, version.clone());
                Head {
                    format: 1,
                    disk,
                    slot,
                    system,
                    version,
                    taken: *taken,
                    files,
                    bytes,
                    sha256,
                    state: State::Waits,
                }
            }
        };
        let mut bytes = head.render();
        if bytes.len() != TEXT_BYTES || extent.len < TEXT_BYTES as u64 {
            bail!("the head of a snapshot does not fit");
        }
        bytes.resize(extent.len as usize, 0);
        self.small(extent.offset, bytes)
    }
}
