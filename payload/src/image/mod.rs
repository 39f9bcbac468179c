//! Container images as sources. A store (registry, directory, archive) only delivers bytes; sizes and digests are
//! checked here, in one place for all stores.

mod archive;
mod attest;
mod beside;
mod chunk;
mod chunks;
mod cosign;
mod error;
mod layer;
mod layout;
mod linked;
mod local;
mod mirrors;
mod names;
mod overlay;
mod pull;
mod push;
mod read_ahead;
mod resolve;
mod sign;
mod signatures;
mod sink;
mod source;
mod store;
mod tar;
mod verifying_reader;
mod whole;

pub use archive::Archive;
pub use beside::MAX_BESIDE_BYTES;
pub use chunk::{Chunked, ChunkedLayer, chunk};
pub use error::ImageError;
pub(crate) use layer::Layer;
pub use local::{Local, LocalRef};
pub(crate) use mirrors::sent;
pub use mirrors::{is_of_content, past_mirrors};
pub use pull::{Pull, Pulled};
pub use push::{Pushed, push};
pub(crate) use read_ahead::ReadAhead;
pub use resolve::Description;
pub use sign::{Signable, SignedLayer};
pub use sink::{BlobContent, ImageSink, LayoutSink, NamedManifest};
pub use source::{ImageSource, Inspection};
pub(crate) use store::parse_document;
pub use store::{Document, FromRange, ImageStore, Listing, MAX_DOCUMENT_BYTES, RangeRequest, sha256_of};
pub(crate) use verifying_reader::VerifyingReader;
pub use whole::WholeImage;

use std::io::{self, Read};

/// A reader that may know a cheaper way to skip bytes than to read them.
pub(crate) trait Skip: Read {
    /// Fails if the input ends before `bytes` are skipped.
    fn skip(&mut self, bytes: u64) -> io::Result<()>;
}
