//! Which payload is in an image: the digest that nodes compare before they write anything. It is read from the image's own
//! checksums, which are small and in its last layer where `installer checksum` wrote them. It blocks.

use std::{
    io::{self, Read},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use oci_spec::image::Descriptor;
use slipway_core::digest::Sha256;
use slipway_payload::{
    ChecksumPolicy, SourceRef,
    image::{Document, ImageError, ImageSource, ImageStore, Inspection, past_mirrors},
    registry::Registry,
};

use crate::discover::{Limits, Repository};

/// The digest that names the payload in this image of the channel's repository. No node needs to believe it: each compares
/// it with what it has fetched.
pub fn payload(repository: &Repository, digest: Sha256, limits: Limits) -> Result<Sha256, String> {
    let registry = repository.image(digest);
    past_mirrors(&registry, |unread: &Unread| unread.is_wrong, || read(repository, &registry, limits))
        .map_err(|unread| unread.why)
}

/// Why the payload is not known.
struct Unread {
    /// The bytes are wrong: another mirror, or the registry, may have the right ones.
    is_wrong: bool,
    why: String,
}

fn read(repository: &Repository, registry: &Registry, limits: Limits) -> Result<Sha256, Unread> {
    let image = registry.image().clone();
    let left = Arc::new(AtomicU64::new(limits.payload_bytes));
    let store = Box::new(LimitedImage { registry: registry.clone(), left, limit: limits.payload_bytes });
    let mut source = ImageSource::open(store, SourceRef::Docker(image), repository.arch())
        .map_err(|e| Unread { is_wrong: e.is_wrong(), why: e.to_string() })?;
    let facts = source.facts(ChecksumPolicy::Compared, Inspection::Declared, &mut |_| ());
    facts
        .map(|facts| facts.manifest().payload_digest())
        .map_err(|e| Unread { is_wrong: e.downcast_ref().is_some_and(ImageError::is_wrong), why: format!("{e:#}") })
}

/// An image of which only so much is read: one without checksums would be read to its end.
struct LimitedImage {
    registry: Registry,
    left: Arc<AtomicU64>,
    limit: u64,
}

impl ImageStore for LimitedImage {
    fn root(&self) -> Result<Document, ImageError> {
        self.registry.root()
    }

    fn document(&self, descriptor: &Descriptor) -> Result<Vec<u8>, ImageError> {
        self.registry.document(descriptor)
    }

    fn blob(&self, descriptor: &Descriptor) -> Result<Box<dyn Read + Send>, ImageError> {
        let blob = self.registry.blob(descriptor)?;
        Ok(Box::new(Counted { blob, left: Arc::clone(&self.left), limit: self.limit }))
    }

    fn mirror(&self) -> Option<&str> {
        self.registry.mirror()
    }

    fn give_up_mirror(&self) -> bool {
        self.registry.give_up_mirror()
    }

    fn name(&self) -> String {
        self.registry.name()
    }
}

struct Counted {
    blob: Box<dyn Read + Send>,
    left: Arc<AtomicU64>,
    limit: u64,
}

impl Read for Counted {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let read = self.blob.read(bytes)?;
        let take = |left: u64| left.checked_sub(read as u64);
        if self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_err() {
            // It is no fault of a mirror.
            let why = format!("which payload is in it is not known after {} MiB", self.limit >> 20);
            let remedy = "have `installer checksum` write SHA256SUMS and manifest.json into its last layer";
            return Err(ImageError::reference("its layers", &why, remedy).into_io());
        }
        Ok(read)
    }
}
