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

use oci_spec::image::{Descriptor, ImageIndex};

use super::{
    Document, ImageError, ImageStore,
    resolve::checked_document,
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

    fn pick<'i>(&self, index: &'i ImageIndex) -> Result<&'i Descriptor, ImageError> {
        let named = |d: &Descriptor| d.annotations().as_ref().and_then(|a| a.get(REF_NAME)).cloned();
        let fits = |d: &&Descriptor| match &self.wanted {
            LocalRef::Only => true,
            LocalRef::Tag(tag) => named(d).as_ref() == Some(tag),
            LocalRef::Digest(digest) => sha256_of(d).is_ok_and(|have| have == *digest),
        };
        let found: Vec<_> = index.manifests().iter().filter(fits).collect();
        let names: Vec<_> = index.manifests().iter().filter_map(named).collect();
        let there = match names.as_slice() {
            [] => format!("{} without a name", index.manifests().len()),
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
        let bytes = self.read("index.json")?;
        let index: ImageIndex = serde_json::from_slice(&bytes)
            .map_err(|e| ImageError::invalid(self.what("index.json"), format!("not an image index: {e}")))?;
        let descriptor = self.pick(&index)?;
        let what = format!("{}: {}", self.name, descriptor.digest());
        let bytes = checked_document(self, descriptor, &what)?;
        Ok(Document { media_type: Some(descriptor.media_type().to_string()), bytes })
    }

    fn document(&self, descriptor: &Descriptor) -> Result<Vec<u8>, ImageError> {
        self.read(&Self::blob_path(descriptor)?)
    }

    fn blob(&self, descriptor: &Descriptor) -> Result<Box<dyn Read + Send>, ImageError> {
        self.open(&Self::blob_path(descriptor)?)
    }

    fn name(&self) -> String {
        self.name.clone()
    }
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
