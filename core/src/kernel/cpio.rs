//! Initramfs archives: uncompressed cpio, format "newc" (cpio(5), "New ASCII Format").
//!
//! The kernel unpacks several archives in a row, so files can be added to an initramfs without touching it
//! (Documentation/driver-api/early-userspace/buffer-format.rst).

use crate::prelude::*;

/// Archives, headers and contents start on multiples of this many bytes. Linux takes no other archives.
pub const ALIGN: u64 = 4;
/// Bytes of a header without the name: the magic and 13 numbers of eight hex digits.
pub const HEADER_BYTES: u64 = 110;
/// The first bytes of a header: of an archive without checksums, and of one with them.
pub const MAGICS: [&str; 2] = ["070701", "070702"];
/// Name of the last entry.
pub const TRAILER: &str = "TRAILER!!!";
const DIRECTORY: u32 = 0o040_755;
const FILE: u32 = 0o100_644;

/// A header, and the offsets of it and of the content. Bytes between them are zeros.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Byte offset of the header.
    pub at: u64,
    /// The header with the name.
    pub header: Vec<u8>,
    /// Byte offset of the content.
    pub content_at: u64,
}

/// Lays out an archive, entry by entry. Everything in it belongs to root.
#[derive(Clone, Debug)]
pub struct Newc {
    at: u64,
    inodes: u32,
    time: u32,
}

impl Newc {
    /// Start behind `at` bytes of other archives. `time` is the time stamp of all files, seconds since 1970 UTC.
    pub fn new(at: u64, time: u32) -> Self {
        Newc { at: at.next_multiple_of(ALIGN), inodes: 0, time }
    }

    /// Add a directory; its parent must come first.
    pub fn dir(&mut self, path: &str) -> Entry {
        self.inodes += 1;
        self.entry(path, self.inodes, DIRECTORY, 2, 0)
    }

    /// Add a file of `size` bytes; its directory must come first.
    pub fn file(&mut self, path: &str, size: u32) -> Entry {
        self.inodes += 1;
        self.entry(path, self.inodes, FILE, 1, size)
    }

    /// End the archive: its last entry, and the byte offset behind it.
    pub fn finish(mut self) -> (Entry, u64) {
        self.time = 0;
        let entry = self.entry(TRAILER, 0, 0, 1, 0);
        (entry, self.at)
    }

    fn entry(&mut self, path: &str, inode: u32, mode: u32, links: u32, size: u32) -> Entry {
        let name_bytes = path.len() as u64 + 1;
        // Inode, mode, user, group, links, time, size, device (major, minor), device node (major, minor), length of the
        // name, checksum (unused).
        let fields = [inode, mode, 0, 0, links, self.time, size, 0, 0, 0, 0, name_bytes as u32, 0];
        let numbers: String = fields.iter().map(|field| format!("{field:08X}")).collect();
        let at = self.at;
        let content_at = (at + HEADER_BYTES + name_bytes).next_multiple_of(ALIGN);
        self.at = (content_at + u64::from(size)).next_multiple_of(ALIGN);
        Entry { at, header: format!("{}{numbers}{path}\0", MAGICS[0]).into_bytes(), content_at }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden() {
        let mut archive = Newc::new(5, 0x6500_0001);
        let dir = archive.dir("a");
        assert_eq!((dir.at, dir.content_at), (8, 120));
        let numbers = "00000001000041ED00000000000000000000000265000001000000000000000000000000\
                       00000000000000000000000200000000";
        assert_eq!(dir.header, format!("070701{numbers}a\0").into_bytes());
        let file = archive.file("a/bc", 5);
        assert_eq!((file.at, file.header.len(), file.content_at), (120, 115, 236));
        let (trailer, end) = archive.finish();
        assert_eq!((trailer.at, trailer.header.len(), end), (244, 121, 368));
    }
}
