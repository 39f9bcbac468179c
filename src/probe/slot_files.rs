//! The places of the slots' files, for an upgrade that takes from them what its payload has in common with them.

use super::system::slot_volume;
use crate::device::BlockIo;
use slipway_core::{boot::slot::Slot, payload::unused::is_installed, plan::GptFacts, units::Extent};

/// The places of these files in both slots, each in the order of its content. A slot that cannot be read has none: this is
/// about what may be reused; the code that reuses a file compares it.
pub fn slot_files(disk: &dyn BlockIo, gpt: &GptFacts) -> Vec<Vec<Extent>> {
    let mut all = Vec::new();
    for slot in Slot::BOTH {
        let Ok(volume) = slot_volume(disk, gpt, slot) else { continue };
        let names = volume.root_files().unwrap_or_default().into_iter().map(|(name, _)| name);
        let found = names.filter(|name| is_installed(name)).filter_map(|name| volume.find(&name).ok().flatten());
        all.extend(found.map(|file| file.extents));
    }
    all
}
