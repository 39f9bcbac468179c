//! Snapshots of what belongs to a system: takes one before a trial is armed, and shows those on a disk.

mod restore;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use slipway_core::{
    boot::slot::{PerSlot, Slot},
    disk::layout::Part,
    plan::{RunsFrom, SnapshotRequest, SystemFacts},
    report::{FailureKind, SnapshotEntry, SnapshotReport, SnapshotStatus},
    snapshot::{
        content::Content,
        head::{self, Found},
    },
    units::Extent,
};

use super::{DiskRequest, reading, utc};
use crate::{
    device::BlockIo,
    error::{Failure, OrFail as _},
    execute::TakesSnapshot,
    probe,
    snapshot::{Root, asked, collect, declared},
};

pub use restore::{Restore, is_booted_from_ours, onto, restore};

/// Takes what belongs to the running system.
pub struct Taker<'d> {
    disk: &'d dyn BlockIo,
    meta: Extent,
    root: PathBuf,
    asked: Content,
}

impl<'d> Taker<'d> {
    /// Of what `asked` names, in the system at `root`.
    pub fn new(disk: &'d dyn BlockIo, system: &SystemFacts, root: &Path, asked: Content) -> Self {
        Taker { disk, meta: system.gpt.part(Part::Meta), root: root.to_owned(), asked }
    }
}

impl TakesSnapshot for Taker<'_> {
    fn take(&self) -> anyhow::Result<(Content, Vec<String>)> {
        let root = Root::open(&self.root).with_context(|| self.root.display().to_string())?;
        let mut found = collect(&root, &self.asked)?;
        if !self.asked.meta.is_empty() {
            let (meta, _) = probe::meta_of(self.disk, self.meta);
            if meta.valid == [false, false] && !meta.blank {
                return Err(anyhow!("META cannot be read: neither copy is valid"));
            }
            for (key, value) in &mut found.content.meta {
                *value = meta.get(*key).map(<[u8]>::to_vec);
            }
        }
        found.content.encode().context("the files that /etc/slipway/state.toml declares")?;
        Ok((found.content, found.left_out))
    }
}

/// A snapshot to be taken on the way to a trial.
pub struct Prepared<'d> {
    pub taker: Taker<'d>,
    pub request: SnapshotRequest,
}

/// The declaration of the running system at `root`, if there is one; try first to take its files. From outside, the files
/// of a system are not there.
pub fn prepare<'d>(
    disk: &'d dyn BlockIo,
    system: &SystemFacts,
    runs_from: RunsFrom,
    root: &Path,
) -> Result<Option<Prepared<'d>>, Failure> {
    if runs_from != RunsFrom::Inside {
        return Ok(None);
    }
    let Some(declaration) = declared(root).or_fail(FailureKind::Input)? else { return Ok(None) };
    let taker = Taker::new(disk, system, root, asked(&declaration));
    taker.take().context("the configuration cannot be kept for the way back").or_fail(FailureKind::Environment)?;
    let no_room = PerSlot::new(|slot| probe::snapshot_room(disk, system.gpt.part(slot.into()), None).err());
    Ok(Some(Prepared { taker, request: SnapshotRequest { plain: declaration.plain, no_room } }))
}

/// One slot's snapshot, by its head. None if there is none.
pub(super) fn status(system: &SystemFacts, slot: Slot) -> Option<SnapshotStatus> {
    let found = &system.snapshots[slot];
    let lost = |problem: String| Some(SnapshotStatus { problem: Some(problem), ..SnapshotStatus::new(slot) });
    let head = match found {
        // On a disk with dead sectors nothing says that there was one.
        Found::None | Found::Unreadable(_) => return None,
        Found::Damaged => return lost("its head is damaged: it cannot be put back".to_owned()),
        Found::Later(why) => return Some(SnapshotStatus { put_back: not_read(why), ..SnapshotStatus::new(slot) }),
        Found::Head(head) => head,
    };
    let due = head::due(found, slot, system.slots[slot].system(), system.env.as_ref());
    Some(SnapshotStatus {
        version: head.version.clone(),
        taken: Some(utc(head.taken)),
        files: head.files,
        bytes: head.bytes,
        sha256: Some(head.sha256),
        put_back: match due {
            Ok(_) if system.running.slot() == Some(slot) => {
                "due, and this slot runs without it: see the next step of `installer status`".to_owned()
            }
            Ok(_) => "when this slot starts".to_owned(),
            Err(why) => format!("no: {why}"),
        },
        ..SnapshotStatus::new(slot)
    })
}

fn not_read(why: &str) -> String {
    format!("only a later version of the installer can read it ({why})")
}

/// All snapshots of a disk, each compared with its digest.
pub fn list(request: &DiskRequest) -> Result<SnapshotReport, Failure> {
    let disk = request.look()?;
    let found = probe::system(&disk, &super::kernel_cmdline()?);
    let system = reading::ours(&disk, found, &request.path.display().to_string())?;
    let snapshots = Slot::BOTH.into_iter().filter_map(|slot| {
        let found = status(&system, slot)?;
        let problem =
            system.snapshots[slot].head().and_then(|head| probe::snapshot_content(&disk, &system.gpt, head).err());
        Some(SnapshotStatus { problem: found.problem.clone().or(problem), ..found })
    });
    let name = request.path.display().to_string();
    Ok(SnapshotReport { snapshots: snapshots.collect(), ..SnapshotReport::empty(&name) })
}

/// The content of the snapshot of a slot.
pub fn show(request: &DiskRequest, slot: Option<Slot>) -> Result<SnapshotReport, Failure> {
    let disk = request.look()?;
    let name = request.path.display().to_string();
    let system = reading::ours(&disk, probe::system(&disk, &super::kernel_cmdline()?), &name)?;
    let slot = chosen(&system, slot)?;
    let content = content(&disk, &system, slot).with_context(|| name.clone()).or_fail(FailureKind::Install)?;
    let snapshots = status(&system, slot).into_iter().collect();
    Ok(SnapshotReport { snapshots, entries: SnapshotEntry::all(&content), ..SnapshotReport::empty(&name) })
}

/// The slot that was named, or else that of the running system, or else the only one with a snapshot.
fn chosen(system: &SystemFacts, named: Option<Slot>) -> Result<Slot, Failure> {
    let mut has = Slot::BOTH.into_iter().filter(|slot| system.snapshots[*slot].is_something());
    let (first, second) = (has.next(), has.next());
    let only = first.filter(|_| second.is_none());
    named
        .or_else(|| system.running.slot())
        .or(only)
        .ok_or_else(|| match first {
            Some(_) => anyhow!("both slots have a snapshot, and none of them runs: give --slot"),
            None => anyhow!("no slot has a snapshot"),
        })
        .or_fail(FailureKind::Input)
}

fn content(disk: &dyn BlockIo, system: &SystemFacts, slot: Slot) -> anyhow::Result<Content> {
    let lost = |why: String| anyhow!("the snapshot in slot {slot}: {why}; nothing of it is put back");
    match &system.snapshots[slot] {
        Found::None => Err(anyhow!("slot {slot} has no snapshot")),
        Found::Damaged => Err(lost("its head is damaged".to_owned())),
        Found::Later(why) => Err(lost(not_read(why))),
        Found::Unreadable(why) => Err(lost(format!("its head cannot be read: {why}"))),
        Found::Head(head) => probe::snapshot_content(disk, &system.gpt, head).map_err(lost),
    }
}
