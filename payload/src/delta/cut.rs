//! Cuts the files of the slots into chunks and tells which of them the layer has.
//!
//! Where the old content is that of the layer, no place to cut is searched: the chunk that follows in the layer most likely
//! follows here, too, and its fingerprint, which is needed anyhow, says so. If many have followed, not even all bytes are
//! read: if a chunk far behind them is where it should be, what lies between most likely is, too. All are compared when they
//! are copied, so that a change between them, which left their length as it was, costs a request of its own.

use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use super::{
    Old, OldDisk,
    direct::{self, room_for},
    fingerprint::fingerprint,
    window::{Window, window_bytes},
};
use slipway_core::{
    delta::{
        cutter::Cutter,
        index::Fingerprint,
        reuse::{Destination, Reuse},
    },
    units::Extent,
};

// So many chunks have to follow one another before some are left out.
const FOLLOWED: usize = 16;
// Bytes of the layer from which one chunk is read then.
const LEAP_BYTES: u64 = 1 << 20;
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

/// Which bytes are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Care {
    /// All: what is found is there.
    All,
    /// Some, where the content of the layer follows. What is found most likely is there.
    Some,
}

/// How the chunks of a layer are made and known.
#[derive(Clone, Copy)]
struct Method {
    cutter: Cutter,
    seed: u64,
}

/// A chunk of the layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Expected {
    n: usize,
    len: usize,
    fingerprint: Fingerprint,
}

/// What is found is told to this. It answers with what is expected next.
trait Chunks {
    /// A chunk at this place.
    fn found(&mut self, fingerprint: Fingerprint, place: Extent) -> Option<Expected>;

    /// This chunk is expected at the beginning of a place in which the file goes on. So many bytes of it need not be read.
    fn leap(&mut self, next: usize, place: Extent) -> (u64, Option<Expected>);
}

/// The layer, shared by threads.
struct Shared<'r, 'o> {
    reuse: &'r Mutex<&'o mut Reuse>,
    disk: &'r dyn OldDisk,
    seed: u64,
    care: Care,
    memory: Vec<u8>,
}

impl<'r, 'o> Shared<'r, 'o> {
    fn lock(&self) -> MutexGuard<'r, &'o mut Reuse> {
        self.reuse.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Chunks for Shared<'_, '_> {
    fn found(&mut self, fingerprint: Fingerprint, place: Extent) -> Option<Expected> {
        let mut reuse = self.lock();
        reuse.found(fingerprint, place).map(|next| expected(&reuse, next))
    }

    fn leap(&mut self, first: usize, mut place: Extent) -> (u64, Option<Expected>) {
        let (mut bytes, mut next) = (0, Some(first));
        while let Some(first) = next.filter(|_| self.care == Care::Some) {
            let reuse = self.lock();
            let Some(last) = reuse.far(first, LEAP_BYTES.min(place.len)) else { break };
            let (begin, chunk, wanted) =
                (reuse.index.chunk(first).offset, reuse.index.chunk(last), reuse.index.fingerprint(last));
            drop(reuse);
            let at = Extent { offset: place.offset + (chunk.offset - begin), ..chunk };
            let read = direct::read(self.disk, at, &mut self.memory);
            if !read.is_ok_and(|range| fingerprint(self.seed, &self.memory[range]) == wanted) {
                break;
            }
            next = self.lock().found_all(first..=last, place.offset);
            let passed = chunk.end() - begin;
            bytes += passed;
            place = Extent { offset: place.offset + passed, len: place.len - passed };
        }
        (bytes, next.map(|next| expected(&self.lock(), next)))
    }
}

/// Cuts all of the old files. One that cannot be read to its end is cut as far as it can be read.
pub fn cut_all(old: &Old<'_>, reuse: &mut Reuse, care: Care) {
    let method = Method { cutter: reuse.index.cutter, seed: reuse.index.seed() };
    let mut pieces: Vec<_> = old.files.iter().flat_map(|file| pieces(file, method.cutter, PIECE_BYTES)).collect();
    if old.is_interrupted {
        pieces.extend(in_place(reuse));
    }
    let (next, reuse) = (AtomicUsize::new(0), Mutex::new(reuse));
    let work = || {
        let (mut window, memory) = (vec![0; window_bytes(method.cutter)], vec![0; room_for(method.cutter.most())]);
        let mut layer = Shared { reuse: &reuse, disk: old.disk, seed: method.seed, care, memory };
        while let Some(piece) = pieces.get(next.fetch_add(1, Ordering::Relaxed)) {
            cut_piece(old.disk, piece, method, &mut window, &mut layer);
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
    Expected { n, len: reuse.index.chunk(n).len as usize, fingerprint: reuse.index.fingerprint(n) }
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

/// Cuts a piece.
fn cut_piece(disk: &dyn OldDisk, piece: &Piece, method: Method, memory: &mut [u8], layer: &mut dyn Chunks) {
    let mut window = Window::new(disk, &piece.extents, method.cutter, memory);
    let (mut expected, mut followed) = (piece.follows, 0);
    loop {
        window.fill();
        let bytes = window.bytes();
        let next = expected.take().filter(|expected| is_next(bytes, method, *expected));
        followed = if next.is_some() { followed + 1 } else { 0 };
        let (len, fingerprint) = match next {
            Some(Expected { len, fingerprint, .. }) => (len, fingerprint),
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
            expected = layer.found(fingerprint, place);
        }
        window.pass(len);
        if followed >= FOLLOWED
            && let (Some(next), Some(place)) = (expected, window.rest())
        {
            followed = 0;
            if let (passed @ 1.., next) = layer.leap(next.n, place) {
                window.skip(passed);
                expected = next;
            }
        }
    }
}

/// Whether the bytes begin with this chunk. An index that lies could have all bytes looked at one by one, so that chunks that
/// are smaller than the cutter's are not looked for.
fn is_next(bytes: &[u8], method: Method, Expected { len, fingerprint, .. }: Expected) -> bool {
    let is_it = |bytes| self::fingerprint(method.seed, bytes) == fingerprint;
    len >= method.cutter.least() && bytes.get(..len).is_some_and(is_it)
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

    /// All chunks, of which none is expected.
    #[derive(Default)]
    struct Found(Vec<(Fingerprint, Extent)>);

    impl Chunks for Found {
        fn found(&mut self, fingerprint: Fingerprint, place: Extent) -> Option<Expected> {
            self.0.push((fingerprint, place));
            None
        }

        fn leap(&mut self, _: usize, _: Extent) -> (u64, Option<Expected>) {
            unreachable!("none is expected")
        }
    }

    fn cut_by(method: Method, disk: &Memory, extents: &[Extent]) -> Vec<(Fingerprint, Extent)> {
        let (piece, mut found) = (Piece { extents: extents.to_vec(), follows: None }, Found::default());
        cut_piece(disk, &piece, method, &mut vec![0; window_bytes(method.cutter)], &mut found);
        found.0
    }

    fn cut(disk: &Memory, extents: &[Extent]) -> Vec<Extent> {
        let place = |(found, place): (Fingerprint, Extent)| {
            let bytes = &disk.0[place.offset as usize..place.end() as usize];
            assert_eq!(found, fingerprint(METHOD.seed, bytes), "{place:?}");
            place
        };
        cut_by(METHOD, disk, extents).into_iter().map(place).collect()
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
        let whole = [Extent { offset: 0, len: disk.0.len() as u64 }];
        let mut rest = &disk.0[..];
        for (_, place) in cut_by(Method { cutter, seed: 7 }, &disk, &whole) {
            assert_eq!(place.len as usize, cutter.cut(rest));
            rest = &rest[place.len as usize..];
        }
        assert!(rest.is_empty());
    }

    /// A layer that counts how many chunks were not expected.
    struct Counted<'r, 'o> {
        layer: Shared<'r, 'o>,
        expected: Option<Expected>,
        searched: usize,
    }

    impl Chunks for Counted<'_, '_> {
        fn found(&mut self, fingerprint: Fingerprint, place: Extent) -> Option<Expected> {
            let expected = self.expected.map(|next| (next.fingerprint, next.len as u64));
            self.searched += usize::from(expected != Some((fingerprint, place.len)));
            self.expected = self.layer.found(fingerprint, place);
            self.expected
        }

        fn leap(&mut self, next: usize, place: Extent) -> (u64, Option<Expected>) {
            let (passed, next) = self.layer.leap(next, place);
            if passed > 0 {
                self.expected = next;
            }
            (passed, next)
        }
    }

    /// The chunks of a layer that has these bytes as its only file: whether the disk has them where they were found, if so. And how
    /// many were searched.
    fn found(old: &Memory, pieces: &[Piece], layer: &[u8], care: Care) -> (Vec<Option<bool>>, usize) {
        let file = File { name: "f".to_owned(), at: Extent { offset: 0, len: layer.len() as u64 } };
        let index = cut_layer(layer, Sha256::of(layer), vec![file], Cutter::STANDARD).unwrap();
        let mut reuse = Reuse::new(index, vec![], &|_| None);
        let method = Method { seed: reuse.index.seed(), ..METHOD };
        let mut window = vec![0; window_bytes(method.cutter)];
        let shared = Mutex::new(&mut reuse);
        let memory = vec![0; room_for(method.cutter.most())];
        let layer = Shared { reuse: &shared, disk: old, seed: method.seed, care, memory };
        let mut counted = Counted { layer, expected: None, searched: 0 };
        for piece in pieces {
            counted.expected = None;
            cut_piece(old, piece, method, &mut window, &mut counted);
        }
        let searched = counted.searched;
        let is_there = |n| {
            let place = reuse.place(n)?;
            let bytes = &old.0[place.offset as usize..place.end() as usize];
            Some(fingerprint(method.seed, bytes) == reuse.index.fingerprint(n))
        };
        ((0..reuse.index.len()).map(is_there).collect(), searched)
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
        let prints = |disk: &Memory| {
            let whole = Extent { offset: 0, len: disk.0.len() as u64 };
            cut_by(METHOD, disk, &[whole]).into_iter().map(|(found, _)| found).collect::<Vec<_>>()
        };
        let searched: BTreeSet<_> = prints(&old).into_iter().collect();
        let wanted: Vec<_> = prints(&Memory(layer.clone())).iter().map(|chunk| searched.contains(chunk)).collect();
        let there = wanted.iter().filter(|there| **there).count();
        assert!(there * 10 > wanted.len() * 9 && there < wanted.len(), "{there} of {}", wanted.len());
        let loses_nothing = |found: &[Option<bool>]| {
            assert!(wanted.iter().zip(found).all(|(wanted, found)| !wanted || *found == Some(true)), "{found:?}");
            assert!(found.iter().all(|found| *found != Some(false)), "{found:?}");
        };
        for care in [Care::All, Care::Some] {
            let (is_found, cuts) = found(&old, &[Piece { extents: vec![whole], follows: None }], &layer, care);
            loses_nothing(&is_found);
            // All behind the layer's bytes, and around what changed.
            assert!(cuts < (2 << 20) / (8 << 10) && cuts > 0, "{cuts}");
            // Pieces that begin anywhere lose nothing.
            let small = pieces(&[whole], Cutter::STANDARD, 777_777);
            assert_eq!(small.len(), 9);
            loses_nothing(&found(&old, &small, &layer, care).0);
            // Nor do extents, between which there is something else.
            let mut parts = old.0.clone();
            [5 << 19, 5000, 4096].into_iter().for_each(|at| drop(parts.splice(at..at, [9; 4096])));
            let at = |offset, end| Extent { offset, len: end - offset };
            let end = parts.len() as u64;
            let extents = [at(0, 4096), at(8192, 9096), at(13_192, (5 << 19) + 8192), at((5 << 19) + 12_288, end)];
            let of_parts = pieces(&extents, Cutter::STANDARD, PIECE_BYTES);
            let is_found = found(&Memory(parts), &of_parts, &layer, care).0;
            // What lies in two pieces has no place.
            let missing = wanted.iter().zip(&is_found).filter(|(wanted, found)| **wanted && **found != Some(true));
            assert!(missing.count() <= 3, "{is_found:?}");
        }
    }

    /// Where a slot has the layer's content, hardly any of it is read. A change that leaves the length as it was can be passed
    /// over then; with more care it is seen.
    #[test]
    fn what_follows_is_read_in_samples() {
        struct Counting(Memory, AtomicUsize);
        impl OldDisk for Counting {
            fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
                self.1.fetch_add(buf.len(), Ordering::Relaxed);
                self.0.read(offset, buf)
            }
        }
        let layer = noise(8 << 20);
        let mut changed = layer.clone();
        changed[5 << 19] ^= 1;
        let whole = Extent { offset: 0, len: layer.len() as u64 };
        let piece = || [Piece { extents: vec![whole], follows: None }];
        let wrong = |care| found(&Memory(changed.clone()), &piece(), &layer, care).0;
        assert_eq!(wrong(Care::All).iter().filter(|found| **found != Some(true)).collect::<Vec<_>>(), [&None]);
        assert_eq!(wrong(Care::Some).iter().filter(|found| **found != Some(true)).collect::<Vec<_>>(), [&Some(false)]);
        // A larger one cannot be passed over.
        changed[(5 << 19)..(5 << 19) + (3 << 19)].fill(0);
        assert!(found(&Memory(changed), &piece(), &layer, Care::Some).0.iter().all(|found| *found != Some(false)));

        let file = File { name: "f".to_owned(), at: whole };
        let disk = Counting(Memory(layer), AtomicUsize::new(0));
        for (care, most) in [(Care::All, 9 << 20), (Care::Some, 2 << 20)] {
            let layer = &disk.0.0;
            let index = cut_layer(&**layer, Sha256::of(layer), vec![file.clone()], Cutter::STANDARD).unwrap();
            let mut reuse = Reuse::new(index, vec![], &|_| None);
            let (files, before, to, said) = (vec![vec![whole]], vec![], BTreeMap::new(), Said::default());
            cut_all(&Old { disk: &disk, files, before, to, is_interrupted: false, said }, &mut reuse, care);
            assert_eq!(reuse.next_missing(0), None);
            let read = disk.1.swap(0, Ordering::Relaxed);
            assert!(read < most, "{read}");
        }
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
        cut_all(&old, &mut reuse, Care::Some);
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
        let expected = |len: usize| Expected { n: 0, len, fingerprint: fingerprint(METHOD.seed, &[7; 8 << 10][..len]) };
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
