//! The headings of an xz stream ("The .xz File Format", version 1.2.1). LZMA2, in which it ends, is a row of chunks that
//! give their sizes, so nothing has to be decompressed.

use super::Next;
use crate::bytes::be16;

pub struct Xz {
    at: At,
    // Bytes of the check behind each block.
    check: u64,
    // Bytes of the chunks of this block.
    block: u64,
    // The filter for programs that a block went through.
    filter: Option<u64>,
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
/// One filter for each architecture, by its kernel option; the first one has the number 4 (section 5.3.2).
pub const FOR_PROGRAMS: [&str; 8] = [
    "CONFIG_XZ_DEC_X86",
    "CONFIG_XZ_DEC_POWERPC",
    "CONFIG_XZ_DEC_IA64",
    "CONFIG_XZ_DEC_ARM",
    "CONFIG_XZ_DEC_ARMTHUMB",
    "CONFIG_XZ_DEC_SPARC",
    "CONFIG_XZ_DEC_ARM64",
    "CONFIG_XZ_DEC_RISCV",
];

fn for_programs(filter: u64) -> Option<&'static str> {
    FOR_PROGRAMS.get(usize::try_from(filter.checked_sub(4)?).ok()?).copied()
}

impl Xz {
    pub const HEADER_BYTES: usize = 12;

    pub const fn new() -> Self {
        Xz { at: At::StreamHeader, check: 0, block: 0, filter: None }
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
                match filters(heading) {
                    Some(Ok(filter)) => {
                        self.filter = filter.or(self.filter);
                        self.heading(At::Chunk, 0, 1)
                    }
                    Some(Err(())) => {
                        Next::Refused("goes through a filter that Linux does not have: `xz --check=crc32` alone")
                    }
                    None => Next::Unknown,
                }
            }
            At::Chunk => self.chunk(first),
            At::ChunkSize { compressed, properties } => {
                let size = u64::from(be16(heading, heading.len() - 2)) + 1 + u64::from(properties);
                self.block += 1 + if compressed { 4 } else { 2 } + size;
                self.heading(At::Chunk, size, 1)
            }
            At::Index(index) => self.index(index, first),
            At::Footer if heading.ends_with(b"YZ") => Next::End { skip: 0 },
            At::Footer => Next::Damaged,
        }
    }

    /// The option of the kernel for the filter that it goes through.
    pub fn filter(&self) -> Option<&'static str> {
        self.filter.and_then(for_programs)
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

/// The filter for programs that a block goes through, by its header without the first byte (section 3.1). An error if Linux does
/// not unpack it, which takes LZMA2 and one such filter before it at most (lib/xz/xz_dec_stream.c). `None` if the header makes
/// no sense.
fn filters(header: &[u8]) -> Option<Result<Option<u64>, ()>> {
    let flags = header[0];
    let mut rest = &header[1..];
    let sizes = u32::from(flags & 0x40 != 0) + u32::from(flags & 0x80 != 0);
    for _ in 0..sizes {
        number(&mut rest)?;
    }
    let mut is_taken = flags & 3 <= 1;
    let mut before = None;
    for last in (0..=flags & 3).rev() {
        let (filter, properties) = (number(&mut rest)?, number(&mut rest)?);
        if last == 0 {
            return Some(if is_taken && filter == LZMA2 { Ok(before) } else { Err(()) });
        }
        is_taken &= for_programs(filter).is_some();
        before = Some(filter);
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
    fn what_a_block_goes_through() {
        let lzma2: &[u8] = &[0x21, 1, 22];
        let header = |parts: &[&[u8]]| parts.concat();
        assert_eq!(filters(&header(&[&[0], lzma2])), Some(Ok(None)));
        for (filter, option) in (4..12).zip(FOR_PROGRAMS) {
            assert_eq!(filters(&header(&[&[1, filter, 0], lzma2])), Some(Ok(Some(u64::from(filter)))), "{option}");
            assert_eq!(for_programs(u64::from(filter)), Some(option));
        }
        assert_eq!(filters(&header(&[&[1, 3, 1, 0], lzma2])), Some(Err(())), "delta");
        assert_eq!(filters(&header(&[&[1, 12, 0], lzma2])), Some(Err(())), "a number that stands for none");
        assert_eq!(filters(&header(&[&[2, 4, 0, 5, 0], lzma2])), Some(Err(())), "two");
        assert_eq!(filters(&[0, 0x20, 0]), Some(Err(())), "another than LZMA2 in the end");
        assert_eq!(filters(&header(&[&[1, 4, 9], lzma2])), None, "properties that end nowhere");
    }
}
