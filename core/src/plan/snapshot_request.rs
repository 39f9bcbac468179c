//! The snapshot of the running system that is to be taken, and whether it can be.

use crate::prelude::*;

use super::{Refusal, Refusals, SystemFacts, VolumeHolds};
use crate::{
    boot::slot::{PerSlot, Slot},
    disk::layout::Part,
    snapshot::MAX_BYTES,
};

/// The parts of the running system that are to be kept.
#[derive(Clone, Debug, Default)]
pub struct SnapshotRequest {
    /// It may lie unencrypted on a disk that has an encrypted volume.
    pub plain: bool,
    /// Why a slot has no room for a snapshot, if so. The one in the target keeps what the new system wrote, when the old one
    /// comes back.
    pub no_room: PerSlot<Option<String>>,
}

impl SnapshotRequest {
    /// Refused without room for it, or where it would lie unencrypted beside an encrypted volume.
    pub fn is_allowed(&self, system: &SystemFacts) -> Result<(), Refusals> {
        let mut refusals = Vec::new();
        let encrypted = [Part::State, Part::Ephemeral].into_iter().find(|part| system.held(*part) == VolumeHolds::Luks);
        refusals.extend(encrypted.filter(|_| !self.plain).map(Refusal::SnapshotInTheClear));
        for slot in Slot::BOTH {
            let why = self.no_room[slot].clone();
            refusals.extend(why.map(|why| Refusal::NoRoomForSnapshot { slot, room: MAX_BYTES, why }));
        }
        if refusals.is_empty() { Ok(()) } else { Err(Refusals(refusals)) }
    }
}
