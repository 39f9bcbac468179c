//! Copies one image into an OCI layout directory, for use without a network.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    str::FromStr as _,
};

use oci_spec::image::{Descriptor, ImageIndex, ImageIndexBuilder, MediaType, Sha256Digest};

use super::{
    ImageError, ImageStore,
    local::REF_NAME,
    resolve::{Resolved, resolve},
    signatures::{self, Beside},
    store::{read_document, sha256_of},
    verifying_reader::{Length, VerifyingReader},
};
use crate::{atomic_file::publish, cleanup, trust::Evidence};
use slipway_core::{digest::Sha256, kernel::arch::Arch};

pub struct Pull<'s> {
    store: &'s dyn ImageStore,
    image: Resolved,
}

pub struct Pulled {
    pub manifest: Sha256,
    pub fetched: u64,
    pub kept: u64,
    /// How many came with it.
    pub signatures: usize,
    /// Why nobody knows whether there are any.
    pub unknown: Option<ImageError>,
}

impl<'s> Pull<'s> {
    pub fn new(store: &'s dyn ImageStore, arch: Arch) -> Result<Self, ImageError> {
        Ok(Pull { store, image: resolve(store, arch)? })
    }

    /// The signatures that lie beside the image.
    pub fn evidence(&self) -> Result<Evidence, ImageError> {
        signatures::evidence(self.store, &self.image.names())
    }

    fn blobs(&self) -> impl Iterator<Item = &Descriptor> {
        let layers = self.image.layers.iter().map(|layer| &layer.descriptor);
        [&self.image.config].into_iter().chain(layers)
    }

    /// Size of all blobs, as the manifest claims.
    pub fn bytes(&self) -> u64 {
        self.blobs().fold(0, |sum, blob| blob.size().saturating_add(sum))
    }

    /// Copy the image into `dir` under the name `tag`. Blobs that are already complete are kept.
    ///
    /// A blob gets its name only once its digest is right and it is flushed, and index.json is replaced last: after a
    /// power cut the layout is still valid.
    pub fn into(self, dir: &Path, tag: Option<&str>, progress: &mut dyn FnMut(u64)) -> Result<Pulled, ImageError> {
        let blobs = dir.join("blobs/sha256");
        fs::create_dir_all(&blobs).map_err(|e| io_error(&blobs, e))?;
        // Flush the directories before anything in them.
        for made in blobs.ancestors().take(4).filter(|path| path.is_dir()) {
            File::open(made).and_then(|dir| dir.sync_all()).map_err(|e| io_error(made, e))?;
        }
        let manifest = &self.image.manifest;
        let manifest_digest = Sha256::of(&manifest.bytes);
        let mut pulled = Pulled { manifest: manifest_digest, fetched: 0, kept: 0, signatures: 0, unknown: None };
        for descriptor in self.blobs() {
            let size = descriptor.size();
            match self.copy(descriptor, &blobs, progress)? {
                true => pulled.fetched += size,
                false => pulled.kept += size,
            }
        }
        write(&blobs.join(pulled.manifest.to_string()), &manifest.bytes)?;
        let mut listed = vec![(manifest_descriptor(&self.image)?, tag.map(str::to_owned))];
        // A registry that cannot say what it has beside an image still has the image. Who demands a signature has looked
        // before, and looks again in what was copied.
        match signatures::beside(self.store, &self.image.names()) {
            Ok(found) => {
                for beside in found {
                    self.copy_signatures(&beside, &blobs, &mut listed)?;
                    pulled.signatures += beside.signatures;
                }
            }
            Err(error) => pulled.unknown = Some(error),
        }
        write(&dir.join("oci-layout"), b"{\"imageLayoutVersion\":\"1.0.0\"}")?;
        let index = index(dir, listed)?;
        write(&dir.join("index.json"), index.as_bytes())?;
        Ok(pulled)
    }

    /// Copy a blob, unless it is complete already. Returns whether it was copied.
    fn copy(&self, descriptor: &Descriptor, blobs: &Path, progress: &mut dyn FnMut(u64)) -> Result<bool, ImageError> {
        let digest = sha256_of(descriptor)?;
        let path = blobs.join(digest.to_string());
        if is_complete(&path, descriptor.size(), digest) {
            progress(descriptor.size());
            return Ok(false);
        }
        let what = format!("blob {}", descriptor.digest());
        let length = Length::Exactly(descriptor.size());
        let blob = VerifyingReader::new(self.store.blob(descriptor)?, what.clone(), digest, length);
        write_blob(blob, &what, &path, progress)?;
        Ok(true)
    }

    /// Copy what is signed of the image: a manifest and its blobs. Where it is an index that is signed, the index comes
    /// along as a blob, because it says that the manifest is one of it.
    fn copy_signatures(
        &self,
        beside: &Beside,
        blobs: &Path,
        listed: &mut Vec<(Descriptor, Option<String>)>,
    ) -> Result<(), ImageError> {
        for blob in &beside.blobs {
            self.copy(blob, blobs, &mut |_| ())?;
        }
        let index = match self.image.index.as_ref() {
            Some(bytes) if beside.image == self.image.root => Some(bytes.clone()),
            _ => self.store.by_digest(beside.image)?,
        };
        if let Some(bytes) = index.filter(|bytes| Sha256::of(bytes) == beside.image) {
            write(&blobs.join(beside.image.to_string()), &bytes)?;
        }
        write(&blobs.join(Sha256::of(&beside.manifest).to_string()), &beside.manifest)?;
        listed.push((descriptor_of(&MediaType::ImageManifest, &beside.manifest)?, beside.tag.clone()));
        Ok(())
    }
}

fn is_complete(path: &Path, size: u64, digest: Sha256) -> bool {
    let Ok(file) = File::open(path) else { return false };
    let mut reader = VerifyingReader::new(file, String::new(), digest, Length::Exactly(size));
    io::copy(&mut reader, &mut io::sink()).is_ok()
}

fn write_blob(
    mut blob: impl io::Read,
    what: &str,
    path: &Path,
    progress: &mut dyn FnMut(u64),
) -> Result<(), ImageError> {
    replace_durably(path, |file| {
        let mut buf = vec![0; 256 << 10];
        loop {
            let n = blob.read(&mut buf).map_err(|e| ImageError::of_io(what, e))?;
            if n == 0 {
                return Ok(());
            }
            file.write_all(&buf[..n]).map_err(|e| io_error(path, e))?;
            progress(n as u64);
        }
    })
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), ImageError> {
    replace_durably(path, |file| file.write_all(bytes).map_err(|e| io_error(path, e)))
}

fn replace_durably(path: &Path, fill: impl FnOnce(&mut File) -> Result<(), ImageError>) -> Result<(), ImageError> {
    let io = |e| io_error(path, e);
    let dir = path.parent().ok_or_else(|| io(io::ErrorKind::InvalidInput.into()))?;
    let public = fs::Permissions::from_mode(0o644);
    let make = || tempfile::Builder::new().prefix(".pull-").permissions(public).tempfile_in(dir);
    let mut file = cleanup::side(make, |file| file.path().to_owned()).map_err(io)?;
    fill(file.as_file_mut())?;
    publish(file, path, true).map_err(io)
}

/// The new index.json: these manifests are added, and replace others of the same name.
fn index(dir: &Path, new: Vec<(Descriptor, Option<String>)>) -> Result<String, ImageError> {
    let path = dir.join("index.json");
    let wrong = |why: String| ImageError::invalid(path.display().to_string(), why);
    let mut index: ImageIndex = match File::open(&path) {
        Ok(file) => {
            let bytes = read_document(file, &path.display().to_string())?;
            serde_json::from_slice(&bytes).map_err(|e| wrong(format!("not an image index: {e}")))?
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => empty_index()?,
        Err(e) => return Err(io_error(&path, e)),
    };
    let name = |d: &Descriptor| d.annotations().as_ref().and_then(|a| a.get(REF_NAME)).cloned();
    for (mut descriptor, tag) in new {
        let same = |d: &Descriptor| match &tag {
            Some(tag) => name(d).as_ref() == Some(tag),
            None => name(d).is_none() && d.digest() == descriptor.digest(),
        };
        let mut manifests: Vec<_> = index.manifests().iter().filter(|d| !same(d)).cloned().collect();
        if let Some(tag) = tag {
            descriptor.set_annotations(Some([(REF_NAME.to_owned(), tag)].into()));
        }
        manifests.push(descriptor);
        index.set_manifests(manifests);
    }
    serde_json::to_string(&index).map_err(|e| wrong(e.to_string()))
}

pub fn empty_index() -> Result<ImageIndex, ImageError> {
    let builder = ImageIndexBuilder::default().schema_version(2u32).media_type(MediaType::ImageIndex);
    builder.manifests(Vec::new()).build().map_err(|e| ImageError::invalid("index.json", e.to_string()))
}

pub fn manifest_descriptor(image: &Resolved) -> Result<Descriptor, ImageError> {
    let media_type = image.manifest.media_type.as_deref().map_or(MediaType::ImageManifest, MediaType::from);
    descriptor_of(&media_type, &image.manifest.bytes)
}

fn descriptor_of(media_type: &MediaType, bytes: &[u8]) -> Result<Descriptor, ImageError> {
    let digest = Sha256Digest::from_str(&Sha256::of(bytes).to_string());
    let digest = digest.map_err(|e| ImageError::invalid("index.json", e.to_string()))?;
    Ok(Descriptor::new(media_type.clone(), bytes.len() as u64, digest))
}

fn io_error(path: &Path, source: io::Error) -> ImageError {
    ImageError::Io { what: PathBuf::from(path).display().to_string(), source }
}
