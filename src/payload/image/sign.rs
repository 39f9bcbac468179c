//! Puts signatures beside an image of an OCI layout, in the form of cosign's that a registry needs no API for: a manifest
//! under the tag `sha256-HEX.sig`, see [`super::signatures`].

use std::{
    collections::BTreeMap,
    io::Read as _,
    path::{Path, PathBuf},
};

use oci_spec::image::{Descriptor, ImageManifest, ImageManifestBuilder, MediaType};
use serde_json::json;

use super::{
    Document, ImageError, ImageStore as _, Local, LocalRef,
    beside::{MAX_BESIDE_BYTES, signed_document},
    cosign::{SIGNATURE, signature_in, tag_of},
    layout::{descriptor_of, index, write},
    resolve::{Parts, checked_document, parts},
    store::sha256_of,
    verifying_reader::{Length, VerifyingReader},
};
use crate::trust::SIMPLE_SIGNING;
use slipway_core::digest::Sha256;

/// An image in a layout.
pub struct Signable {
    pub(super) dir: PathBuf,
    pub(super) store: Local,
    /// Of the index, or of the manifest if there is none.
    pub(super) root: Descriptor,
    /// Digest of the index, or of the manifest if there is none: what is signed.
    pub image: Sha256,
    // All that it consists of, each once.
    blobs: BTreeMap<Sha256, Descriptor>,
}

/// A layer of the manifest that holds the signatures.
pub struct SignedLayer {
    descriptor: Descriptor,
    /// The bytes that are signed.
    pub document: Vec<u8>,
    /// In base64. `None`: it holds something else.
    pub signature: Option<String>,
}

impl SignedLayer {
    /// A document and the signature over it, in base64.
    pub fn new(document: Vec<u8>, signature: String) -> Result<Self, ImageError> {
        let mut descriptor = descriptor_of(&MediaType::from(SIMPLE_SIGNING), &document)?;
        descriptor.set_annotations(Some([(SIGNATURE.to_owned(), signature.clone())].into()));
        Ok(SignedLayer { descriptor, document, signature: Some(signature) })
    }
}

impl Signable {
    /// Reads the documents of the image. `name` is what people call it.
    pub fn open(dir: &Path, wanted: LocalRef, name: String) -> Result<Self, ImageError> {
        let store = Local::directory(dir, wanted, name.clone())?;
        let root = store.root()?;
        let media_type = root.media_type.as_deref().map_or(MediaType::ImageManifest, MediaType::from);
        let descriptor = descriptor_of(&media_type, &root.bytes)?;
        let mut blobs = BTreeMap::new();
        let mut add = |found: Vec<Descriptor>| -> Result<(), ImageError> {
            for blob in found {
                blobs.insert(sha256_of(&blob)?, blob);
            }
            Ok(())
        };
        let Parts { manifests, blobs: own } = parts(&root, &name)?;
        add(own)?;
        for descriptor in manifests {
            let what = format!("manifest {}", descriptor.digest());
            let bytes = checked_document(&store, &descriptor, &what)?;
            let media_type = Some(descriptor.media_type().to_string());
            let Parts { manifests, blobs } = parts(&Document { media_type, bytes }, &what)?;
            if !manifests.is_empty() {
                return Err(ImageError::invalid(what, "an index inside an index is not followed"));
            }
            add(blobs)?;
        }
        Ok(Signable { dir: dir.to_owned(), store, root: descriptor, image: Sha256::of(&root.bytes), blobs })
    }

    /// Of all that is read by [`Self::check`].
    pub fn bytes(&self) -> u64 {
        self.blobs.values().fold(0, |sum, blob| blob.size().saturating_add(sum))
    }

    /// Compares all of the image with its digests: of an index, every image in it. `progress` gets numbers of bytes.
    pub fn check(&self, progress: &mut dyn FnMut(u64)) -> Result<(), ImageError> {
        let mut buf = vec![0; 256 << 10];
        for (digest, blob) in &self.blobs {
            let what = format!("blob {}", blob.digest());
            let length = Length::Exactly(blob.size());
            let mut reader = VerifyingReader::new(self.store.blob(blob)?, what.clone(), *digest, length);
            loop {
                match reader.read(&mut buf).map_err(|e| ImageError::of_io(&what, e))? {
                    0 => break,
                    n => progress(n as u64),
                }
            }
        }
        Ok(())
    }

    /// The tag under which its signatures are.
    pub fn tag(&self) -> String {
        tag_of(self.image)
    }

    /// What is under that tag now. All of it is kept, so what cannot be read is an error here.
    pub fn layers(&self) -> Result<Vec<SignedLayer>, ImageError> {
        let tag = self.tag();
        let (mut all, mut bytes_left) = (Vec::new(), MAX_BESIDE_BYTES);
        let too_much = || {
            let why = format!("more than {} MiB are under this tag: take it out of index.json", MAX_BESIDE_BYTES >> 20);
            ImageError::invalid(&tag, why)
        };
        for Document { bytes, .. } in self.store.named(&tag)? {
            let manifest: ImageManifest = serde_json::from_slice(&bytes)
                .map_err(|e| ImageError::invalid(&tag, format!("does not follow the OCI image specification: {e}")))?;
            for (n, layer) in manifest.layers().iter().enumerate() {
                let place = format!("{tag}, layer {}", n + 1);
                bytes_left = bytes_left.checked_sub(layer.size()).ok_or_else(too_much)?;
                let document = signed_document(&self.store, layer, &place)?;
                all.push(SignedLayer { descriptor: layer.clone(), document, signature: signature_in(layer).cloned() });
            }
        }
        Ok(all)
    }

    /// Put these layers under that tag, in place of what is there. index.json is replaced last: after a power cut it names
    /// the old signatures or the new ones.
    pub fn put(&self, layers: &[SignedLayer]) -> Result<(), ImageError> {
        let invalid = |e: oci_spec::OciSpecError| ImageError::invalid(self.tag(), e.to_string());
        let blobs = self.dir.join("blobs/sha256");
        let put = |bytes: &[u8]| write(&blobs.join(Sha256::of(bytes).to_string()), bytes);
        let diff_ids: Vec<_> = layers.iter().map(|layer| layer.descriptor.digest().to_string()).collect();
        let config = json!({
            "architecture": "", "os": "", "config": {}, "rootfs": {"type": "layers", "diff_ids": diff_ids},
        });
        let config = config.to_string().into_bytes();
        let builder = ImageManifestBuilder::default().schema_version(2u32).media_type(MediaType::ImageManifest);
        let manifest = builder
            .config(descriptor_of(&MediaType::ImageConfig, &config)?)
            .layers(layers.iter().map(|layer| layer.descriptor.clone()).collect::<Vec<_>>())
            .build()
            .and_then(|manifest| manifest.to_string())
            .map_err(invalid)?;
        for layer in layers {
            put(&layer.document)?;
        }
        put(&config)?;
        put(manifest.as_bytes())?;
        let listed = descriptor_of(&MediaType::ImageManifest, manifest.as_bytes())?;
        let index = index(&self.dir, &[], vec![(listed, Some(self.tag()))])?;
        write(&self.dir.join("index.json"), index.as_bytes())
    }
}
