//! Cuts the files of the slots into chunks and tells which of them the layer has.
//!
//! Where the old content is that of the layer, no place to cut is searched: the chunk that follows in the layer most likely
//! follows here, too, and its digest, which is needed anyhow, says so.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use super::{Old, OldDisk};
use crate::sha256::Hasher;
use slipway_core::{
    delta::{
        cutter::Cutter,
        index::{Key, key_of},
        reuse::{Destination, Reuse},
    },
    units::Extent,
};

// Bytes of one read.
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

/// Length and key of a chunk of the layer.
type Expected = (usize, Key);
type Found<'f> = dyn FnMut(&Key, Extent) -> Option<Expected> + 'f;

/// Cuts all of the old files. One that cannot be read to its end is cut as far as it can be read.
pub fn cut_all(old: &Old<'_>, reuse: &mut Reuse) {
    let cutter = reuse.index.cutter;
    let mut pieces: Vec<_> = old.files.iter().flat_map(|file| pieces(file, cutter, PIECE_BYTES)).collect();
    if old.is_interrupted {
        pieces.extend(in_place(reuse));
    }
    let (next, reuse) = (AtomicUsize::new(0), Mutex::new(reuse));
    let work = || {
        let mut buf = vec![0; READ_BYTES + cutter.most()];
        while let Some(piece) = pieces.get(next.fetch_add(1, Ordering::Relaxed)) {
            cut_piece(old.disk, piece, cutter, &mut buf, &mut |key, place| {
                let mut reuse = reuse.lock().unwrap_or_else(PoisonError::into_inner);
                reuse.found(key, place).map(|next| expected(&reuse, next))
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
    (reuse.index.chunk(n).len as usize, *reuse.index.key(n))
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
fn cut_piece(disk: &dyn OldDisk, piece: &Piece, cutter: Cutter, buf: &mut [u8], found: &mut Found<'_>) {
    let mut bytes = Bytes { disk, left: &piece.extents, at: 0, buf, places: Vec::new() };
    let (mut begin, mut end) = (0, 0);
    let mut expected = piece.follows;
    loop {
        if end - begin < cutter.most() {
            bytes.buf.copy_within(begin..end, 0);
            bytes.forget(begin);
            (begin, end) = (0, end - begin);
            end += bytes.fill(end);
        }
        let window = &bytes.buf[begin..end];
        let (len, key) = match expected.take().filter(|expected| is_next(window, cutter, expected)) {
            Some(expected) => expected,
            None if piece.follows.is_some() => return,
            None => {
                let len = cutter.cut(window);
                (len, key(&window[..len]))
            }
        };
        if len == 0 {
            return;
        }
        if let Some(place) = bytes.place(begin, len) {
            expected = found(&key, place);
        }
        begin += len;
    }
}

/// Whether the bytes begin with this chunk. An index that lies could have all bytes looked at one by one, so that chunks that
/// are smaller than the cutter's are not looked for.
fn is_next(window: &[u8], cutter: Cutter, (len, key): &Expected) -> bool {
    *len >= cutter.least() && window.get(..*len).is_some_and(|bytes| self::key(bytes) == *key)
}

/// The key of a chunk with these bytes.
pub fn key(bytes: &[u8]) -> Key {
    let mut hasher = Hasher::default();
    hasher.update(bytes);
    key_of(hasher.finish())
}

/// A window of a file, and where its bytes lie on the disk.
struct Bytes<'f> {
    disk: &'f dyn OldDisk,
    // Extents that were not read yet; of the first so many bytes were.
    left: &'f [Extent],
    at: u64,
    buf: &'f mut [u8],
    // Offsets in `buf`, and the extents that were read to there.
    places: Vec<(usize, Extent)>,
}

impl Bytes<'_> {
    /// Reads behind byte `end` of the buffer. 0 at the end of the file, or where it cannot be read.
    fn fill(&mut self, mut end: usize) -> usize {
        let begin = end;
        while let Some(first) = self.left.first() {
            let want = (first.len - self.at).min((self.buf.len() - end).min(READ_BYTES) as u64) as usize;
            if want > 0 {
                let place = Extent { offset: first.offset + self.at, len: want as u64 };
                if self.disk.read(place.offset, &mut self.buf[end..end + want]).is_err() {
                    self.left = &[];
                    break;
                }
                self.note(end, place);
                (end, self.at) = (end + want, self.at + want as u64);
            }
            if self.at < first.len {
                break;
            }
            (self.left, self.at) = (&self.left[1..], 0);
        }
        end - begin
    }

    fn note(&mut self, at: usize, place: Extent) {
        match self.places.last_mut() {
            Some((begin, last)) if last.end() == place.offset && *begin + last.len as usize == at => {
                last.len += place.len;
            }
            _ => self.places.push((at, place)),
        }
    }

    /// The first bytes are gone from the buffer.
    fn forget(&mut self, gone: usize) {
        self.places.retain_mut(|(at, place)| {
            let of_it = gone.saturating_sub(*at).min(place.len as usize);
            *at = at.saturating_sub(gone);
            *place = Extent { offset: place.offset + of_it as u64, len: place.len - of_it as u64 };
            place.len > 0
        });
    }

    /// Where these bytes of the buffer lie, if that is in one piece.
    fn place(&self, begin: usize, len: usize) -> Option<Extent> {
        let (at, place) = self.places.iter().rev().find(|(at, _)| *at <= begin)?;
        let found = Extent { offset: place.offset + (begin - at) as u64, len: len as u64 };
        place.contains(found).then_some(found)
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

    fn cut_extents(disk: &Memory, extents: &[Extent], found: &mut Found<'_>) {
        let piece = Piece { extents: extents.to_vec(), follows: None };
        cut_piece(disk, &piece, Cutter::STANDARD, &mut vec![0; READ_BYTES + Cutter::STANDARD.most()], found);
    }

    fn cut(disk: &Memory, extents: &[Extent]) -> Vec<Extent> {
        let mut places = Vec::new();
        cut_extents(disk, extents, &mut |key, place| {
            let bytes = &disk.0[place.offset as usize..place.end() as usize];
            assert_eq!(*key, key_of(Sha256::of(bytes)), "{place:?}");
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

    /// The keys that are found on a disk if the layer has these bytes as its only file, and how many were expected rightly.
    fn found(old: &Memory, pieces: &[Piece], layer: &[u8]) -> (Vec<bool>, usize) {
        let file = File { name: "f".to_owned(), at: Extent { offset: 0, len: layer.len() as u64 } };
        let index = cut_layer(layer, Sha256::of(layer), vec![file], Cutter::STANDARD).unwrap();
        let mut reuse = Reuse::new(index, vec![], &|_| None);
        let (mut searched, mut buf) = (0, vec![0; READ_BYTES + Cutter::STANDARD.most()]);
        for piece in pieces {
            let mut last = None;
            cut_piece(old, piece, Cutter::STANDARD, &mut buf, &mut |key, place| {
                searched += usize::from(last.take().is_none_or(|(len, next)| (place.len, *key) != (len as u64, next)));
                last = reuse.found(key, place).map(|next| expected(&reuse, next));
                last
            });
        }
        let is_there = |n| {
            let place = reuse.place(n)?;
            assert_eq!(key(&old.0[place.offset as usize..place.end() as usize]), *reuse.index.key(n));
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
        cut_extents(&old, &[whole], &mut |key, _| {
            searched.insert(*key);
            None
        });
        let mut keys = Vec::new();
        let of_layer = Memory(layer.clone());
        cut_extents(&of_layer, &[Extent { offset: 0, len: layer.len() as u64 }], &mut |key, _| {
            keys.push(searched.contains(key));
            None
        });
        let (is_found, cuts) = found(&old, &[Piece { extents: vec![whole], follows: None }], &layer);
        let loses_nothing = |found: &[bool]| keys.iter().zip(found).all(|(searched, found)| !searched || *found);
        assert!(loses_nothing(&is_found), "{is_found:?} of {keys:?}");
        let there = keys.iter().filter(|there| **there).count();
        assert!(there * 10 > keys.len() * 9 && there < keys.len(), "{there} of {}", keys.len());
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
        let expected = |len: usize| (len, key(&[7; 8 << 10][..len]));
        let window = [7; 8 << 10];
        let least = Cutter::STANDARD.least();
        assert!(is_next(&window, Cutter::STANDARD, &expected(least)));
        assert!(!is_next(&window, Cutter::STANDARD, &expected(least - 1)));
        assert!(!is_next(&window[..least], Cutter::STANDARD, &expected(least + 1)));
    }

    #[test]
    fn a_file_that_cannot_be_read_is_cut_as_far_as_it_can() {
        let disk = Memory(noise(3 << 20));
        let found = cut(&disk, &[Extent { offset: 0, len: 2 << 20 }, Extent { offset: 10 << 20, len: 1 << 20 }]);
        assert_eq!(found.iter().map(|place| place.len).sum::<u64>(), 2 << 20);
    }
}
