//! Compares an output file, written in order, with the bytes read back from the disk.

use std::{
    fs::File,
    io::{self, Seek as _, Write},
};

use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};

use crate::transfer::{digest_file, sha256::Hasher};

/// Hashes the written bytes, for [`Self::verify`].
pub struct Written<'a> {
    file: &'a File,
    hasher: Hasher,
}

impl<'a> Written<'a> {
    /// `file` must be empty.
    pub fn new(file: &'a File) -> Self {
        Written { file, hasher: Hasher::default() }
    }

    /// Flush the file, read it back from the disk and compare digests.
    pub fn verify(self) -> io::Result<()> {
        flush_and_forget(self.file)?;
        let mut file = self.file.try_clone()?;
        file.rewind()?;
        let (read, _) = digest_file(&mut file, |_| ())?;
        if read == self.hasher.finish() {
            return Ok(());
        }
        Err(io::Error::other(
            "what was read back is not what was written: the disk is faulty, or another program wrote to it",
        ))
    }
}

impl Write for Written<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let n = self.file.write(buf)?;
        self.hasher.update(&buf[..n]);
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Flush a file and drop its page cache, so that the next read comes from the disk.
pub fn flush_and_forget(file: &File) -> io::Result<()> {
    file.sync_all()?;
    Ok(posix_fadvise(file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt as _;

    use super::*;

    #[test]
    fn a_changed_byte_is_found() {
        for tampered in [false, true] {
            let file = tempfile::tempfile().unwrap();
            let mut written = Written::new(&file);
            written.write_all(&[7; 600_000]).unwrap();
            if tampered {
                file.write_all_at(&[8], 599_999).unwrap();
            }
            assert_eq!(written.verify().is_err(), tampered);
        }
    }
}
