//! Looks at what is handed out on its way.

use std::io::{self, Read};

use crate::transfer::{FileReader, Take, sha256::Hasher};
use slipway_core::payload::whole::{InitramfsWatch, is_initramfs};

/// Hand out a file of a payload. If it is an initramfs that ends too early, this fails once all of it was taken: after
/// whoever took it has compared its digest, and before anything refers to it.
pub fn hand_out(name: &str, reader: &mut dyn FileReader, take: &mut Take) -> anyhow::Result<()> {
    if !is_initramfs(name) {
        return take(name, reader);
    }
    let mut watched = Watched { reader, watch: InitramfsWatch::default() };
    take(name, &mut watched)?;
    Ok(watched.watch.finish()?)
}

struct Watched<'r> {
    reader: &'r mut dyn FileReader,
    watch: InitramfsWatch,
}

impl Read for Watched<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.reader.read(buf)?;
        self.watch.see(&buf[..n]);
        Ok(n)
    }
}

impl FileReader for Watched<'_> {
    fn lend_digest(&mut self) -> Option<Hasher> {
        self.reader.lend_digest()
    }

    fn return_digest(&mut self, digest: Hasher) {
        self.reader.return_digest(digest);
    }
}
