//! FAT32. The whole layout is computed before the first byte is written.

pub mod copies;
mod entry;
pub mod layout;
pub mod map;
pub mod name;
pub mod new_file;

pub use layout::{FatError, FatTime, FileSpec, Placed, VolumeLayout, VolumeSpec};
