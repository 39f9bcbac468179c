//! Puts signatures beside an image, in the form of cosign's that a registry needs no API for: a manifest
//! under the tag `sha256-HEX.sig`, see [`super::signatures`].

use std::collections::BTreeSet;

use oci_spec::image::{Descriptor, ImageManifest, ImageManifestBuilder, MediaType};
use serde_json::json;

use super::{
    Document, ImageError, ImageSink, ImageStore, NamedManifest, WholeImage,
    beside::{MAX_BESIDE_BYTES, signed_document},
    cosign::{SIGNATURE, signature_in, tag_of},
    layout::descriptor_of,
    resolve::parse,
    sink::put_bytes,
};
use crate::trust::SIMPLE_SIGNING;
use slipway_core::digest::Sha256;

/// An image, and where its signatures are put.
pub struct Signable {
    pub(super) image: WholeImage,
    pub(super) sink: Box<dyn ImageSink>,
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
    fn from_descriptor(layer: &Descriptor, document: Vec<u8>) -> Self {
        SignedLayer { descriptor: layer.clone(), document, signature: signature_in(layer).cloned() }
    }

    /// The key that tells it from others.
    pub fn key(&self) -> (String, Option<String>) {
        (self.descriptor.digest().to_string(), self.signature.clone())
    }

    /// A document and the signature over it, in base64.
    pub fn new(document: Vec<u8>, signature: String) -> Result<Self, ImageError> {
        let mut descriptor = descriptor_of(&MediaType::from(SIMPLE_SIGNING), &document)?;
        descriptor.set_annotations(Some([(SIGNATURE.to_owned(), signature.clone())].into()));
        Ok(SignedLayer { descriptor, document, signature: Some(signature) })
    }
}

impl Signable {
    pub fn new(image: WholeImage, sink: Box<dyn ImageSink>) -> Self {
        Signable { image, sink }
    }

    /// Digest that is signed: of the index, or of the manifest if there is none.
    pub fn digest(&self) -> Sha256 {
        self.image.digest()
    }

    /// Size of all that [`Self::check`] reads.
    pub fn bytes(&self) -> u64 {
        self.image.bytes()
    }

    /// See [`WholeImage::check`].
    pub fn check(&self, progress: &mut dyn FnMut(u64)) -> Result<(), ImageError> {
        self.image.check(progress)
    }

    /// The tag under which its signatures are.
    pub fn tag(&self) -> String {
        tag_of(self.digest())
    }

    /// The layers under that tag now.
    pub fn layers(&self) -> Result<Vec<SignedLayer>, ImageError> {
        layers_under(&*self.image.store, &self.tag())
    }

    /// Put these layers under that tag, in place of the present ones.
    pub fn put(&self, layers: &[SignedLayer]) -> Result<(), ImageError> {
        for layer in layers {
            put_bytes(&*self.sink, layer.descriptor.media_type(), &layer.document)?;
        }
        let (config, bytes) = manifest_of(layers)?;
        put_bytes(&*self.sink, &MediaType::ImageConfig, &config)?;
        let media_type = MediaType::ImageManifest;
        self.sink.put_manifests(&[], &[NamedManifest { media_type, bytes, tag: Some(self.tag()) }])
    }
}

/// The layers under a tag for signatures. All are kept, so one that cannot be read is an error here.
pub fn layers_under(store: &dyn ImageStore, tag: &str) -> Result<Vec<SignedLayer>, ImageError> {
    let (mut all, mut bytes_left) = (Vec::new(), MAX_BESIDE_BYTES);
    let too_much = || {
        let why = format!("more than {} MiB are under this tag: take it away first", MAX_BESIDE_BYTES >> 20);
        ImageError::invalid(tag, why)
    };
    for Document { bytes, .. } in store.named(tag)? {
        for (n, layer) in parse::<ImageManifest>(&bytes, tag)?.layers().iter().enumerate() {
            let place = format!("{tag}, layer {}", n + 1);
            bytes_left = bytes_left.checked_sub(layer.size()).ok_or_else(too_much)?;
            let document = signed_document(store, layer, &place)?;
            all.push(SignedLayer::from_descriptor(layer, document));
        }
    }
    Ok(all)
}

/// The others that are there, with these behind them. None: there are no others.
pub fn joined(there: Vec<SignedLayer>, these: Vec<SignedLayer>) -> Option<Vec<SignedLayer>> {
    let known: BTreeSet<_> = these.iter().map(SignedLayer::key).collect();
    let mut all: Vec<_> = there.into_iter().filter(|layer| !known.contains(&layer.key())).collect();
    let has_others = !all.is_empty();
    all.extend(these);
    has_others.then_some(all)
}

/// The configuration and the manifest that hold these layers.
pub fn manifest_of(layers: &[SignedLayer]) -> Result<(Vec<u8>, Vec<u8>), ImageError> {
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
        .map_err(|e| ImageError::invalid("a manifest of signatures", e.to_string()))?;
    Ok((config, manifest.into_bytes()))
}

/// The layers of a manifest that holds signatures, as far as their documents are in `blobs`.
pub fn layers_of(manifest: &[u8], blobs: &[Vec<u8>]) -> Result<Vec<SignedLayer>, ImageError> {
    let manifest: ImageManifest = parse(manifest, "a manifest of signatures")?;
    let document = |layer: &Descriptor| {
        let found = blobs.iter().find(|bytes| layer.digest().as_ref() == format!("sha256:{}", Sha256::of(bytes)));
        Some(SignedLayer::from_descriptor(layer, found?.clone()))
    };
    Ok(manifest.layers().iter().filter_map(document).collect())
}
