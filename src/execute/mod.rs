//! Carries out a plan. Only this module turns a [`Step`] into I/O.
//!
//! Power loss: the writes of a step are flushed, read back from the disk and compared before the next step starts. The
//! large FAT32 volumes are the exception: the plan has `verify` steps of its own for them (`volume.rs`).

mod bootloader;
mod copies;
mod enroll;
mod foreseen;
mod grow;
mod old;
mod snapshot;
mod volume;

use std::{
    collections::BTreeMap,
    sync::atomic::AtomicU64,
    thread::{self, Scope},
};

use anyhow::{Context as _, anyhow, bail};
use uuid::Uuid;

pub use crate::payload::file_reader::PayloadChanged;
use crate::{
    bootloader::{Assets, BiosAssets, Loaders},
    device::{BlockIo, CHUNK_BYTES},
    error::Failure,
    mkfs::{MkfsError, PreparedXfs, XfsSpec},
    transfer::PayloadFiles,
};
pub use copies::ChangedMeanwhile;
use copies::Failed;
pub use enroll::enroll;
pub use old::{Slots, old_of, would_move};
use slipway_core::{
    boot::{
        env::{BootEnv, Marker, PATHS},
        env_block::SECTOR_BLOCK_BYTES,
        history::{Entry, HISTORY},
        slot::Slot,
    },
    digest::Sha256,
    disk::{
        gpt::{self, Gpt},
        gpt_grow::GrownGpt,
        layout::Part,
        meta::Meta,
    },
    plan::{Plan, Step, Table},
    report::{FailureKind, Left, Observer},
    units::{Extent, GIB, approx},
};
pub use snapshot::{TakesSnapshot, snapshot_room};
use volume::Unverified;

/// A step that failed. All steps before it were on the disk when the next one began.
#[derive(Debug, thiserror::Error)]
#[error("step {number} of {of} failed ({sentence}); {left}")]
pub struct ExecuteError {
    pub number: usize,
    pub of: usize,
    pub sentence: String,
    /// Whether a step that writes was begun.
    pub wrote: bool,
    /// State of the disk now, and the remedy. Only a look at the disk tells that, and the executor knows no more than
    /// whether it has written.
    pub left: Left,
    pub kind: FailureKind,
    #[source]
    pub source: Box<dyn std::error::Error + Send + Sync>,
}

impl From<ExecuteError> for Failure {
    fn from(error: ExecuteError) -> Self {
        Failure { kind: error.kind, error: error.into() }
    }
}

/// The bytes that a plan refers to but does not contain.
#[derive(Clone, Copy, Default)]
pub struct Sources<'a> {
    /// Needed by plans that write a slot.
    pub payload: Option<&'a dyn PayloadFiles>,
    /// Needed by plans that make a partition table.
    pub assets: Option<&'a Assets>,
    /// Needed by plans that renew the boot loaders.
    pub loaders: Option<&'a Loaders>,
    /// Needed by plans that change a partition table: the new table, and the content of LBA 1 before, if it could be read.
    pub grown: Option<(&'a GrownGpt, Option<&'a [u8]>)>,
    /// Needed by plans that mend LBA 0.
    pub lba0: Option<&'a [u8]>,
    /// Needed by plans that take a snapshot.
    pub snapshot: Option<&'a dyn TakesSnapshot>,
    /// Places on the disk that may hold parts of the payload, each as the extents of a file. None are needed.
    pub old: &'a [Vec<Extent>],
    /// Counts the moved bytes.
    pub tally: Option<&'a Tally>,
}

/// The bytes that a plan has moved into slots.
#[derive(Debug, Default)]
pub struct Tally {
    /// Bytes of the payload that came from the disk itself.
    pub reused: AtomicU64,
    /// Bytes of files that were written: those that were in place are not.
    pub written: AtomicU64,
}

pub fn run(plan: &Plan, disk: &dyn BlockIo, sources: Sources, observer: &mut dyn Observer) -> Result<(), ExecuteError> {
    // A volume is read back in a thread that runs beside the following steps, until its `verify` step.
    thread::scope(|scope| {
        let (prepared, unverified) = (BTreeMap::new(), BTreeMap::new());
        steps(Executor {
            scope,
            plan,
            disk,
            sources,
            observer,
            prepared,
            unverified,
            meta: None,
            meta_begun: false,
            unwritten: vec![],
            snapshot: None,
        })
    })
}

fn steps(mut executor: Executor) -> Result<(), ExecuteError> {
    let plan = executor.plan;
    let of = plan.steps.len();
    executor.observer.plan(plan.steps.iter().map(|step| plan.step_bytes(step)).sum());
    let mut wrote = false;
    // The first of two copies could not be written.
    let mut first: Option<Failed> = None;
    if let Some((n, foreseen)) = executor.foreseen() {
        let sentence = plan.describe(&plan.steps[n]);
        let (left, kind) = (Left::nothing_written(), FailureKind::Environment);
        return Err(ExecuteError { number: n + 1, of, sentence, wrote, left, kind, source: foreseen.into() });
    }
    for (n, step) in plan.steps.iter().enumerate() {
        if executor.is_left_alone(step) {
            continue;
        }
        let sentence = plan.describe(step);
        executor.observer.left(plan.left_by(n));
        executor.observer.step(n + 1, of, &sentence, plan.step_bytes(step));
        wrote |= !step.writes().is_empty();
        let failed = executor.durably(step).err().map(|source| Failed { n, sentence, source });
        if failed.is_some() {
            executor.unwritten.extend(step.writes());
        }
        let failed = match (first.take(), failed) {
            (None, None) => continue,
            (None, Some(failed)) if !(failed.may_be_spared() || plan.is_optional(step)) => failed,
            (None, Some(failed)) if !plan.is_optional(step) && executor.other_copy_may_do(n) => {
                first = Some(failed);
                continue;
            }
            (None, Some(failed)) | (Some(failed), None) if plan.is_optional(step) || executor.is_found(step) => {
                executor.observer.note(&failed.spared(step, plan.is_optional(step)));
                continue;
            }
            (Some(failed), _) | (None, Some(failed)) => failed,
        };
        let Failed { n, sentence, source } = failed;
        // The exit codes for dependency and environment promise that nothing was written.
        let kind = if wrote { FailureKind::Install } else { kind_of(&source) };
        let begun = source.downcast_ref::<ChangedMeanwhile>().is_none() && !step.writes().is_empty();
        let wrote = begun || plan.steps[..n].iter().any(|step| !step.writes().is_empty());
        let left = match wrote {
            true => Left::new("something was written", Left::STATUS),
            false => Left::nothing_written(),
        };
        // Not `into`: the caller could not tell the cause by its type then.
        let source = source.reallocate_into_boxed_dyn_error_without_backtrace();
        return Err(ExecuteError { number: n + 1, of, sentence, wrote, left, kind, source });
    }
    executor.observer.left(Left::state(&plan.result));
    Ok(())
}

// The exit code of a failure before the first write.
fn kind_of(error: &anyhow::Error) -> FailureKind {
    match error.downcast_ref() {
        Some(MkfsError::Tool(_)) => FailureKind::Dependency,
        Some(MkfsError::SideFile(_)) => FailureKind::Environment,
        _ => FailureKind::Install,
    }
}

/// Why this much cannot be written to an image file, in words.
pub fn no_room(extent: Extent) -> String {
    format!("no room for {} of the image file: free some, or put the file elsewhere", approx(extent.len))
}

struct Executor<'scope, 'a> {
    scope: &'scope Scope<'scope, 'a>,
    plan: &'a Plan,
    disk: &'a dyn BlockIo,
    sources: Sources<'a>,
    observer: &'a mut dyn Observer,
    prepared: BTreeMap<Part, PreparedXfs>,
    unverified: BTreeMap<Part, Unverified<'scope>>,
    /// META before the first write to it.
    meta: Option<Meta>,
    /// Whether a copy of the ADV was written, or tried to be.
    meta_begun: bool,
    /// Ranges that could not be written: they may hold anything.
    unwritten: Vec<Extent>,
    /// Files, bytes and digest of the snapshot that was just written, as its head has them.
    snapshot: Option<(u64, u64, Sha256)>,
}

/// Bytes that a step must have left on the disk.
enum Expect {
    Bytes(u64, Vec<u8>),
    Xfs(Part, Extent),
    Zeros(Extent),
}

impl<'a> Executor<'_, 'a> {
    fn durably(&mut self, step: &Step) -> anyhow::Result<()> {
        let written = self.apply(step)?;
        // No flush for a step that writes nothing: flushing is slow.
        if step.writes().is_empty() {
            return Ok(());
        }
        self.disk.sync().context("flushing the disk")?;
        for expect in written {
            match expect {
                Expect::Bytes(offset, bytes) => self.compare(offset, &bytes)?,
                Expect::Xfs(part, extent) => self.prepared_xfs(part)?.verify(self.disk, extent)?,
                Expect::Zeros(extent) => self.compare_zeros(extent)?,
            }
        }
        Ok(())
    }

    fn apply(&mut self, step: &Step) -> anyhow::Result<Vec<Expect>> {
        match step {
            Step::Reserve { extent } => self.reserve(*extent).map(|()| vec![]),
            Step::DropPartitions => self.disk.drop_partitions().context("the kernel's old partitions").map(|()| vec![]),
            Step::ClearLba0 { extent } => self.zeros(&[*extent]),
            Step::ClearLabels { head, tail } => self.zeros(&[*head, *tail]),
            // These are small. Their space in an image file stays reserved.
            Step::Blank { part: Part::Bios | Part::Meta, head, .. } => self.zeros(&[*head]),
            Step::Blank { part, head, tail } => {
                self.takes_writes(*part, *head)?;
                self.zero(&[*head, *tail])
            }
            Step::Erase { extent } => self.erase(*extent),
            Step::WriteVolume { part, extent } => self.write_volume(*part, *extent),
            Step::WriteCore { extent } => {
                self.is_not_started(*extent)?;
                self.small(extent.offset, self.core_image(*extent)?)
            }
            Step::Verify { part, extent } => self.verify(*part, *extent),
            Step::WriteBootEnv { copy, offset, env, over, .. } => self.boot_env(*copy, *offset, env, over.as_ref()),
            Step::WriteHistory { offset, entry, over } => self.history(*offset, entry, over.as_ref()),
            Step::WriteMarker { slot, offset, marker, over } => self.marker(*slot, *offset, marker, over.as_ref()),
            Step::WriteMetaCopy { copy, offset } => self.meta_copy(*copy, *offset),
            Step::Discard { part, extent } => {
                if let Err(e) = self.disk.discard(*extent) {
                    self.observer.note(&format!("{part}: the device cannot discard ({e}); continuing without it"));
                }
                Ok(vec![])
            }
            Step::PrepareXfs { part, extent, uuid } => self.prepare_xfs(*part, *extent, *uuid),
            Step::WriteXfs { part, extent } => self.write_xfs(*part, *extent),
            Step::ForgetCached { extent, .. } => {
                self.disk.forget_cached(*extent).context("dropping what the kernel cached")?;
                Ok(vec![])
            }
            Step::WriteBackupGpt { .. } => self.backup_gpt(),
            Step::WritePrimaryGpt { extent } => self.primary_gpt(*extent),
            Step::WriteLba0 { extent } => self.small(extent.offset, self.lba0()?),
            Step::MendLba0 { extent, sha256, over } => self.mend_lba0(*extent, *sha256, *over),
            Step::WriteMetaLegacy { extent } => self.meta_legacy(*extent),
            Step::ClearEnd { .. }
            | Step::WriteEntries { .. }
            | Step::WritePrimaryHeader { .. }
            | Step::ResizePartition { .. }
            | Step::GrowXfs { .. } => self.grow(step),
            Step::WriteSnapshot { slot, extent } => self.write_snapshot(*slot, *extent),
            Step::WriteSnapshotHead { slot, extent, head } => self.snapshot_head(*slot, *extent, head),
            Step::WriteFile { .. }
            | Step::LinkClusters { .. }
            | Step::WriteEntry { .. }
            | Step::WriteBootCode { .. }
            | Step::CopyFat { .. }
            | Step::CopyBootSector { .. }
            | Step::AddEntry { .. }
            | Step::FreeClusters { .. }
            | Step::CountFree { .. } => self.renew(step),
            Step::RereadTable => Ok(self.reread_table()),
        }
    }

    fn reread_table(&mut self) -> Vec<Expect> {
        if let Err(e) = self.disk.reread_table() {
            self.observer
                .note(&format!("the kernel still has the old partition table ({e}): reboot, or run partprobe"));
        }
        vec![]
    }

    fn boot_env(&self, copy: u8, offset: u64, env: &BootEnv, over: Option<&BootEnv>) -> anyhow::Result<Vec<Expect>> {
        self.still_there(copy, offset)?;
        self.still_holds(offset, over, BootEnv::parse, PATHS[usize::from(copy != 1)])?;
        self.sector(offset, &env.render())
    }

    fn marker(&self, slot: Slot, offset: u64, marker: &Marker, over: Option<&Marker>) -> anyhow::Result<Vec<Expect>> {
        self.still_holds(offset, over, Marker::parse, &format!("the marker of slot {slot}"))?;
        self.sector(offset, &marker.render())
    }

    fn backup_gpt(&self) -> anyhow::Result<Vec<Expect>> {
        let gpt = self.gpt()?;
        let mut written = self.small(gpt.backup_entries_offset, gpt.entries)?;
        written.extend(self.small(gpt.backup_header_offset, gpt.backup_header)?);
        Ok(written)
    }

    // With LBA 0, cleared, if that is in the range.
    fn primary_gpt(&self, extent: Extent) -> anyhow::Result<Vec<Expect>> {
        let gpt = self.gpt()?;
        let lba0 = vec![0; extent.len as usize - gpt.primary_header.len() - gpt.entries.len()];
        self.small(extent.offset, [lba0, gpt.primary_header, gpt.entries].concat())
    }

    fn reserve(&self, extent: Extent) -> anyhow::Result<()> {
        self.disk.reserve(extent).with_context(|| no_room(extent))
    }

    fn small(&self, offset: u64, bytes: Vec<u8>) -> anyhow::Result<Vec<Expect>> {
        self.write(offset, &bytes)?;
        Ok(vec![Expect::Bytes(offset, bytes)])
    }

    fn history(&self, offset: u64, entry: &Entry, over: Option<&Entry>) -> anyhow::Result<Vec<Expect>> {
        self.is_in_history(offset)?;
        self.still_holds(offset, over, Entry::parse, HISTORY)?;
        let mut bytes = entry.render().into_bytes();
        bytes.resize(bytes.len().next_multiple_of(self.disk.sector_size().bytes() as usize), b' ');
        self.small(offset, bytes)
    }

    // Write one of GRUB's environment blocks, 512 bytes, as a whole logical sector, which a power loss cannot tear. The
    // rest of the sector lies beyond the end of the file.
    fn sector(&self, offset: u64, text: &str) -> anyhow::Result<Vec<Expect>> {
        let mut bytes = text.as_bytes().to_vec();
        if bytes.len() != SECTOR_BLOCK_BYTES {
            bail!("{} bytes do not make a block of {SECTOR_BLOCK_BYTES} bytes", bytes.len());
        }
        bytes.resize(bytes.len().next_multiple_of(self.disk.sector_size().bytes() as usize), 0);
        self.small(offset, bytes)
    }

    // Write zeros. [`BlockIo::zero`] would free the space that is reserved in an image file.
    pub(super) fn zeros(&self, extents: &[Extent]) -> anyhow::Result<Vec<Expect>> {
        let mut written = Vec::new();
        for extent in extents.iter().filter(|e| e.len > 0) {
            written.extend(self.small(extent.offset, vec![0; extent.len as usize])?);
        }
        Ok(written)
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> anyhow::Result<()> {
        self.disk.write_at(offset, bytes).with_context(|| format!("writing {} bytes at byte {offset}", bytes.len()))
    }

    fn zero(&self, extents: &[Extent]) -> anyhow::Result<Vec<Expect>> {
        for extent in extents.iter().filter(|e| e.len > 0) {
            let context = || format!("zeroing {} bytes at byte {}", extent.len, extent.offset);
            self.disk.zero(*extent).with_context(context)?;
        }
        Ok(extents.iter().copied().map(Expect::Zeros).collect())
    }

    // In pieces, so that a large disk shows progress.
    fn erase(&mut self, extent: Extent) -> anyhow::Result<Vec<Expect>> {
        let mut at = extent.offset;
        while at < extent.end() {
            let len = (extent.end() - at).min(GIB);
            self.zero(&[Extent { offset: at, len }])?;
            self.observer.advance(len);
            at += len;
        }
        Ok(vec![])
    }

    fn compare(&self, offset: u64, expected: &[u8]) -> anyhow::Result<()> {
        let mut actual = vec![0; expected.len()];
        let context = || format!("reading back {} bytes at byte {offset}", expected.len());
        self.disk.read_back(offset, &mut actual).with_context(context)?;
        // As a whole, which is many times as fast as byte by byte: only damage is looked for.
        if actual == expected {
            return Ok(());
        }
        let same = actual.iter().zip(expected).take_while(|(a, e)| a == e).count();
        bail!(
            "byte {} of the disk is not what was written there: the disk is faulty, or another program wrote to it",
            offset + same as u64
        );
    }

    fn table(&self) -> anyhow::Result<&'_ Table> {
        self.plan.table.as_ref().ok_or_else(|| anyhow!("the plan makes no partition table"))
    }

    fn compare_zeros(&self, extent: Extent) -> anyhow::Result<()> {
        let zeros = vec![0; CHUNK_BYTES];
        for at in (extent.offset..extent.end()).step_by(CHUNK_BYTES) {
            self.compare(at, &zeros[..(extent.end() - at).min(CHUNK_BYTES as u64) as usize])?;
        }
        Ok(())
    }

    fn assets(&self) -> anyhow::Result<&'a Assets> {
        self.sources.assets.ok_or_else(|| anyhow!("the plan needs boot images"))
    }

    /// The UEFI image: of an install, or the one with this digest of those that disks are renewed with.
    fn efi(&self, sha256: Sha256) -> anyhow::Result<&'a [u8]> {
        if let Some(assets) = self.sources.assets {
            return Ok(&assets.efi);
        }
        let image = self.sources.loaders.and_then(|loaders| loaders.efi(sha256));
        image.ok_or_else(|| anyhow!("no boot image has the digest {sha256}"))
    }

    /// The table that is to be written now.
    fn gpt(&self) -> anyhow::Result<Gpt> {
        if let Some((grown, over)) = self.sources.grown {
            self.table_is_as_planned(grown, over)?;
            return Ok(grown.gpt.clone());
        }
        let table = self.table()?;
        Ok(Gpt::new(&table.layout, table.ids.disk, &table.ids.parts))
    }

    fn core_image(&self, extent: Extent) -> anyhow::Result<Vec<u8>> {
        Ok(self.bios()?.core_image(extent.first_lba(self.disk.sector_size())))
    }

    fn bios(&self) -> anyhow::Result<&'a BiosAssets> {
        let shipped = self.sources.loaders.and_then(|loaders| loaders.bios.as_ref());
        let bios = shipped.or_else(|| self.sources.assets?.bios.as_ref());
        bios.ok_or_else(|| anyhow!("no BIOS boot images for this architecture"))
    }

    fn lba0(&self) -> anyhow::Result<Vec<u8>> {
        let Table { layout, core, bootable_mbr, .. } = self.table()?;
        let core_at = layout.part(Part::Bios).first_lba(layout.sector_size);
        let code = match (core, &self.assets()?.bios) {
            (Some(_), Some(bios)) => bios.boot_code(core_at),
            _ => [0; gpt::BOOT_CODE_BYTES],
        };
        Ok(gpt::protective_mbr(layout, &code, *bootable_mbr))
    }

    fn prepare_xfs(&mut self, part: Part, extent: Extent, uuid: Uuid) -> anyhow::Result<Vec<Expect>> {
        let time = self.plan.table.as_ref().map(|table| table.ids.time);
        let spec = XfsSpec { label: part.name().to_owned(), uuid, sector: self.disk.sector_size(), time };
        let context = || format!("making the file system of {part}");
        let prepared = PreparedXfs::new(extent.len, &spec).with_context(context)?;
        for data in prepared.data(extent) {
            self.reserve(data)?;
        }
        self.prepared.insert(part, prepared);
        Ok(vec![])
    }

    fn prepared_xfs(&self, part: Part) -> anyhow::Result<&PreparedXfs> {
        self.prepared.get(&part).ok_or_else(|| anyhow!("no file system was prepared for {part}"))
    }

    fn write_xfs(&self, part: Part, extent: Extent) -> anyhow::Result<Vec<Expect>> {
        let context = || format!("writing the file system of {part}");
        self.prepared_xfs(part)?.write(self.disk, extent).with_context(context)?;
        Ok(vec![Expect::Xfs(part, extent)])
    }
}
