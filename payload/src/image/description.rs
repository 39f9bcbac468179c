//! An image's description of itself: labels and annotations.

use std::collections::BTreeMap;

use super::{ImageError, ImageStore, resolve::resolve};
use slipway_core::{digest::Sha256, kernel::arch::Arch};

/// The image's own words, which are not verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// Digest that the reference names: of the index, or of the manifest if there is none.
    pub digest: Sha256,
    /// Labels of its configuration, and annotations of index and manifest. Where names meet, the manifest comes before
    /// the index, and an annotation before a label.
    pub labels: BTreeMap<String, String>,
    /// When it was made, as the configuration has it (RFC 3339). Images that can be made again have a fixed time.
    pub created: Option<String>,
}

impl Description {
    /// Describe the image for this architecture. Reads index, manifest and configuration, and no layers.
    pub fn of(store: &dyn ImageStore, arch: Arch) -> Result<Self, ImageError> {
        let image = resolve(store, arch)?;
        let labels = image.configuration.labels_of_config().cloned().unwrap_or_default();
        let labels = labels.into_iter().chain(image.annotations).collect();
        Ok(Description { digest: image.root, labels, created: image.configuration.created().clone() })
    }
}
