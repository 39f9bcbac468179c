//! The headings of an xz stream ("The .xz File Format", version 1.2.1). LZMA2, in which it ends, is a row of chunks that
//! give their sizes, so nothing has to be decompressed.

use super::next::Next;

pub struct Xz {
    at: At,
    // Bytes of the check behind each block.
    check: u64,
    // Bytes of the chunks of this block.
    block: u64,
}

#[derive(Clone, Copy)]
enum At {
    StreamHeader,
    /// The size of a block's header, or the zero that begins the index.
    BlockOrIndex,
    BlockHeader,
    Chunk,
    ChunkSize {
        compressed: bool,
        properties: bool,
    },
    Index(Index),
    Footer,
}

/// The numbers of an index, seven bits to a byte.
#[derive(Clone, Copy)]
struct Index {
    // With the zero before it.
    bytes: u64,
    // Numbers that are left. None: the first one says how many records of two follow.
    left: Option<u64>,
    number: u64,
    shift: u32,
}

const LZMA2: u64 = 0x21;
/// Of each architecture one. Which of them a kernel has is configured, and none is left out by default.
const FOR_PROGRAMS: core::ops::RangeInclusive<u64> = 4..=0xb;

impl Xz {
    pub const HEADER_BYTES: usize = 12;

    pub const fn new() -> Self {
        Xz { at: At::StreamHeader, check: 0, block: 0 }
    }

    pub fn next(&mut self, heading: &[u8]) -> Next {
        let first = heading[0];
        match self.at {
            At::StreamHeader => {
                // Section 2.1.1.2; Documentation/staging/xz.rst: Linux checks CRC32 or nothing.
                if heading[7] & 15 > 1 {
                    return Next::Refused(
                        "has a checksum that Linux does not know (xz makes CRC64 by default): `xz --check=crc32`",
                    );
                }
                self.check = [0, 4, 4, 4, 8, 8, 8, 16, 16, 16, 32, 32, 32, 64, 64, 64][usize::from(heading[7] & 15)];
                self.heading(At::BlockOrIndex, 0, 1)
            }
            At::BlockOrIndex if first == 0 => {
                self.heading(At::Index(Index { bytes: 1, left: None, number: 0, shift: 0 }), 0, 1)
            }
            At::BlockOrIndex => self.heading(At::BlockHeader, 0, usize::from(first) * 4 + 3),
            At::BlockHeader => {
                self.block = 0;
                match only_chunks(heading) {
                    Some(true) => self.heading(At::Chunk, 0, 1),
                    Some(false) => {
                        Next::Refused("goes through a filter that Linux does not have: `xz --check=crc32` alone")
                    }
                    None => Next::Unknown,
                }
            }
            At::Chunk => self.chunk(first),
            At::ChunkSize { compressed, properties } => {
                let size = &heading[heading.len() - 2..];
                let size = u64::from(u16::from_be_bytes([size[0], size[1]])) + 1 + u64::from(properties);
                self.block += 1 + if compressed { 4 } else { 2 } + size;
                self.heading(At::Chunk, size, 1)
            }
            At::Index(index) => self.index(index, first),
            At::Footer if heading.ends_with(b"YZ") => Next::End { skip: 0 },
            At::Footer => Next::Damaged,
        }
    }

    const fn heading(&mut self, at: At, skip: u64, need: usize) -> Next {
        self.at = at;
        Next::Heading { skip, need }
    }

    /// The control byte of LZMA2 (liblzma, lzma2_decoder.c).
    fn chunk(&mut self, control: u8) -> Next {
        match control {
            0 => {
                let padding = (self.block + 1).next_multiple_of(4) - (self.block + 1);
                self.heading(At::BlockOrIndex, padding + self.check, 1)
            }
            1 | 2 => self.heading(At::ChunkSize { compressed: false, properties: false }, 0, 2),
            0x80.. => self.heading(At::ChunkSize { compressed: true, properties: control >= 0xc0 }, 0, 4),
            _ => Next::Damaged,
        }
    }

    fn index(&mut self, mut index: Index, byte: u8) -> Next {
        index.bytes += 1;
        index.number |= u64::from(byte & 0x7f) << index.shift;
        index.shift += 7;
        if byte & 0x80 == 0 {
            let left = index.left.map_or(index.number.saturating_mul(2), |left| left - 1);
            index = Index { left: Some(left), number: 0, shift: 0, ..index };
            if left == 0 {
                let padding = index.bytes.next_multiple_of(4) - index.bytes;
                // With its CRC32.
                return self.heading(At::Footer, padding + 4, Self::HEADER_BYTES);
            }
        } else if index.shift > 56 {
            return Next::Damaged;
        }
        self.heading(At::Index(index), 0, 1)
    }
}

/// Whether Linux unpacks a block, by its header without the first byte (section 3.1): LZMA2, and before it one of the filters for
/// programs at most (lib/xz/xz_dec_stream.c). `None` if the header makes no sense.
fn only_chunks(header: &[u8]) -> Option<bool> {
    let flags = header[0];
    let mut rest = &header[1..];
    let sizes = u32::from(flags & 0x40 != 0) + u32::from(flags & 0x80 != 0);
    for _ in 0..sizes {
        number(&mut rest)?;
    }
    let mut is_taken = flags & 3 <= 1;
    for last in (0..=flags & 3).rev() {
        let (filter, properties) = (number(&mut rest)?, number(&mut rest)?);
        if last == 0 {
            return Some(is_taken && filter == LZMA2);
        }
        is_taken &= FOR_PROGRAMS.contains(&filter);
        rest = usize::try_from(properties).ok().and_then(|n| rest.get(n..))?;
    }
    None
}

fn number(bytes: &mut &[u8]) -> Option<u64> {
    let len = bytes.iter().take(9).position(|byte| byte & 0x80 == 0)? + 1;
    let (own, rest) = bytes.split_at(len);
    *bytes = rest;
    Some(own.iter().rev().fold(0, |number, byte| (number << 7) | u64::from(byte & 0x7f)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters() {
        let lzma2: &[u8] = &[0x21, 1, 22];
        let header = |parts: &[&[u8]]| parts.concat();
        assert_eq!(only_chunks(&header(&[&[0], lzma2])), Some(true));
        assert_eq!(only_chunks(&header(&[&[1, 4, 0], lzma2])), Some(true), "x86");
        assert_eq!(only_chunks(&header(&[&[1, 3, 1, 0], lzma2])), Some(false), "delta");
        assert_eq!(only_chunks(&header(&[&[2, 4, 0, 5, 0], lzma2])), Some(false), "two");
        assert_eq!(only_chunks(&[0, 0x20, 0]), Some(false), "another than LZMA2 in the end");
        assert_eq!(only_chunks(&header(&[&[1, 4, 9], lzma2])), None, "properties that end nowhere");
    }
}
