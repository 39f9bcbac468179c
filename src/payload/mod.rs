//! Sources of kernel, initramfs and squashfs.

mod dir;
mod examine;
pub mod image;
mod kernel_watch;
mod open;
pub mod registry;
mod source;
mod source_ref;
mod watched;
mod watches;

pub use dir::{DirSource, SignedList, WRAPPED_COLUMNS};
pub use examine::{ChecksumPolicy, PayloadError};
pub use slipway_core::payload::unused::TEXTS;
pub use source::{Source, image_store};
pub use source_ref::{LayoutRef, SourceRef};
