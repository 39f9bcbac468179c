//! Images in local files: a directory in the OCI image layout, or a tar archive of one.
//!
//! OCI image specification 1.1, image-layout.md.

mod files;

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, Read},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use oci_spec::image::{Descriptor, ImageIndex, ImageManifest, MediaType};

use super::{
    Document, ImageError, ImageStore, Listing,
    beside::MAX_BESIDE_BYTES,
    cosign,
    names::{CONTAINERD_NAME, REF_NAME, SEVERAL, annotation, is_named, whole_name},
    resolve::{checked_document, is_attestation, platform},
    store::{MAX_DOCUMENT_BYTES, parse_document, read_document, sha256_of},
};
use slipway_core::digest::Sha256;

use files::{Archive, Directory, Files};

// Annotation with which `cosign save` marks the kinds.
const KIND: &str = "kind";
const COSIGN: &str = "dev.cosignproject.cosign/";
const IMAGE: &str = "dev.cosignproject.cosign/image";
const SIGNATURES: &str = "dev.cosignproject.cosign/sigs";
// Limit on memory and time: all manifests in an index.json that have no name, and so may be about another one.
const MAX_NAMELESS_BYTES: u64 = 256 << 20;
const ABSENT: &str = "copy it with all of them, or the one that is there alone (installer pull)";

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LocalRef {
    /// The layout has only one image.
    Only,
    Tag(String),
    Digest(Sha256),
    /// By its place in index.json, from 0.
    Number(usize),
}

pub struct Local {
    files: Box<dyn Files>,
    // For messages.
    path: PathBuf,
    name: String,
    wanted: LocalRef,
    // No writer will change index.json.
    is_only_read: bool,
    subjects: Mutex<Subjects>,
}

/// Subjects of manifests, by their digests. An index.json may list the same one thousands of times.
#[derive(Default)]
struct Subjects {
    known: BTreeMap<String, Option<Sha256>>,
    // Size of all manifests that were read.
    bytes: u64,
}

impl Local {
    pub fn directory(dir: &Path, wanted: LocalRef, name: String) -> Result<Self, ImageError> {
        Self::new(Box::new(Directory(dir.to_owned())), dir, name, wanted).check_version()
    }

    pub fn archive(file: &Path, wanted: LocalRef, name: String) -> Result<Self, ImageError> {
        if file.is_dir() {
            return Err(ImageError::reference(file.display().to_string(), "it is a directory", "write oci:DIR"));
        }
        let files = Archive::index(file).map_err(|source| io_error(&file.display().to_string(), source))?;
        Self::new(Box::new(files), file, name, wanted).check_version()
    }

    fn new(files: Box<dyn Files>, path: &Path, name: String, wanted: LocalRef) -> Self {
        Local { files, path: path.to_owned(), name, wanted, is_only_read: false, subjects: Mutex::default() }
    }

    /// For a program that only reads: index.json may itself be the index of the image. A signature beside it would change it.
    #[must_use]
    pub fn only_read(self) -> Self {
        Local { is_only_read: true, ..self }
    }

    fn check_version(self) -> Result<Self, ImageError> {
        #[derive(serde::Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct OciLayout {
            image_layout_version: String,
        }
        let bytes = self.read("oci-layout").map_err(|error| match self.files.instead() {
            Some((is, instead)) => ImageError::reference(self.path.display().to_string(), is, instead),
            None => error,
        })?;
        let what = self.what("oci-layout");
        let layout: OciLayout =
            serde_json::from_slice(&bytes).map_err(|e| ImageError::invalid(&what, e.to_string()))?;
        match layout.image_layout_version.as_str() {
            version if version.starts_with("1.") => Ok(self),
            other => Err(ImageError::invalid(what, format!("layout version {other:?} is not supported; 1.0.0 is"))),
        }
    }

    fn what(&self, path: &str) -> String {
        format!("{}/{path}", self.path.display())
    }

    fn open(&self, path: &str) -> Result<Box<dyn Read + Send>, ImageError> {
        self.files.open(path).map_err(|source| io_error(&self.what(path), source))
    }

    fn read(&self, path: &str) -> Result<Vec<u8>, ImageError> {
        read_document(self.open(path)?, &self.what(path))
    }

    fn blob_path(descriptor: &Descriptor) -> Result<String, ImageError> {
        Ok(format!("blobs/sha256/{}", sha256_of(descriptor)?))
    }

    fn index(&self) -> Result<ImageIndex, ImageError> {
        let bytes = self.read("index.json")?;
        parse_document(&bytes)
            .map_err(|e| ImageError::invalid(self.what("index.json"), format!("not an image index: {e}")))
    }

    fn listed(&self, descriptor: &Descriptor) -> Result<Document, ImageError> {
        let what = format!("{}: {}", self.name, descriptor.digest());
        let bytes = checked_document(self, descriptor, &what)?;
        Ok(Document { media_type: Some(descriptor.media_type().to_string()), bytes })
    }

    /// Manifests that index.json lists and that fit, each once, the small ones first, within the limit for documents
    /// beside an image.
    fn documents(&self, fits: impl Fn(&Descriptor) -> bool) -> Result<Listing<Document>, ImageError> {
        let index = self.index()?;
        let wanted = index.manifests().iter().filter(|descriptor| fits(descriptor));
        let each: BTreeMap<_, _> = wanted.map(|d| ((d.size(), d.digest().to_string()), d)).collect();
        let (mut listing, mut bytes_left) = (Listing::default(), MAX_BESIDE_BYTES);
        for ((bytes, digest), descriptor) in each {
            let Some(left) = bytes_left.checked_sub(bytes) else {
                let why = format!("more than {} MiB of it are listed: not looked at", MAX_BESIDE_BYTES >> 20);
                listing.faults.push(ImageError::invalid(format!("{}: {digest}", self.name), why));
                break;
            };
            bytes_left = left;
            match self.listed(descriptor) {
                Ok(document) => listing.found.push(document),
                Err(error) => listing.faults.push(error),
            }
        }
        Ok(listing)
    }

    /// The manifests in index.json that are about another one, with the digest of that.
    fn subjects(&self) -> Result<Listing<(Descriptor, Sha256)>, ImageError> {
        let mut listing = Listing::default();
        for descriptor in self.index()?.manifests() {
            match self.subject(descriptor) {
                Ok(Some(subject)) => listing.found.push((descriptor.clone(), subject)),
                Ok(None) => {}
                Err(error) => listing.faults.push(error),
            }
        }
        Ok(listing)
    }

    fn subject(&self, descriptor: &Descriptor) -> Result<Option<Sha256>, ImageError> {
        if annotation(descriptor, REF_NAME).is_some() || *descriptor.media_type() != MediaType::ImageManifest {
            return Ok(None);
        }
        let digest = descriptor.digest().to_string();
        let mut subjects = self.subjects.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = subjects.known.get(&digest) {
            return Ok(*known);
        }
        subjects.bytes = subjects.bytes.saturating_add(descriptor.size().min(MAX_DOCUMENT_BYTES));
        if subjects.bytes > MAX_NAMELESS_BYTES {
            let why = format!("more than {} MiB of manifests without a name", MAX_NAMELESS_BYTES >> 20);
            return Err(ImageError::invalid(self.what("index.json"), why));
        }
        let document = self.listed(descriptor)?;
        // A blob that is no manifest has no subject; a reader that takes it for an image finds that out.
        let manifest = parse_document::<ImageManifest>(&document.bytes).ok();
        let subject = manifest.and_then(|manifest| manifest.subject().as_ref().and_then(|s| sha256_of(s).ok()));
        subjects.known.insert(digest, subject);
        Ok(subject)
    }

    /// An index lists it, and index.json does not, unless that is the index of an image itself.
    fn is_of_an_index(&self, descriptor: &Descriptor) -> bool {
        let is_there = |index: &ImageIndex| index.manifests().iter().any(|d| d.digest() == descriptor.digest());
        !self.index().is_ok_and(|index| is_there(&index) && !is_one_image(&index))
    }

    fn pick<'i>(&self, index: &'i ImageIndex) -> Result<&'i Descriptor, ImageError> {
        // An unreadable one has no subject here, and fails when it is used.
        let is_beside =
            |d: &Descriptor| is_beside_an_image(d) || self.subject(d).is_ok_and(|subject| subject.is_some());
        let fits = |d: &&Descriptor| match &self.wanted {
            LocalRef::Only => !is_beside(d),
            LocalRef::Tag(tag) => is_named(d, tag),
            LocalRef::Digest(digest) => sha256_of(d).is_ok_and(|have| have == *digest),
            LocalRef::Number(_) => false,
        };
        let found: Vec<_> = match &self.wanted {
            LocalRef::Number(number) => index.manifests().get(*number).into_iter().collect(),
            _ => index.manifests().iter().filter(fits).collect(),
        };
        let images: Vec<_> = index.manifests().iter().filter(|d| !is_beside(d)).collect();
        // What has no name has a digest. A number would say nothing of which one it is.
        let names: Vec<_> = images.iter().map(|d| whole_name(d).unwrap_or_else(|| d.digest().to_string())).collect();
        let there = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        match (found.as_slice(), &self.wanted) {
            ([one], _) => Ok(one),
            // The same image listed more than once is not ambiguous.
            ([one, rest @ ..], _) if rest.iter().all(|d| d.digest() == one.digest()) => Ok(one),
            ([], LocalRef::Only) if images.is_empty() && !index.manifests().is_empty() => Err(ImageError::reference(
                &self.name,
                "no image in it, but only what is about one (signatures, or manifests with a subject)",
                ":@0 takes the first all the same",
            )),
            ([], _) => {
                Err(ImageError::NotFound { what: self.name.clone(), hint: format!("; the images in it: {there}") })
            }
            (_, LocalRef::Only) => {
                let remedy = format!("add :TAG or @DIGEST, one of {there}, listed as they were added");
                Err(ImageError::reference(&self.name, "more than one image in it", remedy))
            }
            _ => Err(ImageError::reference(&self.name, SEVERAL, format!("write {}", self.references(&found)))),
        }
    }

    /// References to these by their digests, with their whole names.
    fn references(&self, found: &[&Descriptor]) -> String {
        let form = self.name.split_once(':').map_or("oci", |(form, _)| form);
        let reference = |d: &&Descriptor| {
            let whole = annotation(d, CONTAINERD_NAME).map_or_else(String::new, |whole| format!(" ({whole})"));
            format!("{form}:{}@{}{whole}", self.path.display(), d.digest())
        };
        let mut all: Vec<_> = found.iter().map(reference).collect();
        all.dedup();
        all.join(" or ")
    }
}

impl ImageStore for Local {
    /// Manifests that index.json lists under it.
    fn named(&self, tag: &str) -> Result<Vec<Document>, ImageError> {
        let Listing { found, faults } =
            self.documents(|descriptor| annotation(descriptor, REF_NAME).as_deref() == Some(tag))?;
        faults.into_iter().next().map_or(Ok(found), Err)
    }

    fn root(&self) -> Result<Document, ImageError> {
        let index = self.index()?;
        if self.is_only_read && self.wanted == LocalRef::Only && is_one_image(&index) {
            let media_type = Some(MediaType::ImageIndex.to_string());
            return Ok(Document { media_type, bytes: self.read("index.json")? });
        }
        self.listed(self.pick(&index)?)
    }

    /// `docker save` writes the whole index of an image, but only those of its images that docker has.
    fn document(&self, descriptor: &Descriptor) -> Result<Vec<u8>, ImageError> {
        self.read(&Self::blob_path(descriptor)?).map_err(|error| match error {
            ImageError::NotFound { .. } if self.is_of_an_index(descriptor) => {
                let of = descriptor.platform().as_ref().map(|p| format!(" for {}", platform(p.os(), p.architecture())));
                let (kind, of) = if is_attestation(descriptor) { ("attestation", None) } else { ("image", of) };
                let of = of.unwrap_or_default();
                let why = format!("it lists an {kind}{of}, {}, that is not there", descriptor.digest());
                ImageError::reference(&self.name, &why, ABSENT)
            }
            other => other,
        })
    }

    fn blob(&self, descriptor: &Descriptor) -> Result<Box<dyn Read + Send>, ImageError> {
        self.open(&Self::blob_path(descriptor)?)
    }

    fn tagged(&self, tag: &str) -> Result<Listing<Document>, ImageError> {
        // Manifests that `cosign save` writes have no name.
        self.documents(|d| {
            annotation(d, REF_NAME).as_deref() == Some(tag)
                || tag.ends_with(cosign::SIG) && annotation(d, KIND).as_deref() == Some(SIGNATURES)
        })
    }

    fn referrers(&self, image: Sha256) -> Result<Listing<Descriptor>, ImageError> {
        let Listing { found, faults } = self.subjects()?;
        let about = found.into_iter().filter(|(_, subject)| *subject == image);
        let listed = Listing { found: about.map(|(descriptor, _)| descriptor).collect(), faults };
        // Other programs copy the tag, and what that lists is nowhere else.
        Ok(listed.and(self.referrers_by_tag(image)))
    }

    fn signed(&self) -> Result<Vec<Sha256>, ImageError> {
        let index = self.index()?;
        let names = index.manifests().iter().filter_map(|d| annotation(d, REF_NAME));
        let mut signed: BTreeSet<_> = names.filter_map(|name| cosign::subject_of_tag(&name)).collect();
        signed.extend(self.subjects()?.found.into_iter().map(|(_, subject)| subject));
        Ok(signed.into_iter().collect())
    }

    fn by_digest(&self, digest: Sha256) -> Result<Option<Vec<u8>>, ImageError> {
        match self.read(&format!("blobs/sha256/{digest}")) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(ImageError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn name(&self) -> String {
        self.name.clone()
    }
}

/// Signatures and the like are listed beside the image that they belong to.
fn is_beside_an_image(descriptor: &Descriptor) -> bool {
    let kind = annotation(descriptor, KIND);
    kind.is_some_and(|kind| kind.starts_with(COSIGN) && !kind.starts_with(IMAGE))
        || annotation(descriptor, REF_NAME).is_some_and(|name| cosign::subject_of_tag(&name).is_some())
        || is_attestation(descriptor)
}

/// Whether index.json lists the images of one index, as in the layouts of apko: each for another platform, and none by a name.
fn is_one_image(index: &ImageIndex) -> bool {
    let images: Vec<_> = index.manifests().iter().filter(|d| !is_attestation(d)).collect();
    let platform = |d: &Descriptor| {
        let platform = d.platform().as_ref()?;
        Some((platform.os().to_string(), platform.architecture().to_string(), platform.variant().clone()))
    };
    let platforms: BTreeSet<_> = images.iter().filter_map(|d| platform(d)).collect();
    let is_named = |d: &Descriptor| [REF_NAME, CONTAINERD_NAME, KIND].iter().any(|name| annotation(d, name).is_some());
    images.len() > 1 && platforms.len() == images.len() && !images.iter().any(|d| is_named(d))
}

fn io_error(what: &str, source: io::Error) -> ImageError {
    if source.kind() == io::ErrorKind::NotFound {
        return ImageError::NotFound { what: what.to_owned(), hint: String::new() };
    }
    ImageError::of_io(what, source)
}
