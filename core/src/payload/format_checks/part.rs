//! The parts that an initramfs is made of. Linux unpacks one after the other; zeros may stand between them
//! (Documentation/driver-api/early-userspace/buffer-format.rst, `unpack_to_rootfs` in init/initramfs.c).
//!
//! A part is read like a book of which only the headings matter: [`Part::next`] gets a heading and says how many bytes
//! to pass over to the one that follows.

use crate::prelude::*;

use super::{
    Next, Packed, Unpack,
    bzip2::Bzip2,
    cpio::{Cpio, MAGIC_BYTES},
    gzip::{Gzip, Inflate},
    le32,
    lzop::Lzop,
    xz::Xz,
};
use crate::kernel::cpio::MAGICS as CPIO_MAGICS;

pub enum Part {
    Cpio(Cpio),
    Gzip(Gzip),
    Xz(Xz),
    Zstd(Zstd),
    Lz4,
    Lzop(Lzop),
    /// Headings do not tell the end of these two.
    Bzip2,
    Lzma,
    /// All headings were seen; the end comes behind the bytes that are passed over.
    Ended(&'static str),
}

/// Position in a frame of zstd.
pub enum Zstd {
    Frame,
    /// The frame has one segment: in place of a window it says how many bytes it has. The lowest byte of that was read.
    Size {
        low: u8,
        checksum: bool,
    },
    Blocks {
        checksum: bool,
    },
}

/// First bytes of a part, and the size of its first heading.
type Magic = (&'static [u8], fn() -> Part, usize);

impl Part {
    /// The magics that Linux knows (`compressed_formats` in lib/decompress.c), and newc's two.
    const MAGICS: [Magic; 9] = [
        (CPIO_MAGICS[0].as_bytes(), || Part::Cpio(Cpio::new()), Cpio::HEADER_BYTES),
        (CPIO_MAGICS[1].as_bytes(), || Part::Cpio(Cpio::new()), Cpio::HEADER_BYTES),
        (b"\x1f\x8b", || Part::Gzip(Gzip::Header), Gzip::HEADER_BYTES),
        (b"\xfd7zXZ\0", || Part::Xz(Xz::new()), Xz::HEADER_BYTES),
        (b"\x28\xb5\x2f\xfd", || Part::Zstd(Zstd::Frame), MAGIC_BYTES),
        (b"\x02\x21\x4c\x18", || Part::Lz4, 8),
        (b"\x89LZO", || Part::Lzop(Lzop::new()), Lzop::FIRST_BYTES),
        // Bytes of the shortest form of these.
        (b"BZh", || Part::Bzip2, 14),
        (b"\x5d\0", || Part::Lzma, 18),
    ];

    /// The part that begins so, and the size of its first heading, which these bytes are a part of.
    pub fn from_magic(magic: &[u8]) -> Option<(Self, usize)> {
        Self::MAGICS.iter().find(|(m, ..)| magic.starts_with(m)).map(|(_, part, need)| (part(), *need))
    }

    /// What Linux does not unpack, by its first bytes. As a first part, nothing that Linux does not know is taken.
    const FOREIGN: [(&'static [u8], &'static str); 5] = [
        (b"070707", "is a cpio archive of the format odc: make it with `cpio -o -H newc`"),
        (b"\x04\x22\x4d\x18", "is an lz4 frame: make it with `lz4 -l`"),
        (b"LZIP", "is made by lzip: make it with `xz --check=crc32`"),
        (b"hsqs", "is a squashfs, and Linux wants cpio archives"),
        // A frame that decoders skip (RFC 8878, section 3.1.2): pzstd begins with one.
        (b"\x50\x2a\x4d\x18", "begins with a frame to be skipped (pzstd makes these): make it with zstd"),
    ];

    /// Why Linux does not unpack a part that begins so, if it is known.
    pub fn foreign(magic: &[u8]) -> Option<&'static str> {
        Self::FOREIGN.iter().find(|(m, _)| magic.starts_with(m)).map(|(_, why)| *why)
    }

    /// Whether a part begins with these bytes, which are too few to tell for sure. One byte tells nothing: anything may
    /// stand behind the last part.
    pub fn may_begin(bytes: &[u8]) -> bool {
        bytes.len() > 1 && Self::MAGICS.iter().any(|(magic, ..)| magic.starts_with(bytes) || bytes.starts_with(magic))
    }

    pub const fn name(&self) -> &'static str {
        match self {
            Part::Cpio(_) => "cpio archive",
            Part::Gzip(_) => "gzip stream",
            Part::Xz(_) => "xz stream",
            Part::Zstd(_) => "zstd stream",
            Part::Lz4 => "lz4 stream",
            Part::Lzop(_) => "lzop stream",
            Part::Bzip2 => "bzip2 stream",
            Part::Lzma => "lzma stream",
            Part::Ended(name) => name,
        }
    }

    /// The options that a kernel needs to unpack it, as far as its headings were seen.
    pub fn needs(&self) -> [Option<&'static str>; 2] {
        let decoder = match self {
            Part::Cpio(_) | Part::Ended(_) => None,
            Part::Gzip(_) => Some("CONFIG_RD_GZIP"),
            Part::Xz(xz) => return [Some("CONFIG_RD_XZ"), xz.filter()],
            Part::Zstd(_) => Some("CONFIG_RD_ZSTD"),
            Part::Lz4 => Some("CONFIG_RD_LZ4"),
            Part::Lzop(_) => Some("CONFIG_RD_LZO"),
            Part::Bzip2 => Some("CONFIG_RD_BZIP2"),
            Part::Lzma => Some("CONFIG_RD_LZMA"),
        };
        [decoder, None]
    }

    /// Whether the file may end where this heading would begin. `begun` is its beginning.
    pub fn may_end(&self, begun: &[u8]) -> bool {
        // The blocks of lz4 have no end mark.
        matches!(self, Part::Lz4) && begun.iter().all(|byte| *byte == 0)
    }

    pub fn next(&mut self, heading: &[u8]) -> Next {
        match self {
            Part::Cpio(cpio) => cpio.next(heading),
            Part::Gzip(gzip) => gzip.next(heading),
            Part::Xz(xz) => xz.next(heading),
            Part::Zstd(zstd) => zstd.next(heading),
            Part::Lz4 => lz4_block(heading),
            Part::Lzop(lzop) => lzop.next(heading),
            // The size of its blocks, in 100,000 bytes.
            Part::Bzip2 if !matches!(heading[3], b'1'..=b'9') => Next::Damaged,
            Part::Bzip2 | Part::Lzma => Next::Stream,
            Part::Ended(_) => Next::End { skip: 0 },
        }
    }

    /// What unpacks it, if the decoder comes from outside.
    pub const fn packed(&self) -> Option<Packed> {
        match self {
            Part::Xz(_) => Some(Packed::Xz),
            Part::Lzma => Some(Packed::Lzma),
            Part::Zstd(_) => Some(Packed::Zstd),
            Part::Lz4 => Some(Packed::Lz4),
            Part::Lzop(_) => Some(Packed::Lzop),
            _ => None,
        }
    }

    /// What unpacks the stream behind the headings, if that is here.
    pub fn own_decoder(&self) -> Option<Box<dyn Unpack>> {
        match self {
            Part::Gzip(_) => Some(Box::new(Inflate::new())),
            Part::Bzip2 => Some(Box::new(Bzip2::default())),
            _ => None,
        }
    }

    /// Bytes behind the stream.
    pub const fn trailer(&self) -> u64 {
        if let Part::Gzip(_) = self { Gzip::TRAILER_BYTES } else { 0 }
    }
}

impl Zstd {
    /// Memory limit of the kernel's decoder (`ZSTD_WINDOWSIZE_MAX` in lib/decompress_unzstd.c).
    const LARGEST_WINDOW: u64 = 128 << 20;
    const TOO_LARGE: &str =
        "has a window of more than 128 MiB, for which Linux has no memory: `zstd` without `--long` and `--ultra`";

    fn next(&mut self, heading: &[u8]) -> Next {
        match *self {
            Zstd::Frame => self.frame(heading),
            Zstd::Size { low, checksum } => {
                let size = heading.iter().rev().fold(0, |number, byte| (number << 8) | u64::from(*byte));
                *self = Zstd::Blocks { checksum };
                match size.saturating_mul(256) + u64::from(low) > Self::LARGEST_WINDOW {
                    true => Next::Refused(Self::TOO_LARGE),
                    false => Next::Heading { skip: 0, need: 3 },
                }
            }
            Zstd::Blocks { checksum } => zstd_block(heading, checksum),
        }
    }

    /// RFC 8878, section 3.1.1.1: the descriptor tells which fields follow it.
    fn frame(&mut self, heading: &[u8]) -> Next {
        let (descriptor, window) = (heading[4], heading[5]);
        let (single, checksum) = (descriptor & 0x20 != 0, descriptor & 4 != 0);
        let content_size = match descriptor >> 6 {
            0 => usize::from(single),
            flag => 1 << flag,
        };
        if descriptor & 3 != 0 {
            return Next::Refused("was made with a dictionary, which Linux does not have: zstd without -D");
        }
        let header = 5 + usize::from(!single) + content_size;
        // One byte behind the descriptor was read: of the window or of the size.
        let rest = header - heading.len();
        if single && content_size >= 4 {
            *self = Zstd::Size { low: window, checksum };
            return Next::Heading { skip: 0, need: rest };
        }
        *self = Zstd::Blocks { checksum };
        let base = 1_u64 << (10 + (window >> 3));
        if !single && base + base / 8 * u64::from(window & 7) > Self::LARGEST_WINDOW {
            return Next::Refused(Self::TOO_LARGE);
        }
        Next::Heading { skip: rest as u64, need: 3 }
    }
}

// RFC 8878, section 3.1.1.2: one bit, two bits and 21 bits; then the block, or the one byte that it repeats.
fn zstd_block(heading: &[u8], checksum: bool) -> Next {
    let fields = u64::from(heading[0]) | (u64::from(heading[1]) << 8) | (u64::from(heading[2]) << 16);
    let size = match (fields >> 1) & 3 {
        0 | 2 => fields >> 3,
        1 => 1,
        _ => return Next::Damaged,
    };
    match fields & 1 {
        0 => Next::Heading { skip: size, need: 3 },
        _ => Next::End { skip: size + 4 * u64::from(checksum) },
    }
}

const BEHIND_LZ4: &str = "is followed by another archive behind fewer than four zeros: put four zeros or more between the two, or \
                          compress it with zstd or xz";

// doc/lz4_Frame_format.md, "Legacy frame": blocks of up to 8 MiB, each behind its size. Another archive may follow.
fn lz4_block(heading: &[u8]) -> Next {
    const MAGIC: u64 = 0x184c_2102;
    // The beginning of a gzip stream without a name.
    const GZIP: u64 = 0x0008_8b1f;
    // Of 8 MiB that cannot be compressed (`LZ4_COMPRESSBOUND`).
    const MOST_BYTES: u64 = (8 << 20) + (8 << 20) / 255 + 16;
    match le32(heading, heading.len() - 4) {
        Some(0) => Next::End { skip: 0 },
        Some(MAGIC) => Next::Heading { skip: 0, need: 4 },
        // Hardly the size of a block.
        Some(GZIP) if heading.len() == 4 => Next::Refused(BEHIND_LZ4),
        Some(size) if size <= MOST_BYTES => Next::Heading { skip: size, need: 4 },
        // Linux takes these bytes for the size of a block, and fails there. As those of the first one, nothing comes out.
        _ if heading.len() > 4 => Next::Damaged,
        _ if may_be_padding(&heading[heading.len() - 4..]) => Next::Refused(BEHIND_LZ4),
        _ => Next::Unknown,
    }
}

/// Whether these four bytes begin another part, behind as many zeros as align it.
fn may_be_padding(bytes: &[u8]) -> bool {
    let rest = &bytes[bytes.iter().take_while(|byte| **byte == 0).count()..];
    let is_aligned = rest.len() < bytes.len();
    Part::may_begin(rest) || (is_aligned && Part::MAGICS.iter().any(|(magic, ..)| magic.starts_with(rest)))
}
