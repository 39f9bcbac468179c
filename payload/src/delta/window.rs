//! A file of a slot, part by part.

use super::{
    OldDisk,
    direct::{ALIGN, aligned, room_for},
};
use slipway_core::{delta::cutter::Cutter, units::Extent};

// Bytes of one read, unless chunks are larger.
const READ_BYTES: usize = 512 << 10;

/// Bytes of the memory of a window: the beginning of a chunk that goes on in the next read, and this read.
pub const fn window_bytes(cutter: Cutter) -> usize {
    room_for(cutter.most()) + room_for(read_bytes(cutter))
}

const fn read_bytes(cutter: Cutter) -> usize {
    if cutter.most() > READ_BYTES { cutter.most() } else { READ_BYTES }
}

/// A window of a file, and where its bytes lie on the disk.
pub struct Window<'f> {
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
    pub fn new(disk: &'f dyn OldDisk, left: &'f [Extent], cutter: Cutter, memory: &'f mut [u8]) -> Self {
        let (most, buf) = (cutter.most(), aligned(memory));
        let reads = most.next_multiple_of(ALIGN);
        let buf = &mut buf[..reads + read_bytes(cutter)];
        Window { disk, left, read: 0, most, buf, reads, begin: reads, end: reads, at: 0, places: Vec::new() }
    }

    pub fn bytes(&self) -> &[u8] {
        &self.buf[self.begin..self.end]
    }

    /// The window gets room for a chunk of the largest size, or reaches to the end of the file, or to where it cannot be read.
    pub fn fill(&mut self) {
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
    pub fn place(&self, len: usize) -> Option<Extent> {
        let (at, place) = self.places.iter().find(|(at, place)| self.at < at + place.len)?;
        let found = Extent { offset: place.offset + (self.at - at), len: len as u64 };
        place.contains(found).then_some(found)
    }

    /// Where the first byte of the window lies, and how far the file goes on there in one piece.
    pub fn rest(&self) -> Option<Extent> {
        let n = self.places.iter().position(|(at, place)| self.at < at + place.len)?;
        let (at, place) = self.places[n];
        let offset = place.offset + (self.at - at);
        let goes_on = |first: &&Extent| n + 1 == self.places.len() && first.offset + self.read == place.end();
        let more = self.left.first().filter(goes_on).map_or(0, |first| first.len - self.read);
        Some(Extent { offset, len: place.end() - offset + more })
    }

    /// The window begins behind so many bytes more, which need not have been read.
    pub fn skip(&mut self, len: u64) {
        let have = (self.end - self.begin) as u64;
        if len < have {
            return self.pass(len as usize);
        }
        let mut unread = len - have;
        (self.begin, self.end, self.at) = (self.reads, self.reads, self.at + len);
        self.places.clear();
        while let Some(first) = self.left.first() {
            let now = unread.min(first.len - self.read);
            (unread, self.read) = (unread - now, self.read + now);
            if self.read < first.len {
                // Direct I/O goes on at a page.
                let again = ((first.offset + self.read) % ALIGN as u64).min(self.read);
                (self.read, self.at) = (self.read - again, self.at - again);
                self.fill();
                return self.pass((again as usize).min(self.end - self.begin));
            }
            (self.left, self.read) = (&self.left[1..], 0);
        }
    }

    /// The window begins behind so many bytes.
    pub fn pass(&mut self, len: usize) {
        (self.begin, self.at) = (self.begin + len, self.at + len as u64);
    }
}
