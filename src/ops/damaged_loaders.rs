//! The note of a verb that leaves damaged boot loaders as they are.

use slipway_core::{
    boot::slot::Slot,
    disk::chain::CHAIN,
    plan::GptFacts,
    report::{ChainCheck, FileCheck, FileState, Observer},
    text::quoted,
};

use crate::{device::BlockIo, probe};

/// Tells of boot loaders that are damaged, and of a damaged list of them. Without its name the verb that mends them would take
/// the disk that the machine runs from.
pub fn note(disk: &dyn BlockIo, path: &str, gpt: &GptFacts, running: Option<Slot>, observer: &mut dyn Observer) {
    let ChainCheck { links, errors, .. } = probe::boot_chain(disk, gpt);
    let (path, offline) = (quoted(path), if running.is_none() { " --offline" } else { "" });
    let links = links.iter().filter(|link| link.state == FileState::Damaged).filter_map(FileCheck::problem);
    for damaged in links.chain(errors.into_iter().filter(|error| error.starts_with(CHAIN))) {
        observer.note(&format!(
            "boot chain: {damaged}; `installer bootloader update --disk {path}{offline}` writes it anew"
        ));
    }
}
