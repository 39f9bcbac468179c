//! A gzip member (RFC 1952), as `gunzip` in Linux reads it (lib/decompress_inflate.c). Nothing but decompressing finds the end of
//! its stream.

use crate::prelude::*;

use miniz_oxide::{
    DataFormat, MZError, MZFlush, MZStatus,
    inflate::stream::{InflateState, inflate},
};

use super::{Next, Unpack, UnpackError, Unpacked};

/// The headings in front of the stream.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Gzip {
    Header,
    /// A text that ends with a zero.
    Name,
    Deflate,
}

// Flags of the header.
const NAME: u8 = 8;
// A checksum of the header, an extra field, a comment: Linux takes them for the stream.
const UNKNOWN_TO_LINUX: u8 = 2 | 4 | 16;
const DEFLATE: u8 = 8;

impl Gzip {
    pub const HEADER_BYTES: usize = 10;
    /// CRC32 and ISIZE.
    pub const TRAILER_BYTES: u64 = 8;

    pub fn next(&mut self, heading: &[u8]) -> Next {
        match self {
            Gzip::Header if heading[2] != DEFLATE => Next::Unknown,
            Gzip::Header if heading[3] & UNKNOWN_TO_LINUX != 0 => Next::Refused(
                "has a header with more than a name in it, which Linux takes for its stream: make it by `gzip -n`",
            ),
            Gzip::Header if heading[3] & NAME != 0 => self.heading(Gzip::Name, 1),
            Gzip::Name if heading[0] != 0 => self.heading(Gzip::Name, 1),
            Gzip::Header | Gzip::Name => self.heading(Gzip::Deflate, 0),
            Gzip::Deflate => Next::Stream,
        }
    }

    const fn heading(&mut self, at: Gzip, need: usize) -> Next {
        *self = at;
        Next::Heading { skip: 0, need }
    }
}

pub struct Inflate(Box<InflateState>);

impl Inflate {
    pub fn new() -> Self {
        Inflate(InflateState::new_boxed(DataFormat::Raw))
    }
}

impl Unpack for Inflate {
    fn unpack(&mut self, input: &[u8], output: &mut [u8]) -> Result<Unpacked, UnpackError> {
        let result = inflate(&mut self.0, input, output, MZFlush::None);
        let is_over = match result.status {
            Ok(status) => status == MZStatus::StreamEnd,
            Err(MZError::Buf) => false,
            Err(_) => return Err(UnpackError::Damaged),
        };
        Ok(Unpacked { taken: result.bytes_consumed, given: result.bytes_written, is_over })
    }
}
