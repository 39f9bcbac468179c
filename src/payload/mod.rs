//! Sources of kernel, initramfs and squashfs.

mod dir;
mod examine;
pub mod image;
mod open;
pub mod registry;
mod source;
mod source_ref;
mod watched;

pub use dir::{DirSource, SignedList, WRAPPED_COLUMNS};
pub use examine::{ChecksumPolicy, PayloadError};
pub use slipway_core::payload::unused::TEXTS;
pub use source::{Source, image_store};
pub use source_ref::{LayoutRef, SourceRef};
