//! The files of an image layout: in a directory, or in a tar archive.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Read},
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use slipway_core::{
    disk::magic::{HEAD_BYTES, Kind, recognise},
    payload::manifest::{KERNEL, MANIFEST, UKI},
};

use crate::{
    image::{
        ImageError, Skip,
        tar::{Entries, EntryKind},
    },
    open_regular,
};

// Limits on memory that no real image reaches.
const MAX_FILES: usize = 10_000;
// `blobs/sha512/` and 128 digits are shorter.
const MAX_NAME_BYTES: usize = 256;

pub trait Files: Send + Sync {
    /// `path` is relative to the layout.
    fn open(&self, path: &str) -> io::Result<Box<dyn Read + Send>>;

    /// If it is no layout.
    fn instead(&self) -> Option<Instead>;
}

/// What it is instead of a layout, and the remedy.
pub type Instead = (&'static str, &'static str);

/// A layout in a directory.
pub struct Directory(pub PathBuf);

impl Files for Directory {
    fn open(&self, path: &str) -> io::Result<Box<dyn Read + Send>> {
        open_regular(&self.0.join(path)).map(|file| Box::new(file) as Box<dyn Read + Send>)
    }

    fn instead(&self) -> Option<Instead> {
        let has = |name: &str| self.0.join(name).is_file();
        match () {
            () if self.0.is_file() => Some(("it is a file", "for an archive write oci-archive:FILE")),
            () if has("oci-layout") => None,
            () if [KERNEL, UKI].into_iter().any(has) => Some(("it is a payload", "write dir:DIR")),
            () if has("manifest.json") && has("version") => Some((
                "it is what skopeo's transport `dir:` writes",
                "convert it with `skopeo copy dir:DIR oci:NEW:NAME`",
            )),
            () if has("manifest.json") => Some(DOCKER_ARCHIVE),
            () => None,
        }
    }
}

/// A layout in a tar archive. The archive is read once, and the places of its files are kept.
pub struct Archive {
    file: Arc<File>,
    files: BTreeMap<String, Slice>,
    instead: Option<Instead>,
}

const DOCKER_ARCHIVE: Instead = (
    "it is what `docker save` before Docker 25 and `podman save` write",
    "convert it with `skopeo copy docker-archive:FILE oci-archive:NEW:NAME`",
);
const BELOW: Instead = ("its layout lies in a directory of it", "unpack it and write oci:DIR");
const PACKED_PAYLOAD: Instead = ("it is a payload in an archive", "unpack it and write dir:DIR");

impl Archive {
    pub fn index(path: &Path) -> io::Result<Self> {
        let file = Arc::new(open_regular(path)?);
        let end = file.metadata()?.len();
        let mut head = Vec::new();
        let slice = Slice { file: file.clone(), at: 0, end };
        Slice { file: file.clone(), ..slice }.take(HEAD_BYTES as u64).read_to_end(&mut head)?;
        if let Some(packed) = recognise(&head).filter(|format| format.kind == Kind::Packed) {
            let remedy = "decompress it first (its layers may stay compressed)";
            return Err(ImageError::reference(path.display().to_string(), packed.name, remedy).into_io());
        }
        let mut entries = Entries::new(slice);
        let (mut files, mut instead) = (BTreeMap::<String, Slice>::new(), None);
        while let Some(entry) = entries.next()? {
            if entry.kind == EntryKind::Directory {
                continue;
            }
            let name = entry.path.join("/");
            // Archives may hold other files, such as docker's own list of images. A payload has one of that name, too.
            match name.as_str() {
                KERNEL | UKI => instead = Some(PACKED_PAYLOAD),
                MANIFEST => instead = instead.or(Some(DOCKER_ARCHIVE)),
                below if below.ends_with("/oci-layout") => instead = instead.or(Some(BELOW)),
                _ => {}
            }
            if name.len() > MAX_NAME_BYTES
                || !(name == "oci-layout" || name == "index.json" || name.starts_with("blobs/"))
            {
                continue;
            }
            let wrong = |why: &str| Err(io::Error::new(io::ErrorKind::InvalidData, format!("{name:?} in it {why}")));
            let slice = match entry.kind {
                EntryKind::File => Slice { file: file.clone(), at: entry.at, end: entry.at + entry.size },
                EntryKind::HardLink => match files.get(&entry.link.join("/")) {
                    Some(Slice { at, end, .. }) => Slice { file: file.clone(), at: *at, end: *end },
                    None => {
                        let why = format!(
                            "is a hard link to {:?}, which is no file of the image before it",
                            entry.link.join("/")
                        );
                        return wrong(&format!("{why}: `skopeo copy` makes the archive anew"));
                    }
                },
                other => return wrong(&format!("is {other}, not a regular file")),
            };
            if slice.end > end {
                return wrong(&format!("ends at byte {}, the archive at {end}: it is truncated", slice.end));
            }
            // A later one takes the place of an earlier one, as for a program that unpacks it.
            files.insert(name.clone(), slice);
            if files.len() > MAX_FILES {
                return wrong(&format!("is one of more than {MAX_FILES} files: not an image"));
            }
        }
        Ok(Archive { file, files, instead })
    }
}

impl Files for Archive {
    fn open(&self, path: &str) -> io::Result<Box<dyn Read + Send>> {
        let slice = self.files.get(path).ok_or(io::ErrorKind::NotFound)?;
        Ok(Box::new(Slice { file: self.file.clone(), ..*slice }))
    }

    fn instead(&self) -> Option<Instead> {
        self.instead.filter(|_| !self.files.contains_key("oci-layout"))
    }
}

/// A file in an archive.
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
