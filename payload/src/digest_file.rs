//! The digest of a file that is read to its end, and on the way that of its layer.

use std::io::{self, Read};

use slipway_core::digest::Sha256;

use crate::{file_reader::FileReader, sha256::Hasher};

// Bytes read at once.
const CHUNK_BYTES: usize = 1 << 20;

/// Like `read_exact`, but the end of the input is no error: returns how many bytes were read.
pub fn fill(reader: &mut (impl Read + ?Sized), buf: &mut [u8]) -> io::Result<usize> {
    let mut n = 0;
    while n < buf.len() {
        match reader.read(&mut buf[n..]) {
            Ok(0) => break,
            Ok(more) => n += more,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(n)
}

/// Hash a reader to its end; return digest and length. `pass` sees every byte on the way.
pub fn digest_file(reader: &mut dyn FileReader, mut pass: impl FnMut(&[u8])) -> io::Result<(Sha256, u64)> {
    let mut digests = Digests::begin(reader);
    let mut buf = vec![0; CHUNK_BYTES];
    let mut total = 0;
    loop {
        let n = fill(reader, &mut buf)?;
        digests.update(&buf[..n]);
        total += n as u64;
        pass(&buf[..n]);
        if n < buf.len() {
            return Ok((digests.finish(reader), total));
        }
    }
}

/// The digest of a file, and of the layer that it is in.
pub struct Digests {
    file: Hasher,
    // The layer's, if the file is in one.
    outer: Option<Hasher>,
}

impl Digests {
    /// Borrows the hasher of the layer, if there is one.
    pub fn begin(reader: &mut dyn FileReader) -> Self {
        Digests { file: Hasher::default(), outer: reader.lend_digest() }
    }

    /// Feed both.
    pub fn update(&mut self, bytes: &[u8]) {
        match &mut self.outer {
            Some(outer) => Hasher::update_both(&mut self.file, outer, bytes),
            None => self.file.update(bytes),
        }
    }

    /// The digest of the file. The layer gets its hasher back.
    pub fn finish(self, reader: &mut dyn FileReader) -> Sha256 {
        if let Some(outer) = self.outer {
            reader.return_digest(outer);
        }
        self.file.finish()
    }
}
