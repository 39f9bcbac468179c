//! What comes out of a compressed part. Linux wants whole archives in it: it keeps nothing of half an archive over the end of
//! the part (`unpack_to_rootfs` in init/initramfs.c: "junk at the end of compressed archive").

use crate::prelude::*;

use super::{Next, cpio::Archives};

/// What a part is compressed by, where the decoder comes from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "names of formats")]
pub enum Packed {
    Xz,
    Lzma,
    Zstd,
    Lz4,
    Lzop,
}

/// Makes a decoder for a part.
pub type Decoders = fn(Packed) -> Option<Box<dyn Unpack>>;

/// A decoder of one part.
pub trait Unpack {
    /// Unpack as much as there is input and room for output.
    fn unpack(&mut self, input: &[u8], output: &mut [u8]) -> Result<Unpacked, UnpackError>;
}

/// What one step has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unpacked {
    /// Bytes taken from the input.
    pub taken: usize,
    /// Bytes put into the output.
    pub given: usize,
    /// The stream ends behind them.
    pub is_over: bool,
}

/// Why it ends early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnpackError {
    /// It is no such stream.
    Damaged,
    /// Linux does not unpack it.
    Refused(&'static str),
    /// It takes more memory, or gives more bytes, than is spent on a check.
    TooLarge,
}

impl From<UnpackError> for Next {
    fn from(why: UnpackError) -> Next {
        match why {
            UnpackError::Damaged => Next::Damaged,
            UnpackError::Refused(why) => Next::Refused(why),
            UnpackError::TooLarge => Next::Unknown,
        }
    }
}

/// A part that is unpacked while it goes by. What comes out is watched and dropped.
pub struct Unpacking {
    decoder: Box<dyn Unpack>,
    out: Vec<u8>,
    archives: Archives,
    /// Bytes that may still come out.
    left: u64,
    /// Whether the stream is over.
    end: Result<bool, UnpackError>,
}

const OUT_BYTES: usize = 64 << 10;
// Linux unpacks into memory. A few kilobytes of zstd can give more than anybody waits for.
const MOST_BYTES: u64 = 4 << 30;
const NOT_WHOLE: &str = "does not hold whole cpio archives of the format newc";

impl Unpacking {
    pub fn new(decoder: Box<dyn Unpack>) -> Self {
        Unpacking { decoder, out: vec![0; OUT_BYTES], archives: Archives::new(), left: MOST_BYTES, end: Ok(false) }
    }

    /// The next bytes of the stream. Returns how many belong to it.
    pub fn take(&mut self, bytes: &[u8]) -> usize {
        let mut taken = 0;
        while self.end == Ok(false) {
            match self.decoder.unpack(&bytes[taken..], &mut self.out) {
                Ok(step) => {
                    taken += step.taken;
                    self.archives.see(&self.out[..step.given]);
                    self.left = self.left.saturating_sub(step.given as u64);
                    self.end = if self.left > 0 { Ok(step.is_over) } else { Err(UnpackError::TooLarge) };
                    let is_still = step.taken == 0 && step.given == 0;
                    if is_still || (taken == bytes.len() && step.given < self.out.len()) {
                        break;
                    }
                }
                Err(why) => self.end = Err(why),
            }
        }
        taken
    }

    /// Whether the stream is over, or why nothing more comes out of it.
    pub const fn end(&self) -> Result<bool, UnpackError> {
        self.end
    }

    /// Whether whole archives have come out of it so far, or more than is looked at.
    pub const fn gave_whole_archives(&self) -> bool {
        matches!(self.end, Err(UnpackError::TooLarge)) || self.archives.ends_whole()
    }

    /// Whether Linux finds its first program in what has come out.
    pub const fn has_init(&self) -> bool {
        self.archives.has_init()
    }

    /// After its last byte.
    pub const fn verdict(&self) -> Result<(), UnpackError> {
        match self.end {
            Err(UnpackError::TooLarge) => Ok(()),
            Err(why) => Err(why),
            Ok(_) if self.archives.ends_whole() => Ok(()),
            Ok(_) => Err(UnpackError::Refused(NOT_WHOLE)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Zeros without end, for one byte.
    struct Endless;

    impl Unpack for Endless {
        fn unpack(&mut self, input: &[u8], output: &mut [u8]) -> Result<Unpacked, UnpackError> {
            Ok(Unpacked { taken: input.len(), given: output.len(), is_over: false })
        }
    }

    #[test]
    fn it_is_given_up_some_time() {
        let mut unpacking = Unpacking { left: 1 << 20, ..Unpacking::new(Box::new(Endless)) };
        assert_eq!(unpacking.take(b"x"), 1);
        assert_eq!((unpacking.end(), unpacking.verdict()), (Err(UnpackError::TooLarge), Ok(())));
        assert_eq!(unpacking.take(b"x"), 0, "nothing more is unpacked");
    }
}
