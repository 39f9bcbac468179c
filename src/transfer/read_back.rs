//! Back from the medium: what is on it, by large reads past the page cache, hashing beside the reading.
//!
//! Behind a write ([`ReadBack`]) this begins while the rest is still being written. Before a flush a device may answer a
//! read from a cache that it has not written down yet, and that it may fail to write down: such a read proves nothing
//! of the medium. So nothing is read before a flush that came after its write. That takes one flush for every
//! [`WINDOW_BYTES`]; what is left at the end is read after the flush that ends the write. So is all the rest where
//! reading disturbs the write ([`disturbs`]).
//!
//! What was just written is compared by a [`Checksum`] of the same bytes in memory. It has to find media that lie or fail,
//! not attackers: whoever changes what is on the medium can do that afterwards as well, and is found by those who read
//! it then, by SHA-256.

use std::{
    collections::VecDeque,
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, Sender, SyncSender, channel, sync_channel},
    },
    thread::{self, Scope, ScopedJoinHandle},
    time::{Duration, Instant},
};

use super::stream::StreamError;
use crate::{
    device::{AlignedBuf, BlockIo},
    transfer::{
        checksum::{Checksum, Checksummer},
        sha256::Hasher,
    },
};
use slipway_core::{
    digest::Sha256,
    units::{Extent, round_up},
};

/// Bytes read at once, and how many buffers are on their way. More only cost memory.
const READ_BYTES: usize = 512 << 10;
const BUFFERS: usize = 2;
/// Bytes between two flushes behind a write: enough that they cost nothing, little enough that there is not much left
/// to be read at the end.
const WINDOW_BYTES: u64 = 16 << 20;

/// Bytes of a file on the disk.
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    /// Where they are.
    pub at: Extent,
    /// Whether the file ends with them.
    pub last: bool,
}

/// Digest of a file that lies in these ranges.
pub fn read_back_digest(
    disk: &dyn BlockIo,
    extents: &[Extent],
    progress: &mut dyn FnMut(u64),
) -> Result<Sha256, StreamError> {
    let pieces = extents.iter().enumerate().map(|(n, at)| Ok(Piece { at: *at, last: n + 1 == extents.len() }));
    let digests = sums(disk, pieces, Hasher::update, Hasher::finish, progress)?;
    Ok(digests.first().copied().unwrap_or_else(|| Sha256::of(&[])))
}

/// Reads files back behind whoever writes them.
pub struct ReadBack<'scope> {
    /// For the writer.
    pub written: Written,
    progress: Receiver<u64>,
    thread: ScopedJoinHandle<'scope, Result<Vec<Checksum>, StreamError>>,
}

impl<'scope> ReadBack<'scope> {
    /// Begin. Dropped before [`ReadBack::finish`], it stops.
    pub fn begin<'env>(scope: &'scope Scope<'scope, 'env>, disk: &'env dyn BlockIo) -> Result<Self, StreamError> {
        let (written, pieces) = channel();
        let (advanced, progress) = channel();
        let bytes = Arc::default();
        let pieces = Flushed {
            disk,
            pieces,
            bytes: Arc::clone(&bytes),
            ready: VecDeque::new(),
            window: WINDOW_BYTES,
            alone: None,
            both: None,
        };
        let advance = move |bytes| {
            // Who does not finish does not count.
            let _ = advanced.send(bytes);
        };
        let work = move || sums(disk, pieces, Checksummer::update, Checksummer::finish, &mut { advance });
        let thread = thread::Builder::new().spawn_scoped(scope, work).map_err(StreamError::Thread)?;
        Ok(ReadBack { written: Written { pieces: written, bytes }, progress, thread })
    }

    /// Read what is left; all that was written has been flushed. Checksums of the files, in the order in which they came.
    pub fn finish(self, progress: &mut dyn FnMut(u64)) -> Result<Vec<Checksum>, StreamError> {
        let ReadBack { written, progress: advanced, thread } = self;
        let _ = written.pieces.send(None);
        drop(written);
        advanced.iter().for_each(progress);
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// Tells what has been written.
pub struct Written {
    pieces: Sender<Option<Piece>>,
    /// Bytes so far.
    bytes: Arc<AtomicU64>,
}

impl Written {
    /// These bytes come next.
    pub fn tell(&self, piece: Piece) {
        self.bytes.fetch_add(piece.at.len, Ordering::Relaxed);
        // Nobody hears it only when reading back has failed, which `finish` tells.
        let _ = self.pieces.send(Some(piece));
    }
}

/// What was written, in its order, as soon as it was flushed.
struct Flushed<'d> {
    disk: &'d dyn BlockIo,
    pieces: Receiver<Option<Piece>>,
    /// Bytes written so far.
    bytes: Arc<AtomicU64>,
    /// Flushed, and to be read.
    ready: VecDeque<Piece>,
    /// Bytes to the next flush.
    window: u64,
    /// The first window while nothing was read: bytes, and how long it took.
    alone: Option<(u64, Duration)>,
    /// Since when the current one is read, and bytes written until then.
    both: Option<(Instant, u64)>,
}

impl Flushed<'_> {
    /// Wait for a window to be written, and flush it; none is left once the writer has ended.
    fn next_window(&mut self) -> io::Result<()> {
        if let (Some(alone), Some((since, before))) = (self.alone, self.both) {
            let bytes = WINDOW_BYTES + self.bytes.load(Ordering::Relaxed) - before;
            if disturbs(alone, (bytes, since.elapsed())) {
                self.window = u64::MAX;
            }
        }
        let (mut bytes, begun) = (0, Instant::now());
        while bytes < self.window {
            match self.pieces.recv() {
                Ok(Some(piece)) => {
                    bytes += piece.at.len;
                    self.ready.push_back(piece);
                }
                // All has been flushed.
                Ok(None) => return Ok(()),
                // The write has failed.
                Err(_) => {
                    self.ready.clear();
                    return Ok(());
                }
            }
        }
        self.alone.get_or_insert((bytes, begun.elapsed()));
        self.disk.sync()?;
        self.both = Some((Instant::now(), self.bytes.load(Ordering::Relaxed)));
        Ok(())
    }
}

/// Whether a disk moves less than half as much, bytes in a time, when it reads and writes as it wrote before: heads go to
/// and fro then.
fn disturbs(alone: (u64, Duration), both: (u64, Duration)) -> bool {
    2.0 * both.0 as f64 * alone.1.as_secs_f64() < alone.0 as f64 * both.1.as_secs_f64()
}

impl Iterator for Flushed<'_> {
    type Item = Result<Piece, StreamError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ready.is_empty()
            && let Err(e) = self.next_window()
        {
            return Some(Err(StreamError::Flush(e)));
        }
        self.ready.pop_front().map(Ok)
    }
}

/// A buffer, how many bytes of it are read, and whether a file ends with them.
type Filled = (AlignedBuf, usize, bool);

/// What stands for each file: digests, or checksums.
fn sums<S: Default, V>(
    disk: &dyn BlockIo,
    pieces: impl Iterator<Item = Result<Piece, StreamError>> + Send,
    update: fn(&mut S, &[u8]),
    finish: fn(S) -> V,
    progress: &mut dyn FnMut(u64),
) -> Result<Vec<V>, StreamError> {
    let (full_tx, full_rx) = sync_channel::<Filled>(BUFFERS);
    let (free_tx, free_rx) = sync_channel::<AlignedBuf>(BUFFERS);
    for _ in 0..BUFFERS {
        // The channel has room for all of them.
        let _ = free_tx.send(AlignedBuf::new(READ_BYTES));
    }
    thread::scope(|scope| {
        let work = move || read_pieces(disk, pieces, &free_rx, &full_tx);
        let reading = thread::Builder::new().spawn_scoped(scope, work).map_err(StreamError::Thread)?;
        let (mut sums, mut sum) = (Vec::new(), S::default());
        for (buf, n, last) in full_rx {
            update(&mut sum, &buf[..n]);
            progress(n as u64);
            if last {
                sums.push(finish(std::mem::take(&mut sum)));
            }
            // The reader has gone once it has sent everything.
            let _ = free_tx.send(buf);
        }
        reading.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok(sums)
    })
}

fn read_pieces(
    disk: &dyn BlockIo,
    pieces: impl Iterator<Item = Result<Piece, StreamError>>,
    free: &Receiver<AlignedBuf>,
    full: &SyncSender<Filled>,
) -> Result<(), StreamError> {
    let sector = disk.sector_size().bytes();
    for piece in pieces {
        let Piece { at: extent, last } = piece?;
        let mut at = extent.offset;
        while at < extent.end() {
            let Ok(mut buf) = free.recv() else { return Ok(()) };
            let n = (extent.end() - at).min(READ_BYTES as u64) as usize;
            // Whole sectors, so that the read stays a direct one; files end inside their last cluster.
            let whole = round_up(n as u64, sector).unwrap_or(0).min(disk.size() - at) as usize;
            disk.read_back(at, &mut buf[..whole]).map_err(|source| StreamError::Disk { offset: at, source })?;
            at += n as u64;
            if full.send((buf, n, last && at == extent.end())).is_err() {
                return Ok(());
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_disturbs_a_write() {
        let alone = (32 << 20, Duration::from_millis(200));
        let in_time = |millis| disturbs(alone, (40 << 20, Duration::from_millis(millis)));
        assert!(!in_time(200), "more than before");
        assert!(!in_time(499), "more than half as much");
        assert!(in_time(501));
    }
}
