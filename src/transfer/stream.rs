//! Copying a file to the disk: one pass, a few bounded buffers; reading, hashing and writing run in parallel.

use std::{
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread::{self, Scope, ScopedJoinHandle},
};

use super::{
    FileReader, StreamError,
    read_back::{Piece, Written},
};
use crate::{
    device::{AlignedBuf, BlockIo},
    transfer::{Checksum, Checksummer},
};
use slipway_core::{digest::Sha256, units::Extent};
use slipway_payload::digest_file::{Digests, fill};

// Bytes of one write: a multiple of every cluster size that we format with.
const PIECE_BYTES: usize = 512 << 10;
// More buffers cost memory and gain no speed.
const BUFFERS: usize = 4;
// Bytes read from the disk at once to compare them with the bytes to be written.
const COMPARE_BYTES: usize = 256 << 10;

/// Finds pieces that need no write because the disk already holds them, for example from an earlier installation.
///
/// Reading costs as much as writing, so after each piece that differs, twice as many pieces are written without
/// looking.
#[derive(Default)]
struct OldContent {
    buf: Option<AlignedBuf>,
    // Pieces still to be written without looking.
    unread: u64,
    skipped: u64,
}

impl OldContent {
    /// Whether the disk holds these bytes. A read error counts as "no": writing makes a disk remap a bad sector.
    fn is(&mut self, disk: &dyn BlockIo, at: u64, bytes: &[u8]) -> bool {
        if self.unread > 0 {
            self.unread -= 1;
            return false;
        }
        let buf = self.buf.get_or_insert_with(|| AlignedBuf::new(COMPARE_BYTES));
        let same = (at..).step_by(COMPARE_BYTES).zip(bytes.chunks(COMPARE_BYTES)).all(|(at, bytes)| {
            let buf = &mut buf[..bytes.len()];
            disk.read_back(at, buf).is_ok() && *buf == *bytes
        });
        self.skipped = if same { 0 } else { 2 * self.skipped + 1 };
        self.unread = self.skipped;
        same
    }
}

/// Write exactly `size` bytes of `reader` to the beginning of `to` and fill the rest of `to`, which must be less than
/// 512 KiB, with zeros. Return digest and checksum of the bytes read, and how many bytes were written.
///
/// Pieces that the disk already holds are not written again. Nothing is flushed: the caller must do that. `behind` is
/// told of every piece, and `progress` of every byte, that is on the disk.
pub fn write_stream(
    reader: &mut dyn FileReader,
    disk: &dyn BlockIo,
    to: Extent,
    size: u64,
    behind: Option<&Written>,
    progress: &mut dyn FnMut(u64),
) -> Result<(Sha256, Checksum, u64), StreamError> {
    let (read, to_hash) = sync_channel::<Filled>(BUFFERS);
    let (hashed, to_write) = sync_channel::<Filled>(BUFFERS);
    let (done, free) = sync_channel::<Filled>(BUFFERS);
    for _ in 0..BUFFERS.min(size.div_ceil(PIECE_BYTES as u64) as usize) {
        // Cannot block: the channel has room for every buffer.
        let _ = done.send((AlignedBuf::new(PIECE_BYTES), 0));
    }
    let digests = Digests::begin(reader);
    thread::scope(move |scope| {
        let hashing = spawn(scope, move || hash_pieces(to_hash, &hashed, digests))?;
        let writing = spawn(scope, move || write_pieces(disk, to, size, to_write, &done, behind))?;
        let result = read_pieces(reader, size, &free, &read, progress);
        drop(read);
        for (_, n) in free {
            progress(n as u64);
        }
        let written = join(writing)?;
        let digests = join(hashing);
        // After an error some bytes were read but not hashed. Then the layer's hasher must not be returned.
        result.map(|checksum| (digests.finish(reader), checksum, written))
    })
}

// A buffer and how many bytes of the file it holds.
type Filled = (AlignedBuf, usize);

fn spawn<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>, StreamError> {
    thread::Builder::new().spawn_scoped(scope, work).map_err(StreamError::Thread)
}

fn join<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn read_pieces(
    reader: &mut dyn FileReader,
    size: u64,
    free: &Receiver<Filled>,
    read: &SyncSender<Filled>,
    progress: &mut dyn FnMut(u64),
) -> Result<Checksum, StreamError> {
    let (mut at, mut checksummer) = (0, Checksummer::default());
    while at < size {
        // The writer has failed. Joining it returns the error.
        let Ok((mut buf, written)) = free.recv() else { return Ok(checksummer.finish()) };
        progress(written as u64);
        let want = (size - at).min(PIECE_BYTES as u64) as usize;
        let n = fill(reader, &mut buf[..want]).map_err(|source| StreamError::Source { at, source })?;
        if n < want {
            return Err(StreamError::Length { expected: size, longer: false });
        }
        // Taken here rather than beside SHA-256: this thread has time to spare, and damage to the buffer after this
        // point shows when the disk is read back.
        checksummer.update(&buf[..n]);
        at += n as u64;
        if read.send((buf, n)).is_err() {
            return Ok(checksummer.finish());
        }
    }
    match fill(reader, &mut [0]) {
        Ok(0) => Ok(checksummer.finish()),
        Ok(_) => Err(StreamError::Length { expected: size, longer: true }),
        Err(source) => Err(StreamError::Source { at, source }),
    }
}

fn hash_pieces(read: Receiver<Filled>, hashed: &SyncSender<Filled>, mut digests: Digests) -> Digests {
    for (buf, n) in read {
        digests.update(&buf[..n]);
        if hashed.send((buf, n)).is_err() {
            break;
        }
    }
    digests
}

fn write_pieces(
    disk: &dyn BlockIo,
    to: Extent,
    size: u64,
    hashed: Receiver<Filled>,
    done: &SyncSender<Filled>,
    behind: Option<&Written>,
) -> Result<u64, StreamError> {
    let mut old = OldContent::default();
    let (mut at, mut written) = (to.offset, 0);
    for (mut buf, n) in hashed {
        let last = at + n as u64 == to.offset + size;
        // Direct I/O writes whole sectors. `to` ends at a cluster, so filling up to it suffices.
        let padded = if last { ((to.end() - at) as usize).min(PIECE_BYTES) } else { n };
        buf[n..padded].fill(0);
        if !old.is(disk, at, &buf[..padded]) {
            disk.write_at(at, &buf[..padded]).map_err(|source| StreamError::Disk { offset: at, source })?;
            written += padded as u64;
        }
        if let Some(behind) = behind {
            behind.tell(Piece { at: Extent { offset: at, len: n as u64 }, last });
        }
        at += n as u64;
        // The receiver may be gone: the reader ends once it has sent everything.
        let _ = done.send((buf, n));
    }
    Ok(written)
}

#[cfg(test)]
mod tests {
    use std::{io, sync::Mutex};

    use super::*;
    use crate::transfer::{ReadBack, read_back_digest};
    use slipway_core::units::{MIB, SectorSize};

    /// A device with a volatile cache. `read_back` returns only flushed bytes.
    struct Cached(Mutex<State>);

    #[derive(Default)]
    struct State {
        cache: Vec<u8>,
        storage: Vec<u8>,
        written: usize,
        read: usize,
        flushes: usize,
    }

    impl Cached {
        fn new(len: u64) -> Self {
            let (cache, storage) = (vec![0; len as usize], vec![0; len as usize]);
            Cached(Mutex::new(State { cache, storage, ..State::default() }))
        }

        // Written, read, flushes since the last call.
        fn count(&self) -> (usize, usize, usize) {
            let mut state = self.0.lock().unwrap();
            let State { written, read, flushes, .. } = &mut *state;
            (std::mem::take(written), std::mem::take(read), std::mem::take(flushes))
        }
    }

    impl BlockIo for Cached {
        fn size(&self) -> u64 {
            self.0.lock().unwrap().storage.len() as u64
        }

        fn sector_size(&self) -> SectorSize {
            SectorSize::S4096
        }

        fn read_back(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
            let mut state = self.0.lock().unwrap();
            buf.copy_from_slice(&state.storage[offset as usize..][..buf.len()]);
            state.read += buf.len();
            Ok(())
        }

        fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
            let mut state = self.0.lock().unwrap();
            assert!(offset.is_multiple_of(4096) && buf.len().is_multiple_of(4096), "not whole sectors");
            state.cache[offset as usize..][..buf.len()].copy_from_slice(buf);
            state.written += buf.len();
            Ok(())
        }

        fn sync(&self) -> io::Result<()> {
            let mut state = self.0.lock().unwrap();
            let State { cache, storage, flushes, .. } = &mut *state;
            storage.copy_from_slice(cache);
            *flushes += 1;
            Ok(())
        }
    }

    // No two pieces are alike.
    fn bytes(len: u64) -> Vec<u8> {
        (0..len).map(|n| (n ^ (n >> 8) ^ (n >> 16)) as u8).collect()
    }

    fn to(len: u64) -> Extent {
        Extent { offset: MIB, len: len.next_multiple_of(32 << 10) }
    }

    fn write(disk: &Cached, bytes: &[u8]) {
        let (len, mut done) = (bytes.len() as u64, 0);
        let (digest, checksum, _) =
            write_stream(&mut &bytes[..], disk, to(len), len, None, &mut |n| done += n).unwrap();
        assert_eq!((digest, checksum, done), (Sha256::of(bytes), Checksum::of_bytes(bytes), len));
        disk.sync().unwrap();
        assert_eq!(read_back_digest(disk, &[Extent { len, ..to(len) }], &mut |_| ()).unwrap(), digest);
    }

    #[test]
    fn what_is_there_is_not_written_again() {
        let disk = Cached::new(20 * MIB);
        let mut old = bytes(16 * MIB + 12_345);
        write(&disk, &old);
        let (written, read, _) = disk.count();
        assert_eq!(written as u64, to(old.len() as u64).len);
        assert!(read - old.len() < old.len() / 8, "{read} bytes read of a disk that holds something else");

        write(&disk, &old);
        assert_eq!(disk.count().0, 0);

        old[7 << 20] ^= 1;
        write(&disk, &old);
        assert_eq!(disk.count().0, 2 * PIECE_BYTES, "one that differs, and the next, unread");
    }

    #[test]
    fn only_what_was_flushed_is_read_behind_a_write() {
        let (disk, new) = (Cached::new(100 * MIB), bytes(90 * MIB + 1));
        let len = new.len() as u64;
        thread::scope(|scope| {
            let behind = ReadBack::begin(scope, &disk).unwrap();
            let to = Extent { offset: 0, ..to(len) };
            let (_, written, _) =
                write_stream(&mut &new[..], &disk, to, len, Some(&behind.written), &mut |_| ()).unwrap();
            disk.sync().unwrap();
            let mut done = 0;
            assert_eq!(behind.finish(&mut |n| done += n).unwrap(), [written]);
            assert_eq!(done, len);
            let flushes = disk.count().2;
            assert!((2..=6).contains(&flushes), "{flushes} flushes: one to five windows of 16 MiB, and the end");
        });
    }

    #[test]
    fn a_source_of_another_length_is_an_error() {
        let disk = Cached::new(4 * MIB);
        for (len, longer) in [(MIB + 1, true), (MIB - 1, false)] {
            let result = write_stream(&mut &bytes(len)[..], &disk, to(MIB), MIB, None, &mut |_| ());
            assert!(
                matches!(result, Err(StreamError::Length { expected: MIB, longer: l }) if l == longer),
                "{result:?}"
            );
        }
    }
}
