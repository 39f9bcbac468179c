//! Verifies digest and length of a blob while it is read.

use std::io::{self, Read};

use oci_spec::image::Descriptor;

use super::{ImageError, Skip, store::sha256_of};
use crate::sha256::Hasher;
use slipway_core::digest::Sha256;

/// Verifies length and digest of a blob while it is read: a caller that reads to the end without an error has the right
/// bytes.
pub struct VerifyingReader<R> {
    reader: R,
    // Bytes returned by `peek` and not read yet.
    peeked: Vec<u8>,
    state: State,
    // For messages.
    what: String,
    digest: Sha256,
    length: Length,
    seen: u64,
}

enum State {
    Hashing(Hasher),
    /// Lent to the reader of a file inside the blob. The end is an error then: the digest is incomplete.
    Lent,
    /// A read has failed, and the error has told why.
    Failed,
    Done,
}

pub enum Length {
    /// Bytes.
    Exactly(u64),
    /// Bytes. The length is unknown, but more than this is taken for an attack.
    AtMost(u64),
}

impl<R: Read> VerifyingReader<R> {
    pub fn new(reader: R, what: String, digest: Sha256, length: Length) -> Self {
        let state = State::Hashing(Hasher::default());
        VerifyingReader { reader, peeked: Vec::new(), state, what, digest, length, seen: 0 }
    }

    /// Of a blob with this descriptor.
    pub fn of_blob(reader: R, what: String, blob: &Descriptor) -> Result<Self, ImageError> {
        Ok(Self::new(reader, what, sha256_of(blob)?, Length::Exactly(blob.size())))
    }

    /// The next bytes, without consuming them; fewer at the end.
    pub fn peek(&mut self, bytes: u64) -> io::Result<&[u8]> {
        self.peeked.reserve_exact(bytes as usize);
        let more = bytes.saturating_sub(self.peeked.len() as u64);
        let read = self.reader.by_ref().take(more).read_to_end(&mut self.peeked);
        self.ended_by_an_error(read)?;
        Ok(&self.peeked)
    }

    pub fn lend_digest(&mut self) -> Option<Hasher> {
        match std::mem::replace(&mut self.state, State::Lent) {
            State::Hashing(hasher) => Some(hasher),
            other => {
                self.state = other;
                None
            }
        }
    }

    pub fn return_digest(&mut self, digest: Hasher) {
        if matches!(self.state, State::Lent) {
            self.state = State::Hashing(digest);
        }
    }

    /// Verify at the end. While the digest is lent the end is inside a file: `UnexpectedEof`.
    fn end(&mut self) -> io::Result<()> {
        match self.length {
            Length::Exactly(bytes) if self.seen < bytes => {
                return Err(self.wrong(format!("it ends after {} of {bytes} bytes: truncated", self.seen)));
            }
            _ => self.check_not_longer()?,
        }
        // A reader may be asked for its end more than once: keep the verdict.
        let hasher = match std::mem::replace(&mut self.state, State::Failed) {
            State::Hashing(hasher) => hasher,
            State::Done => {
                self.state = State::Done;
                return Ok(());
            }
            State::Lent | State::Failed => return Err(io::ErrorKind::UnexpectedEof.into()),
        };
        let actual = hasher.finish();
        if actual == self.digest {
            self.state = State::Done;
            return Ok(());
        }
        Err(self.wrong(format!("SHA-256 of its content is {actual}, not {}", self.digest)))
    }

    fn wrong(&self, why: String) -> io::Error {
        ImageError::invalid(&self.what, why).into_io()
    }

    fn check_not_longer(&self) -> io::Result<()> {
        let why = match self.length {
            Length::Exactly(bytes) if self.seen > bytes => format!("longer than the {bytes} bytes of its descriptor"),
            Length::AtMost(bytes) if self.seen > bytes => {
                format!("it decompresses to more than {bytes} bytes: out of all proportion to its size")
            }
            _ => return Ok(()),
        };
        Err(self.wrong(why))
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

impl<R: Read> Skip for VerifyingReader<R> {
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

impl<R: Read> Read for VerifyingReader<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if matches!(self.state, State::Failed) {
            return Err(io::Error::other("reading it has failed before"));
        }
        let read = self.read_on(buf);
        self.ended_by_an_error(read)
    }
}

impl<R: Read> VerifyingReader<R> {
    /// What is read after an error would give another one, which says less.
    fn ended_by_an_error<T>(&mut self, read: io::Result<T>) -> io::Result<T> {
        if read.as_ref().is_err_and(|error| error.kind() != io::ErrorKind::Interrupted) {
            self.state = State::Failed;
        }
        read
    }

    fn read_on(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.next(buf)?;
        if n == 0 && !buf.is_empty() {
            self.end()?;
        }
        self.seen += n as u64;
        self.check_not_longer()?;
        if let State::Hashing(hasher) = &mut self.state {
            hasher.update(&buf[..n]);
        }
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOB: &[u8] = b"a blob that is longer than what is looked at";

    fn checked(blob: &[u8]) -> VerifyingReader<&[u8]> {
        VerifyingReader::new(blob, "a blob".to_owned(), Sha256::of(BLOB), Length::Exactly(BLOB.len() as u64))
    }

    fn rest(checked: &mut VerifyingReader<&[u8]>) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        checked.read_to_end(&mut bytes).map(|_| bytes)
    }

    #[test]
    fn what_was_looked_at_is_read_and_hashed_once() {
        for bytes in [0, 5, BLOB.len() as u64] {
            let mut blob = checked(BLOB);
            assert_eq!(blob.peek(bytes).unwrap(), &BLOB[..bytes as usize]);
            assert_eq!(blob.peek(bytes).unwrap(), &BLOB[..bytes as usize]);
            let mut first = [0; 3];
            blob.read_exact(&mut first).unwrap();
            assert_eq!([&first[..], &rest(&mut blob).unwrap()].concat(), BLOB);
        }
        let mut blob = checked(BLOB);
        assert_eq!(blob.peek(1000).unwrap(), BLOB, "no more than there is");
        assert_eq!(rest(&mut blob).unwrap(), BLOB);
    }

    fn lent(blob: &mut VerifyingReader<&[u8]>) -> (Hasher, [u8; 8]) {
        let mut bytes = [0; 8];
        blob.read_exact(&mut bytes[..4]).unwrap();
        let digest = blob.lend_digest().unwrap();
        assert!(blob.lend_digest().is_none(), "there is one of it");
        blob.read_exact(&mut bytes).unwrap();
        (digest, bytes)
    }

    #[test]
    fn a_digest_that_was_lent_is_missed_at_the_end() {
        let mut blob = checked(BLOB);
        lent(&mut blob);
        assert!(rest(&mut blob).is_err());

        let mut blob = checked(BLOB);
        let (mut digest, bytes) = lent(&mut blob);
        digest.update(&bytes);
        blob.return_digest(digest);
        assert_eq!(rest(&mut blob).unwrap(), BLOB[12..]);

        let mut blob = checked(BLOB);
        let (mut digest, bytes) = lent(&mut blob);
        digest.update(&bytes[1..]);
        blob.return_digest(digest);
        assert!(rest(&mut blob).is_err(), "not all of it was hashed");
    }

    #[test]
    fn a_wrong_end_stays_wrong() {
        let mut other = BLOB.to_vec();
        other[7] ^= 1;
        for wrong in [&other[..], &BLOB[1..], &[BLOB, b"!"].concat()] {
            let mut blob = checked(wrong);
            assert!(rest(&mut blob).is_err());
            assert!(rest(&mut blob).is_err());
        }
        let longer = [BLOB, b"!"].concat();
        let mut blob = checked(&longer);
        blob.read_exact(&mut [0; BLOB.len()]).unwrap();
        assert!(rest(&mut blob).is_err());
        assert!(rest(&mut blob).is_err(), "with the right digest before it");
        let mut blob = checked(BLOB);
        assert!(rest(&mut blob).is_ok());
        assert!(rest(&mut blob).unwrap().is_empty(), "and a right one right");
    }
}
