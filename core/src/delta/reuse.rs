//! Where each chunk of a layer comes from: a place on the disk that holds it, or the registry.
//!
//! The slot that is being written may hold chunks, too. While the layer is read its files are written, so a place there
//! counts only if it lies ahead of all writes when the reader gets to the chunk. That is known beforehand: the layer is
//! read in its order, and nothing is written that was not read.

use crate::prelude::*;

use core::ops::{Range, RangeInclusive};

use super::index::{File, Fingerprint, Index};
use crate::units::Extent;

/// Chunks that are there are fetched as well if they lie between two that are not, and have fewer bytes than this together:
/// a request costs a round trip, in which a line of 50 Mbit/s and 40 ms moves 250 KB.
pub const MAX_GAP_BYTES: u64 = 144 << 10;

/// A file of the layer, and where on the disk it is written meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Destination {
    /// Its content in the layer.
    pub from: Extent,
    /// On the disk; at most the rest of a cluster longer.
    pub to: Extent,
}

/// Bytes that are on the disk already, or get there in the course of reading.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Written before the first byte of the layer is read.
    pub before: Vec<Extent>,
    /// The files of the layer.
    pub files: Vec<Destination>,
}

impl Written {
    /// Whether nothing of this place of the disk can have been written while the layer was read up to `position`.
    pub fn is_intact(&self, place: Extent, position: u64) -> bool {
        let before = self.before.iter().any(|written| place.meets(*written));
        let meanwhile = self.files.iter().any(|Destination { from, to }| {
            let done = match position.checked_sub(from.offset) {
                // The last write fills up the cluster.
                Some(read) if read >= from.len => to.len,
                Some(read) => read,
                None => 0,
            };
            done > 0 && place.meets(Extent { len: done, ..*to })
        });
        !before && !meanwhile
    }
}

/// The bytes that an upgrade would move, or has moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Bytes from the registry.
    pub fetched: u64,
    /// Bytes from the disk.
    pub reused: u64,
    /// Requests to the registry.
    pub requests: u64,
}

/// The chunks of a layer, and the place of each that was found on the disk.
#[derive(Debug)]
pub struct Reuse {
    /// The chunks.
    pub index: Index,
    written: Written,
    // Chunks by fingerprint and length; equal ones as the layer has them.
    order: Vec<u32>,
    // Offset on the disk, or NONE.
    places: Vec<u64>,
}

const NONE: u64 = u64::MAX;

/// Chunks for which this is the same are taken for equal.
fn looks(index: &Index, n: u32) -> (Fingerprint, u64) {
    (index.fingerprint(n as usize), index.chunk(n as usize).len)
}

impl Reuse {
    /// No chunk is found yet. `before` is written before the layer is read, and `to` is where on the disk a file of this
    /// name goes.
    pub fn new(index: Index, before: Vec<Extent>, to: &dyn Fn(&str) -> Option<Extent>) -> Self {
        let goes = |file: &File| Some(Destination { from: file.at, to: to(&file.name)? });
        let files = index.files().iter().filter_map(goes).collect();
        let written = Written { before, files };
        let mut order: Vec<_> = (0..index.len() as u32).collect();
        order.sort_unstable_by_key(|n| (looks(&index, *n), *n));
        Reuse { places: vec![NONE; index.len()], index, written, order }
    }

    /// A chunk with this fingerprint lies at this place of the disk. It need not be one of the layer. If it is, the chunk that
    /// follows it in the layer, which most likely follows it on the disk, too.
    ///
    /// However many chunks are equal, on the disk and in the layer, each of the layer is given a place once and looked at once
    /// more: those that have one come first. The others come later in the layer, where more has been written.
    pub fn found(&mut self, fingerprint: Fingerprint, place: Extent) -> Option<usize> {
        let Reuse { index, order, places, written } = self;
        let wanted = (fingerprint, place.len);
        let equal = &order[order.partition_point(|n| looks(index, *n) < wanted)..];
        let equal = &equal[..equal.partition_point(|n| looks(index, *n) == wanted)];
        let lacking = equal.partition_point(|n| places[*n as usize] != NONE);
        let is_intact = |n: &&u32| written.is_intact(place, index.chunk(**n as usize).offset);
        equal[lacking..].iter().take_while(is_intact).for_each(|n| places[*n as usize] = place.offset);
        equal.last().map(|n| *n as usize + 1).filter(|n| *n < index.len())
    }

    /// The last of the chunks that lie within so many bytes of the layer from the beginning of this one on; none, if these are
    /// smaller than the cutter makes them, which an index that lies could have.
    pub fn far(&self, first: usize, bytes: u64) -> Option<usize> {
        let (index, least) = (&self.index, self.index.cutter.least() as u64);
        let end = index.chunk(first).offset.checked_add(bytes)?;
        let last = index.chunk_at(end).checked_sub(1).filter(|last| *last > first)?;
        ((last - first) as u64 <= bytes / least && index.chunk(last).len >= least).then_some(last)
    }

    /// All of these chunks lie behind this place of the disk, one behind the other. The one that follows them in the layer.
    pub fn found_all(&mut self, chunks: RangeInclusive<usize>, offset: u64) -> Option<usize> {
        let begin = self.index.chunk(*chunks.start()).offset;
        let next = chunks.end() + 1;
        for n in chunks {
            let chunk = self.index.chunk(n);
            self.found(self.index.fingerprint(n), Extent { offset: offset + (chunk.offset - begin), ..chunk });
        }
        (next < self.index.len()).then_some(next)
    }

    /// The files of the layer that are written while it is read, each with its first chunk.
    pub fn destinations(&self) -> impl Iterator<Item = (Destination, usize)> {
        let first =
            |file: &Destination| (0..self.index.len()).find(|n| self.index.chunk(*n).offset == file.from.offset);
        self.written.files.iter().filter_map(move |file| Some((*file, first(file)?)))
    }

    /// Where the disk holds this chunk.
    pub fn place(&self, n: usize) -> Option<Extent> {
        (self.places[n] != NONE).then(|| Extent { offset: self.places[n], len: self.index.chunk(n).len })
    }

    /// The bytes at the place of this chunk are not the chunk.
    pub fn lost(&mut self, n: usize) {
        self.places[n] = NONE;
    }

    /// The first chunk from `from` on that is on the disk nowhere.
    pub fn next_missing(&self, from: usize) -> Option<usize> {
        (from..self.index.len()).find(|n| self.places[*n] == NONE)
    }

    /// The chunks of one request: from `first`, which is missing, to the last missing one before a large gap.
    pub fn request(&self, first: usize) -> Range<usize> {
        let (mut end, mut gap) = (first + 1, 0);
        for n in first + 1..self.index.len() {
            if self.places[n] == NONE {
                (end, gap) = (n + 1, 0);
                continue;
            }
            gap += self.index.chunk(n).len;
            if gap > MAX_GAP_BYTES {
                break;
            }
        }
        first..end
    }

    /// The bytes that reading the layer from chunk `from` on moves.
    pub fn moves(&self, from: usize) -> Moved {
        let bytes = |chunks: Range<usize>| chunks.map(|n| self.index.chunk(n).len).sum::<u64>();
        let (mut n, mut moved) = (from, Moved::default());
        while let Some(first) = self.next_missing(n) {
            let request = self.request(first);
            moved.requests += 1;
            moved.reused += bytes(n..first);
            moved.fetched += bytes(request.clone());
            n = request.end;
        }
        moved.reused += bytes(n..self.index.len());
        moved
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        delta::{cutter::Cutter, index::MAX_CHUNKS},
        digest::Sha256,
    };

    const fn at(offset: u64, len: u64) -> Extent {
        Extent { offset, len }
    }

    #[test]
    fn what_is_ahead_of_the_write_is_intact() {
        let files = vec![Destination { from: at(512, 1000), to: at(10_000, 1024) }];
        let written = Written { before: vec![at(0, 100)], files };
        for (place, position, intact) in [
            (at(50, 100), 0, false),
            (at(100, 50), u64::MAX, true),
            (at(10_000, 1), 512, true),
            (at(10_000, 1), 513, false),
            (at(10_010, 100), 522, true),
            (at(10_010, 100), 523, false),
            (at(9_000, 1000), u64::MAX, true),
            (at(9_000, 1001), u64::MAX, false),
            (at(11_000, 24), 1511, true),
            (at(11_000, 24), 1512, false),
            (at(11_024, 1), u64::MAX, true),
        ] {
            assert_eq!(written.is_intact(place, position), intact, "{place:?} at {position}");
        }
    }

    fn index(lens: &[u32]) -> Index {
        let mut index = Index::new(Sha256::of(b""), Cutter::STANDARD);
        for (n, len) in lens.iter().enumerate() {
            index.push(*len, n as Fingerprint).unwrap();
        }
        index
    }

    #[test]
    fn small_gaps_are_fetched_as_well() {
        let lens = [1000, 60_000, 1000, 65_000, 65_000, 17_457, 1000, 30_000];
        let mut reuse = Reuse::new(index(&lens), vec![], &|_| None);
        for n in [1, 3, 4, 5, 7] {
            reuse.found(n as Fingerprint, at(1 << 30, u64::from(lens[n])));
        }
        assert_eq!((reuse.request(0), reuse.request(6)), (0..3, 6..7));
        assert_eq!(reuse.moves(0), Moved { fetched: 63_000, reused: 177_457, requests: 2 });
        reuse.lost(4);
        assert_eq!(reuse.request(0), 0..7);
    }

    #[test]
    fn a_chunk_of_another_length_is_another_chunk() {
        let mut reuse = Reuse::new(index(&[1000]), vec![], &|_| None);
        reuse.found(0, at(0, 999));
        assert_eq!(reuse.place(0), None);
        reuse.found(0, at(0, 1000));
        assert_eq!(reuse.place(0), Some(at(0, 1000)));
    }

    /// Which is how long the content of a slot can be followed.
    #[test]
    fn what_follows_in_the_layer_is_expected() {
        let mut reuse = Reuse::new(index(&[10, 20, 30]), vec![], &|_| None);
        assert_eq!(
            [(0, 10), (1, 20), (2, 30), (2, 31)].map(|(n, len)| reuse.found(n, at(0, len))),
            [Some(1), Some(2), None, None]
        );
    }

    /// A place serves all equal chunks, as far as it is intact when they are needed; another one serves the rest.
    #[test]
    fn equal_chunks_share_places() {
        let mut index = Index::new(Sha256::of(b""), Cutter::STANDARD);
        (0..4).for_each(|_| index.push(10, 7).unwrap());
        index.push_file(File { at: at(0, 40), name: "f".to_owned() }).unwrap();
        let mut reuse = Reuse::new(index, vec![], &|_| Some(at(1000, 40)));
        let places = |reuse: &Reuse| [0, 1, 2, 3].map(|n| reuse.place(n).map(|place| place.offset));
        // Written when 12 bytes have been read.
        reuse.found(7, at(1011, 10));
        assert_eq!(places(&reuse), [Some(1011), Some(1011), None, None]);
        reuse.found(7, at(1005, 10));
        assert_eq!(places(&reuse), [Some(1011), Some(1011), None, None]);
        reuse.found(7, at(2000, 10));
        assert_eq!(places(&reuse), [Some(1011), Some(1011), Some(2000), Some(2000)]);
    }

    /// Of a hostile index, or a disk of zeros. If each pair were looked at, this would not end.
    #[test]
    fn as_many_equal_chunks_as_there_can_be_take_no_time() {
        let mut index = Index::new(Sha256::of(b""), Cutter::STANDARD);
        (0..MAX_CHUNKS).for_each(|_| index.push(1, 7).unwrap());
        index.push_file(File { at: at(0, 1 << 30), name: "f".to_owned() }).unwrap();
        let mut reuse = Reuse::new(index, vec![], &|_| Some(at(0, 1 << 30)));
        // None of these places is intact for the last chunks.
        for n in 0..1 << 17 {
            reuse.found(7, at(n % 1000, 1));
        }
        assert_eq!(reuse.moves(0).reused, 1000);
    }

    #[test]
    fn many_chunks_are_found_at_once() {
        let mut reuse = Reuse::new(index(&[5000; 10]), vec![], &|_| None);
        assert_eq!(
            [9_999, 10_000, 14_999, 49_999, 50_000, 90_000].map(|bytes| reuse.far(0, bytes)),
            [None, Some(1), Some(1), Some(8), Some(9), Some(9)]
        );
        assert_eq!((reuse.far(7, 12_000), reuse.far(9, 12_000), reuse.far(0, u64::MAX)), (Some(8), None, Some(9)));
        assert_eq!(reuse.found_all(2..=4, 7_000), Some(5));
        assert_eq!([1, 2, 4, 5].map(|n| reuse.place(n)), [None, Some(at(7_000, 5000)), Some(at(17_000, 5000)), None]);
        assert_eq!(reuse.found_all(8..=9, 0), None);
        // Of an index that lies: a million bytes, each of them a chunk.
        assert_eq!(Reuse::new(index(&[1; 100]), vec![], &|_| None).far(0, 50), None);
        let small = [&[5000; 9][..], &[10]].concat();
        assert_eq!(Reuse::new(index(&small), vec![], &|_| None).far(0, 45_010), None);
    }

    /// A payload: which contents its chunks have, and where its files begin.
    fn payloads() -> impl Strategy<Value = (Vec<u8>, Vec<u8>, Vec<usize>, u64)> {
        let contents = || proptest::collection::vec(0..40_u8, 1..60);
        let cuts = proptest::collection::vec(0..60_usize, 0..3);
        (contents(), contents(), cuts, 0..40_u64)
    }

    proptest! {
        /// The disk is a row of bytes of which each says which chunk of the old payload it was, and the writer is as fast as it
        /// can be: all that was read is written at once. Nothing that is copied was overwritten.
        #[test]
        fn no_byte_is_read_that_was_overwritten((old, new, mut cuts, shift) in payloads()) {
            let len = |content: u8| 3 + u64::from(content) % 5;
            let mut index = {
                let mut index = Index::new(Sha256::of(b""), Cutter::STANDARD);
                for content in &new {
                    index.push(len(*content) as u32, u64::from(*content)).unwrap();
                }
                index
            };
            // Files of the new payload lie one behind the other, with room for the end of a cluster.
            cuts.iter_mut().for_each(|cut| *cut %= new.len());
            cuts.extend([0, new.len()]);
            cuts.sort_unstable();
            let mut starts: Vec<_> = (0..new.len()).map(|n| index.chunk(n).offset).collect();
            starts.push(index.size());
            let (mut files, mut to) = (vec![], 10);
            for pair in cuts.windows(2) {
                let from = at(starts[pair[0]], starts[pair[1]] - starts[pair[0]]);
                index.push_file(File { at: from, name: files.len().to_string() }).unwrap();
                files.push(Destination { from, to: at(to, from.len + 2) });
                to += from.len + 4;
            }
            let mut disk: Vec<Option<u8>> = vec![None; 2000];
            let goes = |name: &str| files.get(name.parse::<usize>().ok()?).map(|file| file.to);
            let mut reuse = Reuse::new(index, vec![at(0, 10)], &goes);
            let mut offset = shift as usize;
            for content in &old {
                let len = len(*content) as usize;
                disk[offset..offset + len].fill(Some(*content));
                reuse.found(u64::from(*content), at(offset as u64, len as u64));
                offset += len;
            }
            disk[..10].fill(None);
            for (n, content) in new.iter().enumerate() {
                let chunk = reuse.index.chunk(n);
                if let Some(place) = reuse.place(n) {
                    let range = place.offset as usize..place.end() as usize;
                    prop_assert!(disk[range].iter().all(|byte| *byte == Some(*content)), "chunk {n} at {place:?}");
                }
                for Destination { from, to } in &files {
                    if from.contains(chunk) {
                        let done = chunk.end() - from.offset;
                        let end = if done == from.len { to.end() } else { to.offset + done };
                        disk[to.offset as usize..end as usize].fill(None);
                    }
                }
            }
        }
    }
}
