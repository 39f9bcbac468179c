//! Cuts the files of the slots into chunks and tells which of them the layer has.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use super::OldDisk;
use crate::sha256::Hasher;
use slipway_core::{
    delta::{cutter::Cutter, index::key_of, reuse::Reuse},
    units::Extent,
};

// Bytes of one read.
const READ_BYTES: usize = 1 << 20;
// More gain nothing: both slots hold one large file each.
const THREADS: usize = 2;

/// Cuts all of these files. One that cannot be read to its end is cut as far as it can be read.
pub fn cut_all(disk: &dyn OldDisk, files: &[Vec<Extent>], reuse: &mut Reuse) {
    let cutter = reuse.index.cutter;
    let (next, found) = (AtomicUsize::new(0), Mutex::new(reuse));
    let work = || {
        while let Some(file) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
            cut_file(disk, file, cutter, &mut |key, place| {
                found.lock().unwrap_or_else(PoisonError::into_inner).found(&key, place);
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

fn cut_file(disk: &dyn OldDisk, extents: &[Extent], cutter: Cutter, found: &mut dyn FnMut([u8; 16], Extent)) {
    let mut bytes = Bytes { disk, left: extents, at: 0, buf: vec![0; READ_BYTES + cutter.most()], places: Vec::new() };
    let (mut begin, mut end) = (0, 0);
    loop {
        if end - begin < cutter.most() {
            bytes.buf.copy_within(begin..end, 0);
            bytes.forget(begin);
            (begin, end) = (0, end - begin);
            end += bytes.fill(end);
        }
        let len = cutter.cut(&bytes.buf[begin..end]);
        if len == 0 {
            return;
        }
        if let Some(place) = bytes.place(begin, len) {
            let mut hasher = Hasher::default();
            hasher.update(&bytes.buf[begin..begin + len]);
            found(key_of(hasher.finish()), place);
        }
        begin += len;
    }
}

/// A window of a file, and where its bytes lie on the disk.
struct Bytes<'f> {
    disk: &'f dyn OldDisk,
    // Extents that were not read yet; of the first so many bytes were.
    left: &'f [Extent],
    at: u64,
    buf: Vec<u8>,
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
    use std::io;

    use super::*;
    use slipway_core::digest::Sha256;

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

    fn cut(disk: &Memory, extents: &[Extent]) -> Vec<Extent> {
        let mut places = Vec::new();
        cut_file(disk, extents, Cutter::STANDARD, &mut |key, place| {
            let bytes = &disk.0[place.offset as usize..place.end() as usize];
            assert_eq!(key, key_of(Sha256::of(bytes)), "{place:?}");
            places.push(place);
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

    #[test]
    fn a_file_that_cannot_be_read_is_cut_as_far_as_it_can() {
        let disk = Memory(noise(3 << 20));
        let found = cut(&disk, &[Extent { offset: 0, len: 2 << 20 }, Extent { offset: 10 << 20, len: 1 << 20 }]);
        assert_eq!(found.iter().map(|place| place.len).sum::<u64>(), 2 << 20);
    }
}
