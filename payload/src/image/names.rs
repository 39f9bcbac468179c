//! Names of the images that an index.json lists.

use std::collections::{BTreeMap, BTreeSet};

use oci_spec::image::{Descriptor, ImageIndex};

use super::cosign;

/// Annotation with the name (tag) of an image in a layout (annotations.md).
pub const REF_NAME: &str = "org.opencontainers.image.ref.name";
/// Annotation with the whole name of an image, of which [`REF_NAME`] has the tag (containerd, and `docker save` since Docker 25).
pub const CONTAINERD_NAME: &str = "io.containerd.image.name";

/// Why a name chooses no image.
pub const SEVERAL: &str = "its index.json lists more than one image of this name";

pub fn annotation(descriptor: &Descriptor, name: &str) -> Option<String> {
    descriptor.annotations().as_ref().and_then(|all| all.get(name)).cloned()
}

/// Whether an entry has this name.
pub fn is_named(descriptor: &Descriptor, name: &str) -> bool {
    [REF_NAME, CONTAINERD_NAME].into_iter().any(|key| annotation(descriptor, key).as_deref() == Some(name))
}

/// The longest name of an entry.
pub fn whole_name(descriptor: &Descriptor) -> Option<String> {
    annotation(descriptor, CONTAINERD_NAME).or_else(|| annotation(descriptor, REF_NAME))
}

/// The annotations with the names of an entry.
pub fn names_of(descriptor: &Descriptor) -> BTreeMap<String, String> {
    let named = |key: &str| Some((key.to_owned(), annotation(descriptor, key)?));
    [REF_NAME, CONTAINERD_NAME].into_iter().filter_map(named).collect()
}

/// The whole names of the images of which this is the tag, if they are several: in an archive of docker each image of a
/// release may have the same one. Documents about an image have no whole names of their own.
pub fn several(index: &ImageIndex, name: &str) -> Option<BTreeSet<String>> {
    let named: Vec<_> = index.manifests().iter().filter(|d| is_named(d, name)).collect();
    let digests: BTreeSet<_> = named.iter().map(|d| d.digest().to_string()).collect();
    let whole: BTreeSet<_> = named.iter().filter_map(|d| whole_name(d)).collect();
    (digests.len() > 1 && whole.len() > 1 && cosign::subject_of_tag(name).is_none()).then_some(whole)
}
