//! What a disk has lost without keeping a plan from its goal, and the remedy of each.

use crate::prelude::*;

use super::{
    super::{Goal, Step},
    SystemFacts,
};
use crate::{
    boot::env::PATHS,
    disk::{loss::Loss, volume_fault::VolumeFault},
};

const REPAIR: &str = "`installer repair` writes it again";
const REPAIR_TABLE: &str = "`installer repair` writes it again, or says what is in the way";

impl SystemFacts {
    /// What is lost and keeps no plan from its goal, each with its remedy: the next reboot may not come up. `steps` are those of
    /// the change, which may be the remedy. A repair tells itself what it mends.
    pub(in crate::plan) fn losses(&self, goal: Goal, steps: &[Step]) -> Vec<String> {
        let mut losses = if goal == Goal::Repair { vec![] } else { self.losses_of_copies(steps) };
        let remedy = |fault: &VolumeFault| fault.format.remedy(str::to_owned);
        losses.extend(self.losses_of_names(steps));
        losses.extend(self.data_faults.iter().map(|(part, fault)| match &self.covered {
            Some(covered) if covered.by.on == *part => {
                format!("{}: `installer status` says what brings that back", fault.what)
            }
            _ => format!("{}: {}, and `installer status` says what else does", fault.what, remedy(fault)),
        }));
        losses
    }

    /// What the disk has a second time.
    fn losses_of_copies(&self, steps: &[Step]) -> Vec<String> {
        let mut losses = self.losses_of_the_table();
        if self.env.is_some() {
            for (n, path) in PATHS.iter().enumerate().filter(|(n, _)| self.env_copies[*n].is_none()) {
                let is_it =
                    |step: &Step| matches!(step, Step::WriteBootEnv { copy, .. } if usize::from(*copy) == n + 1);
                // A warning of its own tells of one without a place.
                if self.env_at[n].is_some() {
                    let remedy = remedy(steps.iter().any(is_it));
                    losses.push(format!("{} ({path} on the ESP): {remedy}", Loss::BootState(n)));
                }
            }
        }
        for n in (0..self.meta.valid.len()).filter(|n| self.meta.valid != [false, false] && !self.meta.valid[*n]) {
            let is_it = |step: &Step| matches!(step, Step::WriteMetaCopy { copy, .. } if usize::from(*copy) == n + 1);
            losses.push(format!("{}: {}", Loss::Meta(n), remedy(steps.iter().any(is_it))));
        }
        losses.extend(self.losses_of_the_esp());
        losses
    }

    fn losses_of_the_table(&self) -> Vec<String> {
        let (copies, mut losses) = (&self.gpt.copies, Vec::new());
        if let Err(why) = &copies.primary {
            losses.push(format!(
                "the first copy of the partition table is damaged ({why}), and the boot loader reads no other: {REPAIR_TABLE}"
            ));
        }
        if let Err(why) = &copies.backup {
            losses.push(format!("the second copy of the partition table is damaged ({why}): {REPAIR_TABLE}"));
        }
        let wrong = self.gpt.faults.iter().chain(self.gpt.misplaced.iter().map(|(_, why)| why));
        losses.extend(wrong.map(|why| format!("the partition table is damaged ({why}): {REPAIR_TABLE}")));
        losses
    }

    fn losses_of_the_esp(&self) -> Vec<String> {
        let mut losses = Vec::new();
        match self.esp_fats.as_ref().map(|fats| fats.whole) {
            Some(Some((whole, _))) => {
                losses.push(format!("{}: {REPAIR}", Loss::Fat(1 - whole)));
            }
            Some(None) => losses.push(format!("{}: `fsck.vfat`", Loss::Fats)),
            None if self.esp_lost => losses.push(format!("firmware finds no boot loader on the ESP: {REPAIR}")),
            None if self.list_missing => losses.push(format!(
                "{}, so nothing tells whether the boot loaders are whole: `installer status` names the remedy",
                Loss::Chain
            )),
            None => {}
        }
        losses.extend(self.esp_sectors.iter().map(|lost| format!("{}: {REPAIR}", Loss::Sector(lost))));
        losses
    }
}

const fn remedy(is_written: bool) -> &'static str {
    if is_written { "this writes it again" } else { REPAIR }
}
