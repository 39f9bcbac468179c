//! A reader that lets nobody see the end of a blob that is not the one its descriptor names.

use std::io::{self, Read};

use super::{ImageError, tar::Skip};
use crate::model::digest::{Hasher, Sha256};

/// Bytes of a blob, counted and hashed as they pass. Its end is reported only if length and digest are right.
pub struct Checked<R> {
    reader: R,
    /// Bytes that were looked at, and are to be read first.
    peeked: Vec<u8>,
    state: State,
    /// What it is, for messages.
    what: String,
    digest: Sha256,
    /// Length in bytes, where it is known, and what to do at a number of bytes that no honest blob has.
    length: Length,
    seen: u64,
}

/// Who hashes what passes.
enum State {
    /// This.
    Own(Hasher),
    /// Somebody else; or nobody, once the digest was wrong. An end in this state is never the right one.
    Lent,
    /// The end has been reached, and the digest was right.
    Done,
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
        let state = State::Own(Hasher::default());
        Checked { reader, peeked: Vec::new(), state, what, digest, length, seen: 0 }
    }

    /// The next bytes, which stay to be read; fewer where there are no more.
    pub fn peek(&mut self, bytes: u64) -> io::Result<&[u8]> {
        self.peeked.reserve_exact(bytes as usize);
        let more = bytes.saturating_sub(self.peeked.len() as u64);
        self.reader.by_ref().take(more).read_to_end(&mut self.peeked)?;
        Ok(&self.peeked)
    }

    /// Its digest so far, for somebody else to go on with: everything that is read until it is given back.
    pub fn lend_digest(&mut self) -> Option<Hasher> {
        match std::mem::replace(&mut self.state, State::Lent) {
            State::Own(hasher) => Some(hasher),
            other => {
                self.state = other;
                None
            }
        }
    }

    /// Go on with it.
    pub fn return_digest(&mut self, digest: Hasher) {
        self.state = State::Own(digest);
    }

    fn end(&mut self) -> Result<(), ImageError> {
        if let Length::Exactly(bytes) = self.length
            && self.seen < bytes
        {
            let why = format!("it ends after {} of {bytes} bytes: truncated", self.seen);
            return Err(ImageError::invalid(&self.what, why));
        }
        // The end may be asked for again.
        let hasher = match std::mem::replace(&mut self.state, State::Lent) {
            State::Own(hasher) => hasher,
            State::Done => {
                self.state = State::Done;
                return Ok(());
            }
            State::Lent => return Err(ImageError::invalid(&self.what, "not all of it was hashed")),
        };
        let actual = hasher.finish();
        if actual == self.digest {
            self.state = State::Done;
            return Ok(());
        }
        Err(ImageError::invalid(&self.what, format!("SHA-256 of its content is {actual}, not {}", self.digest)))
    }

    fn next(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.peeked.is_empty() {
            return self.reader.read(buf);
        }
        let n = buf.len().min(self.peeked.len());
        buf[..n].copy_from_slice(&self.peeked[..n]);
        self.peeked.drain(..n);
        Ok(n)
    }
}

impl<R: Read> Skip for Checked<R> {
    fn skip(&mut self, bytes: u64) -> io::Result<()> {
        let skipped = io::copy(&mut self.take(bytes), &mut io::sink())?;
        if skipped < bytes {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                format!("the archive ends {} bytes before the content of an entry does", bytes - skipped),
            ));
        }
        Ok(())
    }
}

impl<R: Read> Read for Checked<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.next(buf)?;
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
                if let State::Own(hasher) = &mut self.state {
                    hasher.update(&buf[..n]);
                }
                return Ok(n);
            }
        };
        Err(ImageError::invalid(&self.what, why).into_io())
    }
}
