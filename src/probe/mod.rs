//! LAYER 3, look: what is on a disk. Never writes.

mod content;
mod system;

pub use content::{asset_facts, disk_facts};
pub use system::{
    FileCheck, FileState, LabelFacts, ProbeError, SlotFacts, SystemFacts, check_files, label, meta_of, slot_volume,
    system,
};
