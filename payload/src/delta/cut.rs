//! Cuts the files of the slots into chunks and tells which of them the layer has.
//!
//! Where the old content is that of the layer, no place to cut is searched: the chunk that follows in the layer most likely
//! follows here, too, and its fingerprint, which is needed anyhow, says so.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use super::{
    Old, OldDisk,
    direct::{ALIGN, aligned, room_for},
    fingerprint::fingerprint,
};
use slipway_core::{
    delta::{
        cutter::Cutter,
        index::Fingerprint,
        reuse::{Destination, Reuse},
    },
    units::Extent,
};

// Bytes of one read, unless chunks are larger.
const READ_BYTES: usize = 512 << 10;
// Most disks answer several reads at once faster than one after the other, and some read while others compute.
const THREADS: usize = 4;
// A slot holds one large file, which threads share in pieces of so many bytes.
const PIECE_BYTES: usize = 32 << 20;
// A piece goes on into the next one for so many chunks of the largest size: within these the cuts of both become the same.
const OVERLAP_CHUNKS: u64 = 4;

/// The bytes that are searched at a time.
struct Piece {
    /// In the order of the content.
    extents: Vec<Extent>,
    /// The chunk of the layer that begins it. Then nothing is searched: the chunks of the layer are followed as far as they lie
    /// here one behind the other.
    follows: Option<Expected>,
}

/// How the chunks of a layer are made and known.
#[derive(Clone, Copy)]
struct Method {
    cutter: Cutter,
    seed: u64,
}

/// Length and fingerprint of a chunk of the layer.
type Expected = (usize, Fingerprint);
type Found<'f> = dyn FnMut(Fingerprint, Extent) -> Option<Expected> + 'f;

/// Cuts all of the old files. One that cannot be read to its end is cut as far as it can be read.
pub fn cut_all(old: &Old<'_>, reuse: &mut Reuse) {
    let method = Method { cutter: reuse.index.cutter, seed: reuse.index.seed() };
    let mut pieces: Vec<_> = old.files.iter().flat_map(|file| pieces(file, method.cutter, PIECE_BYTES)).collect();
    if old.is_interrupted {
        pieces.extend(in_place(reuse));
    }
    let (next, reuse) = (AtomicUsize::new(0), Mutex::new(reuse));
    let work = || {
        let mut memory = vec![0; window_bytes(method.cutter)];
        while let Some(piece) = pieces.get(next.fetch_add(1, Ordering::Relaxed)) {
            cut_piece(old.disk, piece, method, &mut memory, &mut |fingerprint, place| {
                let mut reuse = reuse.lock().unwrap_or_else(PoisonError::into_inner);
                reuse.found(fingerprint, place).map(|next| expected(&reuse, next))
            });
        }
    };
    thread::scope(|scope| {
        for _ in 1..THREADS {
            // Without it this thread does all of it.
            let _ = thread::Builder::new().spawn_scoped(scope, work);
        }
        work();
    });
}

fn expected(reuse: &Reuse, n: usize) -> Expected {
    (reuse.index.chunk(n).len as usize, reuse.index.fingerprint(n))
}

/// The pieces of a file.
fn pieces(file: &[Extent], cutter: Cutter, bytes: usize) -> Vec<Piece> {
    let total: u64 = file.iter().map(|extent| extent.len).sum();
    let len = bytes as u64 + OVERLAP_CHUNKS * cutter.most() as u64;
    let piece = |start| Piece { extents: part(file, start, len), follows: None };
    (0..total).step_by(bytes).map(piece).collect()
}

/// The beginnings of the files of the layer that an interrupted write has left in their places.
fn in_place(reuse: &Reuse) -> Vec<Piece> {
    let piece = |(file, first): (Destination, usize)| {
        let place = Extent { len: file.from.len.min(file.to.len), ..file.to };
        Piece { extents: vec![place], follows: Some(expected(reuse, first)) }
    };
    reuse.destinations().map(piece).collect()
}

/// So many bytes of a file from `start` on, or all to its end.
fn part(file: &[Extent], start: u64, len: u64) -> Vec<Extent> {
    let (mut skip, mut left, mut part) = (start, len, Vec::new());
    for extent in file {
        let skipped = skip.min(extent.len);
        let taken = (extent.len - skipped).min(left);
        if taken > 0 {
            part.push(Extent { offset: extent.offset + skipped, len: taken });
        }
        (skip, left) = (skip - skipped, left - taken);
    }
    part
}

/// Cuts a piece. `found` is told each chunk, and answers with the one that is expected next.
fn cut_piece(disk: &dyn OldDisk, piece: &Piece, method: Method, memory: &mut [u8], found: &mut Found<'_>) {
    let mut window = Window::new(disk, &piece.extents, method.cutter, memory);
    let mut expected = piece.follows;
    loop {
        window.fill();
        let bytes = window.bytes();
        let (len, fingerprint) = match expected.take().filter(|expected| is_next(bytes, method, *expected)) {
            Some(expected) => expected,
            None if piece.follows.is_some() => return,
            None => {
                let len = method.cutter.cut(bytes);
                (len, fingerprint(method.seed, &bytes[..len]))
            }
        };
        if len == 0 {
            return;
        }
        if let Some(place) = window.place(len) {
            expected = found(fingerprint, place);
        }
        window.pass(len);
    }
}

/// Whether the bytes begin with this chunk. An index that lies could have all bytes looked at one by one, so that chunks that
/// are smaller than the cutter's are not looked for.
fn is_next(bytes: &[u8], method: Method, (len, fingerprint): Expected) -> bool {
    let is_it = |bytes| self::fingerprint(method.seed, bytes) == fingerprint;
    len >= method.cutter.least() && bytes.get(..len).is_some_and(is_it)
}

/// Bytes of the memory of a window: the beginning of a chunk that goes on in the next read, and this read.
const fn window_bytes(cutter: Cutter) -> usize {
    room_for(cutter.most()) + room_for(read_bytes(cutter))
}

const fn read_bytes(cutter: Cutter) -> usize {
    if cutter.most() > READ_BYTES { cutter.most() } else { READ_BYTES }
}

/// A window of a file, and where its bytes lie on the disk.
struct Window<'f> {
    disk: &'f dyn OldDisk,
    // Extents that were not read yet; of the first so many bytes were.
    left: &'f [Extent],
    read: u64,
    most: usize,
    // Whatever is read comes behind `reads`, so that it goes to where direct I/O can put it.
    buf: &'f mut [u8],
    reads: usize,
    // The window in the buffer, and where it begins in the file.
    begin: usize,
    end: usize,
    at: u64,
    // Where parts of the file begin, and their places on the disk.
    places: Vec<(u64, Extent)>,
}

impl<'f> Window<'f> {
    fn new(disk: &'f dyn OldDisk, left: &'f [Extent], cutter: Cutter, memory: &'f mut [u8]) -> Self {
        let (most, buf) = (cutter.most(), aligned(memory));
        let reads = most.next_multiple_of(ALIGN);
        let buf = &mut buf[..reads + read_bytes(cutter)];
        Window { disk, left, read: 0, most, buf, reads, begin: reads, end: reads, at: 0, places: Vec::new() }
    }

    fn bytes(&self) -> &[u8] {
        &self.buf[self.begin..self.end]
    }

    /// The window gets room for a chunk of the largest size, or reaches to the end of the file, or to where it cannot be read.
    fn fill(&mut self) {
        let have = self.end - self.begin;
        if have >= self.most || self.left.is_empty() {
            return;
        }
        self.buf.copy_within(self.begin..self.end, self.reads - have);
        (self.begin, self.end) = (self.reads - have, self.reads);
        self.places.retain(|(at, place)| at + place.len > self.at);
        while let Some(first) = self.left.first().filter(|_| self.end < self.buf.len()) {
            let want = (first.len - self.read).min((self.buf.len() - self.end) as u64);
            let place = Extent { offset: first.offset + self.read, len: want };
            let end = self.end + want as usize;
            if self.disk.read(place.offset, &mut self.buf[self.end..end]).is_err() {
                self.left = &[];
                return;
            }
            self.note(place);
            (self.end, self.read) = (end, self.read + want);
            if self.read == first.len {
                (self.left, self.read) = (&self.left[1..], 0);
            }
        }
    }

    /// What is read at the end of the window lies there.
    fn note(&mut self, place: Extent) {
        let at = self.at + (self.end - self.begin) as u64;
        match self.places.last_mut() {
            Some((_, last)) if last.end() == place.offset => last.len += place.len,
            _ => self.places.push((at, place)),
        }
    }

    /// Where the first bytes of the window lie, if that is in one piece.
    fn place(&self, len: usize) -> Option<Extent> {
        let (at, place) = self.places.iter().find(|(at, place)| self.at < at + place.len)?;
        let found = Extent { offset: place.offset + (self.at - at), len: len as u64 };
        place.contains(found).then_some(found)
    }

    /// The window begins behind so many bytes.
    fn pass(&mut self, len: usize) {
        (self.begin, self.at) = (self.begin + len, self.at + len as u64);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::{BTreeMap, BTreeSet},
        io,
    };

    use super::*;
    use crate::delta::{Said, cut_layer};
    use slipway_core::{delta::index::File, digest::Sha256};

    struct Memory(Vec<u8>);

    impl OldDisk for Memory {
        fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
            let there = self.0.get(offset as usize..).and_then(|rest| rest.get(..buf.len()));
            buf.copy_from_slice(there.ok_or(io::ErrorKind::UnexpectedEof)?);
            Ok(())
        }
    }

    fn noise(len: usize) -> Vec<u8> {
        let mix = |n: u64| (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (0..len as u64).map(|n| (mix(n.wrapping_mul(0x9e37_79b9_7f4a_7c15)) >> 40) as u8).collect()
    }

    const METHOD: Method = Method { cutter: Cutter::STANDARD, seed: 7 };

    fn cut_by(method: Method, disk: &Memory, extents: &[Extent], found: &mut Found<'_>) {
        let piece = Piece { extents: extents.to_vec(), follows: None };
        cut_piece(disk, &piece, method, &mut vec![0; window_bytes(method.cutter)], found);
    }

    fn cut_extents(disk: &Memory, extents: &[Extent], found: &mut Found<'_>) {
        cut_by(METHOD, disk, extents, found);
    }

    fn cut(disk: &Memory, extents: &[Extent]) -> Vec<Extent> {
        let mut places = Vec::new();
        cut_extents(disk, extents, &mut |found, place| {
            let bytes = &disk.0[place.offset as usize..place.end() as usize];
            assert_eq!(found, fingerprint(METHOD.seed, bytes), "{place:?}");
            places.push(place);
            None
        });
        places
    }

    /// However a file lies on the disk, it is cut where its content says.
    #[test]
    fn a_file_in_pieces_is_cut_as_a_whole_one() {
        let disk = Memory(noise(5 << 20));
        let whole = cut(&disk, &[Extent { offset: 1000, len: 4 << 20 }]);
        assert_eq!(whole.iter().map(|place| place.len).sum::<u64>(), 4 << 20);
        assert!(whole.windows(2).all(|pair| pair[0].end() == pair[1].offset) && whole[0].offset == 1000);
        let pieces = |lens: &[u64]| {
            let mut at = 1000;
            let next = |len: &u64| {
                at += len;
                Extent { offset: at - len, len: *len }
            };
            lens.iter().map(next).collect::<Vec<_>>()
        };
        assert_eq!(cut(&disk, &pieces(&[1, 4095, 1 << 20, 2 << 20, (1 << 20) - 4096])), whole);
        // Behind a hole the same cuts follow, and what lies on both sides of it has no place.
        let other = Memory([&disk.0[..1000 + (2 << 20)], &[0; 77], &disk.0[1000 + (2 << 20)..]].concat());
        let (a, b) = (Extent { offset: 1000, len: 2 << 20 }, Extent { offset: 1077 + (2 << 20), len: 2 << 20 });
        let found = cut(&other, &[a, b]);
        assert!(found.len() + 1 >= whole.len() && found.iter().all(|place| a.contains(*place) || b.contains(*place)));
    }

    /// Chunks may be larger than a read usually is: the window holds one.
    #[test]
    fn the_largest_chunks_are_cut_as_a_whole() {
        let [_, most] = Cutter::AVERAGES;
        let cutter = Cutter::new(most).unwrap();
        let disk = Memory([noise(3 << 20), vec![7; 5 << 20]].concat());
        let mut found = Vec::new();
        let whole = [Extent { offset: 0, len: disk.0.len() as u64 }];
        cut_by(Method { cutter, seed: 7 }, &disk, &whole, &mut |_, place| {
            found.push(place.len as usize);
            None
        });
        let mut rest = &disk.0[..];
        for len in found {
            assert_eq!(len, cutter.cut(rest));
            rest = &rest[len..];
        }
        assert!(rest.is_empty());
    }

    /// The chunks that are found on a disk if the layer has these bytes as its only file, and how many were expected rightly.
    fn found(old: &Memory, pieces: &[Piece], layer: &[u8]) -> (Vec<bool>, usize) {
        let file = File { name: "f".to_owned(), at: Extent { offset: 0, len: layer.len() as u64 } };
        let index = cut_layer(layer, Sha256::of(layer), vec![file], Cutter::STANDARD).unwrap();
        let mut reuse = Reuse::new(index, vec![], &|_| None);
        let method = Method { seed: reuse.index.seed(), ..METHOD };
        let (mut searched, mut memory) = (0, vec![0; window_bytes(method.cutter)]);
        for piece in pieces {
            let mut last = None;
            cut_piece(old, piece, method, &mut memory, &mut |found, place| {
                searched += usize::from(last.take().is_none_or(|(len, next)| (place.len, found) != (len as u64, next)));
                last = reuse.found(found, place).map(|next| expected(&reuse, next));
                last
            });
        }
        let is_there = |n| {
            let place = reuse.place(n)?;
            let bytes = &old.0[place.offset as usize..place.end() as usize];
            assert_eq!(fingerprint(method.seed, bytes), reuse.index.fingerprint(n));
            Some(())
        };
        ((0..reuse.index.len()).map(|n| is_there(n).is_some()).collect(), searched)
    }

    /// Whatever a search for all cuts finds is found by expectations, too; and the end of a file, which is no cut.
    #[test]
    fn what_is_expected_is_found_as_what_is_searched() {
        let old = Memory(noise(6 << 20));
        let mut layer = old.0[..4 << 20].to_vec();
        layer.splice(1_000_000..1_000_100, *b"changed");
        layer.drain(2_000_000..2_100_000);
        let moved: Vec<u8> = layer.splice(3_000_000..3_500_000, []).collect();
        layer.extend(moved);
        let whole = Extent { offset: 0, len: old.0.len() as u64 };
        let mut searched = BTreeSet::new();
        cut_extents(&old, &[whole], &mut |found, _| {
            searched.insert(found);
            None
        });
        let mut wanted = Vec::new();
        let of_layer = Memory(layer.clone());
        cut_extents(&of_layer, &[Extent { offset: 0, len: layer.len() as u64 }], &mut |found, _| {
            wanted.push(searched.contains(&found));
            None
        });
        let (is_found, cuts) = found(&old, &[Piece { extents: vec![whole], follows: None }], &layer);
        let loses_nothing = |found: &[bool]| wanted.iter().zip(found).all(|(searched, found)| !searched || *found);
        assert!(loses_nothing(&is_found), "{is_found:?} of {wanted:?}");
        let there = wanted.iter().filter(|there| **there).count();
        assert!(there * 10 > wanted.len() * 9 && there < wanted.len(), "{there} of {}", wanted.len());
        // All behind the layer's bytes, and around what changed.
        assert!(cuts < (2 << 20) / (8 << 10) && cuts > 0, "{cuts}");
        // Pieces that begin anywhere lose nothing.
        let pieces = pieces(&[whole], Cutter::STANDARD, 777_777);
        assert_eq!(pieces.len(), 9);
        assert!(loses_nothing(&found(&old, &pieces, &layer).0));
    }

    /// Of a write that was interrupted the beginning is there. Nothing is searched behind it.
    #[test]
    fn what_was_written_before_is_followed_to_its_end() {
        let layer = noise(2 << 20);
        let mut disk = Memory([vec![0; 1000], layer.clone()].concat());
        disk.0[1000 + (1 << 20)..].fill(0);
        let to = Extent { offset: 1000, len: layer.len() as u64 + 100 };
        let file = File { name: "f".to_owned(), at: Extent { offset: 0, len: layer.len() as u64 } };
        let index = cut_layer(&*layer, Sha256::of(&layer), vec![file], Cutter::STANDARD).unwrap();
        let mut reuse = Reuse::new(index, vec![], &|_| Some(to));
        let (files, before, to, said) = (vec![], vec![], BTreeMap::new(), Said::default());
        let old = Old { disk: &disk, files, before, to, is_interrupted: true, said };
        cut_all(&old, &mut reuse);
        let found: Vec<_> = (0..reuse.index.len()).map(|n| reuse.place(n)).collect();
        let whole = (0..found.len()).filter(|n| reuse.index.chunk(*n).end() <= 1 << 20);
        for n in whole.clone() {
            assert_eq!(found[n], Some(Extent { offset: 1000 + reuse.index.chunk(n).offset, ..reuse.index.chunk(n) }));
        }
        assert!(whole.clone().count() > 10 && found[whole.count()..].iter().all(Option::is_none));
    }

    /// An index of bytes would have all bytes looked at one by one.
    #[test]
    fn what_is_smaller_than_chunks_are_is_not_expected() {
        let expected = |len: usize| (len, fingerprint(METHOD.seed, &[7; 8 << 10][..len]));
        let window = [7; 8 << 10];
        let least = Cutter::STANDARD.least();
        assert!(is_next(&window, METHOD, expected(least)));
        assert!(!is_next(&window, METHOD, expected(least - 1)));
        assert!(!is_next(&window[..least], METHOD, expected(least + 1)));
    }

    #[test]
    fn a_file_that_cannot_be_read_is_cut_as_far_as_it_can() {
        let disk = Memory(noise(3 << 20));
        let found = cut(&disk, &[Extent { offset: 0, len: 2 << 20 }, Extent { offset: 10 << 20, len: 1 << 20 }]);
        assert_eq!(found.iter().map(|place| place.len).sum::<u64>(), 2 << 20);
    }
}
