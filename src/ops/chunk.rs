//! Prepares an image in an OCI layout for delta upgrades.

use super::source_failure;
use crate::{
    error::{Failure, OrFail as _},
    payload::{
        SourceRef,
        image::{Chunked, chunk},
    },
};
use slipway_core::report::{ChunkReport, ChunkedLayer, FailureKind, Observer};

/// Why an image cannot be prepared.
#[derive(Debug, thiserror::Error)]
pub enum ChunkError {
    #[error("{0}: an image is prepared in an OCI layout, oci:DIR[:TAG]; {COPY}")]
    Elsewhere(SourceRef),
    #[error("{0}: a payload directory is no image; put it into one first (docs/auto-upgrade.md)")]
    Directory(SourceRef),
}

const COPY: &str = "copy it into a layout first, with `installer pull`";

impl ChunkError {
    /// The remedy, as the message ends with it.
    pub const fn remedy(&self) -> Option<&'static str> {
        match self {
            ChunkError::Elsewhere(_) => Some(COPY),
            ChunkError::Directory(_) => None,
        }
    }
}

pub fn run(source: &SourceRef, observer: &mut dyn Observer) -> Result<ChunkReport, Failure> {
    let (dir, wanted) = match source {
        SourceRef::Oci(dir, wanted) => (dir, wanted),
        SourceRef::Dir(_) => return Err(ChunkError::Directory(source.clone())).or_fail(FailureKind::Input),
        SourceRef::OciArchive(..) | SourceRef::Docker(_) => {
            return Err(ChunkError::Elsewhere(source.clone())).or_fail(FailureKind::Unsupported);
        }
    };
    observer.phase(&format!("chunk      {source}"), 0);
    let chunked = chunk(dir, wanted, source.to_string(), &mut |bytes| observer.advance(bytes));
    let Chunked { digests: [was, digest], layers, signatures } =
        chunked.map_err(|e| source_failure(source, e.into()))?;
    if signatures > 0 {
        observer
            .note(&format!("signatures and attestations of sha256:{was} do not cover the new image: sign it again"));
    }
    let layer = |layer: crate::payload::image::ChunkedLayer| ChunkedLayer {
        arch: layer.arch,
        layer: layer.digest,
        before_bytes: layer.bytes[0],
        bytes: layer.bytes[1],
        chunks: layer.chunks,
        index: layer.index,
        index_bytes: layer.index_bytes,
    };
    let layers = layers.into_iter().map(layer).collect();
    Ok(ChunkReport { source: source.to_string(), digest, was, layers, old_signatures: signatures })
}
