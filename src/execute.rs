//! LAYER 3, do: the only place where a [`Step`] becomes I/O.
//!
//! The loop is the durability argument: a step's writes are flushed, then read back past the page cache and
//! compared, and only then the next step starts. The bulk (FAT32 volumes) is read back by the `verify` steps
//! of the plan itself.

use std::{
    collections::BTreeMap,
    io::{self, Read},
};

use anyhow::{Context as _, anyhow, bail};

use crate::{
    bootloader::Assets,
    device::{BlockIo, CHUNK_BYTES},
    error::Kind,
    fat::VolumeLayout,
    mkfs::{MkfsError, PreparedXfs, XfsSpec},
    model::{
        digest::Sha256,
        gpt::{self, Label},
        layout::Part,
        meta::Adv,
        units::{Extent, GIB},
    },
    payload::{StreamError, read_back_digest, write_stream},
    plan::{Content, Plan, Step, System, Volume, VolumeFile},
};

/// Opens the files of a payload for streaming.
pub trait PayloadFiles {
    /// Open one by name.
    fn open(&self, name: &str) -> io::Result<Box<dyn Read + Send>>;
}

impl PayloadFiles for crate::payload::DirSource {
    fn open(&self, name: &str) -> io::Result<Box<dyn Read + Send>> {
        self.open(name).map(|file| Box::new(file) as Box<dyn Read + Send>)
    }
}

/// Hears how far it is.
pub trait Observer {
    /// A step begins: its number from 1, how many there are, its sentence, the bytes it moves (0: not counted).
    fn step(&mut self, number: usize, of: usize, sentence: &str, bytes: u64);
    /// More bytes of the current step are done.
    fn advance(&mut self, bytes: u64);
    /// Something the user should know; not an error.
    fn note(&mut self, text: &str);
}

/// A step that failed. Steps before it are on the medium.
#[derive(Debug, thiserror::Error)]
#[error("step {number} of {of} failed ({sentence}); {state}")]
pub struct ExecuteError {
    /// Its number, from 1.
    pub number: usize,
    /// How many there are.
    pub of: usize,
    /// What it was to do.
    pub sentence: String,
    /// What is on the disk now, and what to do.
    pub state: &'static str,
    /// Which exit code.
    pub kind: Kind,
    /// The cause.
    #[source]
    pub source: Box<dyn std::error::Error + Send + Sync>,
}

/// Where the bytes of a plan come from that do not stand in it.
#[derive(Clone, Copy)]
pub struct Sources<'a> {
    /// The payload's files.
    pub payload: &'a dyn PayloadFiles,
    /// The boot images.
    pub assets: &'a Assets,
}

/// Carry out a plan. `sources` may be none where the plan installs no system.
pub fn run(
    plan: &Plan,
    disk: &dyn BlockIo,
    sources: Option<Sources>,
    observer: &mut dyn Observer,
) -> Result<(), ExecuteError> {
    let mut executor = Executor { plan, disk, sources, observer, prepared: BTreeMap::new() };
    let of = plan.steps.len();
    let mut progress = Progress::Untouched;
    for (number, step) in (1..).zip(&plan.steps) {
        let sentence = plan.describe(*step);
        executor.observer.step(number, of, &sentence, plan.step_bytes(*step));
        if let Err(source) = executor.durably(*step) {
            let state = progress.while_doing(*step).state(plan);
            // Exit codes of input and environment promise that nothing was written.
            let kind = if progress == Progress::Untouched { kind_of(&source) } else { Kind::Install };
            return Err(ExecuteError { number, of, sentence, state, kind, source: source.into() });
        }
        progress = progress.after(*step);
    }
    Ok(())
}

/// How far an install is, for what to tell when it fails: a step that failed may have reached the medium
/// all the same.
#[derive(Clone, Copy, PartialEq)]
enum Progress {
    Untouched,
    Clearing,
    NoTable,
    Committing,
    Installed,
}

impl Progress {
    const fn while_doing(self, step: Step) -> Self {
        match (self, step) {
            (Progress::Untouched, Step::ClearLba0 { .. }) => Progress::Clearing,
            (Progress::NoTable, _) if step.is_commit() => Progress::Committing,
            _ => self,
        }
    }

    const fn after(self, step: Step) -> Self {
        match (self.while_doing(step), step) {
            (Progress::Clearing, _) => Progress::NoTable,
            (Progress::Committing, _) => Progress::Installed,
            (other, _) => other,
        }
    }

    const fn state(self, plan: &Plan) -> &'static str {
        if plan.system.is_none() {
            return "META has the old tags or the new ones; run the same command again";
        }
        match self {
            Progress::Untouched => "nothing was written",
            Progress::Clearing => "the disk may have lost its partition table, nothing else was written",
            Progress::NoTable => "the disk has no partition table; run the same command again",
            Progress::Committing => {
                "the disk has either no partition table or the complete one; run the same command again"
            }
            Progress::Installed => "the system is installed and boots",
        }
    }
}

/// Before anything was written: a tool that failed is a dependency, no place for temporary files the
/// environment, all else is the disk.
fn kind_of(error: &anyhow::Error) -> Kind {
    match error.downcast_ref() {
        Some(MkfsError::Tool(_)) => Kind::Dependency,
        Some(MkfsError::SideFile { .. }) => Kind::Environment,
        _ => Kind::Install,
    }
}

/// The payload's bytes are not those that were checked.
#[derive(Debug, thiserror::Error)]
#[error("SHA-256 of what was read is {actual}, it was {expected} when the payload was checked: it changed in between")]
struct PayloadChanged {
    expected: Sha256,
    actual: Sha256,
}

struct Executor<'a> {
    plan: &'a Plan,
    disk: &'a dyn BlockIo,
    sources: Option<Sources<'a>>,
    observer: &'a mut dyn Observer,
    prepared: BTreeMap<Part, PreparedXfs>,
}

/// What must be on the medium once a step is flushed.
enum Expect {
    /// These bytes at this offset.
    Bytes(u64, Vec<u8>),
    /// The file system prepared for this partition.
    Xfs(Part, Extent),
    /// Zeros.
    Zeros(Extent),
}

impl Executor<'_> {
    fn durably(&mut self, step: Step) -> anyhow::Result<()> {
        let written = self.apply(step)?;
        // What writes nothing has nothing to flush.
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

    fn apply(&mut self, step: Step) -> anyhow::Result<Vec<Expect>> {
        match step {
            Step::Reserve { extent } => self.reserve(extent).map(|()| vec![]),
            Step::ClearLba0 { extent } => self.small(extent.offset, vec![0; extent.len as usize]),
            // Written, not zeroed by the cheapest way: in an image file that would give back the room reserved.
            Step::ClearLabels { head, tail } => {
                let mut written = self.small(head.offset, vec![0; head.len as usize])?;
                written.extend(self.small(tail.offset, vec![0; tail.len as usize])?);
                Ok(written)
            }
            Step::Blank { part: Part::Bios | Part::Meta, head, .. } => {
                self.small(head.offset, vec![0; head.len as usize])
            }
            Step::Blank { head, tail, .. } => self.zero(&[head, tail]),
            Step::Erase { extent } => self.erase(extent),
            Step::WriteVolume { part, extent } => self.write_volume(part, extent),
            Step::WriteCore { extent } => self.small(extent.offset, self.core_image(extent)?),
            Step::Verify { part, extent } => self.verify(part, extent),
            Step::WriteMetaCopy { offset, .. } => self.small(offset, self.adv()?),
            Step::PrepareXfs { part, extent } => self.prepare_xfs(part, extent),
            Step::WriteXfs { part, extent } => self.write_xfs(part, extent),
            Step::ForgetCached { extent, .. } => {
                self.disk.forget_cached(extent).context("dropping what the kernel cached")?;
                Ok(vec![])
            }
            Step::WriteBackupGpt { .. } => {
                let label = self.label()?;
                let mut written = self.small(label.backup_entries_offset, label.entries)?;
                written.extend(self.small(label.backup_header_offset, label.backup_header)?);
                Ok(written)
            }
            Step::WritePrimaryGpt { extent } => {
                let label = self.label()?;
                self.small(extent.offset, [label.primary_header, label.entries].concat())
            }
            Step::WriteLba0 { extent } => self.small(extent.offset, self.lba0()?),
            Step::WriteMetaLegacy { extent } => {
                self.small(extent.offset, self.plan.meta_legacy.clone().unwrap_or_default())
            }
            Step::RereadTable => {
                if let Err(e) = self.disk.reread_table() {
                    self.observer
                        .note(&format!("the kernel still has the old partition table ({e}): reboot, or run partprobe"));
                }
                Ok(vec![])
            }
        }
    }

    fn reserve(&self, extent: Extent) -> anyhow::Result<()> {
        let context = || format!("no room for {} bytes at byte {} of the image file", extent.len, extent.offset);
        self.disk.reserve(extent).with_context(context)
    }

    fn small(&self, offset: u64, bytes: Vec<u8>) -> anyhow::Result<Vec<Expect>> {
        self.write(offset, &bytes)?;
        Ok(vec![Expect::Bytes(offset, bytes)])
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

    /// In pieces, so that a large disk shows how far it is.
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
        match actual.iter().zip(expected).position(|(a, e)| a != e) {
            None => Ok(()),
            Some(at) => bail!(
                "byte {} of the disk is not what was written there: the medium lies or is failing",
                offset + at as u64
            ),
        }
    }

    fn system(&self) -> anyhow::Result<&'_ System> {
        self.plan.system.as_ref().ok_or_else(|| anyhow!("the plan installs no system"))
    }

    fn compare_zeros(&self, extent: Extent) -> anyhow::Result<()> {
        let zeros = vec![0; CHUNK_BYTES];
        for at in (extent.offset..extent.end()).step_by(CHUNK_BYTES) {
            self.compare(at, &zeros[..(extent.end() - at).min(CHUNK_BYTES as u64) as usize])?;
        }
        Ok(())
    }

    fn sources(&self) -> anyhow::Result<Sources<'_>> {
        self.sources.ok_or_else(|| anyhow!("the plan needs a payload and boot images"))
    }

    fn label(&self) -> anyhow::Result<Label> {
        let system = self.system()?;
        Ok(Label::new(&system.layout, system.ids.disk, &system.ids.parts))
    }

    fn volume(&self, part: Part, extent: Extent) -> anyhow::Result<(Volume, VolumeLayout)> {
        let system = self.system()?;
        let volume = system.volumes.get(&part).ok_or_else(|| anyhow!("the plan has no content for {part}"))?;
        Ok((volume.clone(), volume.lay_out(part, extent, system.layout.sector_size)?))
    }

    fn write_volume(&mut self, part: Part, extent: Extent) -> anyhow::Result<Vec<Expect>> {
        let (volume, layout) = self.volume(part, extent)?;
        for (file, placed) in volume.files.iter().zip(&layout.files) {
            let to = Extent { offset: extent.offset + placed.offset, len: placed.padded };
            self.write_file(file, to).with_context(|| format!("{part}: {}", file.path))?;
        }
        for (offset, bytes) in &layout.metadata {
            self.write(extent.offset + offset, bytes)?;
        }
        self.write(extent.offset, &layout.boot_sector)?;
        Ok(vec![])
    }

    fn write_file(&mut self, file: &VolumeFile, to: Extent) -> anyhow::Result<()> {
        let mut reader: Box<dyn Read + Send> = match &file.from {
            Content::Text(text) => Box::new(io::Cursor::new(text.clone().into_bytes())),
            Content::EfiImage => Box::new(io::Cursor::new(self.sources()?.assets.efi.clone())),
            Content::Payload => {
                self.sources()?.payload.open(&file.path).map_err(|source| StreamError::Source { at: 0, source })?
            }
        };
        let observer = &mut *self.observer;
        let actual = write_stream(&mut *reader, self.disk, to, file.size, &mut |n| observer.advance(n))?;
        if actual == file.sha256 { Ok(()) } else { Err(PayloadChanged { expected: file.sha256, actual }.into()) }
    }

    fn verify(&mut self, part: Part, extent: Extent) -> anyhow::Result<Vec<Expect>> {
        if part == Part::Bios {
            self.compare(extent.offset, &self.core_image(extent)?)?;
            return Ok(vec![]);
        }
        let (volume, layout) = self.volume(part, extent)?;
        self.compare(extent.offset, &layout.boot_sector)?;
        for (offset, bytes) in &layout.metadata {
            self.compare(extent.offset + offset, bytes)?;
        }
        for (file, placed) in volume.files.iter().zip(&layout.files) {
            let at = Extent { offset: extent.offset + placed.offset, len: placed.size };
            let observer = &mut *self.observer;
            let actual = read_back_digest(self.disk, &[at], &mut |n| observer.advance(n))?;
            if actual != file.sha256 {
                bail!(
                    "{part}: {} (byte {} of the disk): read back SHA-256 {actual}, written {}: the medium lies or is failing",
                    file.path,
                    at.offset,
                    file.sha256
                );
            }
            self.compare_zeros(Extent { offset: at.end(), len: placed.padded - placed.size })?;
        }
        Ok(vec![])
    }

    fn core_image(&self, extent: Extent) -> anyhow::Result<Vec<u8>> {
        let bios =
            self.sources()?.assets.bios.as_ref().ok_or_else(|| anyhow!("no BIOS boot images for this architecture"))?;
        Ok(bios.core_image(extent.first_lba(self.disk.sector_size())))
    }

    fn lba0(&self) -> anyhow::Result<Vec<u8>> {
        let System { layout, core, .. } = self.system()?;
        let core_at = layout.part(Part::Bios).first_lba(layout.sector_size);
        let code = match (core, &self.sources()?.assets.bios) {
            (Some(_), Some(bios)) => bios.boot_code(core_at),
            _ => [0; gpt::BOOT_CODE_BYTES],
        };
        Ok(gpt::protective_mbr(layout, &code))
    }

    fn adv(&self) -> anyhow::Result<Vec<u8>> {
        let mut adv = Adv::default();
        for (tag, value) in &self.plan.meta {
            adv.set(*tag, value.clone())?;
        }
        Ok(adv.encode())
    }

    fn prepare_xfs(&mut self, part: Part, extent: Extent) -> anyhow::Result<Vec<Expect>> {
        let system = self.system()?;
        let spec = XfsSpec {
            label: part.name().to_owned(),
            uuid: system.ids.parts[part.number() as usize - 1],
            sector: system.layout.sector_size,
        };
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
