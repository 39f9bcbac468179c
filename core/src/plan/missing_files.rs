//! Files of ours that are missing from an ESP that is whole otherwise: each gets clusters and a directory entry that nothing has,
//! and all other files, also those of others, stay as they are.
//!
//! 1. **Write** the files into free clusters, and **link** these in each copy of the FAT. Nothing refers to them yet.
//! 2. **Refer** to each by one sector of its directory, after one more look at all that it is about to refer to.
//! 3. **Count** the free clusters.
//!
//! A power cut leaves some of the files there, each whole, and the next repair goes on.

use crate::prelude::*;

use super::{
    Content, Step, SystemFacts, VolumeFile,
    bootloader::{BootloaderFacts, EfiOffered, KernelLook, NO_BOOT_CODE, RenewalRequest},
    draft::Draft,
    renewal::{Esp, New},
};
use crate::{
    boot::{
        env::{BootEnv, PATHS},
        history::HISTORY,
        slot::PerSlot,
    },
    disk::{
        chain::{CHAIN, Chain, Link},
        fat::{
            DIR_ENTRY_BYTES,
            map::{FatMap, Run},
            new_file::entries,
        },
        layout::Part,
    },
    units::{Extent, SectorSize},
};

/// Whether a file with this path can be put onto the ESP.
pub fn has_place(map: &FatMap, path: &str) -> bool {
    !map.is_passed_over(path) && (map.file(path).is_some() || map.has_room(path))
}

/// The copies of boot.env that are missing, or cannot be written where they are.
fn boot_envs(system: &SystemFacts, env: &BootEnv) -> Vec<VolumeFile> {
    let lost = PATHS.iter().zip(system.env_at).filter_map(|(path, at)| at.is_none().then_some(path));
    lost.map(|path| VolumeFile::text(path, env.render())).collect()
}

/// The list of the boot chain if it has to say something else, and the UEFI image that is missing.
pub fn loader(
    request: &RenewalRequest,
    efi: &EfiOffered,
    facts: &BootloaderFacts,
    sector: SectorSize,
) -> Vec<VolumeFile> {
    let list = match &facts.list {
        // The loader for a BIOS stays as it is.
        Ok(Some(found)) => {
            let rest = found.0.iter().filter(|(link, _)| !matches!(link, Link::File(_))).cloned();
            let list = Chain([(Link::File(request.path()), efi.file.sha256)].into_iter().chain(rest).collect());
            (list != *found).then_some(list)
        }
        Ok(None) => request.proven_list(efi, facts, sector),
        Err(_) => Some(request.listed(&request.path(), efi, facts, None)),
    };
    // The list comes first: a cut must not leave an image that the list says is another one.
    let mut files: Vec<_> = list.into_iter().map(|list| VolumeFile::text(CHAIN, list.render())).collect();
    files.push(VolumeFile::copied(&request.path(), &efi.file, Content::EfiImage));
    files
}

/// The list of the boot chain that is missing, if every link on the disk is one of this installer's: what else is there
/// may be damaged, and nothing vouches for it.
pub fn list(request: &RenewalRequest, facts: &BootloaderFacts, sector: SectorSize) -> Option<VolumeFile> {
    let found = facts.efi.as_ref()?.sha256?;
    let offered = [request.offered.slipway.as_ref(), Some(&request.offered.grub)];
    let efi = offered.into_iter().flatten().find(|efi| efi.file.sha256 == found)?;
    Some(VolumeFile::text(CHAIN, request.proven_list(efi, facts, sector)?.render()))
}

impl RenewalRequest {
    /// If no list can be made of the loaders on a disk that has none: whether a renewal replaces them, and else why not.
    pub fn unlisted(
        &self,
        facts: &BootloaderFacts,
        kernels: &PerSlot<KernelLook>,
        sector: SectorSize,
    ) -> Option<Result<(), String>> {
        if list(self, facts, sector).is_some() {
            return None;
        }
        Some(match self.due(facts, kernels, sector) {
            Ok(due) if due.change.is_none() => Err(NO_BOOT_CODE.to_owned()),
            Ok(_) => Ok(()),
            Err(left) => Err(format!("{left}; {}", left.remedy())),
        })
    }
}

impl Draft<'_> {
    /// What is missing of this boot state: its copies, and with their directory the history, which begins anew.
    pub fn missing_state(&self, env: &mut BootEnv) -> Vec<VolumeFile> {
        let mut files = Vec::new();
        let has_no_directory = |map: &FatMap| !map.missing_directories(HISTORY).is_empty();
        if self.system.esp_map.as_ref().is_some_and(has_no_directory) {
            let first = self.first_entry(env.default);
            env.history = Some(first.n);
            files.push(VolumeFile::history(HISTORY, first, self.system.sector));
        }
        files.extend(boot_envs(self.system, env));
        files
    }

    /// Put these files onto the ESP. False if there is no place for all of them.
    pub fn add_files(&mut self, map: &FatMap, files: Vec<VolumeFile>) -> bool {
        let steps = self.steps_to_add(map, files);
        let is_possible = steps.is_some();
        self.extend(Part::Esp, steps.unwrap_or_default());
        is_possible
    }

    fn steps_to_add(&self, map: &FatMap, files: Vec<VolumeFile>) -> Option<Vec<Step>> {
        // A directory by the name of a file, for example, is in the way.
        if !files.iter().all(|file| has_place(map, &file.path)) {
            return None;
        }
        let sector = self.system.sector;
        let esp = Esp { map, at: self.system.gpt.part(Part::Esp), sector };
        let placed = self.placed(map, files)?;
        let runs: Vec<Run> = placed.iter().map(|(_, run)| *run).collect();
        let written = placed.iter().map(|(file, run)| Step::WriteFile { extent: esp.extent(*run), file: file.clone() });
        let mut steps: Vec<Step> = written.collect();
        // One that differs has become what the other one is.
        let copied = self.system.esp_fats.as_ref().and_then(|fats| Some(1 - fats.whole?.0));
        let over = |copy: usize| if copied == Some(copy) { 1 - copy } else { copy };
        steps.extend((0..map.copies()).map(|copy| esp.link(copy, over(copy), &runs)));
        let (mut taken, mut replaced): (Vec<u64>, Vec<New>) = (vec![], vec![]);
        for (file, run) in &placed {
            if let Some(old) = map.file(&file.path) {
                let new = New { file: file.clone(), old, run: *run };
                steps.push(esp.refer(&new, old.at));
                replaced.push(new);
                continue;
            }
            let entry = room(map, &placed, &file.path, &mut taken)?;
            let (bytes, data) = (sector.bytes(), esp.extent(*run));
            let offset = esp.at.offset + entry / bytes * bytes;
            let (file, run, time) = (file.clone(), *run, self.base.now);
            steps.push(Step::AddEntry { offset, at: entry % bytes, file, data, run, time });
        }
        // The clusters of files that were there, and could not be written in place.
        let freed = esp.tidy_up(&replaced).into_iter().filter(|step| !matches!(step, Step::CountFree { .. }));
        steps.extend(freed);
        let (offset, _) = map.free_count();
        steps.push(Step::CountFree { extent: esp.on_disk(Extent { offset, len: sector.bytes() }) });
        Some(steps)
    }

    /// The files in clusters of their own, behind the directories that are missing.
    fn placed(&self, map: &FatMap, files: Vec<VolumeFile>) -> Option<Vec<(VolumeFile, Run)>> {
        let mut missing: Vec<&str> = Vec::new();
        for directory in files.iter().flat_map(|file| map.missing_directories(&file.path)) {
            if !missing.contains(&directory) {
                missing.push(directory);
            }
        }
        let counts = missing.iter().map(|_| 1).chain(files.iter().map(|file| map.clusters(file.size)));
        let mut runs = map.place(&counts.collect::<Vec<_>>())?.into_iter();
        let mut placed: Vec<(VolumeFile, Run)> = Vec::new();
        for (path, run) in missing.iter().zip(runs.by_ref().take(missing.len())) {
            let above = path.rsplit_once('/').map_or("", |(above, _)| above);
            let above = map.directory_at(above).or_else(|| Some(run_of(&placed, above)?.first))?;
            placed.push((VolumeFile::directory(path, map.extent(run).len, run.first, above, self.base.now), run));
        }
        placed.extend(files.iter().cloned().zip(runs));
        Some(placed)
    }
}

fn run_of(placed: &[(VolumeFile, Run)], path: &str) -> Option<Run> {
    placed.iter().find(|(file, _)| file.path.eq_ignore_ascii_case(path)).map(|(_, run)| *run)
}

/// Where the entry of a new file begins, in the volume. It is taken then.
fn room(map: &FatMap, placed: &[(VolumeFile, Run)], path: &str, taken: &mut Vec<u64>) -> Option<u64> {
    let (directory, name) = path.rsplit_once('/').unwrap_or(("", path));
    let new = || {
        let at = map.extent(run_of(placed, directory)?).offset;
        map.entries_of_a_new_directory(at).into_iter().find(|entry| !taken.contains(entry))
    };
    let first = if map.directory_at(directory).is_some() { map.room(path, taken) } else { new() }?;
    taken.extend((first..).step_by(DIR_ENTRY_BYTES).take(entries(name)));
    Some(first)
}
