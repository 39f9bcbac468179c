//! Writes FAT32 volumes in one pass, each file straight to its place, and reads them back meanwhile.

use std::sync::atomic::Ordering;

use anyhow::{Context as _, anyhow, bail};

use super::{
    Executor, Expect,
    old::{Slots, old},
};
use crate::{
    payload::{delta::Old, file_reader::PayloadChanged},
    transfer::{Checksum, FileReader, PayloadFiles, ReadBack, write_stream},
};
use slipway_core::{
    boot::history::new_file,
    disk::{
        fat::{Placed, VolumeLayout},
        layout::Part,
    },
    plan::{Content, Step, Volume, VolumeFile},
    units::Extent,
};

/// A volume that is written and not yet verified.
pub(super) struct Unverified<'scope> {
    pub behind: ReadBack<'scope>,
    /// Names and checksums of its files, in the order of writing.
    pub written: Vec<(String, Checksum)>,
}

impl<'scope, 'a> Executor<'scope, 'a> {
    fn volume(&self, part: Part, extent: Extent) -> anyhow::Result<(Volume, VolumeLayout)> {
        let volume = self.plan.volume(part).ok_or_else(|| anyhow!("the plan has no content for {part}"))?;
        Ok((volume.clone(), volume.lay_out(part, extent, self.disk.sector_size())?))
    }

    pub(super) fn write_volume(&mut self, part: Part, extent: Extent) -> anyhow::Result<Vec<Expect>> {
        let (volume, layout) = self.volume(part, extent)?;
        let to = |placed: &Placed| Extent { offset: extent.offset + placed.offset, len: placed.padded };
        let files: Vec<_> = volume.files.iter().zip(layout.files.iter().map(to)).collect();
        let slots = Slots(self.disk);
        let old = old(self.plan, &self.sources, (part, extent), &files, &slots);
        let mut unverified = self.read_behind(part)?;
        let mut result = self.write_files(part, &files, old.as_ref(), &mut unverified);
        if let Some(old) = old
            && self.came_of(&old, &result)
        {
            unverified = self.read_behind(part)?;
            result = self.write_files(part, &files, None, &mut unverified);
        }
        result?;
        for (offset, bytes) in &layout.metadata {
            self.write(extent.offset + offset, bytes)?;
        }
        // The boot sector makes the file system valid. In the same flush as the rest, a power loss could leave it with
        // new tables over old files.
        self.disk.sync().context("flushing the disk")?;
        self.write(extent.offset, &layout.boot_sector)?;
        self.unverified.extend(unverified.map(|unverified| (part, unverified)));
        Ok(vec![])
    }

    fn write_files(
        &mut self,
        part: Part,
        files: &[(&VolumeFile, Extent)],
        old: Option<&Old>,
        unverified: &mut Option<Unverified>,
    ) -> anyhow::Result<()> {
        for (file, to) in files {
            let context = || format!("{part}: {}", file.path);
            let to = *to;
            match &file.from {
                Content::Text(text) => {
                    self.write_file(file, to, &mut text.as_bytes(), None, unverified).with_context(context)?;
                }
                Content::History(first) => {
                    let bytes = new_file(first, self.disk.sector_size().bytes() as usize);
                    self.write_file(file, to, &mut bytes.as_bytes(), None, unverified).with_context(context)?;
                }
                Content::EfiImage => {
                    self.write_file(file, to, &mut self.efi(file.sha256)?, None, unverified).with_context(context)?;
                }
                // A volume that is laid out has its directories.
                Content::Payload | Content::Directory { .. } => {}
            }
        }
        let payload: Vec<_> = files.iter().copied().filter(|(file, _)| file.from == Content::Payload).collect();
        if payload.is_empty() {
            return Ok(());
        }
        self.write_payload(&payload, old, unverified).with_context(|| part.to_string())
    }

    // Start reading back, if a step of the plan verifies this volume.
    fn read_behind(&self, part: Part) -> anyhow::Result<Option<Unverified<'scope>>> {
        let asked = |step: &Step| matches!(step, Step::Verify { part: p, .. } if *p == part);
        if !self.plan.steps.iter().any(asked) {
            return Ok(None);
        }
        Ok(Some(Unverified { behind: ReadBack::begin(self.scope, self.disk)?, written: vec![] }))
    }

    // In the order of the source, which may be a stream.
    fn write_payload(
        &mut self,
        files: &[(&VolumeFile, Extent)],
        old: Option<&Old>,
        unverified: &mut Option<Unverified>,
    ) -> anyhow::Result<()> {
        let payload = self.sources.payload.ok_or_else(|| anyhow!("the plan needs a payload"))?;
        let names: Vec<_> = files.iter().map(|(file, _)| file.path.as_str()).collect();
        let mut take = |name: &str, reader: &mut dyn FileReader| {
            let found = files.iter().find(|(file, _)| file.path == name);
            let (file, to) = found.ok_or_else(|| anyhow!("{name} was not asked for"))?;
            let moved = old.map(|old| (payload, old));
            self.write_file(file, *to, reader, moved, unverified).with_context(|| name.to_owned())
        };
        match old {
            Some(old) => payload.each_over(&names, old, &mut take),
            None => payload.each(&names, &mut take),
        }
    }

    fn write_file(
        &mut self,
        file: &VolumeFile,
        to: Extent,
        reader: &mut dyn FileReader,
        moved: Option<(&dyn PayloadFiles, &Old)>,
        unverified: &mut Option<Unverified>,
    ) -> anyhow::Result<()> {
        let mut progress = |n| {
            if let Some((payload, old)) = moved {
                self.observer.moved(payload.fetched(), old.said.reused());
            }
            self.observer.advance(n);
        };
        let behind = unverified.as_ref().map(|unverified| &unverified.behind.written);
        let (actual, checksum, written) = write_stream(reader, self.disk, to, file.size, behind, &mut progress)?;
        if let Some(tally) = self.sources.tally {
            tally.written.fetch_add(written, Ordering::Relaxed);
        }
        if actual != file.sha256 {
            return Err(PayloadChanged { expected: file.sha256, actual }.into());
        }
        // An empty file has no extent to read back.
        if let Some(unverified) = unverified
            && file.size > 0
        {
            unverified.written.push((file.path.clone(), checksum));
        }
        Ok(())
    }

    pub(super) fn verify(&mut self, part: Part, extent: Extent) -> anyhow::Result<Vec<Expect>> {
        if part == Part::Bios {
            self.compare(extent.offset, &self.core_image(extent)?)?;
            return Ok(vec![]);
        }
        let (volume, layout) = self.volume(part, extent)?;
        let unverified = self.unverified.remove(&part);
        let Unverified { behind, written } = unverified.ok_or_else(|| anyhow!("{part} was not written"))?;
        let read_back = behind.finish(&mut |n| self.observer.advance(n)).with_context(|| part.to_string())?;
        let same = |path: &str| {
            let mut both = written.iter().zip(&read_back);
            both.find(|((p, _), _)| p == path).map(|((_, written), read_back)| written == read_back)
        };
        for (file, placed) in volume.files.iter().zip(&layout.files).filter(|(file, _)| file.size > 0) {
            let at = Extent { offset: extent.offset + placed.offset, len: placed.size };
            if !same(&file.path).ok_or_else(|| anyhow!("{part}: {} was not read back", file.path))? {
                bail!(
                    "{part}: {} (byte {} of the disk): what was read back is not what was written: the disk is faulty, or another program wrote to it",
                    file.path,
                    at.offset
                );
            }
            self.compare_zeros(Extent { offset: at.end(), len: placed.padded - placed.size })?;
        }
        self.compare(extent.offset, &layout.boot_sector)?;
        layout.metadata.iter().try_for_each(|(offset, bytes)| self.compare(extent.offset + offset, bytes))?;
        Ok(vec![])
    }
}
