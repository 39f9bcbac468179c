//! The producer's side: the index of a layer.

use std::io::{self, Read};

use super::fingerprint::fingerprint;
use crate::digest_file::fill;
use slipway_core::{
    delta::{
        cutter::Cutter,
        index::{File, Index, IndexError},
    },
    digest::Sha256,
};

/// Cuts a layer, a tar archive whose payload files lie there. The files are cut each from its beginning, as the files of a
/// slot are; what lies between them, at any places.
pub fn cut_layer(layer: impl Read, blob: Sha256, files: Vec<File>, cutter: Cutter) -> io::Result<Index> {
    let mut index = Index::new(blob, cutter);
    let mut chunks = Chunks { reader: layer, buf: vec![0; cutter.most()], have: 0 };
    let mut at = 0;
    for file in files {
        chunks.each(file.at.offset - at, &mut index, |bytes| bytes.len())?;
        chunks.each(file.at.len, &mut index, |bytes| cutter.cut(bytes))?;
        at = file.at.end();
        index.push_file(file).map_err(invalid)?;
    }
    chunks.each(u64::MAX, &mut index, |bytes| bytes.len())?;
    Ok(index)
}

fn invalid(error: IndexError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

struct Chunks<R> {
    reader: R,
    buf: Vec<u8>,
    // Bytes of the buffer that are filled.
    have: usize,
}

impl<R: Read> Chunks<R> {
    /// Cuts the next so many bytes, or all to the end.
    fn each(&mut self, mut left: u64, index: &mut Index, cut: impl Fn(&[u8]) -> usize) -> io::Result<()> {
        while left > 0 {
            let want = usize::try_from(left).unwrap_or(usize::MAX).min(self.buf.len());
            if self.have < want {
                self.have += fill(&mut self.reader, &mut self.buf[self.have..want])?;
            }
            let len = cut(&self.buf[..want.min(self.have)]);
            if len == 0 {
                return if left > u64::MAX / 2 { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
            }
            index.push(len as u32, fingerprint(index.seed(), &self.buf[..len])).map_err(invalid)?;
            self.buf.copy_within(len..self.have, 0);
            self.have -= len;
            left -= len as u64;
        }
        Ok(())
    }
}
