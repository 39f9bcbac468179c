//! Prepares an image in a layout for delta upgrades: the layers with the files of the payload become plain tar archives, and
//! get an index of chunks. The archives stay the same, so the image's configuration does, too; manifest and index change,
//! and with them the image's digest.

use std::{io::Read, path::Path};

use oci_spec::image::{Descriptor, ImageIndex, MediaType};
use serde_json::{Value, json};

use super::{
    ImageError, ImageStore, Local, LocalRef, NamedManifest,
    attest::list_of,
    chunks::{artifact, empty},
    cosign::referrers_tag,
    layer::{Layer, LayerReader},
    layout::{Place, descriptor_of},
    resolve::{Resolved, choose, is_attestation, media_type, platform_of, resolve},
    signatures,
    sink::{ImageSink as _, LayoutSink, put_bytes},
    store::parse_document,
    tar::{Entries, EntryKind},
};
use crate::delta::cut_layer;
use slipway_core::{
    delta::{
        cutter::Cutter,
        index::{DIGEST_ANNOTATION, File, Index, IndexError, MEDIA_TYPE, SIZE_ANNOTATION},
    },
    digest::Sha256,
    kernel::arch::Arch,
    payload::{image_ref::parse_digest, unused::is_installed},
    units::Extent,
};

/// The result of preparing an image.
pub struct Chunked {
    /// Its digest before, and now.
    pub digests: [Sha256; 2],
    pub layers: Vec<ChunkedLayer>,
    /// The number of signatures and attestations that are about the image of before.
    pub signatures: usize,
}

/// A layer with files of the payload.
pub struct ChunkedLayer {
    pub arch: Arch,
    /// Of the plain archive.
    pub digest: Sha256,
    /// Of the blob before and now.
    pub bytes: [u64; 2],
    pub chunks: usize,
    pub index: Sha256,
    pub index_bytes: u64,
}

/// An image in this layout, which is changed there. `progress` gets numbers of bytes that were read.
pub fn chunk(
    dir: &Path,
    wanted: &LocalRef,
    name: String,
    progress: &mut dyn FnMut(u64),
) -> Result<Chunked, ImageError> {
    let store = Local::directory(dir, wanted.clone(), name)?;
    let mut work = Work { sink: LayoutSink::new(dir), store, layers: vec![], artifacts: vec![], progress };
    let root = work.store.root()?;
    let before = Sha256::of(&root.bytes);
    let mut value: Value =
        serde_json::from_slice(&root.bytes).map_err(|e| ImageError::invalid(work.store.name(), e.to_string()))?;
    let media_type = media_type(&root);
    let (mut names, mut failed) = (vec![before], None);
    if value["manifests"].is_array() {
        let index: ImageIndex =
            parse_document(&root.bytes).map_err(|e| ImageError::invalid(work.store.name(), e.to_string()))?;
        for arch in Arch::ALL {
            let Ok(descriptor) = choose(&index, arch, "") else { continue };
            // An only image without a platform is chosen for each, and may be for one alone.
            let is_unnamed = platform_of(descriptor).is_none();
            let image = match resolve(&work.store, arch) {
                Err(other @ ImageError::WrongPlatform { .. }) if is_unnamed => {
                    failed = failed.or(Some(other));
                    continue;
                }
                image => image?,
            };
            names.push(Sha256::of(&image.manifest.bytes));
            let Some((new, bytes)) = work.manifest(&image, arch)? else { continue };
            work.sink.put_blob(&new, &|| Ok(Box::new(std::io::Cursor::new(bytes.clone()))), &mut |_| {})?;
            let all = value["manifests"].as_array_mut().into_iter().flatten();
            all.filter(|listed| listed["digest"] == json!(descriptor.digest().to_string()))
                .for_each(|listed| describe(listed, &new));
            if is_unnamed {
                break;
            }
        }
    } else {
        for (arch, image) in possible(&work.store)? {
            let Some((_, bytes)) = work.manifest(&image, arch)? else { continue };
            value =
                serde_json::from_slice(&bytes).map_err(|e| ImageError::invalid(work.store.name(), e.to_string()))?;
            break;
        }
    }
    if work.layers.is_empty() {
        let why = "no layer of it has kernel, initramfs or squashfs of a payload in /usr/install/ARCH";
        let failed = failed.filter(|_| names == [before]);
        return Err(failed.unwrap_or_else(|| ImageError::invalid(work.store.name(), why)));
    }
    let bytes = value.to_string().into_bytes();
    let digest = Sha256::of(&bytes);
    let beside = |names: &[Sha256]| signatures::beside(&work.store, names, &Arch::ALL).found;
    let beside = || beside(&names).iter().map(|found| found.signatures).sum::<usize>();
    let signatures = if digest == before { 0 } else { beside() + attestations(&root.bytes, &names) };
    work.put(&media_type, &bytes, wanted, before)?;
    Ok(Chunked { digests: [before, digest], layers: work.layers, signatures })
}

/// The number of BuildKit's attestations in an index that are about these images.
fn attestations(index: &[u8], images: &[Sha256]) -> usize {
    let index = parse_document::<ImageIndex>(index).ok();
    let is_about = |listed: &&Descriptor| {
        let about = listed.annotations().as_ref().and_then(|all| parse_digest(all.get(SUBJECT)?));
        is_attestation(listed) && about.is_some_and(|digest| images.contains(&digest))
    };
    index.map_or(0, |index| index.manifests().iter().filter(is_about).count())
}

/// Has a descriptor in a document describe other bytes. What else it says of the old ones goes.
fn describe(described: &mut Value, new: &Descriptor) {
    if described["digest"] == json!(new.digest().to_string()) {
        return;
    }
    described["mediaType"] = json!(new.media_type().to_string());
    described["digest"] = json!(new.digest().to_string());
    described["size"] = json!(new.size());
    if let Some(members) = described.as_object_mut() {
        members.retain(|name, _| !["data", "urls"].contains(&name.as_str()));
    }
    if let Some(annotations) = described.get_mut("annotations").and_then(Value::as_object_mut) {
        annotations.retain(|name, _| !OF_COMPRESSED.iter().any(|prefix| name.starts_with(prefix)));
    }
}

/// The image of a manifest without an index: more than once, if it names no architecture.
fn possible(store: &dyn ImageStore) -> Result<Vec<(Arch, Resolved)>, ImageError> {
    let (mut all, mut failed) = (Vec::new(), None);
    for arch in Arch::ALL {
        match resolve(store, arch) {
            Ok(image) => all.push((arch, image)),
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    failed.filter(|_| all.is_empty()).map_or(Ok(all), Err)
}

struct Work<'p> {
    store: Local,
    sink: LayoutSink,
    layers: Vec<ChunkedLayer>,
    /// The manifests beside the image, and the tags that list them.
    artifacts: Vec<NamedManifest>,
    progress: &'p mut dyn FnMut(u64),
}

impl Work<'_> {
    /// The new manifest of an image. None: it has no files of a payload, and stays as it is.
    fn manifest(&mut self, image: &Resolved, arch: Arch) -> Result<Option<(Descriptor, Vec<u8>)>, ImageError> {
        let invalid = |e: serde_json::Error| ImageError::invalid("manifest", e.to_string());
        let mut value: Value = serde_json::from_slice(&image.manifest.bytes).map_err(invalid)?;
        let mut indexes = Vec::new();
        for (n, layer) in image.layers.iter().enumerate() {
            if let Some(index) = self.layer(layer, arch, &mut value["layers"][n])? {
                indexes.push(index);
            }
        }
        if indexes.is_empty() {
            return Ok(None);
        }
        let bytes = value.to_string().into_bytes();
        let descriptor = descriptor_of(&media_type(&image.manifest), &bytes)?;
        let artifact = artifact(&descriptor, &indexes)?;
        let digest = Sha256::of(&bytes);
        let mut beside = self.store.referrers(digest)?.found;
        beside.push(descriptor_of(&artifact.media_type, &artifact.bytes)?);
        self.artifacts.extend([artifact, list_of(&referrers_tag(digest), &beside)?]);
        Ok(Some((descriptor, bytes)))
    }

    /// Makes a layer plain and its index, and says so in its descriptor. None: it has no files of a payload.
    fn layer(&mut self, layer: &Layer, arch: Arch, described: &mut Value) -> Result<Option<Descriptor>, ImageError> {
        let name = layer.name();
        let (files, size) = self.files(layer, arch)?;
        if files.is_empty() {
            return Ok(None);
        }
        let digest = layer.diff_id();
        let index = cut_layer(self.open(layer)?, digest, files, Cutter::STANDARD);
        let index = index.map_err(|error| match error.downcast::<IndexError>() {
            Ok(why) => {
                ImageError::reference(&name, &format!("an index of chunks cannot list it: {why}"), IN_OTHER_LAYERS)
            }
            Err(error) => ImageError::of_io(&name, error),
        })?;
        let was = layer.descriptor.size();
        if layer.plain().is_none() {
            let is_docker = layer.descriptor.media_type().to_string().contains(".docker.");
            let media_type = if is_docker { DOCKER_TAR } else { "application/vnd.oci.image.layer.v1.tar" };
            let plain = Descriptor::new(MediaType::from(media_type), size, digest_of(digest)?);
            let content = || Ok(Box::new(layer.open(&self.store)?) as Box<dyn Read + Send>);
            self.sink.put_blob(&plain, &content, &mut *self.progress)?;
            describe(described, &plain);
        }
        let bytes = index.encode();
        let put = put_bytes(&self.sink, &MediaType::from(MEDIA_TYPE), &bytes)?;
        described["annotations"][DIGEST_ANNOTATION] = json!(put.digest().to_string());
        described["annotations"][SIZE_ANNOTATION] = json!(put.size().to_string());
        let (chunks, index_bytes) = (index.len(), put.size());
        self.layers.push(ChunkedLayer {
            arch,
            digest,
            bytes: [was, size],
            chunks,
            index: Sha256::of(&bytes),
            index_bytes,
        });
        Ok(Some(put))
    }

    fn open(&mut self, layer: &Layer) -> Result<Told<'_, LayerReader<'static>>, ImageError> {
        Ok(Told { reader: layer.open(&self.store)?, progress: &mut *self.progress })
    }

    /// The files of a layer that go into a slot, and the size of its archive.
    fn files(&mut self, layer: &Layer, arch: Arch) -> Result<(Vec<File>, u64), ImageError> {
        let (name, dir) = (layer.name(), format!("usr/install/{arch}"));
        let in_layer = |e| ImageError::of_io(&name, e);
        let mut size = 0;
        let mut count = |bytes| size += bytes;
        let counted = Told { reader: layer.open(&self.store)?, progress: &mut count };
        let (mut entries, mut files) = (Entries::new(counted), Vec::new());
        while let Some(entry) = entries.next().map_err(in_layer)? {
            let path = entry.path.join("/");
            let name = path.strip_prefix(&dir).and_then(|name| name.strip_prefix('/'));
            if let (EntryKind::File, Some(name)) = (entry.kind, name.filter(|name| is_installed(name))) {
                files.push(File { at: Extent { offset: entry.at, len: entry.size }, name: name.to_owned() });
            }
        }
        entries.drain().map_err(in_layer)?;
        (self.progress)(size);
        Ok((files, size))
    }

    /// Lists the new image in place of the old one.
    fn put(&self, media_type: &MediaType, bytes: &[u8], wanted: &LocalRef, before: Sha256) -> Result<(), ImageError> {
        let (config, content) = empty()?;
        self.sink.put_blob(&config, &|| Ok(Box::new(content)), &mut |_| {})?;
        let place = match wanted {
            LocalRef::Tag(tag) => Place::Named(tag.clone()),
            LocalRef::Only | LocalRef::Digest(_) | LocalRef::Number(_) => Place::Of(before),
        };
        self.sink.put_in_place(place, (media_type, bytes), &self.artifacts)
    }
}

/// The remedy for a layer that is good, and too much for an index.
const IN_OTHER_LAYERS: &str = "build the image so that a layer has each file of the payload once, and at most 8 GiB";
/// The image that one of BuildKit's attestations is about.
const SUBJECT: &str = "vnd.docker.reference.digest";
/// Annotations that say where in a compressed layer its files are: by zstd:chunked, and by eStargz and its like. A reader
/// would look there in the plain one.
const OF_COMPRESSED: [&str; 4] = [
    "io.github.containers.zstd-chunked.",
    "io.containers.zstd-chunked.",
    "io.containers.estargz.",
    "containerd.io/snapshot/",
];
const DOCKER_TAR: &str = "application/vnd.docker.image.rootfs.diff.tar";

fn digest_of(digest: Sha256) -> Result<oci_spec::image::Sha256Digest, ImageError> {
    digest.to_string().parse().map_err(|e: oci_spec::OciSpecError| ImageError::invalid("layer", e.to_string()))
}

/// Tells how much was read.
struct Told<'p, R> {
    reader: R,
    progress: &'p mut dyn FnMut(u64),
}

impl<R: Read> Read for Told<'_, R> {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        let n = self.reader.read(buf)?;
        (self.progress)(n as u64);
        Ok(n)
    }
}

impl<R: Read> super::Skip for Told<'_, R> {
    fn skip(&mut self, bytes: u64) -> std::io::Result<()> {
        let skipped = std::io::copy(&mut self.take(bytes), &mut std::io::sink())?;
        if skipped < bytes { Err(std::io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
    }
}

/// The index of a layer, for people: how many chunks it has.
pub fn chunks_of(store: &dyn ImageStore, layer: &Layer) -> Result<Option<(Descriptor, Index)>, ImageError> {
    let Some(descriptor) = crate::delta::descriptor_of_index(&layer.descriptor)? else { return Ok(None) };
    let index = crate::delta::fetch_index(store, &layer.descriptor, &descriptor)?;
    Ok(Some((descriptor, index)))
}
