//! The note of a verb that leaves damaged boot loaders as they are.

use slipway_core::{
    disk::{chain::CHAIN, identity::DiskIdentity},
    plan::{GptFacts, SystemFacts},
    report::{ChainCheck, FileCheck, FileState, Observer},
};

use super::shipped_loaders;
use crate::{device::BlockIo, probe};

/// Boot loaders that are damaged, and a damaged list of them.
pub fn found(disk: &dyn BlockIo, gpt: &GptFacts) -> Vec<String> {
    let ChainCheck { links, errors, .. } = probe::boot_chain(disk, gpt);
    let links = links.iter().filter(|link| link.state == FileState::Damaged).filter_map(FileCheck::problem);
    links.chain(errors.into_iter().filter(|error| error.starts_with(CHAIN))).collect()
}

/// Tells of them, and returns what it told. Without its name the verb that mends them would take the disk that the machine runs
/// from.
pub fn note(
    damage: Vec<String>,
    disk: &dyn BlockIo,
    identity: &DiskIdentity,
    system: &SystemFacts,
    observer: &mut dyn Observer,
) -> Vec<String> {
    if damage.is_empty() {
        return vec![];
    }
    let command = system.command("bootloader update", &identity.path);
    let (flag, but) = shipped_loaders::not_started(disk, identity, system)
        .map_or_else(Default::default, |left| (" --ignore-secure-boot", format!("; but {left}")));
    let told = |damaged| format!("boot chain: {damaged}; `{command}{flag}` writes it anew{but}");
    let told: Vec<String> = damage.into_iter().map(told).collect();
    told.iter().for_each(|told| observer.note(told));
    told
}
