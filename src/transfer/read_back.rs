//! Reading files back from the disk, in large reads that bypass the page cache.
//!
//! [`ReadBack`] starts while the rest is still being written. Before a flush a disk may answer a read from a volatile
//! cache, which proves nothing about the storage. So a byte is read back only after a flush that followed its write:
//! one flush for every [`WINDOW_BYTES`], and the final flush for the remainder. Where reading slows the write down too
//! much ([`disturbs`]), everything left is read after the final flush.
//!
//! A just-written file is compared by [`Checksum`], not by SHA-256: this finds disks that fail or lie, not attackers.
//! An attacker who can change the disk could do so after the comparison as well; readers that use SHA-256 find that.

use std::{
    collections::VecDeque,
    io,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, Sender, SyncSender, channel, sync_channel},
    },
    thread::{self, Scope, ScopedJoinHandle},
    time::{Duration, Instant},
};

use super::StreamError;
use crate::{
    device::{AlignedBuf, BlockIo},
    transfer::{Checksum, Checksummer, sha256::Hasher},
};
use slipway_core::{
    digest::Sha256,
    units::{Extent, round_up},
};

// More or larger buffers cost memory and gain no speed.
const READ_BYTES: usize = 512 << 10;
const BUFFERS: usize = 2;
// Bytes between two flushes: enough that flushing costs next to nothing, few enough that little is left to read at the
// end.
const WINDOW_BYTES: u64 = 16 << 20;

#[derive(Clone, Copy, Debug)]
pub struct Piece {
    pub at: Extent,
    /// Whether the file ends here.
    pub last: bool,
}

/// SHA-256 of a file that occupies these extents, in their order.
pub fn read_back_digest(
    disk: &dyn BlockIo,
    extents: &[Extent],
    progress: &mut dyn FnMut(u64),
) -> Result<Sha256, StreamError> {
    let pieces = extents.iter().enumerate().map(|(n, at)| Ok(Piece { at: *at, last: n + 1 == extents.len() }));
    let digests = sums(disk, pieces, Hasher::update, Hasher::finish, progress)?;
    Ok(digests.first().copied().unwrap_or_else(|| Sha256::of(&[])))
}

/// A thread that reads files back while later ones are still being written.
pub struct ReadBack<'scope> {
    pub written: Written,
    progress: Receiver<u64>,
    thread: ScopedJoinHandle<'scope, Result<Vec<Checksum>, StreamError>>,
}

impl<'scope> ReadBack<'scope> {
    /// Start the thread. It stops early if this is dropped without [`ReadBack::finish`].
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
            // No receiver exists if the write failed and `finish` is never called.
            let _ = advanced.send(bytes);
        };
        let work = move || sums(disk, pieces, Checksummer::update, Checksummer::finish, &mut { advance });
        let thread = thread::Builder::new().spawn_scoped(scope, work).map_err(StreamError::Thread)?;
        Ok(ReadBack { written: Written { pieces: written, bytes }, progress, thread })
    }

    /// Read the rest and return the checksums, in the order of the files. The caller must have flushed everything.
    pub fn finish(self, progress: &mut dyn FnMut(u64)) -> Result<Vec<Checksum>, StreamError> {
        let ReadBack { written, progress: advanced, thread } = self;
        let _ = written.pieces.send(None);
        drop(written);
        advanced.iter().for_each(progress);
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

pub struct Written {
    pieces: Sender<Option<Piece>>,
    bytes: Arc<AtomicU64>,
}

impl Written {
    pub fn tell(&self, piece: Piece) {
        self.bytes.fetch_add(piece.at.len, Ordering::Relaxed);
        // The thread is gone only if reading back failed. `finish` returns that error.
        let _ = self.pieces.send(Some(piece));
    }
}

/// Iterates over the written pieces in order, each once it has been flushed.
struct Flushed<'d> {
    disk: &'d dyn BlockIo,
    pieces: Receiver<Option<Piece>>,
    bytes: Arc<AtomicU64>,
    ready: VecDeque<Piece>,
    // Bytes between two flushes; `u64::MAX` waits for the final one.
    window: u64,
    // Bytes and time of the first window, when nothing was being read.
    alone: Option<(u64, Duration)>,
    // When reading of the current window began, and bytes written by then.
    both: Option<(Instant, u64)>,
}

impl Flushed<'_> {
    /// Wait until a window has been written, then flush it. At the end of the write `ready` may stay empty.
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
                // The writer has finished and flushed everything.
                Ok(None) => return Ok(()),
                // The write has failed, so reading back is pointless.
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

/// Whether reading and writing together move less than half as many bytes per second as writing alone did. That is the
/// sign of a spinning disk, whose heads now seek to and fro.
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

// A buffer, how many bytes of it are filled, and whether a file ends there.
type Filled = (AlignedBuf, usize, bool);

/// Digest or checksum of each file; hashing runs beside reading.
///
/// Where no thread can be started, hashing and reading take turns: a limit of the machine is no damage, and the ways back
/// must not need what it lacks.
fn sums<S: Default, V>(
    disk: &dyn BlockIo,
    pieces: impl Iterator<Item = Result<Piece, StreamError>> + Send,
    update: fn(&mut S, &[u8]),
    finish: fn(S) -> V,
    progress: &mut dyn FnMut(u64),
) -> Result<Vec<V>, StreamError> {
    let (full_tx, full_rx) = sync_channel::<Filled>(BUFFERS);
    let (free_tx, free_rx) = sync_channel::<AlignedBuf>(BUFFERS);
    let (mut sums, mut sum) = (Vec::new(), S::default());
    let mut add = |bytes: &[u8], last: bool| {
        update(&mut sum, bytes);
        progress(bytes.len() as u64);
        if last {
            sums.push(finish(std::mem::take(&mut sum)));
        }
    };
    // A thread that does not start drops what it was given, so it takes the parts itself.
    let parts = Mutex::new(Some(Parts { disk, pieces, rest: Extent { offset: 0, len: 0 }, last: false }));
    let taken = || parts.lock().unwrap_or_else(PoisonError::into_inner).take();
    thread::scope(|scope| {
        let work = move || taken().map_or(Ok(()), |parts| read_parts(parts, &free_rx, &full_tx));
        let Ok(reading) = thread::Builder::new().spawn_scoped(scope, work) else {
            return taken().map_or(Ok(()), |parts| read_alone(parts, &mut add));
        };
        for _ in 0..BUFFERS {
            // Cannot block: the channel has room for every buffer. The receiver may be gone: see below.
            let _ = free_tx.send(AlignedBuf::new(READ_BYTES));
        }
        for (buf, n, last) in full_rx {
            add(&buf[..n], last);
            // The receiver may be gone: the reader ends once it has sent everything.
            let _ = free_tx.send(buf);
        }
        reading.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })?;
    Ok(sums)
}

/// What is read, in parts of the size of a buffer.
struct Parts<'d, P> {
    disk: &'d dyn BlockIo,
    pieces: P,
    // Of the piece that is being read, and whether its file ends with it.
    rest: Extent,
    last: bool,
}

impl<P: Iterator<Item = Result<Piece, StreamError>>> Parts<'_, P> {
    /// Read the next part: how many bytes it has, and whether a file ends there. None at the end.
    fn next(&mut self, buf: &mut AlignedBuf) -> Result<Option<(usize, bool)>, StreamError> {
        while self.rest.len == 0 {
            let Some(piece) = self.pieces.next() else { return Ok(None) };
            Piece { at: self.rest, last: self.last } = piece?;
        }
        let (disk, at) = (self.disk, self.rest.offset);
        let n = self.rest.len.min(READ_BYTES as u64);
        // Direct I/O needs whole sectors. Reading past the file's end is safe: its last cluster goes on.
        let whole = round_up(n, disk.sector_size().bytes()).unwrap_or(0).min(disk.size() - at) as usize;
        disk.read_back(at, &mut buf[..whole]).map_err(|source| StreamError::Disk { offset: at, source })?;
        self.rest = Extent { offset: at + n, len: self.rest.len - n };
        Ok(Some((n as usize, self.last && self.rest.len == 0)))
    }
}

fn read_parts(
    mut parts: Parts<impl Iterator<Item = Result<Piece, StreamError>>>,
    free: &Receiver<AlignedBuf>,
    full: &SyncSender<Filled>,
) -> Result<(), StreamError> {
    while let Ok(mut buf) = free.recv() {
        let Some((n, last)) = parts.next(&mut buf)? else { break };
        if full.send((buf, n, last)).is_err() {
            break;
        }
    }
    Ok(())
}

fn read_alone(
    mut parts: Parts<impl Iterator<Item = Result<Piece, StreamError>>>,
    add: &mut impl FnMut(&[u8], bool),
) -> Result<(), StreamError> {
    let mut buf = AlignedBuf::new(READ_BYTES);
    while let Some((n, last)) = parts.next(&mut buf)? {
        add(&buf[..n], last);
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
