//! Limits the rate of reads and writes so that other programs on the machine keep their share of the disk.
//!
//! This is a limit in bytes per second, not an I/O class. `ioprio_set` has no effect with the scheduler `none` (NVMe,
//! virtio), nor on the CPU time of hashing. Limiting the disk also slows its sources: hashing, decompression, the
//! source and the network.

use std::{
    io,
    sync::{Mutex, PoisonError},
    thread,
    time::Instant,
};

use super::block_io::BlockIo;
use slipway_core::{
    rate_limit::{ByteRate, TokenBucket},
    units::{Extent, SectorSize},
};

/// One limit, shared by all threads that use it.
pub struct RateLimiter {
    bucket: Mutex<TokenBucket>,
    begun: Instant,
}

impl RateLimiter {
    pub fn new(rate: ByteRate) -> Self {
        RateLimiter { bucket: Mutex::new(TokenBucket::new(rate)), begun: Instant::now() }
    }

    pub fn wait(&self, bytes: u64) {
        let pause = {
            let mut bucket = self.bucket.lock().unwrap_or_else(PoisonError::into_inner);
            bucket.take(self.begun.elapsed(), bytes)
        };
        thread::sleep(pause);
    }
}

/// A disk whose reads and writes share a limit. Operations that transfer no data (flush, discard, zeroing by the
/// device) do not count.
pub struct RateLimited<'d> {
    disk: &'d dyn BlockIo,
    limiter: Option<&'d RateLimiter>,
}

impl<'d> RateLimited<'d> {
    /// Without a limiter the disk runs at full speed.
    pub const fn new(disk: &'d dyn BlockIo, limiter: Option<&'d RateLimiter>) -> Self {
        RateLimited { disk, limiter }
    }

    fn wait(&self, buf: &[u8]) {
        if let Some(limiter) = self.limiter {
            limiter.wait(buf.len() as u64);
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

    fn limit(&self) -> u64 {
        self.disk.limit()
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

    fn drop_partitions(&self) -> io::Result<()> {
        self.disk.drop_partitions()
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

    // 8 MiB at 64 MiB/s take at least the time of seven (the bucket starts with one). There is no upper bound, so a
    // slow machine does not fail the test.
    #[test]
    fn reads_and_writes_share_one_limit() {
        let dir = tempfile::tempdir().unwrap();
        let path: &Path = &dir.path().join("disk");
        File::create(path).unwrap().set_len(8 * MIB).unwrap();
        let disk = Disk::open(path, Access::Write, None, Duration::ZERO).unwrap();
        let limiter = RateLimiter::new("64MiB/s".parse().unwrap());
        let limited = &RateLimited::new(&disk, Some(&limiter));
        let begun = Instant::now();
        thread::scope(|scope| {
            for n in 0..4u8 {
                scope.spawn(move || {
                    let at = u64::from(n) * MIB;
                    limited.write_at(at, &vec![n + 1; CHUNK_BYTES]).unwrap();
                    limited.sync().unwrap();
                    let mut back = vec![0; CHUNK_BYTES];
                    limited.read_back(at, &mut back).unwrap();
                    assert_eq!(back, vec![n + 1; CHUNK_BYTES]);
                });
            }
        });
        assert!(begun.elapsed() >= Duration::from_secs(7) / 64, "{:?}", begun.elapsed());
    }
}
