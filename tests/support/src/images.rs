//! Container images made byte by byte, good and hostile: layers, configuration, manifest, index, in the OCI layout.

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
};

use flate2::{Compression, write::GzEncoder};
use serde_json::{Value, json};
use slipway_core::digest::Sha256;
use tar::{EntryType, Header};

/// Where a payload lies in an image.
pub const DIR: &str = "usr/install/amd64";

/// The compression of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pack {
    Plain,
    Gzip,
    Zstd,
}

impl Pack {
    pub const ALL: [Pack; 3] = [Pack::Plain, Pack::Gzip, Pack::Zstd];

    pub fn media_type(self) -> &'static str {
        match self {
            Pack::Plain => "application/vnd.oci.image.layer.v1.tar",
            Pack::Gzip => "application/vnd.oci.image.layer.v1.tar+gzip",
            Pack::Zstd => "application/vnd.oci.image.layer.v1.tar+zstd",
        }
    }

    pub fn pack(self, bytes: &[u8]) -> Vec<u8> {
        match self {
            Pack::Plain => bytes.to_vec(),
            Pack::Gzip => {
                let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
                encoder.write_all(bytes).unwrap();
                encoder.finish().unwrap()
            }
            Pack::Zstd => zstd::encode_all(bytes, 3).unwrap(),
        }
    }
}

/// A tar archive under construction.
#[derive(Clone, Default)]
pub struct Tar(pub Vec<u8>);

impl Tar {
    pub fn new() -> Self {
        Tar::default()
    }

    /// The head of an entry with whatever in it; no content.
    pub fn header(self, path: &str, kind: EntryType, size: u64, link: &str) -> Self {
        self.header_with(0o644, path, kind, size, link)
    }

    fn header_with(mut self, mode: u32, path: &str, kind: EntryType, size: u64, link: &str) -> Self {
        let mut header = Header::new_ustar();
        let bytes = header.as_mut_bytes();
        // Past the crate's own checks: they refuse what is to be tried here.
        bytes[..path.len()].copy_from_slice(path.as_bytes());
        bytes[157..157 + link.len()].copy_from_slice(link.as_bytes());
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_mtime(0);
        header.set_uid(0);
        header.set_gid(0);
        header.set_size(size);
        header.set_cksum();
        self.0.extend(header.as_bytes());
        self
    }

    /// Content, padded to whole blocks.
    pub fn content(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
        self
    }

    pub fn entry(self, path: &str, kind: EntryType, bytes: &[u8]) -> Self {
        self.header(path, kind, bytes.len() as u64, "").content(bytes)
    }

    pub fn file(self, path: &str, bytes: &[u8]) -> Self {
        self.entry(path, EntryType::Regular, bytes)
    }

    /// A file that can be run.
    pub fn program(self, path: &str, bytes: &[u8]) -> Self {
        self.header_with(0o755, path, EntryType::Regular, bytes.len() as u64, "").content(bytes)
    }

    pub fn dir(self, path: &str) -> Self {
        self.header(path, EntryType::Directory, 0, "")
    }

    pub fn link(self, path: &str, kind: EntryType, to: &str) -> Self {
        self.header(path, kind, 0, to)
    }

    /// An extended header for the entry that follows.
    pub fn pax(self, kind: EntryType, records: &[(&str, &str)]) -> Self {
        let record = |(key, value): &(&str, &str)| {
            let rest = format!(" {key}={value}\n");
            let mut len = rest.len() + 1;
            while len != rest.len() + len.to_string().len() {
                len += 1;
            }
            format!("{len}{rest}")
        };
        let text: String = records.iter().map(record).collect();
        self.entry("PaxHeaders/x", kind, text.as_bytes())
    }

    /// The end of the archive.
    pub fn end(mut self) -> Vec<u8> {
        self.0.extend([0; 1024]);
        self.0
    }
}

/// A layer as it lies in a layout.
#[derive(Clone)]
pub struct Layer {
    pub blob: Vec<u8>,
    /// Its descriptor in the manifest: mediaType, digest, size.
    pub descriptor: Value,
    pub diff_id: String,
}

impl Layer {
    pub fn new(tar: Vec<u8>, pack: Pack) -> Self {
        let blob = pack.pack(&tar);
        Layer::of(blob, &tar, pack.media_type())
    }

    /// A blob whatever it is, announced as this archive.
    pub fn of(blob: Vec<u8>, tar: &[u8], media_type: &str) -> Self {
        let descriptor = descriptor(media_type, &blob);
        Layer { blob, descriptor, diff_id: digest(tar) }
    }
}

pub fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", Sha256::of(bytes))
}

pub fn descriptor(media_type: &str, bytes: &[u8]) -> Value {
    json!({"mediaType": media_type, "digest": digest(bytes), "size": bytes.len()})
}

/// An image; everything can be spoiled before it is written.
pub struct Image {
    pub layers: Vec<Layer>,
    pub arch: &'static str,
    pub os: &'static str,
    /// What is changed in the configuration and in the manifest before they are digested.
    pub edit_config: fn(&mut Value),
    pub edit_manifest: fn(&mut Value),
}

pub const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";

impl Image {
    pub fn new(layers: Vec<Layer>) -> Self {
        Image { layers, arch: "amd64", os: "linux", edit_config: |_| (), edit_manifest: |_| () }
    }

    /// Put it into a layout under a tag; its descriptor.
    pub fn write(&self, layout: &Layout, tag: &str) -> Value {
        let descriptor = self.write_blobs(layout);
        layout.tag(tag, &descriptor);
        descriptor
    }

    /// Its blobs only.
    pub fn write_blobs(&self, layout: &Layout) -> Value {
        let diff_ids: Vec<_> = self.layers.iter().map(|l| l.diff_id.clone()).collect();
        let mut config = json!({
            "architecture": self.arch, "os": self.os, "config": {}, "rootfs": {"type": "layers", "diff_ids": diff_ids},
        });
        (self.edit_config)(&mut config);
        let config = config.to_string().into_bytes();
        layout.blob(&config);
        for layer in &self.layers {
            layout.blob_as(layer.descriptor["digest"].as_str().unwrap(), &layer.blob);
        }
        let layers: Vec<_> = self.layers.iter().map(|l| l.descriptor.clone()).collect();
        let mut manifest = json!({
            "schemaVersion": 2, "mediaType": MANIFEST, "config": descriptor(CONFIG, &config), "layers": layers,
        });
        (self.edit_manifest)(&mut manifest);
        let manifest = manifest.to_string().into_bytes();
        layout.blob(&manifest);
        descriptor(MANIFEST, &manifest)
    }
}

/// A directory in the OCI layout.
pub struct Layout(pub PathBuf);

impl Layout {
    pub fn new(dir: &Path) -> Self {
        fs::create_dir_all(dir.join("blobs/sha256")).unwrap();
        fs::write(dir.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
        let layout = Layout(dir.to_owned());
        layout.index(&[]);
        layout
    }

    pub fn blob(&self, bytes: &[u8]) -> String {
        let digest = digest(bytes);
        self.blob_as(&digest, bytes);
        digest
    }

    pub fn blob_as(&self, digest: &str, bytes: &[u8]) {
        fs::write(self.path(digest), bytes).unwrap();
    }

    pub fn path(&self, digest: &str) -> PathBuf {
        self.0.join("blobs").join(digest.replace(':', "/"))
    }

    fn index(&self, manifests: &[Value]) {
        let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests});
        fs::write(self.0.join("index.json"), index.to_string()).unwrap();
    }

    /// Add a named descriptor.
    pub fn tag(&self, tag: &str, descriptor: &Value) {
        let index: Value = serde_json::from_slice(&fs::read(self.0.join("index.json")).unwrap()).unwrap();
        let mut manifests = index["manifests"].as_array().unwrap().clone();
        let mut named = descriptor.clone();
        named["annotations"] = json!({"org.opencontainers.image.ref.name": tag});
        manifests.push(named);
        self.index(&manifests);
    }

    /// Add a descriptor without a name.
    pub fn list(&self, descriptor: &Value) {
        let index: Value = serde_json::from_slice(&fs::read(self.0.join("index.json")).unwrap()).unwrap();
        let mut manifests = index["manifests"].as_array().unwrap().clone();
        manifests.push(descriptor.clone());
        self.index(&manifests);
    }

    /// An index of these descriptors, each with a platform, as a blob; its descriptor.
    pub fn nested(&self, manifests: &[(&Value, &str)]) -> Value {
        let with_platform = |(descriptor, arch): &(&Value, &str)| {
            let mut d = (*descriptor).clone();
            d["platform"] = json!({"os": "linux", "architecture": arch});
            d
        };
        let manifests: Vec<_> = manifests.iter().map(with_platform).collect();
        let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests}).to_string().into_bytes();
        self.blob(&index);
        descriptor(INDEX, &index)
    }

    pub fn source(&self) -> String {
        format!("oci:{}", self.0.display())
    }
}

/// The files of a payload directory as `(name, bytes)`.
pub fn files(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(dir).unwrap().map(Result::unwrap);
    let mut files: Vec<_> =
        entries.map(|e| (e.file_name().into_string().unwrap(), fs::read(e.path()).unwrap())).collect();
    files.sort();
    files
}

/// The directories above a payload, as builders write them.
pub fn dirs() -> Tar {
    Tar::new().dir("usr/").dir("usr/install/").dir(&format!("{DIR}/"))
}

/// A layer of some of a payload's files.
pub fn layer(files: &[(String, Vec<u8>)], names: &[&str], pack: Pack) -> Layer {
    let picked = files.iter().filter(|(name, _)| names.contains(&name.as_str()));
    Layer::new(picked.fold(dirs(), |tar, (name, bytes)| tar.file(&format!("{DIR}/{name}"), bytes)).end(), pack)
}

/// What `COPY` and `RUN installer checksum` make of a payload with checksums: two layers on one of other things.
pub fn built(dir: &Path, pack: Pack) -> Image {
    let files = files(dir);
    let base = Layer::new(
        Tar::new().dir("etc/").file("etc/hostname", b"x").link("bin", EntryType::Symlink, "usr/bin").end(),
        pack,
    );
    let copied: Vec<_> = files.iter().map(|(name, _)| name.as_str()).filter(|n| !CHECKSUM_FILES.contains(n)).collect();
    Image::new(vec![base, layer(&files, &copied, pack), layer(&files, &CHECKSUM_FILES, pack)])
}

/// The files that `installer checksum` writes.
pub const CHECKSUM_FILES: [&str; 2] = ["SHA256SUMS", "manifest.json"];
