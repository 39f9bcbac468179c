//! The reader of a layer that takes chunks from the disk and from the store.

use std::{
    io::{self, Read},
    sync::atomic::Ordering,
};

use oci_spec::image::Descriptor;

use super::{Old, cut::cut_all, descriptor_of_index, fetch_index};
use crate::{
    image::{ImageError, ImageStore, Layer},
    sha256::Hasher,
};
use slipway_core::{
    delta::{
        index::{File, Key, key_of},
        reuse::{Moved, Reuse},
    },
    units::Extent,
};

/// Layers up to this size are not worth a word.
const WORTH_A_WORD: u64 = 16 << 20;
/// Bytes of one read from the disk.
const RUN_BYTES: u64 = 256 << 10;

/// The same bytes as the blob of the layer, if its index is right. The caller compares their digest.
pub struct Delta<'o> {
    store: &'o dyn ImageStore,
    layer: &'o Descriptor,
    old: &'o Old<'o>,
    reuse: Reuse,
    // The chunk after those in the buffer.
    next: usize,
    buf: Vec<u8>,
    at: usize,
    supply: Supply,
}

enum Supply {
    /// Whatever is best.
    Both,
    /// A request that brings the chunks before this one.
    Request(Box<dyn Read + Send>, usize),
    /// All that is left, unseen.
    Store(Box<dyn Read + Send>),
}

impl<'o> Delta<'o> {
    /// None: the layer is better read from its store alone. Why is told, unless nothing could be gained.
    pub fn open(store: &'o dyn ImageStore, layer: &'o Layer, old: &'o Old<'o>) -> Option<Self> {
        if !store.has_ranges() || old.files.is_empty() {
            return None;
        }
        match Self::prepared(store, layer, old) {
            Ok(delta) => delta,
            Err(why) => {
                old.said.say(format!("{why}: all of the layer is fetched"));
                None
            }
        }
    }

    fn prepared(store: &'o dyn ImageStore, layer: &'o Layer, old: &'o Old<'o>) -> Result<Option<Self>, ImageError> {
        let Some(descriptor) = descriptor_of_index(&layer.descriptor)? else {
            return match layer.descriptor.size() {
                ..=WORTH_A_WORD => Ok(None),
                _ => Err(ImageError::invalid(layer.name(), "no index of chunks (`installer chunk` makes one)")),
            };
        };
        if layer.plain().is_none() {
            let why = "it has an index of chunks, but is not a plain tar archive (`installer chunk` makes it one)";
            return Err(ImageError::invalid(layer.name(), why));
        }
        let index = fetch_index(store, &layer.descriptor, &descriptor)?;
        let mut reuse = Reuse::new(index, old.before.clone(), &|name| old.to.get(name).copied());
        cut_all(old.disk, &old.files, &mut reuse);
        if reuse.moves(0).reused == 0 {
            return Ok(None);
        }
        old.said.used.store(true, Ordering::Relaxed);
        let layer = &layer.descriptor;
        Ok(Some(Delta { store, layer, old, reuse, next: 0, buf: Vec::new(), at: 0, supply: Supply::Both }))
    }

    /// The files that go into a slot, as the index lists them.
    pub fn files(&self) -> &[File] {
        self.reuse.index.files()
    }

    /// The bytes that come from each place.
    pub fn moves(&self) -> Moved {
        self.reuse.moves(0)
    }

    /// Puts the next chunks into the buffer. None are left: it stays empty.
    fn advance(&mut self) -> Result<(), String> {
        (self.at, self.next) = (0, self.next.min(self.reuse.index.len()));
        self.buf.clear();
        if self.next == self.reuse.index.len() {
            return Ok(());
        }
        if let Supply::Request(_, end) = &self.supply {
            if self.next < *end {
                return self.fetched();
            }
            self.finish_request();
        }
        if self.reuse.place(self.next).is_some() && self.copied() {
            return Ok(());
        }
        self.request()?;
        if matches!(self.supply, Supply::Store(_)) { Ok(()) } else { self.fetched() }
    }

    /// Copies chunks that lie one behind the other on the disk. None, if the first one is not what it was.
    fn copied(&mut self) -> bool {
        let Some(mut run) = self.reuse.place(self.next) else { return false };
        let mut end = self.next + 1;
        while let Some(place) = (end < self.reuse.index.len()).then(|| self.reuse.place(end)).flatten() {
            if place.offset != run.end() || run.len + place.len > RUN_BYTES {
                break;
            }
            run = Extent { len: run.len + place.len, ..run };
            end += 1;
        }
        self.buf.resize(run.len as usize, 0);
        if self.old.disk.read(run.offset, &mut self.buf).is_err() {
            self.buf.clear();
            self.reuse.lost(self.next);
            return false;
        }
        let mut good = 0;
        for n in self.next..end {
            let len = self.reuse.index.chunk(n).len as usize;
            if key(&self.buf[good..good + len]) != *self.reuse.index.key(n) {
                self.reuse.lost(n);
                break;
            }
            (good, self.next) = (good + len, n + 1);
        }
        self.buf.truncate(good);
        self.old.said.reuse(good);
        good > 0
    }

    /// Asks for the next chunk, and those behind it that are missing, too.
    fn request(&mut self) -> Result<(), String> {
        let chunks = self.reuse.request(self.next);
        let (first, last) = (self.reuse.index.chunk(chunks.start), self.reuse.index.chunk(chunks.end - 1));
        let asked = self.store.blob_from(self.layer, first.offset..last.end()).map_err(|e| e.to_string())?;
        if asked.goes_on && last.end() < self.layer.size() {
            self.old.said.say(format!(
                "{} answers with all of layer {} where a part was asked for: all of it is fetched",
                self.store.name(),
                self.layer.digest()
            ));
            self.supply = Supply::Store(asked.reader);
        } else {
            self.supply = Supply::Request(asked.reader, chunks.end);
        }
        Ok(())
    }

    /// The next chunk from the request.
    fn fetched(&mut self) -> Result<(), String> {
        let Supply::Request(reader, _) = &mut self.supply else { return Ok(()) };
        let n = self.next;
        self.buf.resize(self.reuse.index.chunk(n).len as usize, 0);
        let read = reader.read_exact(&mut self.buf).map_err(|e| e.to_string());
        let read = read.and_then(|()| match key(&self.buf) == *self.reuse.index.key(n) {
            true => Ok(()),
            false => Err(format!("chunk {} is another one than its index says", n + 1)),
        });
        match read {
            Ok(()) => self.next += 1,
            Err(_) => self.buf.clear(),
        }
        read
    }

    /// Reads the end of its answer: a connection is used again only then.
    fn finish_request(&mut self) {
        if let Supply::Request(mut reader, _) = std::mem::replace(&mut self.supply, Supply::Both) {
            let _ = reader.read(&mut [0]);
        }
    }

    /// Everything else comes from the store, by a request for the whole layer. Bytes that came already are passed
    /// over.
    fn give_up(&mut self, why: &str) -> io::Result<()> {
        let position = if self.next == 0 { 0 } else { self.reuse.index.chunk(self.next - 1).end() };
        self.old.said.say(format!("{why}: all of layer {} is fetched", self.layer.digest()));
        let mut reader = self.store.blob(self.layer).map_err(ImageError::into_io)?;
        let passed = io::copy(&mut reader.by_ref().take(position), &mut io::sink())?;
        if passed < position {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.supply = Supply::Store(reader);
        Ok(())
    }
}

fn key(bytes: &[u8]) -> Key {
    let mut hasher = Hasher::default();
    hasher.update(bytes);
    key_of(hasher.finish())
}

impl Read for Delta<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let is_used_up = self.at == self.buf.len() && !matches!(self.supply, Supply::Store(_));
        if is_used_up
            && !out.is_empty()
            && let Err(why) = self.advance()
        {
            self.buf.clear();
            self.give_up(&why)?;
        }
        match &mut self.supply {
            Supply::Store(reader) if self.at == self.buf.len() => reader.read(out),
            _ => {
                let n = out.len().min(self.buf.len() - self.at);
                out[..n].copy_from_slice(&self.buf[self.at..self.at + n]);
                self.at += n;
                Ok(n)
            }
        }
    }
}
