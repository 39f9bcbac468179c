//! The reader of a layer that takes chunks from the disk and from the store.

use std::{
    collections::VecDeque,
    io::{self, Read},
    ops::Range,
    sync::atomic::Ordering,
};

use oci_spec::image::Descriptor;

use super::{
    Old,
    answer::Answer,
    cut::{Care, cut_all},
    descriptor_of_index,
    direct::{self, room_for},
    fetch_index,
    fingerprint::fingerprint,
};
use crate::image::{ImageError, ImageStore, Layer, sent};
use slipway_core::{
    delta::{
        index::File,
        reuse::{Moved, Reuse},
    },
    units::Extent,
};

/// Layers up to this size are not worth a word.
const WORTH_A_WORD: u64 = 16 << 20;
/// Bytes of one read from the disk.
const RUN_BYTES: u64 = 1 << 20;
/// So many requests are sent ahead. While one is waited for, a slow line still brings the answers to the others.
const AHEAD_REQUESTS: usize = 3;
/// Most bytes of the layer between a request and one that is sent ahead. Until they are read an answer that is large stands
/// still, and a server does not wait for ever.
const AHEAD_BYTES: u64 = 16 << 20;

/// The same bytes as the blob of the layer, if its index is right. The caller compares their digest.
pub struct Delta<'o> {
    store: &'o dyn ImageStore,
    layer: &'o Descriptor,
    old: &'o Old<'o>,
    reuse: Reuse,
    // The chunk after those in the buffer.
    next: usize,
    memory: Vec<u8>,
    // The bytes there that are handed out next.
    ready: Range<usize>,
    supply: Supply,
    // The requests after the one that is being read, and their answers.
    ahead: VecDeque<(Range<usize>, Answer)>,
}

enum Supply {
    /// Whatever is best.
    Both,
    /// A request that brings the chunks before this one.
    Request(Answer, usize),
    /// All that is left, unseen.
    Store(Box<dyn Read + Send>),
}

impl<'o> Delta<'o> {
    /// None: the layer is better read from its store alone. Why is told, unless nothing could be gained. The layers above it had
    /// some of the files.
    pub fn open(
        store: &'o dyn ImageStore,
        layer: &'o Layer,
        old: &'o Old<'o>,
        is_above: &dyn Fn(&str) -> bool,
    ) -> Option<Self> {
        let delta = Self::open_with(Care::Some, store, layer, old, is_above)?;
        if delta.reuse.moves(0).reused == 0 {
            return None;
        }
        old.said.used.store(true, Ordering::Relaxed);
        Some(delta)
    }

    /// The bytes that reading a layer moves: looked at with more care than there is need for if it is read. And the files that go
    /// into a slot, as the index lists them. None: it has no index that can be used.
    pub fn would_move(
        store: &'o dyn ImageStore,
        layer: &'o Layer,
        old: &'o Old<'o>,
        is_above: &dyn Fn(&str) -> bool,
    ) -> Option<(Moved, Vec<File>)> {
        let delta = Self::open_with(Care::All, store, layer, old, is_above)?;
        let mut moved = delta.reuse.moves(0);
        if let Some(why) = (moved.reused > 0).then(|| delta.without_parts()).flatten() {
            delta.say(&why);
            moved = Moved { fetched: layer.descriptor.size(), reused: 0, requests: 1 };
        }
        Some((moved, delta.files().to_vec()))
    }

    /// Why the store does not send what is missing, if it does not: that is known only once it was asked, for one byte of it.
    fn without_parts(&self) -> Option<String> {
        let at = self.reuse.index.chunk(self.reuse.next_missing(0)?).offset;
        match self.store.blob_from(self.layer, at..at + 1)() {
            Err(error) => Some(error.to_string()),
            Ok(asked) => (asked.goes_on && at + 1 < self.layer.size()).then(|| self.sends_all()),
        }
    }

    /// What is said of a store that sends all of the layer.
    fn sends_all(&self) -> String {
        let who = self.store.mirror().map_or_else(|| self.store.name(), |mirror| format!("the mirror {mirror}"));
        format!("{who} answers with all of the layer where a part was asked for")
    }

    /// Says why all of the layer is fetched.
    fn say(&self, why: &str) {
        self.old.said.say(format!("{why}: all of layer {} is fetched", self.layer.digest()));
    }

    fn open_with(
        care: Care,
        store: &'o dyn ImageStore,
        layer: &'o Layer,
        old: &'o Old<'o>,
        is_above: &dyn Fn(&str) -> bool,
    ) -> Option<Self> {
        if !store.has_ranges() || (old.files.is_empty() && !old.is_interrupted) {
            return None;
        }
        if let Some(why) = store.parts_failed() {
            old.said.say(format!("{}: {why}: all of the layer is fetched", layer.name()));
            return None;
        }
        match Self::prepared(care, store, layer, old, is_above) {
            Ok(delta) => delta,
            Err(why) => {
                old.said.say(format!("{why}: all of the layer is fetched"));
                None
            }
        }
    }

    fn prepared(
        care: Care,
        store: &'o dyn ImageStore,
        layer: &'o Layer,
        old: &'o Old<'o>,
        is_above: &dyn Fn(&str) -> bool,
    ) -> Result<Option<Self>, ImageError> {
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
        let index = match layer.take_index() {
            Some(index) => index,
            None => fetch_index(store, &layer.descriptor, &descriptor)?,
        };
        let mut reuse = Reuse::new(index, old.written(is_above), &|name| old.to.get(name).copied());
        cut_all(old, &mut reuse, care);
        Ok(Some(Self::of(store, &layer.descriptor, old, reuse)))
    }

    fn of(store: &'o dyn ImageStore, layer: &'o Descriptor, old: &'o Old<'o>, reuse: Reuse) -> Self {
        // A chunk may be larger than what is read at once.
        let memory = vec![0; room_for(RUN_BYTES.max(reuse.index.cutter.most() as u64) as usize)];
        let (supply, ahead) = (Supply::Both, VecDeque::new());
        Delta { store, layer, old, reuse, next: 0, memory, ready: 0..0, supply, ahead }
    }

    /// The files that go into a slot, as the index lists them.
    pub fn files(&self) -> &[File] {
        self.reuse.index.files()
    }

    /// Puts the next chunks into the buffer. None are left: it stays empty.
    fn advance(&mut self) -> Result<(), String> {
        self.ready = 0..0;
        if self.next >= self.reuse.index.len() {
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
        let Ok(Range { start, .. }) = direct::read(self.old.disk, run, &mut self.memory) else {
            self.reuse.lost(self.next);
            return false;
        };
        let (mut good, mut at) = (start, start);
        // Behind a chunk that is not what it was there may be more: one request is to bring them all.
        for n in self.next..end {
            let chunk = at..at + self.reuse.index.chunk(n).len as usize;
            at = chunk.end;
            match self.is_chunk(n, chunk.clone()) {
                true if self.next == n => (good, self.next) = (chunk.end, n + 1),
                true => {}
                false => self.reuse.lost(n),
            }
        }
        self.ready = start..good;
        self.old.said.reuse(self.ready.len());
        !self.ready.is_empty()
    }

    /// Whether this chunk lies in this part of the memory.
    fn is_chunk(&self, n: usize, bytes: Range<usize>) -> bool {
        let index = &self.reuse.index;
        fingerprint(index.seed(), &self.memory[bytes]) == index.fingerprint(n)
    }

    /// Asks for the next chunk, and those behind it that are missing, too.
    fn request(&mut self) -> Result<(), String> {
        let chunks = self.reuse.request(self.next);
        // A chunk before it was not what it should be. What lies behind all of this request is still of use.
        if self.ahead.front().is_some_and(|(ahead, _)| *ahead != chunks && ahead.start < chunks.end) {
            self.ahead.clear();
        }
        let is_asked = self.ahead.front().is_some_and(|(ahead, _)| *ahead == chunks);
        let asked = is_asked.then(|| self.ahead.pop_front()).flatten();
        let asked = asked.and_then(|(_, answer)| Some((answer.goes_on().ok()?, answer)));
        let (goes_on, answer) = match asked {
            Some(asked) => asked,
            None => {
                let answer = self.ask(&chunks).map_err(|e| format!("no thread for a request: {e}"))?;
                (answer.goes_on().map_err(|e| e.to_string())?, answer)
            }
        };
        if goes_on && chunks.end < self.reuse.index.len() {
            self.say(&self.sends_all());
            self.supply = Supply::Store(Box::new(answer));
        } else {
            self.supply = Supply::Request(answer, chunks.end);
            self.ask_ahead(chunks.end);
        }
        Ok(())
    }

    fn ask(&self, chunks: &Range<usize>) -> io::Result<Answer> {
        let (first, last) = (self.reuse.index.chunk(chunks.start), self.reuse.index.chunk(chunks.end - 1));
        Answer::to(self.store.blob_from(self.layer, first.offset..last.end()))
    }

    /// Sends the requests that will follow the one that ends before this chunk: while the one answer comes, the others are on
    /// their way, and no round trip is waited for. If one fails, it is sent again when its turn comes.
    fn ask_ahead(&mut self, end: usize) {
        while self.ahead.len() < AHEAD_REQUESTS {
            let from = self.ahead.back().map_or(end, |(chunks, _)| chunks.end);
            let Some(first) = self.reuse.next_missing(from) else { return };
            let (chunks, index) = (self.reuse.request(first), &self.reuse.index);
            if index.chunk(first).offset - index.chunk(end).offset > AHEAD_BYTES {
                return;
            }
            let Ok(asked) = self.ask(&chunks) else { return };
            self.ahead.push_back((chunks, asked));
        }
    }

    /// The next chunk from the request.
    fn fetched(&mut self) -> Result<(), String> {
        let Supply::Request(reader, _) = &mut self.supply else { return Ok(()) };
        let (n, chunk) = (self.next, 0..self.reuse.index.chunk(self.next).len as usize);
        reader.read_exact(&mut self.memory[chunk.clone()]).map_err(|e| e.to_string())?;
        if !self.is_chunk(n, chunk.clone()) {
            let chunk = sent(format!("chunk {}", n + 1), self.store);
            return Err(format!("{chunk}: it is another one than its index says"));
        }
        (self.ready, self.next) = (chunk, n + 1);
        Ok(())
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
        self.say(why);
        let mut reader = self.store.blob(self.layer).map_err(ImageError::into_io)?;
        let passed = io::copy(&mut reader.by_ref().take(position), &mut io::sink())?;
        if passed < position {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.ahead.clear();
        self.supply = Supply::Store(reader);
        Ok(())
    }
}

impl Read for Delta<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let is_used_up = self.ready.is_empty() && !matches!(self.supply, Supply::Store(_));
        if is_used_up
            && !out.is_empty()
            && let Err(why) = self.advance()
        {
            self.give_up(&why)?;
        }
        match &mut self.supply {
            Supply::Store(reader) if self.ready.is_empty() => reader.read(out),
            _ => {
                let n = out.len().min(self.ready.len());
                out[..n].copy_from_slice(&self.memory[self.ready.start..self.ready.start + n]);
                self.ready.start += n;
                Ok(n)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeMap,
        sync::{Arc, Mutex},
    };

    use slipway_core::{
        delta::{cutter::Cutter, index::Index},
        digest::Sha256,
    };

    use super::*;
    use crate::{
        delta::{OldDisk, Said},
        image::{Document, FromRange, RangeRequest},
    };

    type Log = Arc<Mutex<Vec<String>>>;

    /// A layer in memory, and what was asked of it.
    struct Memory(Vec<u8>, Log);

    impl ImageStore for Memory {
        fn root(&self) -> Result<Document, ImageError> {
            Err(ImageError::invalid("memory", "no root"))
        }

        fn document(&self, _: &Descriptor) -> Result<Vec<u8>, ImageError> {
            Err(ImageError::invalid("memory", "no document"))
        }

        fn blob(&self, _: &Descriptor) -> Result<Box<dyn Read + Send>, ImageError> {
            self.1.lock().unwrap().push("all".to_owned());
            Ok(Box::new(io::Cursor::new(self.0.clone())))
        }

        fn blob_from(&self, _: &Descriptor, range: Range<u64>) -> RangeRequest {
            let part = self.0[range.start as usize..range.end as usize].to_vec();
            self.1.lock().unwrap().push(format!("{}", range.start >> 20));
            Box::new(|| Ok(FromRange { reader: Box::new(io::Cursor::new(part)), goes_on: false }))
        }

        fn name(&self) -> String {
            "memory".to_owned()
        }
    }

    struct Disk(Vec<u8>);

    impl OldDisk for Disk {
        fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
            let there = self.0.get(offset as usize..).and_then(|rest| rest.get(..buf.len()));
            buf.copy_from_slice(there.ok_or(io::ErrorKind::UnexpectedEof)?);
            Ok(())
        }
    }

    const CHUNK: usize = 64 << 10;

    /// A layer of chunks of which the disk has none at these MiB, and what was asked for to read it, before which MiB was read.
    /// `rotten`: the disk has other bytes there by now.
    fn asked(missing: &[usize], mib: usize, rotten: &[usize]) -> Vec<String> {
        let layer: Vec<u8> =
            (0..(mib << 20) / CHUNK).flat_map(|n| [(n >> 8) as u8, n as u8].repeat(CHUNK / 2)).collect();
        let mut disk = Disk(layer.clone());
        let mut index = Index::new(Sha256::of(&layer), Cutter::STANDARD);
        let known = |chunk: &[u8]| fingerprint(index.seed(), chunk);
        let known: Vec<_> = layer.chunks(CHUNK).map(known).collect();
        known.iter().for_each(|chunk| index.push(CHUNK as u32, *chunk).unwrap());
        let mut reuse = Reuse::new(index, vec![], &|_| None);
        for (n, chunk) in known.into_iter().enumerate() {
            let at = n * CHUNK;
            if !missing.contains(&(at >> 20)) || !at.is_multiple_of(1 << 20) {
                reuse.found(chunk, Extent { offset: at as u64, len: CHUNK as u64 });
            }
        }
        rotten.iter().for_each(|at| disk.0[*at] ^= 1);
        let log = Log::default();
        let store = Memory(layer.clone(), log.clone());
        let descriptor = serde_json::json!({
            "mediaType": "application/vnd.oci.image.layer.v1.tar", "size": layer.len(),
            "digest": format!("sha256:{}", Sha256::of(&layer)),
        });
        let descriptor: Descriptor = serde_json::from_value(descriptor).unwrap();
        let (files, before, to) = (vec![], vec![], BTreeMap::new());
        let old = Old { disk: &disk, files, before, to, is_interrupted: false, said: Said::default() };
        let mut delta = Delta::of(&store, &descriptor, &old, reuse);
        let mut read = vec![0; layer.len()];
        for (n, part) in read.chunks_mut(1 << 20).enumerate() {
            delta.read_exact(part).unwrap();
            log.lock().unwrap().push(format!("read {n}"));
        }
        assert!(read == layer && old.said.why().is_empty() && delta.read(&mut [0]).unwrap() == 0);
        let mut log = log.lock().unwrap().clone();
        // Of the reads only the last one before a request.
        let is_read: Vec<_> = log.iter().map(|line| line.starts_with("read")).collect();
        let mut n = 0;
        log.retain(|_| (!is_read[n] || is_read.get(n + 1) == Some(&false), n += 1).0);
        log
    }

    /// A round trip is not waited for: the next requests are sent before the answer to the last one is read.
    #[test]
    fn the_next_requests_are_on_their_way() {
        assert_eq!(asked(&[1, 3, 5, 9, 11], 12, &[]), ["read 0", "1", "3", "5", "9", "read 2", "11"]);
        // Too far ahead.
        assert_eq!(asked(&[1, 20], 21, &[]), ["read 0", "1", "read 19", "20"]);
    }

    /// What is asked for ahead is no longer all that is needed, if the disk does not have what it had.
    #[test]
    fn a_chunk_that_is_lost_meanwhile_is_asked_for() {
        assert_eq!(asked(&[1, 9], 12, &[5 << 20]), ["read 0", "1", "9", "read 4", "5"]);
        // Both in one request, in place of the second.
        assert_eq!(asked(&[1, 9], 12, &[(9 << 20) - CHUNK]), ["read 0", "1", "9", "read 7", "8"]);
    }

    /// Far apart in the layer are two requests; near each other, one.
    #[test]
    fn what_has_rotten_together_is_asked_for_at_once() {
        let near = [0, 1, 3].map(|n| (5 << 20) + n * CHUNK);
        assert_eq!(asked(&[], 12, &near), ["read 4", "5"]);
        assert_eq!(asked(&[], 12, &[5 << 20, 7 << 20]), ["read 4", "5", "read 6", "7"]);
    }
}
