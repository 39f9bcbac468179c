//! A bzip2 stream. Only unpacking it would tell where it ends, so no more is known than whether another follows.

use super::{Unpack, UnpackError, Unpacked};

/// Looks for the beginning of another stream.
#[derive(Default)]
pub struct Bzip2 {
    last_bytes: u128,
}

// `BZh`, the size of its blocks as a digit, and the mark of the first block.
const BEGINNING: u128 = 0x425a_6800_3141_5926_5359;
const DIGIT: u128 = 0xff << 48;
const BITS: u128 = (1 << 80) - 1;

impl Unpack for Bzip2 {
    fn unpack(&mut self, input: &[u8], _: &mut [u8]) -> Result<Unpacked, UnpackError> {
        for byte in input {
            self.last_bytes = (self.last_bytes << 8 | u128::from(*byte)) & BITS;
            if self.last_bytes & !DIGIT == BEGINNING {
                return Err(UnpackError::Refused(
                    "is followed by another one (pbzip2 makes these), and Linux takes no archive that goes on in it: make one \
                     stream, by bzip2",
                ));
            }
        }
        Ok(Unpacked { taken: input.len(), given: 0, is_over: false })
    }
}
