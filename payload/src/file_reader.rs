//! The files of a payload as readers, and the digest that they may lend.

use std::{fs::File, io::Read};

use slipway_core::{delta::reuse::Moved, digest::Sha256};

use crate::{delta::Old, sha256::Hasher};

/// Reads one file of a payload.
///
/// A file in an image layer counts towards two digests: its own and the layer's. A caller that hashes the file can borrow
/// the layer's hasher and feed both in one pass, which is cheaper than two passes.
pub trait FileReader: Read {
    /// Borrow the hasher of the layer, if there is one. The caller must feed it every byte it reads from here on, and
    /// return it. Until then the layer cannot be verified: reading to its end is an error.
    fn lend_digest(&mut self) -> Option<Hasher> {
        None
    }

    fn return_digest(&mut self, _digest: Hasher) {}
}

impl FileReader for File {}
impl FileReader for &[u8] {}

/// The content of a file is not what it was when the payload was looked at.
#[derive(Debug, thiserror::Error)]
#[error(
    "SHA-256 of what was read is {actual}, not {expected}: it changed since it was checked, or its manifest.json is wrong"
)]
#[expect(missing_docs, reason = "the message says what the fields are")]
pub struct PayloadChanged {
    pub expected: Sha256,
    pub actual: Sha256,
}

/// Called with the name of a file and its content. Where that is another than expected, the error is [`PayloadChanged`].
pub type Take<'t> = dyn FnMut(&str, &mut dyn FileReader) -> anyhow::Result<()> + 't;

pub trait PayloadFiles {
    /// Pass each of these files to `take` once, in the order of the source; `take` must read it to its end. Optional
    /// text files that the payload does not have are left out.
    fn each(&self, names: &[&str], take: &mut Take) -> anyhow::Result<()>;

    /// Bytes that came over the network so far.
    fn fetched(&self) -> u64 {
        0
    }

    /// The bytes that reading its files would move; `None` if unknown. An image's layers are not read for it, but for their
    /// indexes.
    fn would_move(&self, _: &Old<'_>) -> Option<Moved> {
        None
    }

    /// The same, where a disk may hold parts of the files already.
    fn each_over(&self, names: &[&str], _: &Old<'_>, take: &mut Take) -> anyhow::Result<()> {
        self.each(names, take)
    }
}
