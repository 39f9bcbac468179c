//! Entries of a tar archive as they come by: headers by the `tar` crate, no more than one entry in memory, and
//! nothing that makes a reader and a writer of archives disagree.
//!
//! POSIX.1-2017 pax interchange format, section "ustar Interchange Format" and "pax Extended Header"; GNU's long names
//! (types `L` and `K`).

use std::io::{self, Read};

use tar::{EntryType, Header};

use super::verifying_reader::VerifyingReader;
use crate::transfer::{FileReader, sha256::Hasher};

/// Size of a block: headers are one, contents are padded to whole ones.
const BLOCK: u64 = 512;
/// Largest extended header or long name, bytes. Paths have at most 4 KiB; extended attributes are the rest.
const MAX_EXTENSION_BYTES: u64 = 1 << 20;

/// Longest path, bytes (`PATH_MAX` of Linux).
const MAX_PATH_BYTES: usize = 4096;

/// A reader that can pass over bytes without handing them out.
pub trait Skip: Read {
    /// Pass over `bytes`; the end before that is an error.
    fn skip(&mut self, bytes: u64) -> io::Result<()>;
}

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// A regular file whose content is all there.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A hard link.
    HardLink,
    /// A file with holes: its content has to be put together.
    Sparse,
    /// A device node, fifo, or a type unknown to this version.
    Special,
}

impl std::fmt::Display for EntryKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            EntryKind::File => "a regular file",
            EntryKind::Directory => "a directory",
            EntryKind::Symlink => "a symbolic link",
            EntryKind::HardLink => "a hard link",
            EntryKind::Sparse => "a sparse file",
            EntryKind::Special => "a device node, fifo or unknown kind of file",
        })
    }
}

/// Head of one entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Parts of its path; none is empty, `.` or `..`.
    pub path: Vec<String>,
    /// What it is.
    pub kind: EntryKind,
    /// Bytes of content.
    pub size: u64,
    /// Byte offset of its content in the archive.
    pub at: u64,
}

/// Reads an archive entry by entry.
pub struct Entries<R> {
    reader: R,
    /// Byte offset of the reader in the archive.
    at: u64,
    /// Bytes of the current entry's content not read yet.
    content: u64,
    /// Bytes behind it up to the next block.
    padding: u64,
}

/// What extended headers say of the entry that follows them.
#[derive(Default)]
struct Extension {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    size: Option<u64>,
    sparse: bool,
}

impl<R: Skip> Entries<R> {
    /// From the beginning of an archive.
    pub fn new(reader: R) -> Self {
        Entries { reader, at: 0, content: 0, padding: 0 }
    }

    /// The head of the next entry; none at the end of the archive (two blocks of zeros, or the end of what there is
    /// between two entries, as GNU tar reads it).
    pub fn next(&mut self) -> io::Result<Option<Entry>> {
        let mut extension = Extension::default();
        loop {
            let left = self.content + self.padding;
            self.reader.skip(left)?;
            (self.at, self.content, self.padding) = (self.at + left, 0, 0);
            let Some(header) = self.header()? else { return Ok(None) };
            let size = header.entry_size().map_err(|e| self.wrong(&format!("its size cannot be read ({e})")))?;
            self.content = size;
            self.padding = (BLOCK - size % BLOCK) % BLOCK;
            if self.at.checked_add(size).and_then(|end| end.checked_add(self.padding)).is_none() {
                return Err(self.wrong(&format!("it claims {size} bytes")));
            }
            match header.entry_type() {
                EntryType::GNULongName => {
                    let name = self.long_name()?;
                    self.once(&mut extension.path, name)?;
                }
                EntryType::GNULongLink => {
                    let name = self.long_name()?;
                    self.once(&mut extension.link, name)?;
                }
                EntryType::XHeader => self.pax(&mut extension)?,
                EntryType::XGlobalHeader => {
                    let mut global = Extension::default();
                    self.pax(&mut global)?;
                    if global.path.is_some() || global.link.is_some() || global.size.is_some() || global.sparse {
                        return Err(self.wrong("a global extended header changes names or sizes of all that follows"));
                    }
                }
                kind => return self.entry(&header, kind, extension).map(Some),
            }
        }
    }

    /// Reads the content of the current entry.
    pub fn content(&mut self) -> Content<'_, R> {
        Content(self)
    }

    /// Read on to the very end: what lies behind the end of the archive belongs to the layer and its digest.
    pub fn drain(mut self) -> io::Result<()> {
        io::copy(&mut self.reader, &mut io::sink()).map(drop)
    }

    fn header(&mut self) -> io::Result<Option<Header>> {
        let mut header = Header::new_old();
        let block = header.as_mut_bytes();
        let mut have = 0;
        while have < block.len() {
            match self.reader.read(&mut block[have..]) {
                Ok(0) if have == 0 => return Ok(None),
                Ok(0) => return Err(self.wrong("the archive ends inside its header: it is truncated")),
                Ok(n) => have += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        if block.iter().all(|b| *b == 0) {
            return Ok(None);
        }
        self.at += BLOCK;
        // The checksum counts its own field as spaces (POSIX, ustar header).
        let sum = block.iter().enumerate().map(|(i, b)| if (148..156).contains(&i) { 32 } else { u32::from(*b) });
        let sum: u32 = sum.sum();
        match header.cksum() {
            Ok(stored) if stored == sum => Ok(Some(header)),
            _ => Err(self.wrong("the checksum of its header is wrong: not a tar archive, or damaged")),
        }
    }

    fn entry(&self, header: &Header, entry_type: EntryType, extension: Extension) -> io::Result<Entry> {
        let path = extension.path.unwrap_or_else(|| header.path_bytes().into_owned());
        let path = self.parts(&path)?;
        let kind = match entry_type {
            // Type `7` and the old NUL are plain files; a name that ends in a slash made them directories once.
            EntryType::Regular | EntryType::Continuous if extension.sparse => EntryKind::Sparse,
            EntryType::Regular | EntryType::Continuous if header.path_bytes().ends_with(b"/") => EntryKind::Directory,
            EntryType::Regular | EntryType::Continuous => EntryKind::File,
            EntryType::Directory => EntryKind::Directory,
            EntryType::Symlink => EntryKind::Symlink,
            EntryType::Link => EntryKind::HardLink,
            // Blocks of its map follow the header and are in no size: whoever does not know them loses the thread.
            EntryType::GNUSparse => return Err(self.wrong("a sparse file in GNU's old format")),
            _ => EntryKind::Special,
        };
        if extension.size.is_some_and(|size| size != self.content) {
            return Err(self.wrong("its extended header gives another size than its header"));
        }
        // Some readers skip it, some take it for the next header. Only of unknown types all agree that it is content.
        let empty = match kind {
            EntryKind::File | EntryKind::Sparse => false,
            EntryKind::Special => matches!(entry_type, EntryType::Char | EntryType::Block | EntryType::Fifo),
            EntryKind::Directory | EntryKind::Symlink | EntryKind::HardLink => true,
        };
        if empty && self.content > 0 {
            return Err(self.wrong(&format!("{kind} with {} bytes of content", self.content)));
        }
        if kind == EntryKind::HardLink {
            let link = extension.link.or_else(|| header.link_name_bytes().map(std::borrow::Cow::into_owned));
            self.parts(&link.unwrap_or_default())?;
        }
        Ok(Entry { path, kind, size: self.content, at: self.at })
    }

    /// A path in its parts. Absolute paths and `..` are refused: no image builder writes them.
    fn parts(&self, path: &[u8]) -> io::Result<Vec<String>> {
        let shown = String::from_utf8_lossy(path);
        if path.starts_with(b"/") {
            return Err(self.wrong(&format!("{shown:?} is an absolute path")));
        }
        let parts = shown.split('/').filter(|part| !matches!(*part, "" | "."));
        let parts: Vec<_> = parts.map(str::to_owned).collect();
        if parts.iter().any(|part| part == "..") {
            return Err(self.wrong(&format!("{shown:?} leaves the tree")));
        }
        if path.len() > MAX_PATH_BYTES {
            return Err(self.wrong(&format!("a path of {} bytes", path.len())));
        }
        if path.contains(&0) {
            return Err(self.wrong(&format!("{shown:?} has a zero byte in it")));
        }
        Ok(parts)
    }

    fn extension_bytes(&mut self) -> io::Result<Vec<u8>> {
        if self.content > MAX_EXTENSION_BYTES {
            return Err(self.wrong(&format!("an extended header of {} bytes", self.content)));
        }
        let mut bytes = Vec::new();
        self.content().read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn long_name(&mut self) -> io::Result<Vec<u8>> {
        let mut name = self.extension_bytes()?;
        // Ends with a zero byte, in GNU's own writing.
        if name.last() == Some(&0) {
            name.pop();
        }
        Ok(name)
    }

    /// Records `LENGTH KEY=VALUE\n`; the length counts all of the record.
    fn pax(&mut self, extension: &mut Extension) -> io::Result<()> {
        let bytes = self.extension_bytes()?;
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let (key, value, next) = pax_record(rest).ok_or_else(|| self.wrong("a malformed extended header"))?;
            rest = next;
            match key {
                b"path" => self.once(&mut extension.path, value.to_vec())?,
                b"linkpath" => self.once(&mut extension.link, value.to_vec())?,
                b"size" => {
                    let size = std::str::from_utf8(value).ok().and_then(|v| v.parse().ok());
                    let size = size.ok_or_else(|| self.wrong("its extended size is no number"))?;
                    self.once(&mut extension.size, size)?;
                }
                key if key.starts_with(b"GNU.sparse.") => extension.sparse = true,
                _ => {}
            }
        }
        Ok(())
    }

    /// Of two names readers take the first or the last, GNU's or the extended one; no writer makes two.
    fn once<T>(&self, place: &mut Option<T>, value: T) -> io::Result<()> {
        match place.replace(value) {
            None => Ok(()),
            Some(_) => Err(self.wrong("its extended headers give it two names or two sizes")),
        }
    }

    fn wrong(&self, why: &str) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, format!("tar entry near byte {}: {why}", self.at))
    }

    /// The end has come with only so many bytes more of the current entry.
    fn ends_early(&self, more: u64) -> io::Error {
        self.wrong(&format!("the archive ends {} bytes before its content does", self.content - more))
    }
}

fn pax_record(bytes: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let space = bytes.iter().take(20).position(|b| *b == b' ')?;
    let len: usize = std::str::from_utf8(&bytes[..space]).ok()?.parse().ok()?;
    let record = bytes.get(space + 1..len)?.strip_suffix(b"\n")?;
    let equals = record.iter().position(|b| *b == b'=')?;
    Some((&record[..equals], &record[equals + 1..], &bytes[len..]))
}

/// Content of an entry.
pub struct Content<'a, R>(&'a mut Entries<R>);

impl<R> Content<'_, R> {
    /// Bytes of it that have not been read.
    pub const fn left(&self) -> u64 {
        self.0.content
    }
}

impl<R: Read> Content<'_, VerifyingReader<R>> {
    /// Its first bytes, at most `bytes` of them, which are still to be read.
    pub fn peek(&mut self, bytes: u64) -> io::Result<&[u8]> {
        let bytes = bytes.min(self.left());
        let there = self.0.reader.peek(bytes)?.len() as u64;
        if there < bytes {
            return Err(self.0.ends_early(there));
        }
        self.0.reader.peek(bytes)
    }
}

impl<R: Read> FileReader for Content<'_, VerifyingReader<R>> {
    fn lend_digest(&mut self) -> Option<Hasher> {
        self.0.reader.lend_digest()
    }

    fn return_digest(&mut self, digest: Hasher) {
        self.0.reader.return_digest(digest);
    }
}

impl<R: Skip> Read for Content<'_, R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let want = buf.len().min(usize::try_from(self.0.content).unwrap_or(usize::MAX));
        // Not every decompressor takes it well to be asked for nothing.
        if want == 0 {
            return Ok(0);
        }
        let n = match self.0.reader.read(&mut buf[..want]) {
            Ok(0) => return Err(self.0.ends_early(0)),
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Err(self.0.ends_early(0)),
            read => read?,
        };
        self.0.content -= n as u64;
        self.0.at += n as u64;
        Ok(n)
    }
}
