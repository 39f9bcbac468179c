//! Copies one image into an OCI layout directory, for use without a network.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io,
    path::Path,
};

use oci_spec::image::{Descriptor, MediaType};

use super::{
    ImageError, ImageStore, Layer, Local, LocalRef,
    attest::list_of,
    chunks,
    cosign::referrers_tag,
    layout::{Entry, Place, change_index, check_name, descriptor_of, io_error, remove_left, write, write_blob},
    mirrors::{past_mirrors, sent},
    resolve::{Resolved, media_type, resolve},
    sign::{joined, layers_of, layers_under, manifest_of},
    signatures::{self, AllBeside, Beside},
    store::sha256_of,
    verifying_reader::VerifyingReader,
};
use crate::{
    delta::{Delta, Old},
    open_regular,
    trust::Evidence,
};
use slipway_core::{digest::Sha256, kernel::arch::Arch};

pub struct Pull<'s> {
    store: &'s dyn ImageStore,
    image: Resolved,
    arch: Arch,
}

pub struct Pulled {
    pub manifest: Sha256,
    pub fetched: u64,
    /// Bytes that were copied from the slots of a disk.
    pub reused: u64,
    pub kept: u64,
    /// The number of signatures that came with it.
    pub signatures: usize,
    /// Documents beside the image that stayed behind, and why.
    pub left: Vec<String>,
    /// Why it is unknown whether there are more.
    pub unknown: Option<ImageError>,
}

impl<'s> Pull<'s> {
    pub fn new(store: &'s dyn ImageStore, arch: Arch) -> Result<Self, ImageError> {
        Ok(Pull { store, image: resolve(store, arch)?, arch })
    }

    /// The signatures that lie beside the image.
    pub fn evidence(&self) -> Evidence {
        signatures::evidence(self.store, &self.image.names(), self.arch)
    }

    /// The platforms of its index that are not copied.
    pub fn left_platforms(&self) -> Vec<String> {
        self.image.other_platforms().into_iter().collect()
    }

    fn blobs(&self) -> impl Iterator<Item = &Descriptor> {
        let layers = self.image.layers.iter().map(|layer| &layer.descriptor);
        [&self.image.config].into_iter().chain(layers)
    }

    /// Size of all blobs, as the manifest claims.
    pub fn bytes(&self) -> u64 {
        self.blobs().fold(0, |sum, blob| blob.size().saturating_add(sum))
    }

    /// Copy the image into `dir` under the name `tag`. Blobs that are already complete are kept. `old` may have parts of the
    /// layers.
    ///
    /// A blob gets its name only once its digest is right and it is flushed, and index.json is replaced last: after a
    /// power cut the layout is still valid.
    pub fn into(
        self,
        dir: &Path,
        tag: Option<&str>,
        old: Option<&Old<'_>>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Pulled, ImageError> {
        let blobs = dir.join("blobs/sha256");
        fs::create_dir_all(&blobs).map_err(|e| io_error(&blobs, e))?;
        // Flush the directories before anything in them.
        for made in blobs.ancestors().take(4).filter(|path| path.is_dir()) {
            File::open(made).and_then(|dir| dir.sync_all()).map_err(|e| io_error(made, e))?;
        }
        tag.map_or(Ok(()), |tag| check_name(dir, tag))?;
        [dir, &blobs].into_iter().for_each(remove_left);
        let manifest = &self.image.manifest;
        let manifest_digest = Sha256::of(&manifest.bytes);
        let (left, unknown) = (Vec::new(), None);
        let mut pulled =
            Pulled { manifest: manifest_digest, fetched: 0, reused: 0, kept: 0, signatures: 0, left, unknown };
        self.copy(&self.image.config, &blobs, progress)?.count(&mut pulled);
        for layer in &self.image.layers {
            self.copy_layer(layer, &blobs, old, progress)?.count(&mut pulled);
        }
        write(&blobs.join(pulled.manifest.to_string()), &manifest.bytes)?;
        let mut listed = vec![(manifest_descriptor(&self.image)?, tag.map(str::to_owned).into())];
        let mut about = BTreeMap::<_, Vec<_>>::new();
        let chunks = self.copy_chunks(&blobs, &mut pulled).map(|artifact| {
            about.entry(manifest_digest).or_default().extend(artifact.clone());
            listed.extend(artifact.map(|artifact| (artifact, Place::Unnamed)));
        });
        // A registry that cannot list the documents beside an image still has the image. A caller that demands a
        // signature has looked before, and looks again in the copy.
        let AllBeside { found, faults, unknown } = signatures::beside(self.store, &self.image.names(), &[self.arch]);
        (pulled.left, pulled.unknown) = (faults, unknown);
        // It is for saving traffic. Without it the image is whole.
        pulled.left.extend(chunks.err().map(|e| format!("index of chunks: {e}")));
        for signed in found.iter().map(|beside| beside.image).collect::<BTreeSet<_>>() {
            self.write_index(signed, &blobs)?;
        }
        let there = Some(dir).filter(|dir| dir.join("index.json").exists());
        let there = there.and_then(|dir| Local::directory(dir, LocalRef::Only, dir.display().to_string()).ok());
        for mut beside in found {
            match keep_others(there.as_ref(), &mut beside) {
                Ok(()) => {}
                // They may be read another time: the tag stays as it is.
                Err(error @ ImageError::Io { .. }) => {
                    pulled.left.push(format!("signatures under the same name as those that the layout has: {error}"));
                    continue;
                }
                Err(error) => pulled.left.push(format!("signatures that the layout had: {error}")),
            }
            pulled.signatures += beside.signatures;
            let manifest = Self::write_signatures(&beside, &blobs)?;
            if beside.tag.is_none() {
                about.entry(beside.image).or_default().push(manifest.clone());
            }
            listed.push((manifest, beside.tag.into()));
        }
        write_lists(there.as_ref(), &about, &blobs, &mut listed)?;
        write(&dir.join("oci-layout"), b"{\"imageLayoutVersion\":\"1.0.0\"}")?;
        change_index(dir, &[], listed)?;
        Ok(pulled)
    }

    /// Copy a blob, unless it is complete already.
    fn copy(&self, blob: &Descriptor, blobs: &Path, progress: &mut dyn FnMut(u64)) -> Result<Copied, ImageError> {
        match kept(blobs, blob, progress)? {
            Some(kept) => Ok(kept),
            None => self.fetch(blob, blobs, progress),
        }
    }

    fn fetch(&self, blob: &Descriptor, blobs: &Path, progress: &mut dyn FnMut(u64)) -> Result<Copied, ImageError> {
        let mut once = Once { told: 0, progress };
        past_mirrors(self.store, ImageError::is_wrong, || {
            let bytes = self.store.blob(blob).map_err(ImageError::of_part)?;
            let what = sent(format!("blob {}", blob.digest()), self.store);
            let mut again = once.told;
            write_checked(bytes, blob, what, blobs, &mut |n| once.tell(n, &mut again))
        })?;
        Ok(Copied { fetched: blob.size(), ..Copied::default() })
    }

    /// Copy a layer: from a disk what that has of it.
    fn copy_layer(
        &self,
        layer: &Layer,
        blobs: &Path,
        old: Option<&Old<'_>>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Copied, ImageError> {
        let blob = &layer.descriptor;
        if let Some(kept) = kept(blobs, blob, progress)? {
            return Ok(kept);
        }
        let delta = old.and_then(|old| Some((old, Delta::open(self.store, layer, old, &|_| false)?)));
        let Some((old, delta)) = delta else { return self.fetch(blob, blobs, progress) };
        let (fetched, reused) = (self.store.fetched(), old.said.reused());
        let mut once = Once { told: 0, progress };
        match write_checked(delta, blob, format!("blob {}", blob.digest()), blobs, &mut |n| once.tell(n, &mut 0)) {
            Ok(()) => {
                let (fetched, reused) = (self.store.fetched() - fetched, old.said.reused() - reused);
                Ok(Copied { fetched, reused, kept: 0 })
            }
            // The bytes that were reused are wrong: the index lies.
            Err(ImageError::Invalid { .. }) => {
                old.said.is_wrong(layer.name());
                let mut again = once.told;
                self.fetch(blob, blobs, &mut |n| once.tell(n, &mut again))
            }
            Err(error) => Err(error),
        }
    }

    /// Copies the indexes of chunks, and the manifest that holds them in a registry.
    fn copy_chunks(&self, blobs: &Path, pulled: &mut Pulled) -> Result<Option<Descriptor>, ImageError> {
        let indexes = chunks::indexes(self.image.layers.iter().map(|layer| &layer.descriptor));
        if indexes.is_empty() {
            return Ok(None);
        }
        for index in &indexes {
            self.copy(index, blobs, &mut |_| {})?.count(pulled);
        }
        let artifact = chunks::artifact(&manifest_descriptor(&self.image)?, &indexes)?;
        for bytes in [chunks::empty()?.1, &artifact.bytes] {
            write(&blobs.join(Sha256::of(bytes).to_string()), bytes)?;
        }
        descriptor_of(&artifact.media_type, &artifact.bytes).map(Some)
    }

    /// Write the image's signatures: a manifest and its blobs.
    fn write_signatures(beside: &Beside, blobs: &Path) -> Result<Descriptor, ImageError> {
        for bytes in beside.blobs.iter().chain([&beside.manifest]) {
            write(&blobs.join(Sha256::of(bytes).to_string()), bytes)?;
        }
        descriptor_of(&MediaType::ImageManifest, &beside.manifest)
    }

    /// If an index is signed, the index comes along as a blob, because it says that the manifest is one of it.
    fn write_index(&self, signed: Sha256, blobs: &Path) -> Result<(), ImageError> {
        let index = match self.image.index.as_ref() {
            Some(bytes) if signed == self.image.root => Some(bytes.clone()),
            _ => self.store.by_digest(signed)?,
        };
        match index.filter(|bytes| Sha256::of(bytes) == signed) {
            Some(bytes) => write(&blobs.join(signed.to_string()), &bytes),
            None => Ok(()),
        }
    }
}

/// Lists what has no name under the tag of what it is about, beside all that the layout has about that: other programs copy
/// names alone.
fn write_lists(
    layout: Option<&Local>,
    about: &BTreeMap<Sha256, Vec<Descriptor>>,
    blobs: &Path,
    listed: &mut Vec<Entry>,
) -> Result<(), ImageError> {
    for (subject, new) in about.iter().filter(|(_, new)| !new.is_empty()) {
        let mut all = layout.map_or(Ok(vec![]), |layout| layout.referrers(*subject).map(|listing| listing.found))?;
        all.extend(new.iter().cloned());
        let list = list_of(&referrers_tag(*subject), &all)?;
        write(&blobs.join(Sha256::of(&list.bytes).to_string()), &list.bytes)?;
        listed.push((descriptor_of(&list.media_type, &list.bytes)?, list.tag.into()));
    }
    Ok(())
}

/// Keep the signatures that the layout has under the same tag: they may have been made there.
fn keep_others(layout: Option<&Local>, beside: &mut Beside) -> Result<(), ImageError> {
    let (Some(layout), Some(tag)) = (layout, &beside.tag) else { return Ok(()) };
    if let Some(all) = joined(layers_under(layout, tag)?, layers_of(&beside.manifest, &beside.blobs)?) {
        let (config, manifest) = manifest_of(&all)?;
        beside.manifest = manifest;
        beside.blobs = all.into_iter().map(|layer| layer.document).chain([config]).collect();
    }
    Ok(())
}

/// Reports each byte of a blob once, however often the blob is fetched.
struct Once<'p> {
    told: u64,
    progress: &'p mut dyn FnMut(u64),
}

impl Once<'_> {
    /// So many bytes came. `again` are those that an attempt before has told.
    fn tell(&mut self, n: u64, again: &mut u64) {
        let new = n.saturating_sub(*again);
        *again = again.saturating_sub(n);
        self.told += new;
        (self.progress)(new);
    }
}

/// Where the bytes of a blob came from.
#[derive(Clone, Copy, Debug, Default)]
struct Copied {
    fetched: u64,
    reused: u64,
    kept: u64,
}

impl Copied {
    const fn count(self, pulled: &mut Pulled) {
        pulled.fetched += self.fetched;
        pulled.reused += self.reused;
        pulled.kept += self.kept;
    }
}

/// Write a blob under its name, once its digest is right.
fn write_checked(
    bytes: impl io::Read,
    blob: &Descriptor,
    what: String,
    blobs: &Path,
    progress: &mut dyn FnMut(u64),
) -> Result<(), ImageError> {
    let path = blobs.join(sha256_of(blob)?.to_string());
    write_blob(VerifyingReader::of_blob(bytes, what.clone(), blob)?, &what, &path, progress)
}

/// A blob that is complete already. All of it is read.
fn kept(blobs: &Path, blob: &Descriptor, progress: &mut dyn FnMut(u64)) -> Result<Option<Copied>, ImageError> {
    let Ok(file) = open_regular(&blobs.join(sha256_of(blob)?.to_string())) else { return Ok(None) };
    let mut reader = VerifyingReader::of_blob(file, String::new(), blob)?;
    if io::copy(&mut reader, &mut io::sink()).is_err() {
        return Ok(None);
    }
    progress(blob.size());
    Ok(Some(Copied { kept: blob.size(), ..Copied::default() }))
}

pub fn manifest_descriptor(image: &Resolved) -> Result<Descriptor, ImageError> {
    descriptor_of(&media_type(&image.manifest), &image.manifest.bytes)
}
