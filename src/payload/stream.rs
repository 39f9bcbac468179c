//! Bytes from a reader to the disk, and back from the medium, hashed on the way: one pass, a few
//! bounded buffers, hashing in parallel with the disk.

use std::{
    io::{self, Read},
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread,
};

use crate::{
    device::{AlignedBuf, BlockIo, CHUNK_BYTES},
    model::{
        digest::{Hasher, Sha256},
        units::{Extent, round_up},
    },
};

/// Buffers in flight. More only cost memory.
const BUFFERS: usize = 4;

/// What went wrong, and on which side.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// Reading the source.
    #[error("reading at byte {at}: {source}")]
    Source {
        /// Offset in the source.
        at: u64,
        /// The cause.
        source: io::Error,
    },
    /// The source is shorter or longer than it was when it was looked at.
    #[error("it has {} bytes than the {expected} it had before: it changed while it was read", if *longer { "more" } else { "fewer" })]
    Length {
        /// Bytes expected.
        expected: u64,
        /// Whether there is more.
        longer: bool,
    },
    /// No thread.
    #[error("cannot start a thread to read and hash with: {0}")]
    Thread(io::Error),
    /// The disk.
    #[error("at byte {offset} of the disk: {source}")]
    Disk {
        /// Byte offset on the disk.
        offset: u64,
        /// The cause.
        source: io::Error,
    },
}

/// Fill `buf` from `reader` as far as it goes.
fn fill(reader: &mut dyn Read, buf: &mut [u8]) -> io::Result<usize> {
    let mut n = 0;
    while n < buf.len() {
        match reader.read(&mut buf[n..]) {
            Ok(0) => break,
            Ok(more) => n += more,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(n)
}

/// Digest of everything a reader gives, and its length in bytes.
pub fn digest_file(reader: &mut dyn Read, mut progress: impl FnMut(u64)) -> io::Result<(Sha256, u64)> {
    let mut hasher = Hasher::default();
    let mut buf = vec![0; CHUNK_BYTES];
    let mut total = 0;
    loop {
        let n = fill(reader, &mut buf)?;
        hasher.update(&buf[..n]);
        total += n as u64;
        progress(n as u64);
        if n < buf.len() {
            return Ok((hasher.finish(), total));
        }
    }
}

/// Write exactly `size` bytes of `reader` to `offset`, then zeros up to `padded`, and return the digest
/// of what was read. Reading and hashing run beside the writing; nothing is flushed.
pub fn write_stream(
    reader: &mut (dyn Read + Send),
    disk: &dyn BlockIo,
    extent: Extent,
    size: u64,
    progress: &mut dyn FnMut(u64),
) -> Result<Sha256, StreamError> {
    let (full_tx, full_rx) = sync_channel::<(AlignedBuf, usize)>(BUFFERS);
    let (free_tx, free_rx) = sync_channel::<AlignedBuf>(BUFFERS);
    for _ in 0..BUFFERS.min(size.div_ceil(CHUNK_BYTES as u64) as usize) {
        // The channel has room for all of them.
        let _ = free_tx.send(AlignedBuf::new(CHUNK_BYTES));
    }
    thread::scope(|scope| {
        let work = move || read_and_hash(reader, size, &free_rx, &full_tx);
        let source = thread::Builder::new().spawn_scoped(scope, work).map_err(StreamError::Thread)?;
        let mut at = extent.offset;
        let mut failed = None;
        for (mut buf, n) in full_rx {
            // The last chunk of a file is padded to whole sectors; clusters are whole sectors.
            let padded = round_up(n as u64, disk.sector_size().bytes().max(512)).unwrap_or(0) as usize;
            buf[n..padded].fill(0);
            if let Err(source) = disk.write_at(at, &buf[..padded]) {
                failed = Some(StreamError::Disk { offset: at, source });
                break;
            }
            at += padded as u64;
            progress(n as u64);
            // The reader has gone once it has sent everything.
            let _ = free_tx.send(buf);
        }
        drop(free_tx);
        let digest = source.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        if let Some(e) = failed {
            return Err(e);
        }
        let digest = digest?;
        zero_tail(disk, at, extent.end())?;
        Ok(digest)
    })
}

fn zero_tail(disk: &dyn BlockIo, at: u64, end: u64) -> Result<(), StreamError> {
    if at >= end {
        return Ok(());
    }
    let zeros = AlignedBuf::new((end - at) as usize);
    disk.write_at(at, &zeros).map_err(|source| StreamError::Disk { offset: at, source })
}

fn read_and_hash(
    reader: &mut dyn Read,
    size: u64,
    free: &Receiver<AlignedBuf>,
    full: &SyncSender<(AlignedBuf, usize)>,
) -> Result<Sha256, StreamError> {
    let mut hasher = Hasher::default();
    let mut at = 0;
    while at < size {
        // The writer stops taking buffers only when it has failed, and then has its own error.
        let Ok(mut buf) = free.recv() else { break };
        let want = (size - at).min(CHUNK_BYTES as u64) as usize;
        let n = fill(reader, &mut buf[..want]).map_err(|source| StreamError::Source { at, source })?;
        if n < want {
            return Err(StreamError::Length { expected: size, longer: false });
        }
        hasher.update(&buf[..n]);
        at += n as u64;
        if full.send((buf, n)).is_err() {
            break;
        }
    }
    match fill(reader, &mut [0]) {
        Ok(0) => Ok(hasher.finish()),
        Ok(_) => Err(StreamError::Length { expected: size, longer: true }),
        Err(source) => Err(StreamError::Source { at, source }),
    }
}

/// Digest of ranges of the medium, read past the page cache; hashing runs beside the reading.
pub fn read_back_digest(
    disk: &dyn BlockIo,
    extents: &[Extent],
    progress: &mut dyn FnMut(u64),
) -> Result<Sha256, StreamError> {
    let (full_tx, full_rx) = sync_channel::<(AlignedBuf, usize)>(BUFFERS);
    let (free_tx, free_rx) = sync_channel::<AlignedBuf>(BUFFERS);
    let total: u64 = extents.iter().map(|e| e.len).sum();
    for _ in 0..BUFFERS.min(total.div_ceil(CHUNK_BYTES as u64) as usize + extents.len()) {
        let _ = free_tx.send(AlignedBuf::new(CHUNK_BYTES));
    }
    thread::scope(|scope| {
        let work = move || read_extents(disk, extents, &free_rx, &full_tx);
        let reading = thread::Builder::new().spawn_scoped(scope, work).map_err(StreamError::Thread)?;
        let mut hasher = Hasher::default();
        for (buf, n) in full_rx {
            hasher.update(&buf[..n]);
            progress(n as u64);
            let _ = free_tx.send(buf);
        }
        reading.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok(hasher.finish())
    })
}

fn read_extents(
    disk: &dyn BlockIo,
    extents: &[Extent],
    free: &Receiver<AlignedBuf>,
    full: &SyncSender<(AlignedBuf, usize)>,
) -> Result<(), StreamError> {
    let sector = disk.sector_size().bytes();
    for extent in extents {
        let mut at = extent.offset;
        while at < extent.end() {
            let Ok(mut buf) = free.recv() else { return Ok(()) };
            let n = (extent.end() - at).min(CHUNK_BYTES as u64) as usize;
            // Whole sectors, so that the read stays a direct one; files end inside their last cluster.
            let whole = round_up(n as u64, sector).unwrap_or(0).min(disk.size() - at) as usize;
            disk.read_back(at, &mut buf[..whole]).map_err(|source| StreamError::Disk { offset: at, source })?;
            at += n as u64;
            if full.send((buf, n)).is_err() {
                return Ok(());
            }
        }
    }
    Ok(())
}
