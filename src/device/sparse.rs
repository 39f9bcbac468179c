//! Sparse files: which ranges hold data, and a reader that makes the zeros of holes itself.

use std::{
    fs::File,
    io::{self, Read},
    iter::Peekable,
    os::unix::fs::FileExt as _,
    vec,
};

use nix::unistd::{Whence, lseek};

use slipway_core::units::Extent;

/// The ranges of the first `len` bytes of a file that are not holes (lseek(2), `SEEK_DATA` and `SEEK_HOLE`). Of a file
/// system that knows no holes it is the whole file.
pub fn data_ranges(file: &File, len: u64) -> io::Result<Vec<Extent>> {
    let mut ranges = Vec::new();
    let mut at = 0;
    while at < len.cast_signed() {
        let start = match lseek(file, at, Whence::SeekData) {
            Ok(start) => start,
            Err(nix::Error::ENXIO) => break,
            Err(e) => return Err(e.into()),
        };
        at = lseek(file, start, Whence::SeekHole)?;
        ranges.push(Extent { offset: start.cast_unsigned(), len: (at - start).cast_unsigned() });
    }
    Ok(ranges)
}

/// Reads a file from its beginning to its end. Holes are not read: the kernel would fill the page cache with their zeros,
/// which takes most of the time where a disk image is nearly empty.
pub struct SparseReader {
    file: File,
    len: u64,
    at: u64,
    /// In order; those before `at` are gone.
    data: Peekable<vec::IntoIter<Extent>>,
}

impl SparseReader {
    /// No program may write to the file meanwhile.
    pub fn new(file: File) -> io::Result<Self> {
        let len = file.metadata()?.len();
        let data = data_ranges(&file, len)?.into_iter().peekable();
        Ok(SparseReader { file, len, at: 0, data })
    }
}

impl Read for SparseReader {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while self.data.next_if(|data| data.end() <= self.at).is_some() {}
        let (from, to) = self.data.peek().map_or((self.len, self.len), |data| (data.offset, data.end().min(self.len)));
        let (is_data, end) = if self.at < from { (false, from) } else { (true, to) };
        let len = (end - self.at).min(buf.len() as u64) as usize;
        if len == 0 {
            return Ok(0);
        }
        let read = if is_data {
            match self.file.read_at(&mut buf[..len], self.at)? {
                0 => return Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
                read => read,
            }
        } else {
            buf[..len].fill(0);
            len
        };
        self.at += read as u64;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: u64 = 64 << 10;

    /// A file of `blocks`, of which these are written, and its bytes.
    fn sparse(blocks: u64, written: &[u64]) -> (File, Vec<u8>) {
        let file = tempfile::tempfile().unwrap();
        file.set_len(blocks * BLOCK).unwrap();
        for block in written {
            file.write_all_at(&[*block as u8 + 1; BLOCK as usize], block * BLOCK).unwrap();
        }
        let mut bytes = Vec::new();
        (&file).read_to_end(&mut bytes).unwrap();
        (file, bytes)
    }

    #[test]
    fn the_bytes_are_those_of_the_file() {
        for written in [&[][..], &[0], &[9], &[0, 1, 9], &[3, 5, 6], &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]] {
            let (file, bytes) = sparse(10, written);
            let found: u64 = data_ranges(&file, 10 * BLOCK).unwrap().iter().map(|data| data.len).sum();
            assert_eq!(found, written.len() as u64 * BLOCK, "{written:?}: the file system keeps holes");
            for piece in [1000, BLOCK as usize, 1 << 20] {
                let mut reader = SparseReader::new(file.try_clone().unwrap()).unwrap();
                let (mut all, mut buf) = (Vec::new(), vec![0xff; piece]);
                loop {
                    match reader.read(&mut buf).unwrap() {
                        0 => break,
                        n => all.extend_from_slice(&buf[..n]),
                    }
                }
                assert!(all == bytes, "{written:?} in pieces of {piece}");
            }
        }
    }

    #[test]
    fn an_end_within_a_block_is_the_end() {
        let (file, _) = sparse(2, &[1]);
        for len in [0, 1, BLOCK - 1, BLOCK + 7] {
            file.set_len(len).unwrap();
            let mut all = Vec::new();
            SparseReader::new(file.try_clone().unwrap()).unwrap().read_to_end(&mut all).unwrap();
            assert_eq!(all.len() as u64, len);
        }
    }

    /// Nothing can be read through this descriptor.
    #[test]
    fn holes_are_not_read() {
        let named = tempfile::NamedTempFile::new().unwrap();
        let reader = || SparseReader::new(File::options().write(true).open(named.path()).unwrap()).unwrap();
        named.as_file().set_len(4 * BLOCK).unwrap();
        let mut all = Vec::new();
        reader().read_to_end(&mut all).unwrap();
        assert!(all == [0; 4 * BLOCK as usize]);
        named.as_file().write_all_at(&[1], BLOCK).unwrap();
        reader().read_to_end(&mut all).unwrap_err();
    }

    #[test]
    fn a_file_that_became_shorter_is_an_error() {
        let (file, _) = sparse(2, &[0, 1]);
        let mut reader = SparseReader::new(file.try_clone().unwrap()).unwrap();
        file.set_len(BLOCK).unwrap();
        let error = reader.read_to_end(&mut Vec::new()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
}
