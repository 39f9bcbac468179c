//! The names by which the systems in the slots know the disk and its partitions.

use crate::prelude::*;

use uuid::Uuid;

use super::SystemFacts;
use crate::{boot::slot::Slot, disk::layout::Part, payload::partuuids::named_partuuids, plan::Step};

impl SystemFacts {
    /// The slot that boots next, and the GUID by which it knows the disk, if the table has another one: its system does not find
    /// its disk, so it takes no upgrade and confirms no trial.
    pub fn other_guid(&self) -> Option<(Slot, Uuid)> {
        let slot = self.next.slot?;
        Some((slot, self.other_guid_of(slot)?))
    }

    fn other_guid_of(&self, slot: Slot) -> Option<Uuid> {
        self.slots[slot].disk_guid.filter(|guid| *guid != self.gpt.disk_guid)
    }

    /// The PARTUUIDs by which the systems in use know partitions, where the table has others: those of the slot that boots next
    /// come first. Such a system may not find what it starts from.
    pub fn other_partuuids(&self) -> Vec<(Slot, Part, Uuid)> {
        let of = |slot: Slot| self.other_partuuids_of(slot).map(move |(part, guid)| (slot, part, guid));
        self.next_first().into_iter().flat_map(of).collect()
    }

    fn next_first(&self) -> Vec<Slot> {
        let mut slots: Vec<Slot> = self.in_use().collect();
        slots.sort_by_key(|slot| self.next.slot != Some(*slot));
        slots
    }

    fn other_partuuids_of(&self, slot: Slot) -> impl Iterator<Item = (Part, Uuid)> {
        self.named(slot).into_iter().filter(|(part, guid)| self.gpt.guid(*part) != *guid)
    }

    /// Whether the system that boots next knows this partition by the PARTUUID that it has.
    pub fn is_known_by_its_partuuid(&self, part: Part) -> bool {
        self.next.slot.is_some_and(|slot| self.named(slot).contains(&(part, self.gpt.guid(part))))
    }

    fn named(&self, slot: Slot) -> Vec<(Part, Uuid)> {
        self.slots[slot].manifest.as_ref().map(|manifest| named_partuuids(manifest, slot)).unwrap_or_default()
    }

    /// The fault of [`Self::other_guid`], for people. As after `sgdisk --randomize-guids`.
    pub fn guid_fault(&self) -> Option<String> {
        self.guid_fault_of(self.next.slot?)
    }

    /// The faults of [`Self::other_partuuids`]. As after a repair that had to make new ones, or `sgdisk --partition-guid`.
    pub fn partuuid_faults(&self) -> impl Iterator<Item = String> {
        self.next_first().into_iter().flat_map(|slot| self.partuuid_faults_of(slot))
    }

    fn guid_fault_of(&self, slot: Slot) -> Option<String> {
        let (guid, table) = (self.other_guid_of(slot)?, self.gpt.disk_guid);
        Some(format!(
            "slot {slot} knows the disk by the GUID {guid}, and its table has {table}: the system in it takes no upgrade, and \
             confirms no trial"
        ))
    }

    fn partuuid_faults_of(&self, slot: Slot) -> impl Iterator<Item = String> {
        self.other_partuuids_of(slot).map(move |(part, guid)| {
            format!(
                "slot {slot}'s kernel command line names the PARTUUID {guid}, and {part} has {}: the system in it may not find \
                 what it starts from",
                self.gpt.guid(part)
            )
        })
    }

    /// Of the slots that the next boots start once these steps are done. One that they write anew gets the names that there are.
    pub(super) fn losses_of_names(&self, steps: &[Step]) -> Vec<String> {
        let written = steps.iter().rev().find_map(|step| match step {
            Step::WriteBootEnv { env, .. } => Some(env),
            _ => None,
        });
        let boots = |slot: Slot| match written {
            Some(env) => env.once == Some(slot) || env.default == slot,
            None => self.next.slot == Some(slot) || self.env.as_ref().is_some_and(|env| env.default == slot),
        };
        let is_new = |slot: Slot| {
            steps.iter().any(|step| matches!(step, Step::WriteVolume { part, .. } if *part == slot.into()))
        };
        let slots = Slot::BOTH.into_iter().filter(|slot| boots(*slot) && !is_new(*slot));
        let faults = slots.flat_map(|slot| self.guid_fault_of(slot).into_iter().chain(self.partuuid_faults_of(slot)));
        faults.map(|fault| format!("{fault}; `installer status` names the remedy")).collect()
    }
}
