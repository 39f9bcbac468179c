//! The content of a disk in memory. Cloning is cheap, and unchanged parts of two disks are found by their addresses.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, HashMap},
    io::{self, Read, Seek, SeekFrom, Write},
    rc::Rc,
    sync::Arc,
};

use slipway_core::units::Extent;

const PAGE: usize = 4096;
const PAGES: usize = 256;
const CHUNK: u64 = (PAGE * PAGES) as u64;
/// A drive writes a sector whole or not at all; one it was writing when the power went may be garbage.
pub const SECTOR: usize = 512;
/// The bytes where nothing is defined: a discarded range, a sector damaged by a cut.
pub const GARBAGE: u8 = 0xd5;

type Page = Arc<[u8; PAGE]>;

/// One MiB; pages that are not there are zero.
#[derive(Clone)]
struct Chunk([Option<Page>; PAGES]);

/// A disk; chunks that are not there are zero.
#[derive(Clone, Default)]
pub struct Pages(BTreeMap<u64, Arc<Chunk>>);

/// The pieces of a range of bytes, none over the end of a page: chunk, page in it, byte in that, length.
fn pieces(offset: u64, len: u64) -> impl Iterator<Item = (u64, usize, usize, usize)> {
    let mut at = offset;
    std::iter::from_fn(move || {
        let (page, skip) = (at / PAGE as u64, (at % PAGE as u64) as usize);
        let n = ((PAGE - skip) as u64).min((offset + len).checked_sub(at)?) as usize;
        at += n as u64;
        (n > 0).then_some((page / PAGES as u64, (page % PAGES as u64) as usize, skip, n))
    })
}

impl Pages {
    fn page(&self, chunk: u64, page: usize) -> Option<&Page> {
        self.0.get(&chunk)?.0[page].as_ref()
    }

    fn slot(&mut self, chunk: u64, page: usize) -> &mut Option<Page> {
        let chunk = self.0.entry(chunk).or_insert_with(|| Arc::new(Chunk([const { None }; PAGES])));
        &mut Arc::make_mut(chunk).0[page]
    }

    pub fn read(&self, offset: u64, buf: &mut [u8]) {
        let mut done = 0;
        for (chunk, page, skip, n) in pieces(offset, buf.len() as u64) {
            match self.page(chunk, page) {
                Some(bytes) => buf[done..done + n].copy_from_slice(&bytes[skip..skip + n]),
                None => buf[done..done + n].fill(0),
            }
            done += n;
        }
    }

    pub fn write(&mut self, offset: u64, buf: &[u8]) {
        let mut done = 0;
        for (chunk, page, skip, n) in pieces(offset, buf.len() as u64) {
            let page = self.slot(chunk, page).get_or_insert_with(|| Arc::new([0; PAGE]));
            Arc::make_mut(page)[skip..skip + n].copy_from_slice(&buf[done..done + n]);
            done += n;
        }
    }

    pub fn zero(&mut self, extent: Extent) {
        self.put(extent, None);
    }

    /// The bytes that a device may leave in a range it was told to discard.
    pub fn garbage(&mut self, extent: Extent) {
        self.put(extent, Some(&Arc::new([GARBAGE; PAGE])));
    }

    fn put(&mut self, extent: Extent, with: Option<&Page>) {
        for (chunk, page, skip, n) in pieces(extent.offset, extent.len) {
            if with.is_none() && self.page(chunk, page).is_none() {
                continue;
            }
            let old = self.slot(chunk, page);
            if n == PAGE {
                *old = with.cloned();
            } else {
                let byte = with.map_or(0, |page| page[0]);
                Arc::make_mut(old.get_or_insert_with(|| Arc::new([0; PAGE])))[skip..skip + n].fill(byte);
            }
        }
    }

    /// Whether a range has the same bytes on both disks.
    pub fn same(&self, other: &Pages, extent: Extent) -> bool {
        let zeros = [0; PAGE];
        let chunks = self.chunks(extent).chain(other.chunks(extent)).map(|(at, _)| at);
        let mut differing = chunks.filter(|c| {
            let (a, b) = (self.0.get(c), other.0.get(c));
            !matches!((a, b), (Some(a), Some(b)) if Arc::ptr_eq(a, b))
        });
        differing.all(|c| {
            let start = (c * CHUNK).max(extent.offset);
            let end = ((c + 1) * CHUNK).min(extent.end());
            pieces(start, end - start).all(|(chunk, page, skip, n)| {
                match (self.page(chunk, page), other.page(chunk, page)) {
                    (None, None) => true,
                    (Some(a), Some(b)) if Arc::ptr_eq(a, b) => true,
                    (a, b) => a.map_or(&zeros, |p| p)[skip..skip + n] == b.map_or(&zeros, |p| p)[skip..skip + n],
                }
            })
        })
    }

    /// The chunks of a range that are there. As long as they live, their addresses name its content.
    fn chunks(&self, extent: Extent) -> impl Iterator<Item = (&u64, &Arc<Chunk>)> {
        self.0.range(extent.offset / CHUNK..extent.end().div_ceil(CHUNK))
    }
}

/// Where chunks stand on the disk, and their addresses.
type Key = Vec<(u64, usize)>;
/// Chunks that are kept, so that no other can take their addresses.
type Kept = Vec<Arc<Chunk>>;

/// The findings about a range, remembered as long as its chunks are the same.
pub struct Memo<V>(RefCell<HashMap<Key, (Kept, V)>>);

impl<V: Clone> Memo<V> {
    pub fn new() -> Self {
        Memo(RefCell::default())
    }

    pub fn get(&self, pages: &Pages, extent: Extent, make: impl FnOnce() -> V) -> V {
        let key: Key = pages.chunks(extent).map(|(at, chunk)| (*at, Arc::as_ptr(chunk) as usize)).collect();
        if let Some((_, value)) = self.0.borrow().get(&key) {
            return value.clone();
        }
        let value = make();
        let mut memo = self.0.borrow_mut();
        // What a random cut left is seldom seen again.
        if memo.len() > 500 {
            memo.clear();
        }
        memo.insert(key, (pages.chunks(extent).map(|(_, chunk)| chunk.clone()).collect(), value.clone()));
        value
    }
}

/// Part of a disk as a file, for libraries that read one.
pub struct PagesFile<'p> {
    pages: &'p Pages,
    extent: Extent,
    at: u64,
    last: Rc<Cell<u64>>,
}

impl<'p> PagesFile<'p> {
    pub fn new(pages: &'p Pages, extent: Extent) -> Self {
        PagesFile { pages, extent, at: 0, last: Rc::default() }
    }

    /// Where on the disk the last read began: GRUB finds the blocks of a file in the same way.
    pub fn last_read(&self) -> Rc<Cell<u64>> {
        self.last.clone()
    }
}

impl Read for PagesFile<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = (self.extent.len.saturating_sub(self.at)).min(buf.len() as u64) as usize;
        self.last.set(self.extent.offset + self.at);
        self.pages.read(self.extent.offset + self.at, &mut buf[..n]);
        self.at += n as u64;
        Ok(n)
    }
}

/// The same, to be written to.
pub struct PagesVolume<'p> {
    pub pages: &'p mut Pages,
    pub extent: Extent,
    pub at: u64,
}

impl Read for PagesVolume<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let mut file = PagesFile::new(self.pages, self.extent);
        file.at = self.at;
        let n = file.read(buf)?;
        self.at += n as u64;
        Ok(n)
    }
}

impl Write for PagesVolume<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.pages.write(self.extent.offset + self.at, buf);
        self.at += buf.len() as u64;
        Ok(buf.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for PagesVolume<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let mut file = PagesFile::new(self.pages, self.extent);
        file.at = self.at;
        self.at = file.seek(to)?;
        Ok(self.at)
    }
}

impl Write for PagesFile<'_> {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::Error::other("a judge does not write"))
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for PagesFile<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.at = match to {
            SeekFrom::Start(at) => at,
            SeekFrom::End(by) => self.extent.len.saturating_add_signed(by),
            SeekFrom::Current(by) => self.at.saturating_add_signed(by),
        };
        Ok(self.at)
    }
}

impl std::fmt::Debug for PagesFile<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "disk at {}", self.at)
    }
}
