//! The log of what a machine has written to a disk, as QEMU's blklogwrites keeps it, and the disks that a power cut
//! could have left: everything up to the last flush before the cut, and any part of what was written after that.
//! (Killing QEMU is no power cut: what it has written is in the page cache of the host, which lives on.)
//!
//! The format is that of Linux' dm-log-writes, little-endian: a superblock, then entries, each in one sector and with
//! what was written behind it.

use std::{fs, path::Path};

use crate::image::Image;

const SECTOR: usize = 512;
/// Its first bytes: "rhswfsj", and a zero.
const MAGIC: u64 = 0x006a_7366_7773_6872;
const FLUSH: u64 = 1;
const FUA: u64 = 2;
const DISCARD: u64 = 4;

/// All that was written, in order.
pub struct WriteLog {
    bytes: Vec<u8>,
    entries: Vec<Entry>,
}

struct Entry {
    /// On the disk.
    offset: u64,
    flags: u64,
    /// In the log.
    data: std::ops::Range<usize>,
}

impl WriteLog {
    /// Read the log of a machine that is off.
    pub fn read(path: &Path) -> Self {
        let bytes = fs::read(path).expect("QEMU has kept a log");
        let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        assert_eq!((number(0), number(8)), (MAGIC, 1), "this is a log of a version we know");
        let mut at = SECTOR;
        let entries = (0..number(16)).map(|_| {
            let [sector, sectors, flags] = [0, 8, 16].map(|field| number(at + field));
            let len = if flags & DISCARD == 0 { sectors as usize * SECTOR } else { 0 };
            let start = at + SECTOR;
            at = start + len;
            Entry { offset: sector * SECTOR as u64, flags, data: start..at }
        });
        let entries = entries.collect();
        WriteLog { bytes, entries }
    }

    /// Number of entries: a cut may be before each, or after the last.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// The number of entries that a cut before this one finds on the medium for certain.
    pub fn durable(&self, cut: usize) -> usize {
        self.entries[..cut].iter().rposition(|entry| entry.flags & FLUSH != 0).map_or(0, |n| n + 1)
    }

    /// The entries that are flushes.
    pub fn flushes(&self) -> Vec<usize> {
        (0..self.len()).filter(|n| self.entries[*n].flags & FLUSH != 0).collect()
    }

    /// The bytes that an entry writes to the sector at an offset, if it does.
    pub fn sector(&self, entry: usize, offset: u64) -> Option<&[u8]> {
        let entry = &self.entries[entry];
        let at = offset.checked_sub(entry.offset)? as usize;
        self.bytes[entry.data.clone()].get(at..at + SECTOR)
    }

    /// The bytes that an entry writes.
    pub fn written(&self, entry: usize) -> &[u8] {
        &self.bytes[self.entries[entry].data.clone()]
    }

    /// The disk after a cut before an entry. What was not flushed is there or not, as a random number says.
    pub fn disk_at(&self, cut: usize, before: &Image, random: &mut Random) -> Image {
        let disk = before.copy();
        let durable = self.durable(cut);
        for (n, entry) in self.entries[..cut].iter().enumerate() {
            if n < durable || entry.flags & FUA != 0 || random.below(2) == 0 {
                disk.write(entry.offset, &self.bytes[entry.data.clone()]);
            }
        }
        disk
    }
}

/// Random numbers that are the same in every run (xorshift64).
pub struct Random(pub u64);

impl Random {
    /// A number smaller than this.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}
