//! Container images in memory, to be read as a source is.

use std::{
    collections::BTreeMap,
    io::{Cursor, Read},
    sync::Arc,
};

use oci_spec::image::Descriptor;
use serde_json::{Value, json};
use slipway::payload::{
    ChecksumPolicy, SourceRef,
    image::{Document, ImageError, ImageSource, ImageStore, Inspection},
};
use slipway_core::{digest::Sha256, kernel::arch::Arch};

/// Blobs by digest, and the manifest.
#[derive(Clone)]
pub struct Image {
    blobs: Arc<BTreeMap<String, Vec<u8>>>,
    manifest: Arc<Vec<u8>>,
}

/// A tar archive of these files.
pub fn archive<'f>(files: impl IntoIterator<Item = (String, &'f [u8])>) -> Vec<u8> {
    let mut archive = tar::Builder::new(vec![]);
    for (path, bytes) in files {
        let mut header = tar::Header::new_ustar();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        archive.append_data(&mut header, path, bytes).unwrap();
    }
    archive.into_inner().unwrap()
}

fn put(blobs: &mut BTreeMap<String, Vec<u8>>, bytes: Vec<u8>, media_type: &str) -> Value {
    let (digest, size) = (format!("sha256:{}", Sha256::of(&bytes)), bytes.len());
    blobs.insert(digest.clone(), bytes);
    json!({ "mediaType": format!("application/vnd.oci.image.{media_type}"), "digest": digest, "size": size })
}

impl Image {
    /// An image of one layer: `archive`, as `blob` when it is packed (`packing`: "", "+gzip", "+zstd").
    pub fn new(archive: &[u8], blob: Vec<u8>, packing: &str) -> Self {
        let mut blobs = BTreeMap::new();
        let diff_id = format!("sha256:{}", Sha256::of(archive));
        let config = json!({
            "architecture": Arch::Amd64, "os": "linux", "config": {}, "rootfs": { "type": "layers", "diff_ids": [diff_id] }
        });
        let config = put(&mut blobs, serde_json::to_vec(&config).unwrap(), "config.v1+json");
        let layer = put(&mut blobs, blob, &format!("layer.v1.tar{packing}"));
        let manifest = json!({ "schemaVersion": 2, "config": config, "layers": [layer] });
        Image { blobs: Arc::new(blobs), manifest: Arc::new(serde_json::to_vec(&manifest).unwrap()) }
    }

    /// Read everything and compare every digest; bytes of the payload's files.
    pub fn look(&self) -> u64 {
        let named = SourceRef::Dir("image".into());
        let mut source = ImageSource::open(Box::new(self.clone()), named, Arch::Amd64).unwrap();
        let facts = source.facts(ChecksumPolicy::Compared, Inspection::Everything, &mut |_| ()).unwrap();
        facts.files.iter().map(|file| file.size).sum()
    }

    fn get(&self, descriptor: &Descriptor) -> Vec<u8> {
        self.blobs[&descriptor.digest().to_string()].clone()
    }
}

impl ImageStore for Image {
    fn root(&self) -> Result<Document, ImageError> {
        let media_type = Some("application/vnd.oci.image.manifest.v1+json".to_owned());
        Ok(Document { media_type, bytes: self.manifest.to_vec() })
    }

    fn document(&self, descriptor: &Descriptor) -> Result<Vec<u8>, ImageError> {
        Ok(self.get(descriptor))
    }

    fn blob(&self, descriptor: &Descriptor) -> Result<Box<dyn Read + Send>, ImageError> {
        Ok(Box::new(Cursor::new(self.get(descriptor))))
    }

    fn name(&self) -> String {
        "image".to_owned()
    }
}
