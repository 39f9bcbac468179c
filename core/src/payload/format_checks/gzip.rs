//! The end of a gzip member (RFC 1952). Nothing but decompressing finds the end of its stream; the output is
//! dropped.

use crate::prelude::*;

use miniz_oxide::{
    DataFormat, MZError, MZFlush, MZStatus,
    inflate::stream::{InflateState, inflate},
};

use super::next::Next;

pub struct Gzip {
    at: At,
    // Fields of the header that are still to come: FLG.
    flags: u8,
    state: Box<InflateState>,
    out: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum At {
    Header,
    ExtraSize,
    /// A text that ends with a zero.
    Text,
    Deflate,
}

const EXTRA: u8 = 4;
const NAME: u8 = 8;
const COMMENT: u8 = 16;
const HEADER_CRC: u8 = 2;
const DEFLATE: u8 = 8;
// CRC32 and ISIZE.
const TRAILER_BYTES: u64 = 8;
const OUT_BYTES: usize = 64 << 10;

impl Gzip {
    pub const HEADER_BYTES: usize = 10;

    pub fn new() -> Self {
        Gzip { at: At::Header, flags: 0, state: InflateState::new_boxed(DataFormat::Raw), out: vec![0; OUT_BYTES] }
    }

    pub fn next(&mut self, heading: &[u8]) -> Next {
        match self.at {
            At::Header if heading[2] != DEFLATE => Next::Unknown,
            At::Header => {
                self.flags = heading[3];
                self.field(0)
            }
            At::ExtraSize => self.field(u64::from(u16::from_le_bytes([heading[0], heading[1]]))),
            At::Text if heading[0] != 0 => Next::Heading { skip: 0, need: 1 },
            At::Text => self.field(0),
            At::Deflate => Next::Stream,
        }
    }

    /// On to the next field of the header that there is, in the order of RFC 1952.
    fn field(&mut self, skip: u64) -> Next {
        let mut take = |flag: u8| {
            let there = self.flags & flag != 0;
            self.flags &= !flag;
            there
        };
        if take(EXTRA) {
            self.at = At::ExtraSize;
            return Next::Heading { skip, need: 2 };
        }
        if take(NAME) || take(COMMENT) {
            self.at = At::Text;
            return Next::Heading { skip, need: 1 };
        }
        let crc = if take(HEADER_CRC) { 2 } else { 0 };
        self.at = At::Deflate;
        Next::Heading { skip: skip + crc, need: 0 }
    }

    /// Returns the number of bytes taken, and [`Next::Stream`] if there must be more.
    pub fn inflate(&mut self, bytes: &[u8]) -> (usize, Next) {
        let mut taken = 0;
        loop {
            let result = inflate(&mut self.state, &bytes[taken..], &mut self.out, MZFlush::None);
            taken += result.bytes_consumed;
            match result.status {
                Ok(MZStatus::StreamEnd) => return (taken, Next::End { skip: TRAILER_BYTES }),
                Ok(_) | Err(MZError::Buf) if taken == bytes.len() && result.bytes_written < OUT_BYTES => {
                    return (taken, Next::Stream);
                }
                Ok(_) => {}
                Err(_) => return (taken, Next::Damaged),
            }
        }
    }
}
