//! The lists in a slot of what it holds.

use slipway_core::{
    digest::{Sha256, Sums},
    payload::{
        lists::Lists,
        manifest::{MANIFEST, Manifest, SHA256SUMS},
    },
    report::FileState,
    units::MIB,
};

use crate::fat::FatVolume;

/// The lists of a slot that only the installer and the initramfs read.
pub struct OwnLists {
    pub sums: Option<Sums>,
    /// Only a manifest that matches `sums`: it decides what an upgrade keeps and refuses, and a disk may return a wrong bit.
    pub manifest: Option<Manifest>,
    pub later: Vec<String>,
    /// Why one of them says nothing, or too little.
    pub lost: Option<String>,
}

/// The lists as they are in a slot.
pub fn own_lists(volume: &FatVolume) -> OwnLists {
    let read = |name: &str| match volume.read_small(name, MIB) {
        Ok(Some(bytes)) => Ok(bytes),
        Ok(None) => Err(format!("{name}: {}", FileState::Missing)),
        Err(e) => Err(format!("{name}: {e}")),
    };
    let sums = read(SHA256SUMS).map(|bytes| Sums::parse(&bytes).map_err(|e| format!("{SHA256SUMS}: {e}")));
    let found = read(MANIFEST).and_then(|bytes| match &sums {
        Ok(Ok(sums)) if sums.0.get(MANIFEST) == Some(&Sha256::of(&bytes)) => Ok(bytes),
        // A list that cannot be read says nothing against it.
        Err(_) => Ok(bytes),
        Ok(_) => Err(format!("{MANIFEST}: {}", FileState::Damaged)),
    });
    let (manifest, later) = found.as_ref().map_or((None, vec![]), |bytes| Manifest::of_slot(bytes));
    let sums = sums.flatten();
    let left_out = |sums: &Sums| {
        let lists = Lists { sums: sums.0.clone(), boot: None, manifest: manifest.clone() };
        Some(format!("{SHA256SUMS}: does not list {}", lists.left_out().first()?))
    };
    let lost = sums.as_ref().err().cloned().or(found.err()).or_else(|| left_out(sums.as_ref().ok()?));
    OwnLists { sums: sums.ok(), manifest, later, lost }
}
