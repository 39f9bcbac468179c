//! Entries of a directory (Microsoft FAT specification, 2005, "FAT Directory Structure").

use crate::prelude::*;

use serde::{Deserialize, Serialize};

use super::{
    ATTR_DIRECTORY, ATTR_LONG_NAME, ATTR_MEANINGLESS, ATTR_VOLUME_LABEL,
    name::{LongName, display_short},
};
use crate::bytes::{le16, le32, put_le32};

/// The facts of a file in its directory entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct FileAt {
    /// Its first cluster; 0 of an empty file.
    pub cluster: u32,
    /// Its size in bytes.
    pub bytes: u32,
}

impl FileAt {
    /// Of an entry of 32 bytes.
    pub fn decode(raw: &[u8]) -> Self {
        let high = u32::from(le16(raw, 20)) << 16;
        FileAt { cluster: high | u32::from(le16(raw, 26)), bytes: le32(raw, 28) }
    }

    /// Have an entry of 32 bytes say this. Every boot loader sees it then.
    pub fn put_into(self, raw: &mut [u8]) {
        raw[11] &= !ATTR_MEANINGLESS;
        raw[20..22].copy_from_slice(&((self.cluster >> 16) as u16).to_le_bytes());
        raw[26..28].copy_from_slice(&(self.cluster as u16).to_le_bytes());
        put_le32(raw, 28, self.bytes);
    }
}

/// An entry of a file or a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// The long name, or the short one of an entry without.
    pub name: String,
    /// Every entry has one, and is found by it, too.
    pub short: [u8; 11],
    /// The bits of its kind.
    pub attributes: u8,
    /// Its first cluster and its size.
    pub at: FileAt,
}

impl DirEntry {
    /// Whether it is one of a directory.
    pub const fn is_directory(&self) -> bool {
        self.attributes & ATTR_DIRECTORY != 0
    }

    /// Whether GRUB passes over it (fs/fat.c).
    pub const fn is_passed_over(&self) -> bool {
        self.attributes & ATTR_MEANINGLESS != 0
    }
}

/// The meaning of 32 bytes of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Row {
    /// Neither this one nor any behind it is used.
    End,
    /// A deleted entry. A new one may take its place.
    Deleted,
    /// `.` or `..`.
    Dot,
    /// A part of a long name, or the label of the volume.
    NamePart,
    /// An entry, with the long name that was before it.
    Entry(DirEntry),
}

/// Reads a directory, 32 bytes at a time.
#[derive(Default)]
pub struct DirReader {
    long: LongName,
}

impl DirReader {
    /// The next 32 bytes.
    pub fn row(&mut self, raw: &[u8]) -> Row {
        // Parts of a long name before anything else than its entry are orphans.
        let mut long = core::mem::take(&mut self.long);
        match (raw[0], raw[11]) {
            (0, _) => Row::End,
            (0xe5, _) => Row::Deleted,
            (b'.', _) => Row::Dot,
            (_, ATTR_LONG_NAME) => {
                long.push(raw);
                self.long = long;
                Row::NamePart
            }
            (_, attributes) if attributes & ATTR_VOLUME_LABEL != 0 => Row::NamePart,
            (_, attributes) => {
                let mut short = [0; 11];
                short.copy_from_slice(&raw[..11]);
                let name = long.name(&short).unwrap_or_else(|| display_short(&short));
                Row::Entry(DirEntry { name, short, attributes, at: FileAt::decode(raw) })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::fat::{
        ATTR_ARCHIVE, DIR_ENTRY_BYTES,
        name::{checksum, long_name_entries, short_name},
    };

    const AT: FileAt = FileAt { cluster: 0x1_0002, bytes: 70_000 };

    fn raw(short: &[u8; 11], attributes: u8) -> Vec<u8> {
        let mut raw = vec![0; DIR_ENTRY_BYTES];
        raw[..11].copy_from_slice(short);
        raw[11] = attributes;
        AT.put_into(&mut raw);
        raw
    }

    fn rows(bytes: &[u8]) -> Vec<Row> {
        let mut reader = DirReader::default();
        bytes.chunks_exact(DIR_ENTRY_BYTES).map(|raw| reader.row(raw)).collect()
    }

    #[test]
    fn a_long_name_is_of_the_entry_behind_it_alone() {
        let short = short_name("rootfs.squashfs", &[]).unwrap();
        let (long, file) = (long_name_entries("rootfs.squashfs", checksum(&short)), raw(&short, ATTR_ARCHIVE));
        let named = |name: &str| {
            let name = name.to_owned();
            Row::Entry(DirEntry { name, short, attributes: ATTR_ARCHIVE, at: AT })
        };
        let whole = rows(&[long.clone(), file.clone(), file.clone()].concat());
        assert_eq!(whole, [Row::NamePart, Row::NamePart, named("rootfs.squashfs"), named("ROOTFS~1.SQU")]);
        for (first, row) in [(0xe5, Row::Deleted), (b'.', Row::Dot)] {
            let mut between = file.clone();
            between[0] = first;
            let orphan = rows(&[long.clone(), between, file.clone()].concat());
            assert_eq!(orphan, [Row::NamePart, Row::NamePart, row, named("ROOTFS~1.SQU")]);
        }
        assert_eq!(rows(&raw(&short, ATTR_VOLUME_LABEL)), [Row::NamePart]);
        assert_eq!(rows(&[0; DIR_ENTRY_BYTES]), [Row::End]);
    }

    #[test]
    fn every_loader_sees_an_entry_that_was_changed() {
        let is_passed_over = |raw: &[u8]| match DirReader::default().row(raw) {
            Row::Entry(entry) => entry.is_passed_over(),
            other => panic!("{other:?}"),
        };
        let mut odd = raw(b"BOOT    ENV", 0);
        odd[11] = ATTR_ARCHIVE | 0x40;
        assert!(is_passed_over(&odd));
        AT.put_into(&mut odd);
        assert!(!is_passed_over(&odd));
    }
}
