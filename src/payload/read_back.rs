//! Back from the medium: digests of what is on it, by large reads past the page cache, hashing beside the reading.
//!
//! Behind a write ([`ReadBack`]) this begins while the rest is still being written. Before a flush a device may answer a
//! read from a cache that it has not written down yet, and that it may fail to write down: such a read proves nothing
//! of the medium. So nothing is read before a flush that came after its write. That takes one flush for every
//! [`WINDOW_BYTES`]; what is left at the end is read after the flush that ends the write.

use std::{
    collections::VecDeque,
    io,
    sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel},
    thread::{self, Scope, ScopedJoinHandle},
};

use super::stream::StreamError;
use crate::{
    device::{AlignedBuf, BlockIo},
    model::{
        digest::{Hasher, Sha256},
        units::{Extent, round_up},
    },
};

/// Bytes read at once, and how many buffers are on their way. More only cost memory.
const READ_BYTES: usize = 512 << 10;
const BUFFERS: usize = 3;
/// Bytes between two flushes behind a write: enough that they cost nothing, little enough that there is not much left
/// to be read at the end.
const WINDOW_BYTES: u64 = 32 << 20;

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
    let digests = digests(disk, pieces, progress)?;
    Ok(digests.first().copied().unwrap_or_else(|| Sha256::of(&[])))
}

/// Reads files back behind whoever writes them.
pub struct ReadBack<'scope> {
    /// For the writer.
    pub written: Written,
    progress: Receiver<u64>,
    thread: ScopedJoinHandle<'scope, Result<Vec<Sha256>, StreamError>>,
}

impl<'scope> ReadBack<'scope> {
    /// Begin. Dropped before [`ReadBack::finish`], it stops.
    pub fn begin<'env>(scope: &'scope Scope<'scope, 'env>, disk: &'env dyn BlockIo) -> Result<Self, StreamError> {
        let (written, pieces) = channel();
        let (advanced, progress) = channel();
        let pieces = Flushed { disk, written: pieces, ready: VecDeque::new(), ended: false };
        let advance = move |bytes| {
            // Who does not finish does not count.
            let _ = advanced.send(bytes);
        };
        let work = move || digests(disk, pieces, &mut { advance });
        let thread = thread::Builder::new().spawn_scoped(scope, work).map_err(StreamError::Thread)?;
        Ok(ReadBack { written: Written(written), progress, thread })
    }

    /// Read what is left; all that was written has been flushed. Digests of the files, in the order in which they came.
    pub fn finish(self, progress: &mut dyn FnMut(u64)) -> Result<Vec<Sha256>, StreamError> {
        let _ = self.written.0.send(None);
        self.progress.iter().for_each(progress);
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// Tells what has been written.
pub struct Written(Sender<Option<Piece>>);

impl Written {
    /// These bytes come next.
    pub fn tell(&self, piece: Piece) {
        // Nobody hears it only when reading back has failed, which `finish` tells.
        let _ = self.0.send(Some(piece));
    }
}

/// What was written, in its order, as soon as it was flushed.
struct Flushed<'d> {
    disk: &'d dyn BlockIo,
    written: Receiver<Option<Piece>>,
    ready: VecDeque<Piece>,
    ended: bool,
}

impl Flushed<'_> {
    fn next_window(&mut self) -> io::Result<()> {
        let mut bytes = 0;
        while bytes < WINDOW_BYTES {
            match self.written.recv() {
                Ok(Some(piece)) => {
                    bytes += piece.at.len;
                    self.ready.push_back(piece);
                }
                Ok(None) => {
                    self.ended = true;
                    return Ok(());
                }
                Err(_) => {
                    (self.ended, self.ready) = (true, VecDeque::new());
                    return Ok(());
                }
            }
        }
        self.disk.sync()
    }
}

impl Iterator for Flushed<'_> {
    type Item = Result<Piece, StreamError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ready.is_empty()
            && !self.ended
            && let Err(e) = self.next_window()
        {
            return Some(Err(StreamError::Flush(e)));
        }
        self.ready.pop_front().map(Ok)
    }
}

/// A buffer, how many bytes of it are read, and whether a file ends with them.
type Filled = (AlignedBuf, usize, bool);

fn digests(
    disk: &dyn BlockIo,
    pieces: impl Iterator<Item = Result<Piece, StreamError>> + Send,
    progress: &mut dyn FnMut(u64),
) -> Result<Vec<Sha256>, StreamError> {
    let (full_tx, full_rx) = sync_channel::<Filled>(BUFFERS);
    let (free_tx, free_rx) = sync_channel::<AlignedBuf>(BUFFERS);
    for _ in 0..BUFFERS {
        // The channel has room for all of them.
        let _ = free_tx.send(AlignedBuf::new(READ_BYTES));
    }
    thread::scope(|scope| {
        let work = move || read_pieces(disk, pieces, &free_rx, &full_tx);
        let reading = thread::Builder::new().spawn_scoped(scope, work).map_err(StreamError::Thread)?;
        let (mut digests, mut hasher) = (Vec::new(), Hasher::default());
        for (buf, n, last) in full_rx {
            hasher.update(&buf[..n]);
            progress(n as u64);
            if last {
                digests.push(std::mem::take(&mut hasher).finish());
            }
            // The reader has gone once it has sent everything.
            let _ = free_tx.send(buf);
        }
        reading.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok(digests)
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
