//! Reads a layer of which a disk has most bytes already: the other source of the same bytes.
//!
//! The layer's index of chunks says which these are. The slots are cut as the layer was; chunks that are there are copied,
//! after their fingerprint is compared again, and the rest is fetched with one range a request. Digests and sizes of layer
//! and files are compared behind this, as without it, and nothing is kept for a later run.
//!
//! **Never worse than without.** Whatever fails here, the layer is read on from its store alone, and [`Old`] keeps why. Only a
//! wrong index with right digests is found at the end of a file or of the layer: then the caller reads all once more
//! ([`Old::is_to_blame`]).

mod answer;
mod cut;
mod cut_layer;
mod direct;
mod fingerprint;
mod gaps;
mod index;
mod reader;
mod window;

pub use cut_layer::cut_layer;
pub use gaps::Gaps;
pub use index::{descriptor_of_index, fetch_index};
pub use reader::Delta;

use std::{
    collections::BTreeMap,
    io,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use crate::image::ImageError;
use slipway_core::units::Extent;

/// A disk that is read where it may be written meanwhile.
pub trait OldDisk: Sync {
    /// Read from this byte of the disk; not from a cache that others write past.
    fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()>;
}

/// The bytes that a disk has already, and what becomes of them while the layer is read.
pub struct Old<'d> {
    pub disk: &'d dyn OldDisk,
    /// Files in the slots, each as its extents in the order of its content.
    pub files: Vec<Vec<Extent>>,
    /// Written before the first layer is read.
    pub before: Vec<Extent>,
    /// Where files of the payload are written while layers are read, by their names.
    pub to: BTreeMap<String, Extent>,
    /// A write to these places may have been interrupted before: it left no file system, and the bytes.
    pub is_interrupted: bool,
    pub said: Said,
}

/// The result of the read.
#[derive(Default)]
pub struct Said {
    reused: AtomicU64,
    used: AtomicBool,
    why: Mutex<Vec<String>>,
}

impl Said {
    /// Bytes that came from the disk.
    pub fn reused(&self) -> u64 {
        self.reused.load(Ordering::Relaxed)
    }

    /// Why more was fetched than need be, as sentences.
    pub fn why(&self) -> Vec<String> {
        self.why.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Bytes taken from the disk, or chosen by the index, are not the layer's.
    pub(crate) fn is_wrong(&self, layer: String) {
        self.say(format!(
            "{layer}: the index of chunks, or what was reused by it, is not the layer's: all of it is fetched"
        ));
    }

    fn say(&self, why: String) {
        self.why.lock().unwrap_or_else(PoisonError::into_inner).push(why);
    }

    fn reuse(&self, bytes: usize) {
        self.reused.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

impl Old<'_> {
    /// What has been written before a layer is read, where layers above it had these files.
    fn written(&self, is_above: &dyn Fn(&str) -> bool) -> Vec<Extent> {
        let above = self.to.iter().filter(|(name, _)| is_above(name)).map(|(_, to)| *to);
        self.before.iter().copied().chain(above).collect()
    }

    /// Whether an error may come from here: bytes were taken from the disk or chosen by an index, and they were not those of the
    /// payload. A registry that failed was asked for the whole layer before.
    pub fn is_to_blame(&self, error: &anyhow::Error) -> bool {
        use ImageError::{Denied, Fetch, NotFound, Unsupported};
        let of_registry = error.chain().any(|cause| {
            let through_reader = cause.downcast_ref::<io::Error>().and_then(|e| e.get_ref()?.downcast_ref());
            let image = cause.downcast_ref::<ImageError>().or(through_reader);
            matches!(image, Some(Fetch { .. } | Unsupported { .. } | Denied { .. } | NotFound { .. }))
        });
        self.said.used.load(Ordering::Relaxed) && !of_registry
    }
}
