//! The answer of `chunk`, and what `inspect` says of indexes.

use crate::prelude::*;

use core::fmt;

use serde::{Deserialize, Serialize};

use crate::{digest::Sha256, kernel::arch::Arch, units::approx};

/// The outcome for an image that was prepared for delta upgrades.
#[derive(Debug, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ChunkReport {
    /// The image as it was given.
    pub source: String,
    /// Its digest now: that of the index, or of the manifest if there is none.
    pub digest: Sha256,
    /// Its digest before; the same, if it was prepared already.
    pub was: Sha256,
    /// The layers with files of the payload.
    pub layers: Vec<ChunkedLayer>,
    /// The number of signatures and attestations that are about the earlier image, and not about this one.
    pub old_signatures: usize,
}

/// A layer that is a plain archive now and has an index.
#[derive(Debug, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ChunkedLayer {
    /// The architecture of its image.
    pub arch: Arch,
    /// Its digest, which is that of the archive.
    pub layer: Sha256,
    /// Its size before.
    pub before_bytes: u64,
    /// Its size now.
    pub bytes: u64,
    /// The number of its chunks.
    pub chunks: usize,
    /// Digest of its index.
    pub index: Sha256,
    /// Size of its index.
    pub index_bytes: u64,
}

impl fmt::Display for ChunkReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let done = if self.digest == self.was { "was prepared already" } else { "is prepared for delta upgrades" };
        write!(f, "{} {done}: sha256:{}", self.source, self.digest)?;
        self.layers.iter().try_for_each(|layer| {
            let (before, bytes, index) = (approx(layer.before_bytes), approx(layer.bytes), approx(layer.index_bytes));
            let size = if layer.before_bytes == layer.bytes { bytes } else { format!("{bytes} (was {before})") };
            write!(
                f,
                "\n{}  layer sha256:{}, {size}; {} chunks, index of {index}",
                layer.arch, layer.layer, layer.chunks
            )
        })
    }
}

/// An index of chunks that a layer has.
#[derive(Debug, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ChunksInfo {
    /// Digest of the layer.
    pub layer: Sha256,
    /// Digest of the index.
    pub index: Sha256,
    /// Size of the index.
    pub index_bytes: u64,
    /// The number of chunks.
    pub chunks: usize,
    /// Bytes of a chunk on average.
    pub average_bytes: u64,
}

impl fmt::Display for ChunksInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (average, index) = (approx(self.average_bytes), approx(self.index_bytes));
        write!(f, "{} of {average} on average in layer sha256:{}, index of {index}", self.chunks, self.layer)
    }
}
