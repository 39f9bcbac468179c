//! Images in local files: a directory in the OCI image layout, or a tar archive of one.
//!
//! OCI image specification 1.1, image-layout.md.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Read},
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use oci_spec::image::{Descriptor, ImageIndex, ImageManifest, MediaType};

use super::{
    Document, ImageError, ImageStore,
    resolve::checked_document,
    signatures,
    skip::Skip,
    store::{read_document, sha256_of},
    tar::{Entries, EntryKind},
};
use crate::payload::open::open_regular;
use slipway_core::{
    digest::Sha256,
    disk::magic::{HEAD_BYTES, recognise},
};

/// Annotation with the name (tag) of an image in a layout (annotations.md).
pub const REF_NAME: &str = "org.opencontainers.image.ref.name";
// Annotation with which `cosign save` says what is what.
const KIND: &str = "kind";
const COSIGN: &str = "dev.cosignproject.cosign/";
const IMAGE: &str = "dev.cosignproject.cosign/image";
const SIGNATURES: &str = "dev.cosignproject.cosign/sigs";
// Limits on memory that no real image reaches.
const MAX_FILES: usize = 10_000;
// `blobs/sha512/` and 128 digits are shorter.
const MAX_NAME_BYTES: usize = 256;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LocalRef {
    /// The layout has only one image.
    Only,
    Tag(String),
    Digest(Sha256),
}

trait Files: Send + Sync {
    /// `path` is relative to the layout.
    fn open(&self, path: &str) -> io::Result<Box<dyn Read + Send>>;
}

pub struct Local {
    files: Box<dyn Files>,
    // For messages.
    path: PathBuf,
    name: String,
    wanted: LocalRef,
}

impl Local {
    pub fn directory(dir: &Path, wanted: LocalRef, name: String) -> Result<Self, ImageError> {
        Local { files: Box::new(Directory(dir.to_owned())), path: dir.to_owned(), name, wanted }.check_version()
    }

    pub fn archive(file: &Path, wanted: LocalRef, name: String) -> Result<Self, ImageError> {
        let files = Archive::index(file).map_err(|source| io_error(&file.display().to_string(), source))?;
        Local { files: Box::new(files), path: file.to_owned(), name, wanted }.check_version()
    }

    fn check_version(self) -> Result<Self, ImageError> {
        #[derive(serde::Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct OciLayout {
            image_layout_version: String,
        }
        let bytes = self.read("oci-layout")?;
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
        serde_json::from_slice(&bytes)
            .map_err(|e| ImageError::invalid(self.what("index.json"), format!("not an image index: {e}")))
    }

    fn listed(&self, descriptor: &Descriptor) -> Result<Document, ImageError> {
        let what = format!("{}: {}", self.name, descriptor.digest());
        let bytes = checked_document(self, descriptor, &what)?;
        Ok(Document { media_type: Some(descriptor.media_type().to_string()), bytes })
    }

    /// The manifests that index.json lists under this very name.
    pub fn named(&self, tag: &str) -> Result<Vec<Document>, ImageError> {
        let index = self.index()?;
        let fits = |d: &&Descriptor| annotation(d, REF_NAME).as_deref() == Some(tag);
        index.manifests().iter().filter(fits).map(|descriptor| self.listed(descriptor)).collect()
    }

    /// The manifests in index.json that are about another one, with the digest of that.
    fn subjects(&self) -> Result<Vec<(Descriptor, Sha256)>, ImageError> {
        let mut found = Vec::new();
        for descriptor in self.index()?.manifests() {
            if let Some(subject) = self.subject(descriptor)? {
                found.push((descriptor.clone(), subject));
            }
        }
        Ok(found)
    }

    fn subject(&self, descriptor: &Descriptor) -> Result<Option<Sha256>, ImageError> {
        if annotation(descriptor, REF_NAME).is_some() || *descriptor.media_type() != MediaType::ImageManifest {
            return Ok(None);
        }
        let document = self.listed(descriptor)?;
        // What is no manifest is about nothing; whoever takes it for an image finds that out.
        let manifest = serde_json::from_slice::<ImageManifest>(&document.bytes).ok();
        Ok(manifest.and_then(|manifest| manifest.subject().as_ref().and_then(|subject| sha256_of(subject).ok())))
    }

    fn pick<'i>(&self, index: &'i ImageIndex) -> Result<&'i Descriptor, ImageError> {
        let named = |d: &Descriptor| annotation(d, REF_NAME);
        // One that cannot be read is not about another one, and is found to be unreadable when it is used.
        let is_beside =
            |d: &Descriptor| is_beside_an_image(d) || self.subject(d).is_ok_and(|subject| subject.is_some());
        let fits = |d: &&Descriptor| match &self.wanted {
            LocalRef::Only => !is_beside(d),
            LocalRef::Tag(tag) => named(d).as_ref() == Some(tag),
            LocalRef::Digest(digest) => sha256_of(d).is_ok_and(|have| have == *digest),
        };
        let found: Vec<_> = index.manifests().iter().filter(fits).collect();
        let images: Vec<_> = index.manifests().iter().filter(|d| !is_beside(d)).collect();
        let names: Vec<_> = images.iter().filter_map(|d| named(d)).collect();
        let there = match names.as_slice() {
            [] => format!("{} without a name", images.len()),
            names => names.join(", "),
        };
        match (found.as_slice(), &self.wanted) {
            ([one], _) => Ok(one),
            // The same image listed more than once is not ambiguous.
            ([one, rest @ ..], _) if rest.iter().all(|d| d.digest() == one.digest()) => Ok(one),
            ([], _) => {
                Err(ImageError::NotFound { what: self.name.clone(), hint: format!("; the images in it: {there}") })
            }
            (_, LocalRef::Only) => {
                Err(ImageError::invalid(&self.name, format!("more than one image in it: add :TAG, one of {there}")))
            }
            _ => Err(ImageError::invalid(&self.name, "its index.json lists more than one image of this name")),
        }
    }
}

impl ImageStore for Local {
    fn root(&self) -> Result<Document, ImageError> {
        self.listed(self.pick(&self.index()?)?)
    }

    fn document(&self, descriptor: &Descriptor) -> Result<Vec<u8>, ImageError> {
        self.read(&Self::blob_path(descriptor)?)
    }

    fn blob(&self, descriptor: &Descriptor) -> Result<Box<dyn Read + Send>, ImageError> {
        self.open(&Self::blob_path(descriptor)?)
    }

    fn tagged(&self, tag: &str) -> Result<Vec<Document>, ImageError> {
        let index = self.index()?;
        // Those that `cosign save` writes have no name.
        let fits = |d: &&Descriptor| {
            annotation(d, REF_NAME).as_deref() == Some(tag) || annotation(d, KIND).as_deref() == Some(SIGNATURES)
        };
        index.manifests().iter().filter(fits).map(|descriptor| self.listed(descriptor)).collect()
    }

    fn referrers(&self, image: Sha256) -> Result<Vec<Descriptor>, ImageError> {
        let mut found = self.subjects()?;
        found.retain(|(_, subject)| *subject == image);
        Ok(found.into_iter().map(|(descriptor, _)| descriptor).collect())
    }

    fn signed(&self) -> Result<Vec<Sha256>, ImageError> {
        let index = self.index()?;
        let names = index.manifests().iter().filter_map(|d| annotation(d, REF_NAME));
        let mut signed: Vec<_> = names.filter_map(|name| signatures::signed_by_tag(&name)).collect();
        signed.extend(self.subjects()?.into_iter().map(|(_, subject)| subject));
        signed.sort();
        signed.dedup();
        Ok(signed)
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

fn annotation(descriptor: &Descriptor, name: &str) -> Option<String> {
    descriptor.annotations().as_ref().and_then(|all| all.get(name)).cloned()
}

/// Signatures and the like are listed beside the image that they belong to.
fn is_beside_an_image(descriptor: &Descriptor) -> bool {
    let kind = annotation(descriptor, KIND);
    kind.is_some_and(|kind| kind.starts_with(COSIGN) && !kind.starts_with(IMAGE))
        || annotation(descriptor, REF_NAME).is_some_and(|name| signatures::is_about_an_image(&name))
}

fn io_error(what: &str, source: io::Error) -> ImageError {
    match source.kind() {
        io::ErrorKind::NotFound => ImageError::NotFound { what: what.to_owned(), hint: String::new() },
        io::ErrorKind::InvalidData => ImageError::invalid(what, source.to_string()),
        _ => ImageError::Io { what: what.to_owned(), source },
    }
}

struct Directory(PathBuf);

impl Files for Directory {
    fn open(&self, path: &str) -> io::Result<Box<dyn Read + Send>> {
        open_regular(&self.0.join(path)).map(|file| Box::new(file) as Box<dyn Read + Send>)
    }
}

struct Archive {
    file: Arc<File>,
    files: BTreeMap<String, Slice>,
}

impl Archive {
    fn index(path: &Path) -> io::Result<Self> {
        let file = Arc::new(open_regular(path)?);
        let end = file.metadata()?.len();
        let mut head = Vec::new();
        let slice = Slice { file: file.clone(), at: 0, end };
        Slice { file: file.clone(), ..slice }.take(HEAD_BYTES as u64).read_to_end(&mut head)?;
        if let Some(packed) = recognise(&head).filter(|s| s.packed) {
            let why = format!("{}: decompress it first (its layers may stay compressed)", packed.name);
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        let mut entries = Entries::new(slice);
        let mut files = BTreeMap::new();
        while let Some(entry) = entries.next()? {
            if entry.kind == EntryKind::Directory {
                continue;
            }
            let name = entry.path.join("/");
            // Archives may hold other files, such as docker's manifest.json.
            if name.len() > MAX_NAME_BYTES
                || !(name == "oci-layout" || name == "index.json" || name.starts_with("blobs/"))
            {
                continue;
            }
            let wrong = |why: &str| Err(io::Error::new(io::ErrorKind::InvalidData, format!("{name:?} in it {why}")));
            if entry.kind != EntryKind::File {
                return wrong(&format!("is {}, not a regular file", entry.kind));
            }
            let slice = Slice { file: file.clone(), at: entry.at, end: entry.at + entry.size };
            if slice.end > end {
                return wrong(&format!("ends at byte {}, the archive at {end}: it is truncated", slice.end));
            }
            if files.insert(name.clone(), slice).is_some() {
                return wrong("is there twice");
            }
            if files.len() > MAX_FILES {
                return wrong(&format!("is one of more than {MAX_FILES} files: not an image"));
            }
        }
        Ok(Archive { file, files })
    }
}

impl Files for Archive {
    fn open(&self, path: &str) -> io::Result<Box<dyn Read + Send>> {
        let slice = self.files.get(path).ok_or(io::ErrorKind::NotFound)?;
        Ok(Box::new(Slice { file: self.file.clone(), ..*slice }))
    }
}

struct Slice {
    file: Arc<File>,
    at: u64,
    end: u64,
}

impl Read for Slice {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let want = buf.len().min(usize::try_from(self.end.saturating_sub(self.at)).unwrap_or(usize::MAX));
        let n = self.file.read_at(&mut buf[..want], self.at)?;
        self.at += n as u64;
        Ok(n)
    }
}

impl Skip for Slice {
    fn skip(&mut self, bytes: u64) -> io::Result<()> {
        match self.at.checked_add(bytes) {
            Some(at) if at <= self.end => {
                self.at = at;
                Ok(())
            }
            _ => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("the archive ends at byte {}, inside the content of an entry: it is truncated", self.end),
            )),
        }
    }
}
