//! A disk that is used no faster than it was asked to: what else runs on the machine goes on undisturbed.
//!
//! A limit of bytes a second, not an I/O class: `ioprio_set` has no effect where the scheduler is `none` (NVMe, virtio)
//! and none on the CPU that hashing takes, while whoever makes the disk wait makes everything before it wait, too:
//! hashing, decompressing, reading the source, the network.

use std::{
    io,
    sync::{Mutex, PoisonError},
    thread,
    time::Instant,
};

use super::BlockIo;
use slipway_core::{
    rate::{ByteRate, TokenBucket},
    units::{Extent, SectorSize},
};

/// A limit that all who use it share, in whichever threads.
pub struct RateLimiter {
    bucket: Mutex<TokenBucket>,
    begun: Instant,
}

impl RateLimiter {
    /// No more than this.
    pub fn new(rate: ByteRate) -> Self {
        RateLimiter { bucket: Mutex::new(TokenBucket::new(rate)), begun: Instant::now() }
    }

    /// Wait until this many bytes may pass.
    pub fn wait(&self, bytes: u64) {
        let pause = {
            let mut bucket = self.bucket.lock().unwrap_or_else(PoisonError::into_inner);
            bucket.take(self.begun.elapsed(), bytes)
        };
        thread::sleep(pause);
    }
}

/// A disk whose reads and writes keep to a limit, together. What moves no bytes of ours (flush, discard, zeroing by the
/// device) does not count.
pub struct RateLimited<'d> {
    disk: &'d dyn BlockIo,
    pace: Option<&'d RateLimiter>,
}

impl<'d> RateLimited<'d> {
    /// `disk`, no faster than `pace`; as fast as it can without one.
    pub const fn new(disk: &'d dyn BlockIo, pace: Option<&'d RateLimiter>) -> Self {
        RateLimited { disk, pace }
    }

    fn wait(&self, buf: &[u8]) {
        if let Some(pace) = self.pace {
            pace.wait(buf.len() as u64);
        }
    }
}

impl BlockIo for RateLimited<'_> {
    fn size(&self) -> u64 {
        self.disk.size()
    }

    fn sector_size(&self) -> SectorSize {
        self.disk.sector_size()
    }

    fn read_back(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.wait(buf);
        self.disk.read_back(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.wait(buf);
        self.disk.write_at(offset, buf)
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.sync()
    }

    fn reserve(&self, extent: Extent) -> io::Result<()> {
        self.disk.reserve(extent)
    }

    fn zero(&self, extent: Extent) -> io::Result<()> {
        self.disk.zero(extent)
    }

    fn discard(&self, extent: Extent) -> io::Result<()> {
        self.disk.discard(extent)
    }

    fn claim(&self, parts: &[Extent]) -> io::Result<()> {
        self.disk.claim(parts)
    }

    fn forget_cached(&self, extent: Extent) -> io::Result<()> {
        self.disk.forget_cached(extent)
    }

    fn reread_table(&self) -> io::Result<()> {
        self.disk.reread_table()
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::File, path::Path, time::Duration};

    use super::*;
    use crate::device::{Access, CHUNK_BYTES, Disk};
    use slipway_core::units::MIB;

    /// Reads and writes share the limit, from several threads, too: 8 MiB at 64 MiB/s are not done in less than the
    /// time of seven, and the bytes are there. (Only a lower bound: a slow machine makes no difference.)
    #[test]
    fn reads_and_writes_share_one_limit() {
        let dir = tempfile::tempdir().unwrap();
        let path: &Path = &dir.path().join("disk");
        File::create(path).unwrap().set_len(8 * MIB).unwrap();
        let disk = Disk::open(path, Access::Write, None, Duration::ZERO).unwrap();
        let pace = RateLimiter::new("64MiB/s".parse().unwrap());
        let paced = &RateLimited::new(&disk, Some(&pace));
        let begun = Instant::now();
        thread::scope(|scope| {
            for n in 0..4u8 {
                scope.spawn(move || {
                    let at = u64::from(n) * MIB;
                    paced.write_at(at, &vec![n + 1; CHUNK_BYTES]).unwrap();
                    paced.sync().unwrap();
                    let mut back = vec![0; CHUNK_BYTES];
                    paced.read_back(at, &mut back).unwrap();
                    assert_eq!(back, vec![n + 1; CHUNK_BYTES]);
                });
            }
        });
        assert!(begun.elapsed() >= Duration::from_secs(7) / 64, "{:?}", begun.elapsed());
    }
}
