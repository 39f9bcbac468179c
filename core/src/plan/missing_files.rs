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
    bootloader::{BootloaderFacts, EfiOffered, RenewalRequest},
    renewal::{Esp, New},
    slots::Draft,
};
use crate::{
    boot::env::{BootEnv, PATHS},
    disk::{
        chain::{CHAIN, Chain, Link},
        fat::map::{FatMap, Run},
        layout::Part,
    },
    units::Extent,
};

/// Whether a file with this path can be put onto the ESP.
pub fn has_place(map: &FatMap, path: &str) -> bool {
    map.file(path).is_some() || !map.unused_entries(path).is_empty()
}

/// The copies of boot.env that are missing, or cannot be written where they are.
pub fn boot_envs(system: &SystemFacts, env: &BootEnv) -> Vec<VolumeFile> {
    let lost = PATHS.iter().zip(system.env_at).filter_map(|(path, at)| at.is_none().then_some(path));
    lost.map(|path| VolumeFile::text(path, env.render())).collect()
}

/// The list of the boot chain if it has to say something else, and the UEFI image that is missing.
pub fn loader(request: &RenewalRequest, efi: &EfiOffered, facts: &BootloaderFacts) -> Vec<VolumeFile> {
    let list = match &facts.list {
        // The loader for a BIOS stays as it is.
        Ok(Some(found)) => {
            let rest = found.0.iter().filter(|(link, _)| !matches!(link, Link::File(_))).cloned();
            let list = Chain([(Link::File(request.path()), efi.file.sha256)].into_iter().chain(rest).collect());
            (list != *found).then_some(list)
        }
        // A disk of an installer that made no list has none afterwards.
        Ok(None) => None,
        Err(_) => Some(request.listed(&request.path(), efi, facts, None)),
    };
    // The list comes first: a cut must not leave an image that the list says is another one.
    let mut files: Vec<_> = list.into_iter().map(|list| VolumeFile::text(CHAIN, list.render())).collect();
    files.push(VolumeFile::copied(&request.path(), &efi.file, Content::EfiImage));
    files
}

impl Draft<'_> {
    /// Put these files onto the ESP. False if there is no place for all of them.
    pub fn add_files(&mut self, map: &FatMap, files: Vec<VolumeFile>) -> bool {
        let steps = self.steps_to_add(map, files);
        let is_possible = steps.is_some();
        self.extend(Part::Esp, steps.unwrap_or_default());
        is_possible
    }

    fn steps_to_add(&self, map: &FatMap, files: Vec<VolumeFile>) -> Option<Vec<Step>> {
        let sector = self.system.sector;
        let esp = Esp { map, at: self.system.gpt.part(Part::Esp), sector };
        let runs = map.place(&files.iter().map(|file| map.clusters(file.size)).collect::<Vec<_>>())?;
        let placed: Vec<(VolumeFile, Run)> = files.into_iter().zip(runs).collect();
        let runs: Vec<Run> = placed.iter().map(|(_, run)| *run).collect();
        let written = placed.iter().map(|(file, run)| Step::WriteFile { extent: esp.extent(*run), file: file.clone() });
        let mut steps: Vec<Step> = written.collect();
        steps.extend((0..map.copies()).map(|copy| esp.link(copy, &runs)));
        let (mut taken, mut replaced): (Vec<u64>, Vec<New>) = (vec![], vec![]);
        for (file, run) in placed {
            if let Some(old) = map.file(&file.path) {
                let new = New { file, old, run };
                steps.push(esp.refer(&new, old.at));
                replaced.push(new);
                continue;
            }
            let entry = *map.unused_entries(&file.path).iter().find(|entry| !taken.contains(entry))?;
            taken.push(entry);
            let (bytes, data) = (sector.bytes(), esp.extent(run));
            let offset = esp.at.offset + entry / bytes * bytes;
            steps.push(Step::AddEntry { offset, at: entry % bytes, file, data, run, time: self.base.now });
        }
        // The clusters of files that were there, and could not be written in place.
        let freed = esp.tidy_up(&replaced).into_iter().filter(|step| !matches!(step, Step::CountFree { .. }));
        steps.extend(freed);
        let (offset, _) = map.free_count();
        steps.push(Step::CountFree { extent: esp.on_disk(Extent { offset, len: sector.bytes() }) });
        Some(steps)
    }
}
