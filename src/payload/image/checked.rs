//! A reader that lets nobody see the end of a blob that is not the one its descriptor names.

use std::io::{self, Read};

use super::ImageError;
use crate::model::digest::{Hasher, Sha256};

/// Bytes of a blob, counted and hashed as they pass. Its end is reported only if length and digest are right.
pub struct Checked<R> {
    reader: R,
    hasher: Option<Hasher>,
    /// What it is, for messages.
    what: String,
    digest: Sha256,
    /// Length in bytes, where it is known, and what to do at a number of bytes that no honest blob has.
    length: Length,
    seen: u64,
}

/// How long it is.
pub enum Length {
    /// Exactly this, bytes.
    Exactly(u64),
    /// Not known; more than this is an attack, bytes.
    AtMost(u64),
}

impl<R: Read> Checked<R> {
    /// `reader` has to have this digest.
    pub fn new(reader: R, what: String, digest: Sha256, length: Length) -> Self {
        Checked { reader, hasher: Some(Hasher::default()), what, digest, length, seen: 0 }
    }

    fn end(&mut self) -> Result<(), ImageError> {
        if let Length::Exactly(bytes) = self.length
            && self.seen < bytes
        {
            let why = format!("it ends after {} of {bytes} bytes: truncated", self.seen);
            return Err(ImageError::invalid(&self.what, why));
        }
        // The end may be asked for again.
        let Some(hasher) = self.hasher.take() else { return Ok(()) };
        let actual = hasher.finish();
        if actual == self.digest {
            return Ok(());
        }
        Err(ImageError::invalid(&self.what, format!("SHA-256 of its content is {actual}, not {}", self.digest)))
    }
}

impl<R: Read> Read for Checked<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.reader.read(buf)?;
        if n == 0 && !buf.is_empty() {
            self.end().map_err(ImageError::into_io)?;
        }
        self.seen += n as u64;
        let why = match self.length {
            Length::Exactly(bytes) if self.seen > bytes => format!("longer than the {bytes} bytes of its descriptor"),
            Length::AtMost(bytes) if self.seen > bytes => {
                format!("it decompresses to more than {bytes} bytes: out of all proportion to its size")
            }
            _ => {
                if let Some(hasher) = &mut self.hasher {
                    hasher.update(&buf[..n]);
                }
                return Ok(n);
            }
        };
        Err(ImageError::invalid(&self.what, why).into_io())
    }
}
