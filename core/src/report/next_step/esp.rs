//! What is lost on the ESP, and what is wrong with the boot loaders there.

use crate::prelude::*;

use super::{Deciding, NextStep, words};
use crate::{
    disk::layout::Part,
    plan::{self, RunsFrom},
    text::quoted,
};

impl Deciding<'_> {
    pub(super) fn esp_lost(&self) -> Option<NextStep> {
        if self.facts.esp_boot_sector.is_some() {
            let why = "the first sector of the ESP is damaged: writes it again from its copy, and all files are there";
            return Some(self.by_repair(why));
        }
        if !plan::makes_esp(self.facts) {
            return None;
        }
        Some(match (plan::formats_esp(self.facts), &self.facts.esp_foreign[..]) {
            (true, []) => self.by_repair(
                "the ESP is no whole file system with a boot loader: makes it again, and keeps the slots and all data",
            ),
            (true, foreign) => self.command(
                "installer repair --disk {disk} --force",
                &format!(
                    "makes the ESP again, and keeps the slots and all data. First copy what others have on it: {}",
                    foreign.join(", ")
                ),
            ),
            (false, _) => self.by_repair(
                "files of the boot loader are missing from the ESP: writes them again, and keeps the slots and all data",
            ),
        })
    }

    pub(super) fn boot_chain(&self) -> Option<NextStep> {
        self.status.chain_damaged.then_some(())?;
        // One sector, and what the loaders start is whole.
        let default = self.default_left().filter(|_| self.runs_from == RunsFrom::Offline);
        let why = "before any reboot: writes the damaged boot loaders anew. If that is refused, a live medium that has boot \
                   loaders does it, with --offline; all data stays";
        default.or_else(|| self.esp_contradicts()).or_else(|| Some(self.renewal(why)))
    }

    pub(super) fn list_missing(&self) -> Option<NextStep> {
        self.facts.list_missing.then_some(())?;
        let what = "the checksums of the boot loaders are missing from the ESP";
        let others = format!("{what}, and these are not this installer's");
        Some(match &self.status.unlisted {
            None => self.by_repair(&format!("{what}: writes them again")),
            Some(Ok(())) => self.renewal(&format!("{others}: replaces them, so that `installer repair` lists them")),
            Some(Err(why)) => words(format!("{others}, so nothing tells whether they are whole: {why}")),
        })
    }

    /// Files on the ESP share clusters, or the like: only the file system's own tool can tell them apart.
    pub(super) fn esp_contradicts(&self) -> Option<NextStep> {
        let is_lost = self.facts.env_at.contains(&None);
        let is_shared =
            self.status.esp_contradicts || self.facts.history.as_ref().is_some_and(|history| !history.is_kept());
        if let Some(move_them) = self.facts.others_in_the_way().filter(|_| is_lost && !is_shared) {
            return Some(words(format!(
                "{move_them}: it has the names or the room of lost files; then `installer repair --disk {}` writes them again",
                quoted(self.status.disk)
            )));
        }
        let why = "the file system of the ESP contradicts itself, so nothing is written to it: mends that, and `installer \
                   status` then says what is left to do";
        (is_lost || is_shared)
            .then(|| NextStep { command: Some(self.on_part(Part::Esp, "fsck.vfat -a")), why: why.to_owned() })
    }

    fn renewal(&self, why: &str) -> NextStep {
        let command = self.facts.command("bootloader update", self.status.disk);
        match &self.status.not_started {
            Some(left) => NextStep {
                command: Some(format!("{command} --ignore-secure-boot")),
                why: format!("{why}. But {left}: there, sign it first (`installer uki --program`)"),
            },
            None => NextStep { command: Some(command), why: why.to_owned() },
        }
    }
}
