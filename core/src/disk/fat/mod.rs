//! FAT32. The whole layout is computed before the first byte is written.

use crate::prelude::*;

pub mod copies;
pub mod layout;
pub mod map;
pub mod name;
pub mod new_file;

pub use layout::{FatError, FatTime, FileSpec, Placed, VolumeLayout, VolumeSpec};

/// Bytes of a directory entry.
pub const DIR_ENTRY_BYTES: usize = 32;

pub(crate) const ATTR_VOLUME_LABEL: u8 = 0x08;
pub(crate) const ATTR_DIRECTORY: u8 = 0x10;
pub(crate) const ATTR_ARCHIVE: u8 = 0x20;
/// Bits without a meaning. GRUB passes over an entry with one of them (fs/fat.c).
pub const ATTR_MEANINGLESS: u8 = 0xc0;
/// Attribute of an entry that holds a part of a long name.
pub const ATTR_LONG_NAME: u8 = 0x0f;

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

/// The field of a boot sector that GRUB and firmware refuse, and that FAT32 itself does not need.
pub fn odd(b: &[u8]) -> Option<&'static str> {
    let short = |at: usize| u16::from_le_bytes([b[at], b[at + 1]]);
    // The media byte, and the fields of FAT12 and FAT16.
    if b[21] | 8 != 0xf8 || (short(17), short(19), short(22)) != (0, 0, 0) {
        return Some("its boot sector is no FAT32's");
    }
    (short(42) != 0).then_some("its boot sector has an unknown version")
}
