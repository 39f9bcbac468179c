//! Examines files while they are handed out.

use std::io::{self, Read};

use crate::{
    file_reader::{FileReader, Take},
    sha256::Hasher,
};
use slipway_core::payload::{
    format_checks::{InitramfsWatch, Unbootable, UnifiedWatch, is_initramfs},
    manifest::UKI,
    unified::Unified,
};

/// Hand out a file of a payload. If it is an initramfs that ends too early, or a unified kernel image in which is something
/// else than `unified`, this fails once all of it was taken: after the reader has compared its digest, and before anything
/// refers to it.
pub fn hand_out(
    name: &str,
    unified: Option<&Unified>,
    reader: &mut dyn FileReader,
    take: &mut Take,
) -> anyhow::Result<()> {
    match unified.filter(|_| name == UKI) {
        Some(expected) => {
            let mut watch = UnifiedWatch::default();
            take(name, &mut Watched { reader, see: &mut |bytes| watch.see(bytes) })?;
            if watch.finish()? == *expected { Ok(()) } else { Err(Unbootable::OtherUnified.into()) }
        }
        None if is_initramfs(name) => {
            // What it is compressed by is unpacked where a payload is examined, which costs time and memory, and not each
            // time that it is written.
            let mut watch = InitramfsWatch::default();
            take(name, &mut Watched { reader, see: &mut |bytes| watch.see(bytes) })?;
            Ok(watch.finish()?)
        }
        None => take(name, reader),
    }
}

struct Watched<'r> {
    reader: &'r mut dyn FileReader,
    see: &'r mut dyn FnMut(&[u8]),
}

impl Read for Watched<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.reader.read(buf)?;
        (self.see)(&buf[..n]);
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
