//! Reads a tar archive entry by entry, in one pass and with bounded memory.
//!
//! It refuses everything that tar readers interpret differently: an image must not show us other files than it showed
//! to the tool that checked it. One thing is taken as most of them take it: a hard link has no content, whatever its size.
//! libarchive reads content after a link in a pax archive. The `tar` crate decodes header fields.
//!
//! POSIX.1-2017 pax interchange format, sections "ustar Interchange Format" and "pax Extended Header"; GNU's long names
//! (types `L` and `K`).

use std::io::{self, Read};

use tar::{EntryType, Header};

use super::{Skip, verifying_reader::VerifyingReader};
use crate::{file_reader::FileReader, sha256::Hasher};
use slipway_core::zeros::are_zeros;

// Headers take one block, and contents are padded to whole blocks.
const BLOCK_BYTES: u64 = 512;
// Largest extended header or long name. A path has at most 4 KiB; the rest is for extended attributes.
const MAX_EXTENSION_BYTES: u64 = 1 << 20;
// The largest size in a header: eleven octal digits.
const MAX_OCTAL_BYTES: u64 = (8 << 30) - 1;
// `PATH_MAX` of Linux.
const MAX_PATH_BYTES: usize = 4096;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// A regular file without holes.
    File,
    Directory,
    Symlink,
    HardLink,
    /// A file with holes, stored without them.
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

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Components; none is empty, `.` or `..`.
    pub path: Vec<String>,
    pub kind: EntryKind,
    pub size: u64,
    /// Byte offset of its content in the archive.
    pub at: u64,
    /// Components of a hard link's target.
    pub link: Vec<String>,
}

pub struct Entries<R> {
    reader: R,
    at: u64,
    // Unread bytes of the current entry's content.
    content: u64,
    padding: u64,
}

#[derive(Default)]
struct Extension {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    size: Option<u64>,
    sparse: bool,
}

impl Extension {
    /// Number of bytes behind a header that gives `own`. Writers of pax archives put 0 into a header that has no room for the
    /// size, and the size into the extended header. Any other header gives the size itself.
    fn size_of(&self, header: &Header, own: u64) -> u64 {
        let kind = header.entry_type();
        let is_file = matches!(kind, EntryType::Regular | EntryType::Continuous);
        self.size.filter(|size| is_file && own == 0 && *size > MAX_OCTAL_BYTES).unwrap_or(own)
    }
}

impl<R: Skip> Entries<R> {
    pub fn new(reader: R) -> Self {
        Entries { reader, at: 0, content: 0, padding: 0 }
    }

    /// The next entry. The archive ends at a block of zeros or, as GNU tar reads it, where the input ends between two
    /// entries.
    pub fn next(&mut self) -> io::Result<Option<Entry>> {
        let mut extension = Extension::default();
        loop {
            self.pass_over_rest()?;
            let Some(header) = self.header()? else { return Ok(None) };
            let size = match header.entry_type().as_byte() {
                // GNU tar leaves the size of a volume's label (`tar -V`) blank. It has no content.
                b'V' if header.as_old().size.iter().all(|byte| matches!(byte, b' ' | 0)) => 0,
                // Some builders give a hard link the size of its file. No content follows, for whatever unpacks layers.
                b'1' => 0,
                _ => header.entry_size().map_err(|e| self.wrong(&format!("its size cannot be read ({e})")))?,
            };
            let size = extension.size_of(&header, size);
            self.content = size;
            self.padding = (BLOCK_BYTES - size % BLOCK_BYTES) % BLOCK_BYTES;
            if self.at.checked_add(size).and_then(|end| end.checked_add(self.padding)).is_none() {
                return Err(self.wrong(&format!("it claims an impossible size of {size} bytes")));
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
                kind => {
                    if kind == EntryType::GNUSparse {
                        self.pass_over_map(&header)?;
                    }
                    return self.entry(&header, kind, extension).map(Some);
                }
            }
        }
    }

    pub fn content(&mut self) -> Content<'_, R> {
        Content(self)
    }

    /// Passes over the rest of an entry. The padding may be missing at the end of the archive: some builders leave it out, whatever
    /// unpacks layers asks for none, and all content is there.
    fn pass_over_rest(&mut self) -> io::Result<()> {
        self.reader.skip(self.content)?;
        io::copy(&mut self.reader.by_ref().take(self.padding), &mut io::sink())?;
        (self.at, self.content, self.padding) = (self.at + self.content + self.padding, 0, 0);
        Ok(())
    }

    /// Read to the end of the input: bytes after the end of the archive still count for the layer's digest.
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
        if are_zeros(block) {
            return Ok(None);
        }
        self.at += BLOCK_BYTES;
        // The checksum counts its own field as spaces (POSIX, ustar header).
        let sum = block.iter().enumerate().map(|(i, b)| if (148..156).contains(&i) { 32 } else { u32::from(*b) });
        let sum: u32 = sum.sum();
        match header.cksum() {
            Ok(stored) if stored == sum => Ok(Some(header)),
            _ => Err(self.wrong("the checksum of its header is wrong: not a tar archive, or damaged")),
        }
    }

    /// Passes over the map of a sparse file in GNU's old format: blocks of it may follow the header, and do not count
    /// in its size. The last byte but seven of each says whether another one follows; in the header it is before the
    /// real size.
    fn pass_over_map(&mut self, header: &Header) -> io::Result<()> {
        const IN_HEADER: usize = 482;
        const IN_BLOCK: usize = 504;
        let mut follows = header.as_bytes()[IN_HEADER] != 0;
        let mut block = [0; BLOCK_BYTES as usize];
        while follows {
            self.reader.read_exact(&mut block)?;
            self.at += BLOCK_BYTES;
            follows = block[IN_BLOCK] != 0;
        }
        Ok(())
    }

    fn entry(&self, header: &Header, entry_type: EntryType, extension: Extension) -> io::Result<Entry> {
        // A name in the header may be cut off behind any byte if there is a longer one.
        let name = extension.path.unwrap_or_else(|| header.path_bytes().into_owned());
        let path = self.components(&name)?;
        let kind = match entry_type {
            // Types `7` and NUL are plain files. Before ustar, a trailing slash marked a directory.
            EntryType::Regular | EntryType::Continuous if extension.sparse => EntryKind::Sparse,
            EntryType::Regular | EntryType::Continuous if name.ends_with(b"/") => EntryKind::Directory,
            EntryType::Regular | EntryType::Continuous => EntryKind::File,
            EntryType::Directory => EntryKind::Directory,
            EntryType::Symlink => EntryKind::Symlink,
            EntryType::Link => EntryKind::HardLink,
            EntryType::GNUSparse => EntryKind::Sparse,
            _ => EntryKind::Special,
        };
        if extension.size.is_some_and(|size| size != self.content) {
            return Err(self.wrong("its extended header gives another size than its header"));
        }
        // Readers disagree whether content after such a header is skipped or is the next header. Only for unknown types
        // do all of them skip it.
        let empty = match kind {
            EntryKind::File | EntryKind::Sparse => false,
            EntryKind::Special => matches!(entry_type, EntryType::Char | EntryType::Block | EntryType::Fifo),
            EntryKind::Directory | EntryKind::Symlink | EntryKind::HardLink => true,
        };
        if empty && self.content > 0 {
            return Err(self.wrong(&format!("{kind} with {} bytes of content", self.content)));
        }
        let link = match kind {
            EntryKind::HardLink => {
                let link = extension.link.or_else(|| header.link_name_bytes().map(std::borrow::Cow::into_owned));
                self.components(&link.unwrap_or_default())?
            }
            _ => vec![],
        };
        Ok(Entry { path, kind, size: self.content, at: self.at, link })
    }

    /// Split a path. A leading `/` is the root of the image, as for programs that unpack it: kaniko and others write
    /// it. `..` is refused: no image builder writes it.
    fn components(&self, path: &[u8]) -> io::Result<Vec<String>> {
        let shown = text(path);
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
        // GNU tar writes a trailing zero byte.
        if name.last() == Some(&0) {
            name.pop();
        }
        Ok(name)
    }

    /// Read records of the form `LENGTH KEY=VALUE\n`; the length is that of the whole record.
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
                    let size = size.ok_or_else(|| self.wrong("its extended size is not a number"))?;
                    self.once(&mut extension.size, size)?;
                }
                key if key.starts_with(b"GNU.sparse.") => extension.sparse = true,
                _ => {}
            }
        }
        Ok(())
    }

    /// Readers disagree which of two names counts, and no writer makes two. So refuse them.
    fn once<T>(&self, place: &mut Option<T>, value: T) -> io::Result<()> {
        match place.replace(value) {
            None => Ok(()),
            Some(_) => Err(self.wrong("its extended headers give it two names or two sizes")),
        }
    }

    fn wrong(&self, why: &str) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, format!("tar entry near byte {}: {why}", self.at))
    }

    /// The input ended, and only `more` of the unread content came.
    fn ends_early(&self, more: u64) -> io::Error {
        self.wrong(&format!("the archive ends {} bytes before its content does", self.content - more))
    }
}

/// A name as text. Two names are never the same text, whatever their bytes are.
fn text(name: &[u8]) -> String {
    name.utf8_chunks().fold(String::new(), |text, chunk| {
        let valid = chunk.valid().replace('\u{fffd}', "\u{fffd}FFFD");
        chunk.invalid().iter().fold(text + &valid, |text, byte| text + &format!("\u{fffd}{byte:02x}"))
    })
}

fn pax_record(bytes: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let space = bytes.iter().take(20).position(|b| *b == b' ')?;
    let len: usize = std::str::from_utf8(&bytes[..space]).ok()?.parse().ok()?;
    let record = bytes.get(space + 1..len)?.strip_suffix(b"\n")?;
    let equals = record.iter().position(|b| *b == b'=')?;
    Some((&record[..equals], &record[equals + 1..], &bytes[len..]))
}

pub struct Content<'a, R>(&'a mut Entries<R>);

impl<R> Content<'_, R> {
    pub const fn left(&self) -> u64 {
        self.0.content
    }
}

impl<R: Read> Content<'_, VerifyingReader<R>> {
    /// The next bytes, at most `bytes`, without consuming them.
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
        // Some decompressors fail on an empty buffer.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Headers, and behind each so many zeros.
    struct Zeros(Vec<(Vec<u8>, u64)>);

    impl Read for Zeros {
        fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
            let Some((head, zeros)) = self.0.first_mut() else { return Ok(0) };
            let n = match head.len() {
                0 => buf.len().min(usize::try_from(*zeros).unwrap()),
                head => buf.len().min(head),
            };
            if head.is_empty() {
                buf[..n].fill(0);
                *zeros -= n as u64;
            } else {
                head.drain(..n).zip(buf).for_each(|(from, to)| *to = from);
            }
            if head.is_empty() && *zeros == 0 {
                self.0.remove(0);
            }
            Ok(n)
        }
    }

    impl Skip for Zeros {
        fn skip(&mut self, bytes: u64) -> io::Result<()> {
            if let Some((head, zeros)) = self.0.first_mut()
                && head.is_empty()
            {
                *zeros = zeros.checked_sub(bytes).ok_or(io::ErrorKind::UnexpectedEof)?;
                if *zeros == 0 {
                    self.0.remove(0);
                }
                return Ok(());
            }
            let skipped = io::copy(&mut self.by_ref().take(bytes), &mut io::sink())?;
            if skipped == bytes { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
        }
    }

    fn header(name: &str, kind: EntryType, size: u64) -> Vec<u8> {
        let mut header = Header::new_ustar();
        header.set_path(name).unwrap();
        header.set_entry_type(kind);
        header.set_size(size);
        header.set_cksum();
        header.as_bytes().to_vec()
    }

    /// An extended header with this size, then a file whose header gives `own`, with `zeros` behind it, then another file.
    fn read(size: &str, kind: EntryType, own: u64, zeros: u64) -> io::Result<Vec<(Vec<String>, u64)>> {
        let length = " size=\n".len() + size.len();
        let record = format!("{} size={size}\n", length + 2);
        let mut extended = header("x", EntryType::XHeader, record.len() as u64);
        extended.extend(record.bytes());
        extended.resize(1024, 0);
        extended.extend(header("large", kind, own));
        let mut entries = Entries::new(Zeros(vec![(extended, zeros), (header("small", EntryType::Regular, 0), 0)]));
        let mut found = Vec::new();
        while let Some(entry) = entries.next()? {
            found.push((entry.path, entry.size));
        }
        Ok(found)
    }

    /// As `docker build` makes them: 8 GiB is the first size that has no room in the header.
    #[test]
    fn a_size_in_an_extended_header_alone() {
        const GIB: u64 = 1 << 30;
        for size in [8 * GIB, 9 * GIB + 512] {
            let found = read(&size.to_string(), EntryType::Regular, 0, size).unwrap();
            let sizes: Vec<_> = found.into_iter().map(|(path, size)| (path.concat(), size)).collect();
            assert_eq!(sizes, [("large".to_owned(), size), ("small".to_owned(), 0)]);
        }
        // A header that gives another size, one with room for it, and a kind of file that has no content.
        let other = "another size than its header";
        for (size, kind, own) in [
            (9 * GIB, EntryType::Regular, 1),
            (8 * GIB - 1, EntryType::Regular, 0),
            (9 * GIB, EntryType::Directory, 0),
            (9 * GIB, EntryType::Symlink, 0),
        ] {
            let error = read(&size.to_string(), kind, own, own.next_multiple_of(512)).unwrap_err().to_string();
            assert!(error.contains(other), "{size} {kind:?} {own}: {error}");
        }
        // More than the archive has, and more than any has.
        assert!(read(&(9 * GIB).to_string(), EntryType::Regular, 0, 8 * GIB).is_err());
        let error = read(&u64::MAX.to_string(), EntryType::Regular, 0, 512).unwrap_err().to_string();
        assert!(error.contains("impossible size"), "{error}");
        assert!(read(&format!("1{}", u64::MAX), EntryType::Regular, 0, 512).is_err(), "no number of 64 bits");
    }

    /// As `tar -V` writes it, in front of everything else.
    #[test]
    fn the_label_of_a_volume_is_passed_over() {
        let blank = |kind: u8| {
            let mut header = Header::new_gnu();
            header.set_path("label").unwrap();
            header.set_entry_type(EntryType::new(kind));
            header.as_old_mut().size.fill(0);
            header.set_cksum();
            let archive = [&header.as_bytes()[..], &self::header("file", EntryType::Regular, 0)].concat();
            let mut entries = Entries::new(Zeros(vec![(archive, 0)]));
            let label = entries.next()?.unwrap();
            assert_eq!((label.kind, label.size), (EntryKind::Special, 0));
            entries.next().map(|file| file.unwrap().path)
        };
        assert_eq!(blank(b'V').unwrap(), ["file"]);
        // Programs disagree about a file without a size.
        assert!(blank(b'0').unwrap_err().to_string().contains("its size cannot be read"));
    }
}
