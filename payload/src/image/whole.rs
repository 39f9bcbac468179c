//! An image as a whole: its index, all images in that, and everything they consist of.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Read as _,
};

use oci_spec::image::Descriptor;

use super::{
    Document, ImageError, ImageStore, chunks,
    layout::descriptor_of,
    mirrors::sent,
    resolve::{Parts, checked_document, media_type, parts, platforms},
    sink::NamedManifest,
    store::sha256_of,
    verifying_reader::{Length, VerifyingReader},
};
use slipway_core::digest::Sha256;

pub struct WholeImage {
    pub store: Box<dyn ImageStore>,
    /// The index, or the manifest if there is none.
    pub root: NamedManifest,
    /// The manifests of an index.
    pub manifests: Vec<NamedManifest>,
    // All that it consists of, each once.
    blobs: BTreeMap<Sha256, Descriptor>,
}

impl WholeImage {
    /// Reads the documents of the image that the store names.
    pub fn open(store: Box<dyn ImageStore>) -> Result<Self, ImageError> {
        let root = store.root()?;
        let named = |document: &Document| NamedManifest {
            media_type: media_type(document),
            bytes: document.bytes.clone(),
            tag: None,
        };
        let Parts { manifests: listed, blobs: own } = parts(&root, &store.name())?;
        let (mut manifests, mut all) = (Vec::new(), own);
        for descriptor in listed {
            let what = format!("manifest {}", descriptor.digest());
            let bytes = checked_document(&*store, &descriptor, &what)?;
            let document = Document { media_type: Some(descriptor.media_type().to_string()), bytes };
            let Parts { manifests: inner, blobs } = parts(&document, &what)?;
            if !inner.is_empty() {
                return Err(ImageError::invalid(what, "an index inside an index is not followed"));
            }
            manifests.push(named(&document));
            all.extend(blobs);
        }
        let blobs = all.into_iter().map(|blob| Ok((sha256_of(&blob)?, blob))).collect::<Result<_, ImageError>>()?;
        Ok(WholeImage { root: named(&root), store, manifests, blobs })
    }

    /// Digest of the index, or of the manifest if there is none.
    pub fn digest(&self) -> Sha256 {
        Sha256::of(&self.root.bytes)
    }

    pub fn descriptor(&self) -> Result<Descriptor, ImageError> {
        descriptor_of(&self.root.media_type, &self.root.bytes)
    }

    /// All digests by which a signature may name it.
    pub fn names(&self) -> Vec<Sha256> {
        [&self.root].into_iter().chain(&self.manifests).map(|manifest| Sha256::of(&manifest.bytes)).collect()
    }

    /// See [`platforms`].
    pub fn platforms(&self) -> Result<Option<BTreeSet<String>>, ImageError> {
        let NamedManifest { media_type, bytes, .. } = &self.root;
        platforms(&*self.store, &Document { media_type: Some(media_type.to_string()), bytes: bytes.clone() })
    }

    /// Configurations and layers.
    pub fn blobs(&self) -> impl Iterator<Item = &Descriptor> {
        self.blobs.values()
    }

    /// Size of all of them.
    pub fn bytes(&self) -> u64 {
        self.blobs().fold(0, |sum, blob| blob.size().saturating_add(sum))
    }

    /// A blob, compared with its digest.
    pub fn read(&self, blob: &Descriptor) -> Result<VerifyingReader<Box<dyn std::io::Read + Send>>, ImageError> {
        let bytes = self.store.blob(blob).map_err(ImageError::of_part)?;
        let what = sent(format!("blob {}", blob.digest()), &*self.store);
        Ok(VerifyingReader::new(bytes, what, sha256_of(blob)?, Length::Exactly(blob.size())))
    }

    /// Compares all of the image with its digests: of an index, every image in it. `progress` gets numbers of bytes.
    pub fn check(&self, progress: &mut dyn FnMut(u64)) -> Result<(), ImageError> {
        let mut buf = vec![0; 256 << 10];
        for blob in self.blobs() {
            let mut reader = self.read(blob)?;
            loop {
                match reader.read(&mut buf).map_err(|e| ImageError::of_io(&format!("blob {}", blob.digest()), e))? {
                    0 => break,
                    n => progress(n as u64),
                }
            }
        }
        // A signature covers which index is the image's. One that is there has to be that one.
        for manifest in self.manifests.iter().chain([&self.root]) {
            for index in chunks::indexes_of(&manifest.bytes) {
                chunks::read_index(&*self.store, &index)?;
            }
        }
        Ok(())
    }
}
