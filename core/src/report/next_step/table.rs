//! What is wrong with the partition table, and with the names that systems know it by.

use crate::prelude::*;

use super::{Deciding, NextStep, words};
use crate::{disk::layout::Part, plan::Covered, text::quoted, units::SectorSize};

impl Deciding<'_> {
    pub(super) fn partition_table(&self) -> Option<NextStep> {
        let gpt = &self.facts.gpt;
        let why = format!("{}: writes the table again, and keeps all data", gpt.urgent()?);
        Some(self.by_repair(&why))
    }

    pub(super) fn intruder(&self) -> Option<NextStep> {
        let intruder = self.facts.gpt.intruders.first()?;
        let delete = || format!("{intruder}: {}", intruder.remedy(&quoted(self.status.disk)));
        // `sgdisk` writes no table, either, as long as there is no room for it.
        Some(words(self.status.shrunk.clone().unwrap_or_else(delete)))
    }

    /// The entry of a volume was made again too small, and another one behind it.
    pub(super) fn covered(&self) -> Option<NextStep> {
        let Covered { beyond, by } = self.facts.covered.as_ref()?;
        let (part, disk) = (by.on, quoted(self.status.disk));
        Some(words(format!(
            "{}. It reaches {beyond} bytes further, and {by}. If nothing is on that, {}; then `installer repair --disk {disk}` makes \
             {part} as large as it was",
            self.facts.data_faults.get(&part)?.what,
            by.remedy(&disk)
        )))
    }

    /// The table was changed, perhaps of a clone.
    pub(super) fn other_guid(&self) -> Option<NextStep> {
        let why = "gives back the GUID that its systems know. A copy beside its original gets an upgrade with --offline instead";
        let command = format!("sfdisk --disk-id {{disk}} {}", self.facts.other_guid()?.1);
        Some(self.on_table(&command, why))
    }

    /// The same of a partition. What the system that boots next needs stays.
    pub(super) fn other_partuuid(&self) -> Option<NextStep> {
        let others = self.facts.other_partuuids();
        let is_wanted = |part: Part| !self.facts.is_known_by_its_partuuid(part);
        if let Some((slot, part, guid)) = others.iter().find(|(_, part, _)| is_wanted(*part)) {
            let why =
                format!("gives back the PARTUUID by which the kernel arguments of {} name {part}", self.name(*slot));
            return Some(self.on_table(&format!("sfdisk --part-uuid {{disk}} {} {guid}", part.number()), &why));
        }
        let (slot, part, _) = others.first()?;
        // An upgrade to what the other slot holds writes nothing.
        let (version, what) = (self.facts.slots[!*slot].version(), self.name(*slot));
        let what = format!("the kernel arguments of {what} name {part} by a PARTUUID that it no longer has");
        self.upgrade_or_boot(&what, &format!("writes that slot again, with any payload but {version}"))
    }

    /// Programs for tables take an image for a disk with sectors of 512 bytes. They find no table for others, and write none as
    /// long as there is no room for it.
    fn on_table(&self, command: &str, why: &str) -> NextStep {
        if let Some(shrunk) = &self.status.shrunk {
            return words(shrunk.clone());
        }
        if !self.status.is_image || self.facts.sector == SectorSize::S512 {
            return self.command(command, why);
        }
        let (bytes, disk) = (self.facts.sector.bytes(), quoted(self.status.disk));
        let attach = format!("losetup --find --show --sector-size={bytes} {disk}");
        let command = command.replace("{disk}", "\"$disk\"");
        NextStep {
            command: Some(format!("disk=$({attach}) && {command}; losetup --detach \"$disk\"")),
            why: why.to_owned(),
        }
    }

    pub(super) fn backup_table(&self) -> Option<NextStep> {
        let lost = self.facts.gpt.copies.backup.is_err();
        let why = "writes the second copy of the partition table again";
        lost.then(|| self.by_repair(why))
    }
}
