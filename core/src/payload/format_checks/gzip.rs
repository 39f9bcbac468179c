//! A gzip member (RFC 1952), as `gunzip` in Linux reads it (lib/decompress_inflate.c). Nothing but decompressing finds the end of
//! its stream. What comes out is watched and dropped: Linux wants whole archives in it.

use crate::prelude::*;

use miniz_oxide::{
    DataFormat, MZError, MZFlush, MZStatus,
    inflate::stream::{InflateState, inflate},
};

use super::{Next, cpio::Archives};

pub struct Gzip {
    at: At,
    state: Box<InflateState>,
    out: Vec<u8>,
    unpacked: Archives,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum At {
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
// CRC32 and ISIZE.
const TRAILER_BYTES: u64 = 8;
const OUT_BYTES: usize = 64 << 10;

impl Gzip {
    pub const HEADER_BYTES: usize = 10;

    pub fn new() -> Self {
        Gzip {
            at: At::Header,
            state: InflateState::new_boxed(DataFormat::Raw),
            out: vec![0; OUT_BYTES],
            unpacked: Archives::new(),
        }
    }

    pub fn next(&mut self, heading: &[u8]) -> Next {
        match self.at {
            At::Header if heading[2] != DEFLATE => Next::Unknown,
            At::Header if heading[3] & UNKNOWN_TO_LINUX != 0 => Next::Refused(
                "has a header with more than a name in it, which Linux takes for its stream: make it by `gzip -n`",
            ),
            At::Header if heading[3] & NAME != 0 => self.heading(At::Name, 1),
            At::Name if heading[0] != 0 => self.heading(At::Name, 1),
            At::Header | At::Name => self.heading(At::Deflate, 0),
            At::Deflate => Next::Stream,
        }
    }

    const fn heading(&mut self, at: At, need: usize) -> Next {
        self.at = at;
        Next::Heading { skip: 0, need }
    }

    /// Returns the number of bytes taken, and [`Next::Stream`] if there must be more.
    pub fn inflate(&mut self, bytes: &[u8]) -> (usize, Next) {
        let mut taken = 0;
        loop {
            let result = inflate(&mut self.state, &bytes[taken..], &mut self.out, MZFlush::None);
            taken += result.bytes_consumed;
            self.unpacked.see(&self.out[..result.bytes_written]);
            match result.status {
                Ok(MZStatus::StreamEnd) if self.unpacked.ends_whole() => {
                    return (taken, Next::End { skip: TRAILER_BYTES });
                }
                Ok(MZStatus::StreamEnd) => {
                    return (taken, Next::Refused("does not hold whole cpio archives of the format newc"));
                }
                Ok(_) | Err(MZError::Buf) if taken == bytes.len() && result.bytes_written < OUT_BYTES => {
                    return (taken, Next::Stream);
                }
                Ok(_) => {}
                Err(_) => return (taken, Next::Damaged),
            }
        }
    }
}
