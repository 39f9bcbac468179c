//! The blocks of an lzop file, as `unlzo` in Linux reads them (lib/decompress_unlzo.c). Each gives its sizes, so nothing has to
//! be decompressed.

use super::Next;
use crate::bytes::{be16, be32};

pub struct Lzop {
    at: At,
}

#[derive(Clone, Copy)]
enum At {
    /// From the magic to the method.
    Method,
    /// The rest of the header, to the length of the file's name.
    Name {
        /// lzop 0.94 and later write a level and a second half of the time.
        is_new: bool,
    },
    /// Number of bytes that come out of a block; the end has none.
    BlockOut,
    /// Number of bytes that go in, and a checksum.
    BlockIn { out: u32 },
}

const MAGIC: &[u8] = b"\x89LZO\0\r\n\x1a\n";
const NEW: u16 = 0x940;
// Flags of a block's checksums: of its output (Adler-32 and CRC-32), and of its input.
const CHECKS_OUT: u32 = 0x1 | 0x100;
const CHECKS_IN: u32 = 0x2 | 0x200;
const FILTER: u32 = 0x800;
const MOST_BYTES: u32 = 256 << 10;

impl Lzop {
    /// Magic, three versions of two bytes, and the method.
    pub const FIRST_BYTES: usize = 16;
    // Flags, mode, time (low), length of the name.
    const NAME_BYTES: usize = 4 + 4 + 4 + 1;

    pub const fn new() -> Self {
        Lzop { at: At::Method }
    }

    pub fn next(&mut self, heading: &[u8]) -> Next {
        match self.at {
            At::Method => {
                // The methods of LZO1X have these numbers.
                if !heading.starts_with(MAGIC) || !matches!(heading[15], 1..=3) {
                    return Next::Damaged;
                }
                let is_new = be16(heading, 9) >= NEW;
                self.heading(At::Name { is_new }, 0, Self::NAME_BYTES + if is_new { 1 + 4 } else { 0 })
            }
            At::Name { is_new } => {
                let flags = be32(heading, usize::from(is_new));
                // Linux passes over one checksum for each block, whatever the flags say, and has no filters.
                if flags & FILTER != 0 || flags & CHECKS_IN != 0 || (flags & CHECKS_OUT).count_ones() != 1 {
                    return Next::Refused(
                        "has other checksums than Linux expects, or a filter: lzop without options for these",
                    );
                }
                // The name, and a checksum of the header.
                let name = u64::from(heading[heading.len() - 1]);
                self.heading(At::BlockOut, name + 4, 4)
            }
            At::BlockOut => match be32(heading, 0) {
                0 => Next::End { skip: 0 },
                out if out > MOST_BYTES => Next::Refused("has blocks of more than 256 KiB"),
                out => self.heading(At::BlockIn { out }, 0, 8),
            },
            At::BlockIn { out } => match be32(heading, 0) {
                bytes if bytes == 0 || bytes > out => Next::Damaged,
                bytes => self.heading(At::BlockOut, u64::from(bytes), 4),
            },
        }
    }

    const fn heading(&mut self, at: At, skip: u64, need: usize) -> Next {
        self.at = at;
        Next::Heading { skip, need }
    }
}
