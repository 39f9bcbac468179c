//! Destinations of images: an OCI layout directory here, a registry in [`crate::registry`].

use std::{
    io::Read,
    path::{Path, PathBuf},
};

use oci_spec::image::{Descriptor, MediaType};

use super::{
    ImageError,
    layout::{Entry, Place, change_index, descriptor_of, write, write_blob},
    store::sha256_of,
};
use slipway_core::digest::Sha256;

/// Opens a blob; more than once if an attempt to put it fails. The reader reports errors as an `io::Error` that wraps an
/// [`ImageError`], and compares the bytes with their digest.
pub type BlobContent<'a> = dyn Fn() -> Result<Box<dyn Read + Send>, ImageError> + 'a;

/// A manifest or an index on its way, and the tag that is to name it.
#[derive(Clone, Debug)]
pub struct NamedManifest {
    pub media_type: MediaType,
    pub bytes: Vec<u8>,
    /// None: its digest is its name.
    pub tag: Option<String>,
}

/// A layout or a repository that takes images.
pub trait ImageSink {
    /// Put a blob, unless it is there. Returns whether it was put. `progress` gets numbers of bytes, which add up to its size.
    fn put_blob(
        &self,
        blob: &Descriptor,
        content: &BlobContent<'_>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<bool, ImageError>;

    /// Put manifests in this order: their references have to be there. A layout names all of them at once, and names
    /// the `replaced` ones no more; a registry keeps those.
    fn put_manifests(&self, replaced: &[Sha256], manifests: &[NamedManifest]) -> Result<(), ImageError>;
}

/// Put a small blob.
pub fn put_bytes(sink: &dyn ImageSink, media_type: &MediaType, bytes: &[u8]) -> Result<Descriptor, ImageError> {
    let descriptor = descriptor_of(media_type, bytes)?;
    let owned = bytes.to_vec();
    sink.put_blob(&descriptor, &move || Ok(Box::new(std::io::Cursor::new(owned.clone()))), &mut |_| {})?;
    Ok(descriptor)
}

/// An OCI layout directory.
pub struct LayoutSink(PathBuf);

impl LayoutSink {
    pub fn new(dir: &Path) -> Self {
        LayoutSink(dir.to_owned())
    }

    fn path(&self, digest: Sha256) -> PathBuf {
        self.0.join("blobs/sha256").join(digest.to_string())
    }

    fn written(&self, manifests: &[NamedManifest]) -> Result<Vec<Entry>, ImageError> {
        let write = |NamedManifest { media_type, bytes, tag }: &NamedManifest| {
            write(&self.path(Sha256::of(bytes)), bytes)?;
            Ok((descriptor_of(media_type, bytes)?, tag.clone().into()))
        };
        manifests.iter().map(write).collect()
    }

    /// Put a manifest in this place, and others beside it. All are listed at once.
    pub fn put_in_place(
        &self,
        place: Place,
        (media_type, bytes): (&MediaType, &[u8]),
        beside: &[NamedManifest],
    ) -> Result<(), ImageError> {
        let mut listed = self.written(beside)?;
        write(&self.path(Sha256::of(bytes)), bytes)?;
        listed.push((descriptor_of(media_type, bytes)?, place));
        change_index(&self.0, &[], listed)
    }
}

impl ImageSink for LayoutSink {
    /// Writes the blob in every case: one that is there may be damaged.
    fn put_blob(
        &self,
        blob: &Descriptor,
        content: &BlobContent<'_>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<bool, ImageError> {
        let what = format!("blob {}", blob.digest());
        write_blob(content()?, &what, &self.path(sha256_of(blob)?), progress)?;
        Ok(true)
    }

    /// index.json is replaced last: after a power cut it names the old ones or the new ones.
    fn put_manifests(&self, replaced: &[Sha256], manifests: &[NamedManifest]) -> Result<(), ImageError> {
        change_index(&self.0, replaced, self.written(manifests)?)
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use oci_spec::image::ImageIndex;

    use super::*;

    #[test]
    fn nothing_is_lost_that_is_put_at_the_same_time() {
        const EACH: usize = 20;
        const THREADS: usize = 8;
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("blobs/sha256")).unwrap();
        let put = |thread: usize| {
            for n in 0..EACH {
                let (bytes, tag) = (format!("[{thread}, {n}]").into_bytes(), Some(format!("{thread}.{n}")));
                let manifest = NamedManifest { media_type: MediaType::ImageManifest, bytes, tag };
                LayoutSink::new(dir.path()).put_manifests(&[], &[manifest]).unwrap();
            }
        };
        thread::scope(|scope| (0..THREADS).for_each(|n| drop(scope.spawn(move || put(n)))));
        let index: ImageIndex = serde_json::from_slice(&std::fs::read(dir.path().join("index.json")).unwrap()).unwrap();
        assert_eq!(index.manifests().len(), EACH * THREADS);
    }
}
