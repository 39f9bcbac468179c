//! The steps of a renewal of the boot loaders. The data that a step will refer to is read once more, past the page
//! cache: another program may have written to the ESP since the plan was made.

use anyhow::{Context as _, anyhow, bail};
use slipway_core::{
    boot::history::new_file,
    digest::Sha256,
    disk::{
        bios,
        fat::{
            DIR_ENTRY_BYTES, FatTime,
            entry::FileAt,
            map::{FatMap, Run},
            new_file::{Kind, empty_directory},
        },
        gpt::{BOOT_CODE_BYTES, is_protective_mbr},
        layout::Part,
    },
    plan::{Content, Step, VolumeFile},
    units::Extent,
};

use super::{ChangedMeanwhile, Executor, Expect};
use crate::{probe, transfer::read_back_digest};

impl Executor<'_, '_> {
    pub(super) fn renew(&self, step: &Step) -> anyhow::Result<Vec<Expect>> {
        match step {
            Step::WriteFile { extent, file } => self.write_new_file(*extent, file),
            Step::LinkClusters { copy, extents, runs, over } => self.link(*copy, extents, runs, *over),
            Step::WriteEntry { offset, at, over, file, data, run } => {
                self.is_whole(Extent { len: file.size, ..*data }, file.sha256, &file.path)?;
                self.refer(
                    *offset,
                    *at,
                    *over,
                    &file.path,
                    FileAt { cluster: run.first, bytes: file.size as u32 },
                    *run,
                )
            }
            Step::WriteBootCode { extent, core, sha256, over } => self.boot_code(*extent, *core, *sha256, *over),
            Step::CopyFat { from, extent, sha256, .. } | Step::CopyBootSector { from, extent, sha256 } => {
                self.copy(*from, *extent, *sha256)
            }
            Step::AddEntry { offset, at, file, data, run, time } => {
                self.is_whole(Extent { len: file.size, ..*data }, file.sha256, &file.path)?;
                self.add(*offset, *at, file, *run, *time)
            }
            Step::FreeClusters { copy, extents, runs } => self.free(*copy, extents, runs),
            Step::CountFree { extent } => {
                let (map, esp, found) = (self.map(&[])?, self.esp_extent()?, self.read(*extent));
                let counted = |mut sector: Vec<u8>| map.count_free(&mut sector).then_some(sector);
                let anew = || probe::empty_info(self.disk, esp, *extent).and_then(counted);
                match found.as_ref().ok().cloned().and_then(counted).or_else(anew) {
                    Some(sector) => self.small(extent.offset, sector),
                    None => found.map(|_| vec![]),
                }
            }
            _ => bail!("this is no step of a renewal"),
        }
    }

    /// Checks that the boot code starts another core image than the one at `extent`: a new disk has no boot code yet.
    pub(super) fn is_not_started(&self, extent: Extent) -> anyhow::Result<()> {
        if self.plan.table.is_some() {
            return Ok(());
        }
        let lba0 = self.read(Extent { offset: 0, len: self.disk.sector_size().bytes() })?;
        match bios::started(&lba0, Extent { len: 2 * extent.len, ..extent }) {
            Some(0) => Err(ChangedMeanwhile::new("the boot code in LBA 0").into()),
            _ => Ok(()),
        }
    }

    fn esp_extent(&self) -> anyhow::Result<Extent> {
        self.esp().ok_or_else(|| anyhow!("the plan does not say where the ESP is"))
    }

    fn map(&self, paths: &[&str]) -> anyhow::Result<FatMap> {
        probe::fat_map(self.disk, self.esp_extent()?, paths).with_context(|| Part::Esp.to_string())
    }

    /// As in the map: from the beginning of the ESP.
    fn in_esp(&self, extent: Extent) -> anyhow::Result<Extent> {
        Ok(Extent { offset: extent.offset - self.esp_extent()?.offset, ..extent })
    }

    fn read(&self, extent: Extent) -> anyhow::Result<Vec<u8>> {
        let mut bytes = vec![0; extent.len as usize];
        let context = || format!("reading {} bytes at byte {}", extent.len, extent.offset);
        self.disk.read_back(extent.offset, &mut bytes).with_context(context)?;
        Ok(bytes)
    }

    /// Checks that an ESP that is made again takes writes where it cannot be read: else what it still has stays.
    pub(super) fn takes_writes(&self, part: Part, extent: Extent) -> anyhow::Result<()> {
        if part != Part::Esp || self.plan.table.is_some() || self.read(extent).is_ok() {
            return Ok(());
        }
        let len = self.disk.sector_size().bytes();
        let sectors = (extent.offset..extent.end()).step_by(len as usize).map(|offset| Extent { offset, len });
        let mut lost = sectors.filter(|sector| self.read(*sector).is_err());
        lost.try_for_each(|sector| self.write(sector.offset, &vec![0; len as usize]))
    }

    fn write_new_file(&self, extent: Extent, file: &VolumeFile) -> anyhow::Result<Vec<Expect>> {
        for step in &self.plan.steps {
            if let Step::LinkClusters { extents, over, .. } = step {
                self.are_unchanged(extents, *over)?;
            }
        }
        let mut bytes = match &file.from {
            Content::Text(text) => text.as_bytes().to_vec(),
            Content::History(first) => new_file(first, self.disk.sector_size().bytes() as usize).into_bytes(),
            Content::Directory { first, above, time } => empty_directory(file.size, *first, *above, FatTime(*time)),
            _ => self.efi(file.sha256)?.to_vec(),
        };
        if bytes.len() as u64 > extent.len {
            bail!("{}: {} bytes, and room for {}", file.path, bytes.len(), extent.len);
        }
        bytes.resize(extent.len as usize, 0);
        self.small(extent.offset, bytes)
    }

    /// Checks that sectors of the FAT hold the same as when the plan was made.
    fn are_unchanged(&self, extents: &[Extent], over: Sha256) -> anyhow::Result<()> {
        let held = extents.iter().map(|extent| self.read(*extent)).collect::<anyhow::Result<Vec<_>>>()?;
        if Sha256::of(&held.concat()) == over { Ok(()) } else { Err(changed_esp()) }
    }

    fn link(&self, copy: u8, extents: &[Extent], runs: &[Run], over: Sha256) -> anyhow::Result<Vec<Expect>> {
        let (map, copy) = (self.map(&[])?, usize::from(copy - 1));
        if !map.are_unowned(runs) || copy >= map.copies() {
            return Err(changed_esp());
        }
        self.are_unchanged(extents, over)?;
        let mut written = Vec::new();
        for (extent, run) in extents.iter().zip(runs) {
            let sectors = self.in_esp(*extent)?;
            if map.sectors(copy, *run) != sectors {
                return Err(changed_esp());
            }
            written.extend(self.small(extent.offset, map.linked(copy, sectors, *run))?);
        }
        Ok(written)
    }

    fn is_whole(&self, extent: Extent, sha256: Sha256, what: &str) -> anyhow::Result<()> {
        let found = read_back_digest(self.disk, &[extent], &mut |_| ()).with_context(|| what.to_owned())?;
        if found == sha256 { Ok(()) } else { Err(ChangedMeanwhile::new(what).into()) }
    }

    fn refer(
        &self,
        offset: u64,
        at: u64,
        over: FileAt,
        path: &str,
        new: FileAt,
        run: Run,
    ) -> anyhow::Result<Vec<Expect>> {
        let map = self.map(&[path])?;
        let entry = self.in_esp(Extent { offset: offset + at, len: DIR_ENTRY_BYTES as u64 })?.offset;
        let is_old = map.file(path).is_some_and(|file| file.entry == entry && file.at == over);
        if !is_old || !map.are_unowned(&[run]) || !map.is_chain(run) {
            return Err(changed_esp());
        }
        let mut sector = self.read(Extent { offset, len: self.disk.sector_size().bytes() })?;
        let raw = &mut sector[at as usize..at as usize + DIR_ENTRY_BYTES];
        if FileAt::decode(raw) != over {
            return Err(changed_esp());
        }
        new.put_into(raw);
        self.small(offset, sector)
    }

    fn copy(&self, from: Extent, extent: Extent, sha256: Sha256) -> anyhow::Result<Vec<Expect>> {
        let whole = self.read(from)?;
        if Sha256::of(&whole) != sha256 {
            return Err(changed_esp());
        }
        self.small(extent.offset, whole)
    }

    fn add(&self, offset: u64, at: u64, file: &VolumeFile, run: Run, time: u64) -> anyhow::Result<Vec<Expect>> {
        let map = self.map(&[&file.path])?;
        let entry = self.in_esp(Extent { offset: offset + at, len: DIR_ENTRY_BYTES as u64 })?.offset;
        let is_free = map.is_room(&file.path, entry) && !map.is_there(&file.path);
        if !is_free || !map.are_unowned(&[run]) || !map.is_chain(run) {
            return Err(changed_esp());
        }
        // A directory's entry says no size.
        let (kind, bytes) = match file.from {
            Content::Directory { .. } => (Kind::Directory, 0),
            _ => (Kind::File, file.size as u32),
        };
        let new = FileAt { cluster: run.first, bytes };
        let raw = map.new_entry(&file.path, kind, new, FatTime(time));
        let raw = raw.ok_or_else(|| anyhow!("{}: FAT has no such name", file.path))?;
        let mut sector = self.read(Extent { offset, len: self.disk.sector_size().bytes() })?;
        let (begin, end) = (at as usize, at as usize + raw.len());
        // What stands behind the end of a directory is nothing to any reader, and would be read again behind a new entry.
        if sector[..begin + DIR_ENTRY_BYTES].chunks_exact(DIR_ENTRY_BYTES).any(|entry| entry[0] == 0) {
            sector[end..].fill(0);
        }
        if sector[0] == 0
            && let Some(label) = map.label(entry - at, Part::Esp.name(), FatTime(time))
        {
            sector[..DIR_ENTRY_BYTES].copy_from_slice(&label);
        }
        sector[begin..end].copy_from_slice(&raw);
        self.small(offset, sector)
    }

    fn boot_code(&self, extent: Extent, core: Extent, sha256: Sha256, over: Sha256) -> anyhow::Result<Vec<Expect>> {
        self.is_whole(core, sha256, "the new core image")?;
        let mut lba0 = self.read(extent)?;
        if !is_protective_mbr(&lba0) || Sha256::of(&lba0[..BOOT_CODE_BYTES]) != over {
            return Err(ChangedMeanwhile::new("the boot code in LBA 0").into());
        }
        let code = self.bios()?.boot_code(core.first_lba(self.disk.sector_size()));
        lba0[..BOOT_CODE_BYTES].copy_from_slice(&code);
        self.small(extent.offset, lba0)
    }

    pub fn mend_lba0(&self, extent: Extent, sha256: Sha256, over: Sha256) -> anyhow::Result<Vec<Expect>> {
        let wanted = self.sources.lba0.filter(|bytes| Sha256::of(bytes) == sha256);
        let wanted = wanted.ok_or_else(|| anyhow!("the plan needs another LBA 0"))?;
        if Sha256::of(&probe::read_lba0(self.disk).0) != over {
            return Err(ChangedMeanwhile::new("LBA 0").into());
        }
        self.small(extent.offset, wanted.to_vec())
    }

    fn free(&self, copy: u8, extents: &[Extent], runs: &[Run]) -> anyhow::Result<Vec<Expect>> {
        let (map, copy, mut written) = (self.map(&[])?, usize::from(copy - 1), Vec::new());
        for extent in extents {
            let sectors = self.in_esp(*extent)?;
            let bytes = map.freed(copy, sectors, runs);
            if bytes != map.held(copy, sectors) {
                written.extend(self.small(extent.offset, bytes)?);
            }
        }
        Ok(written)
    }
}

fn changed_esp() -> anyhow::Error {
    ChangedMeanwhile::new("the ESP").into()
}
