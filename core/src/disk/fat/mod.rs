//! FAT32: where every byte of a file system lies, computed before the first is written.

pub mod layout;
pub mod name;

pub use layout::{FatError, FatTime, FileSpec, Placed, VolumeLayout, VolumeSpec};
