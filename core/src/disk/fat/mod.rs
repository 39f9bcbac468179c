//! FAT32. The whole layout is computed before the first byte is written.

use crate::prelude::*;

pub mod boot_sector;
pub mod copies;
pub mod entry;
pub mod layout;
pub mod map;
pub mod name;
pub mod new_file;

pub use layout::{FatError, FatTime, FileSpec, Placed, VolumeLayout, VolumeSpec};

/// Bytes of a directory entry.
pub const DIR_ENTRY_BYTES: usize = 32;

/// The bits of an entry of a FAT that count.
pub const ENTRY_BITS: u32 = 0x0fff_ffff;
/// From this number on, an entry of a FAT ends a chain.
pub const FIRST_END_OF_CHAIN: u32 = 0x0fff_fff8;

pub(crate) const ATTR_VOLUME_LABEL: u8 = 0x08;
pub(crate) const ATTR_DIRECTORY: u8 = 0x10;
pub(crate) const ATTR_ARCHIVE: u8 = 0x20;
/// Bits without a meaning. GRUB passes over an entry with one of them (fs/fat.c).
pub(crate) const ATTR_MEANINGLESS: u8 = 0xc0;
/// Of an entry that holds a part of a long name.
pub(crate) const ATTR_LONG_NAME: u8 = 0x0f;

/// A directory, as far as new entries go by it.
#[derive(Clone, Debug, Default)]
pub struct Directory {
    /// Its first cluster.
    pub first: u32,
    /// Whether it begins with an entry of itself. The root does not.
    pub is_whole: bool,
    /// Byte offsets in the volume of entries that a new file may have, in order.
    pub unused: Vec<u64>,
    /// The short names of its entries.
    pub short_names: Vec<[u8; 11]>,
}
