//! The renewal of the boot loaders: an order of writes that leaves the old or the new one, whole, if power is lost
//! after any step. It is a plan of its own (`bootloader update`) and a part of the verbs that arm a trial, `upgrade`
//! and `activate` (`upgrade.rs` says where, and why there).
//!
//! 1. **Write** parts that nothing refers to: the core image into the half of the BIOS partition that the boot code
//!    does not start; the UEFI image, and two lists of the boot chain, into clusters of the ESP that no file has. Each
//!    is flushed and read back.
//! 2. **Link** these clusters, in each copy of the FAT. Each new file has sectors of the FAT of its own: a power cut in
//!    them does no harm.
//! 3. **Refer** to them, by one sector each, and each after one more look at all that it is about to refer to:
//!    - the list that names old and new. Either is good from now on, so `verify` tells the truth at every moment;
//!    - the UEFI image: the sector with its directory entry;
//!    - the boot code: LBA 0, whose protective MBR stays as it is;
//!    - the list that names the new ones only.
//! 4. **Tidy up.** The clusters that no file has any more become free, in each copy of the FAT, and are counted. If the power
//!    goes before that they are lost, and do no harm: the next renewal uses them again or frees them.
//!
//! This relies on a disk that writes one sector whole or not at all. boot.env survives a disk that does not, because there
//! are two copies of it. Of a directory's sector and of LBA 0 there is one: firmware knows one. The same goes for sectors of
//! the FAT that the file of an earlier version shares with others. They are written last, and once.

use crate::prelude::*;

use super::{
    BiosFacts, Content, Goal, GptFacts, Plan, Refusal, Refusals, RequestBase, RunsFrom, Step, SystemFacts, VolumeFile,
    bootloader::{BootloaderChange, Due, NotRenewed, RenewalRequest},
    draft::Draft,
    slots::Slots,
};
use crate::{
    boot::{EfiLoader, env::BootEnv},
    digest::Sha256,
    disk::{
        bios,
        chain::{CHAIN, Chain},
        fat::{
            entry::FileAt,
            map::{FatMap, FoundFile, Run},
        },
        layout::Part,
    },
    units::{Extent, SectorSize, approx},
};

/// `bootloader update`: the boot loaders of an installed disk become those of the installer. Plan it, or report the reason
/// against it. While a trial runs or is to run, only the old loader is known to boot. A damaged one is not: it is replaced
/// whatever the boot state says, because neither that nor a slot is written.
pub fn update_bootloader(
    base: &RequestBase,
    runs_from: RunsFrom,
    request: &RenewalRequest,
    system: &SystemFacts,
) -> Result<Plan, Refusals> {
    let is_damaged = system.bootloader.as_ref().is_some_and(|found| !found.damage.is_empty());
    match (runs_from, system.running.slot()) {
        (RunsFrom::Offline, Some(slot)) => return Err(Refusal::NotOffline(slot).into()),
        (RunsFrom::Inside, None) => return Err(Refusal::NotRunning(system.running).into()),
        _ if request.mend && is_damaged => {}
        _ => {
            let slots = Slots::new(runs_from, system, base.now)?;
            if let Some(trial) = slots.copies.env.once {
                return Err(Refusal::from(NotRenewed::TrialPending(trial)).into());
            }
        }
    }
    let mut draft = Draft::new(base, system);
    let change = draft.renew(request).map_err(Refusal::from)?;
    let meanwhile = "the old boot loader starts, or the new one, and each is whole";
    Ok(draft.plan(Goal::Bootloader, change.to_string(), meanwhile.to_owned()))
}

impl Draft<'_> {
    /// Renew the boot loaders: with the change that this is, or the reason why they stay as they are.
    pub fn renew(&mut self, request: &RenewalRequest) -> Result<BootloaderChange, NotRenewed> {
        let (gpt, sector) = (&self.system.gpt, self.system.sector);
        let facts = self.system.bootloader.as_ref().ok_or_else(|| NotRenewed::Unreadable("the ESP".to_owned()))?;
        let due = request.due(facts, &self.kernels, sector)?;
        let steps = steps(&due, &request.path(), gpt, sector).map_err(NotRenewed::Esp)?;
        if let Some(reason) = &due.overridden {
            self.is_because(reason);
            self.warnings.push(reason.clone());
        }
        let change = due.change;
        if !steps.is_empty() {
            self.bootloader = Some(change.clone());
        }
        self.extend(Part::Esp, steps);
        Ok(change)
    }

    /// The loader that starts the disk under UEFI afterwards, as far as that was looked up.
    pub fn loader_afterwards(&self) -> Option<EfiLoader> {
        let renewed = self.bootloader.as_ref().and_then(|change| Some(&change.efi.as_ref()?.to));
        let found = || Some(&self.system.bootloader.as_ref()?.efi.as_ref()?.image);
        renewed.or_else(found)?.loader
    }

    /// Renew them on the way to a trial, if they are to be and no trial is pending. An upgrade does not fail for a loader
    /// that stays as it is.
    pub fn renew_on_the_way(&mut self, request: Option<&RenewalRequest>, env: &BootEnv) {
        let Some(request) = request.filter(|_| env.once.is_none()) else { return };
        if let Err(why) = self.renew(request) {
            self.warnings.push(format!("the boot loader stays as it is: {why}; {}", why.remedy()));
        }
    }
}

/// A new file, and the old one whose entry it gets.
pub(super) struct New<'a> {
    pub file: VolumeFile,
    pub old: &'a FoundFile,
    pub run: Run,
}

/// The order that the head of this file argues for. Do not reorder without reading it. `Err` says why the ESP cannot take
/// the new files.
fn steps(due: &Due, path: &str, gpt: &GptFacts, sector: SectorSize) -> Result<Vec<Step>, String> {
    let esp = Esp { map: due.map, at: gpt.part(Part::Esp), sector };
    let new = files(due, path)?;
    let runs: Vec<Run> = new.iter().map(|new| new.run).collect();
    let mut steps = Vec::new();
    let bios = due.bios.map(|(half, new, over)| bios_steps(gpt, sector, half, new, over)).transpose()?;
    let (core, boot_code) = bios.map(|[core, boot_code]| (core, boot_code)).unzip();
    steps.extend(core);
    steps.extend(new.iter().map(|new| Step::WriteFile { extent: esp.extent(new.run), file: new.file.clone() }));
    if !runs.is_empty() {
        steps.extend((0..due.map.copies()).map(|copy| esp.link(copy, copy, &runs)));
    }
    // The old entry of the list is that of the list before it.
    let mut list = due.map.file(CHAIN).map(|list| list.at);
    let mut boot_code = boot_code.into_iter();
    for new in &new {
        let over = if new.file.path == CHAIN { list.unwrap_or(new.old.at) } else { new.old.at };
        let is_last = new.run == runs[runs.len() - 1];
        steps.extend(boot_code.by_ref().take(usize::from(is_last && new.file.path == CHAIN)));
        steps.push(esp.refer(new, over));
        if new.file.path == CHAIN {
            list = Some(new.at());
        }
    }
    steps.extend(boot_code);
    steps.extend(esp.tidy_up(&new));
    Ok(steps)
}

/// Steps that renew the BIOS loader: the core image into the half that is not started, and the boot code that starts it
/// from there.
pub fn bios_steps(
    gpt: &GptFacts,
    sector: SectorSize,
    half: usize,
    new: &BiosFacts,
    over: Sha256,
) -> Result<[Step; 2], String> {
    let (extent, core) = (bios::halves(gpt.part(Part::Bios))[half], &new.core);
    if core.size > extent.len {
        return Err(format!("the core image has {} bytes, and half of {} {}", core.size, Part::Bios, extent.len));
    }
    let boot_code = Step::WriteBootCode {
        extent: Extent { offset: 0, len: sector.bytes() },
        core: Extent { len: core.size, ..extent },
        sha256: core.sha256,
        over,
    };
    Ok([Step::WriteCore { extent }, boot_code])
}

/// The new files in the order in which they come into force.
fn files<'a>(due: &Due<'a>, path: &str) -> Result<Vec<New<'a>>, String> {
    let old = |path: &str| due.map.file(path).ok_or_else(|| format!("{path} is missing"));
    let mut files = Vec::new();
    let changes = due.efi.is_some() || due.bios.is_some();
    if let Some((list, new)) = due.list.as_ref().filter(|_| changes) {
        let both = list.and(new);
        if both != **list {
            files.push((VolumeFile::text(CHAIN, both.render()), old(CHAIN)?));
        }
    }
    if let Some(efi) = due.efi {
        files.push((VolumeFile::copied(path, &efi.file, Content::EfiImage), old(path)?));
    }
    if let Some((_, new)) = due.list.as_ref().filter(|(list, new)| changes || *list != new) {
        files.push((VolumeFile::text(CHAIN, new.render()), old(CHAIN)?));
    }
    let counts: Vec<u32> = files.iter().map(|(file, _)| due.map.clusters(file.size)).collect();
    let runs = due.map.place(&counts).ok_or("it has no room for another boot loader in one piece")?;
    Ok(files.into_iter().zip(runs).map(|((file, old), run)| New { file, old, run }).collect())
}

impl New<'_> {
    const fn at(&self) -> FileAt {
        FileAt { cluster: self.run.first, bytes: self.file.size as u32 }
    }
}

pub(super) struct Esp<'a> {
    pub map: &'a FatMap,
    pub at: Extent,
    pub sector: SectorSize,
}

impl Esp<'_> {
    pub const fn on_disk(&self, extent: Extent) -> Extent {
        Extent { offset: self.at.offset + extent.offset, len: extent.len }
    }

    pub const fn extent(&self, run: Run) -> Extent {
        self.on_disk(self.map.extent(run))
    }

    /// `over`: the copy with what this one holds by then.
    pub fn link(&self, copy: usize, over: usize, runs: &[Run]) -> Step {
        let sectors: Vec<Extent> = runs.iter().map(|run| self.map.sectors(copy, *run)).collect();
        let held: Vec<&[u8]> = runs.iter().map(|run| self.map.held(over, self.map.sectors(over, *run))).collect();
        Step::LinkClusters {
            copy: copy as u8 + 1,
            extents: sectors.into_iter().map(|sectors| self.on_disk(sectors)).collect(),
            runs: runs.to_vec(),
            over: Sha256::of(&held.concat()),
        }
    }

    pub fn refer(&self, new: &New, over: FileAt) -> Step {
        let sector = self.sector.bytes();
        Step::WriteEntry {
            offset: self.at.offset + new.old.entry / sector * sector,
            at: new.old.entry % sector,
            over,
            file: new.file.clone(),
            data: self.extent(new.run),
            run: new.run,
        }
    }

    /// Steps that free the clusters of replaced files.
    pub fn tidy_up(&self, new: &[New]) -> Vec<Step> {
        let linked: Vec<Run> = new.iter().map(|new| new.run).collect();
        // The list that names old and new is replaced by the one that names the new.
        let last = new.len().saturating_sub(1);
        let between = new.iter().take(last).filter(|new| new.file.path == CHAIN).map(|new| new.run);
        let mut old: Vec<Run> = Vec::new();
        for file in new {
            old.extend(file.old.runs.iter().filter(|run| !old.contains(run)).copied().collect::<Vec<_>>());
        }
        // Clusters in the sectors that are written above are freed already.
        let written: Vec<Extent> = linked.iter().map(|run| self.map.sectors(0, *run)).collect();
        let is_written = |run: &Run| written.iter().any(|sectors| sectors.contains(self.map.sectors(0, *run)));
        let lost = self.map.lost().into_iter().filter(|run| !is_written(run));
        let runs: Vec<Run> = old.into_iter().chain(between).chain(lost).collect();
        let mut steps = Vec::new();
        if !runs.is_empty() {
            steps.extend((0..self.map.copies()).map(|copy| Step::FreeClusters {
                copy: copy as u8 + 1,
                extents: self.touched(copy, &runs),
                runs: runs.clone(),
            }));
        }
        let (offset, is_right) = self.map.free_count();
        if !steps.is_empty() || !is_right {
            steps.push(Step::CountFree { extent: self.on_disk(Extent { offset, len: self.sector.bytes() }) });
        }
        steps
    }

    /// The sectors of a copy of the FAT with the entries of these clusters.
    fn touched(&self, copy: usize, runs: &[Run]) -> Vec<Extent> {
        let mut extents: Vec<Extent> = runs.iter().map(|run| self.on_disk(self.map.sectors(copy, *run))).collect();
        extents.sort_by_key(|extent| extent.offset);
        let mut merged: Vec<Extent> = Vec::new();
        for extent in extents {
            match merged.last_mut() {
                Some(last) if extent.offset <= last.end() => last.len = last.len.max(extent.end() - last.offset),
                _ => merged.push(extent),
            }
        }
        merged
    }
}

/// A step of a renewal as a line of a dry run.
pub fn described(step: &Step, at: &dyn Fn(&Extent) -> String) -> String {
    let clusters = |runs: &[Run]| runs.iter().map(|run| run.count).sum::<u32>();
    match step {
        Step::WriteFile { extent, file } => {
            format!("write      EFI: {}, {}, where no file is ({})", file.path, approx(file.size), at(extent))
        }
        Step::LinkClusters { copy, runs, .. } => {
            format!("write      EFI: copy {copy} of the FAT, {} clusters that no file refers to", clusters(runs))
        }
        Step::WriteEntry { file, .. } if file.path == CHAIN => {
            let names = if is_list_of_both(file) { "the old and the new boot chain" } else { "the new boot chain" };
            format!("write      EFI: the directory's sector: {CHAIN} lists {names}")
        }
        Step::WriteEntry { file, .. } => {
            format!("write      EFI: the directory's sector: UEFI starts the new {}", file.path)
        }
        Step::CopyFat { copy, .. } => {
            format!("write      EFI: copy {copy} of the FAT, from the other one, by which every file is whole")
        }
        _ if step.is_boot_sector() => "write      EFI: its first sector, from the copy that it keeps".to_owned(),
        Step::CopyBootSector { extent, .. } => format!("write      EFI: {}, from the copy that it keeps", at(extent)),
        Step::AddEntry { file, .. } => format!("write      EFI: the directory's sector: {} is there", file.path),
        Step::WriteBootCode { core, .. } => format!("write      LBA 0: BIOS starts the new core image ({})", at(core)),
        Step::FreeClusters { copy, runs, .. } => {
            format!("write      EFI: copy {copy} of the FAT, {} clusters that no file has are free", clusters(runs))
        }
        _ => "write      EFI: how many clusters are free".to_owned(),
    }
}

fn is_list_of_both(file: &VolumeFile) -> bool {
    let Content::Text(text) = &file.from else { return false };
    Chain::parse(text.as_bytes()).is_ok_and(|list| list.links().iter().any(|rows| rows.len() > 1))
}
