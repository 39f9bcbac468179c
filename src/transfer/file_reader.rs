//! What the write path reads from: the files of a payload, one after the other.

use std::{fs::File, io::Read};

use super::sha256::Hasher;

/// Reads one file of a payload.
///
/// It may lie in something that has a digest of its own, a layer: each of its bytes goes through both digests. Who hashes
/// the file can borrow the layer's, and feed both at once.
pub trait FileReader: Read {
    /// The digest that every byte read from here on belongs to as well, if there is one, for the reader of these bytes
    /// to feed. Until it is given back no other byte of the layer can be read to any purpose: the layer's end is an
    /// error then.
    fn lend_digest(&mut self) -> Option<Hasher> {
        None
    }

    /// Give back what was lent, fed with all that was read.
    fn return_digest(&mut self, _digest: Hasher) {}
}

impl FileReader for File {}
impl FileReader for &[u8] {}

/// Gets the name of a file and its bytes.
pub type Take<'t> = dyn FnMut(&str, &mut dyn FileReader) -> anyhow::Result<()> + 't;

/// Hands out the files of a payload for streaming.
pub trait PayloadFiles {
    /// Hand each of these files to `take`, once, in the order in which the source has them. `take` reads it to its end.
    /// Of texts that a payload may or may not have, those that are there.
    fn each(&self, names: &[&str], take: &mut Take) -> anyhow::Result<()>;
}
