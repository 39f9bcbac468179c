//! LAYER 3, look: what is on a disk. Never writes.

mod content;
mod holding;
mod label;
mod partitions;
mod system;

pub use content::{asset_facts, disk_facts};
pub use holding::{holding, is_medium};
pub use label::label;
pub use partitions::{TableFacts, partitions};
pub use system::{ProbeError, check_files, check_slot, meta_of, slot_bytes, slot_is_whole, slot_volume, system};
