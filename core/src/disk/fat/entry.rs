//! Directory entries of FAT.

/// Bytes of an entry.
pub const DIR_ENTRY_BYTES: usize = 32;

pub const ATTR_VOLUME_LABEL: u8 = 0x08;
pub const ATTR_DIRECTORY: u8 = 0x10;
pub const ATTR_ARCHIVE: u8 = 0x20;
/// Attribute of an entry that holds a part of a long name.
pub const ATTR_LONG_NAME: u8 = 0x0f;
