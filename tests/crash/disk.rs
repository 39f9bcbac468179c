//! A disk in memory that remembers every write and flush, and rebuilds what a power cut could leave.

use std::{
    collections::HashMap,
    io::{self, Read, Seek, SeekFrom, Write},
    sync::{Arc, Mutex},
};

use slipway::{
    device::BlockIo,
    model::units::{Extent, SectorSize},
};

const PAGE: usize = 4096;
/// A drive writes a sector whole or not at all.
const SECTOR: usize = 512;

/// Content of a disk; pages that are not there are zero. Cloning is cheap: pages are shared.
#[derive(Clone, Default)]
pub struct Pages(HashMap<u64, Arc<[u8; PAGE]>>);

impl Pages {
    pub fn read(&self, offset: u64, buf: &mut [u8]) {
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            let (page, skip) = (at / PAGE as u64, (at % PAGE as u64) as usize);
            let n = (PAGE - skip).min(buf.len() - done);
            match self.0.get(&page) {
                Some(bytes) => buf[done..done + n].copy_from_slice(&bytes[skip..skip + n]),
                None => buf[done..done + n].fill(0),
            }
            done += n;
        }
    }

    pub fn write(&mut self, offset: u64, buf: &[u8]) {
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            let (page, skip) = (at / PAGE as u64, (at % PAGE as u64) as usize);
            let n = (PAGE - skip).min(buf.len() - done);
            let bytes = self.0.entry(page).or_insert_with(|| Arc::new([0; PAGE]));
            Arc::make_mut(bytes)[skip..skip + n].copy_from_slice(&buf[done..done + n]);
            done += n;
        }
    }

    fn zero(&mut self, extent: Extent) {
        let inside = |page: &u64| (page * PAGE as u64) >= extent.offset && (page + 1) * PAGE as u64 <= extent.end();
        self.0.retain(|page, _| !inside(page));
        let zeros = [0; PAGE];
        for edge in [extent.offset / PAGE as u64, (extent.end() - 1) / PAGE as u64] {
            let start = (edge * PAGE as u64).max(extent.offset);
            let end = ((edge + 1) * PAGE as u64).min(extent.end());
            if self.0.contains_key(&edge) {
                self.write(start, &zeros[..(end - start) as usize]);
            }
        }
    }
}

/// What was done to the disk.
#[derive(Clone)]
pub enum Op {
    Write { offset: u64, bytes: Arc<[u8]> },
    Zero(Extent),
    Sync,
}

impl Op {
    fn apply(&self, pages: &mut Pages) {
        match self {
            Op::Write { offset, bytes } => pages.write(*offset, bytes),
            Op::Zero(extent) => pages.zero(*extent),
            Op::Sync => {}
        }
    }

    /// Apply only the sectors that `keep` says arrived.
    fn apply_torn(&self, pages: &mut Pages, mut keep: impl FnMut() -> bool) {
        match self {
            Op::Write { offset, bytes } => {
                for (i, sector) in bytes.chunks(SECTOR).enumerate() {
                    if keep() {
                        pages.write(offset + (i * SECTOR) as u64, sector);
                    }
                }
            }
            // Large ranges: in 64 KiB pieces, a device has no finer order of its own to tell.
            Op::Zero(extent) => {
                let piece = 64 << 10;
                for offset in (extent.offset..extent.end()).step_by(piece) {
                    if keep() {
                        pages.zero(Extent { offset, len: (extent.end() - offset).min(piece as u64) });
                    }
                }
            }
            Op::Sync => {}
        }
    }
}

/// The recording device. `fail_at` makes the n-th call (from 0) fail once.
pub struct RecordingDisk {
    pub size: u64,
    inner: Mutex<Inner>,
}

struct Inner {
    pages: Pages,
    log: Vec<Op>,
    calls: usize,
    fail_at: Option<usize>,
    lost: bool,
}

impl RecordingDisk {
    pub fn new(size: u64, pages: Pages) -> Self {
        RecordingDisk { size, inner: Mutex::new(Inner { pages, log: vec![], calls: 0, fail_at: None, lost: false }) }
    }

    pub fn failing(size: u64, pages: Pages, call: usize) -> Self {
        let disk = Self::new(size, pages);
        disk.inner.lock().unwrap().fail_at = Some(call);
        disk
    }

    pub fn pages(&self) -> Pages {
        self.inner.lock().unwrap().pages.clone()
    }

    pub fn log(&self) -> Vec<Op> {
        self.inner.lock().unwrap().log.clone()
    }

    pub fn calls(&self) -> usize {
        self.inner.lock().unwrap().calls
    }

    fn call<T>(&self, work: impl FnOnce(&mut Inner) -> T) -> io::Result<T> {
        let mut inner = self.inner.lock().unwrap();
        let n = inner.calls;
        inner.calls += 1;
        if inner.fail_at == Some(n) {
            return Err(io::Error::from_raw_os_error(5)); // EIO
        }
        Ok(work(&mut inner))
    }
}

impl BlockIo for RecordingDisk {
    fn size(&self) -> u64 {
        self.size
    }

    fn sector_size(&self) -> SectorSize {
        SectorSize::S512
    }

    fn read_back(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.call(|inner| inner.pages.read(offset, buf))
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        assert!(offset + buf.len() as u64 <= self.size, "a write beyond the end of the disk");
        self.call(|inner| {
            inner.pages.write(offset, buf);
            inner.log.push(Op::Write { offset, bytes: buf.into() });
        })
    }

    fn zero(&self, extent: Extent) -> io::Result<()> {
        assert!(extent.end() <= self.size, "zeros beyond the end of the disk");
        self.call(|inner| {
            inner.pages.zero(extent);
            inner.log.push(Op::Zero(extent));
        })
    }

    fn sync(&self) -> io::Result<()> {
        let failed = self.inner.lock().unwrap().lost;
        let result = if failed { Err(io::Error::other("an earlier flush failed")) } else { self.call(|_| ()) };
        let mut inner = self.inner.lock().unwrap();
        match &result {
            Ok(()) => inner.log.push(Op::Sync),
            Err(_) => inner.lost = true,
        }
        result
    }
}

/// A state as a file, for libraries that read one.
pub struct PagesFile<'p> {
    pub pages: &'p Pages,
    pub offset: u64,
    pub len: u64,
    pub at: u64,
}

impl Read for PagesFile<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = (self.len.saturating_sub(self.at)).min(buf.len() as u64) as usize;
        self.pages.read(self.offset + self.at, &mut buf[..n]);
        self.at += n as u64;
        Ok(n)
    }
}

impl Write for PagesFile<'_> {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::Error::other("a judge does not write"))
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for PagesFile<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.at = match to {
            SeekFrom::Start(at) => at,
            SeekFrom::End(by) => self.len.saturating_add_signed(by),
            SeekFrom::Current(by) => self.at.saturating_add_signed(by),
        };
        Ok(self.at)
    }
}

impl std::fmt::Debug for PagesFile<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "state at {}", self.at)
    }
}

/// Deterministic random numbers (SplitMix64).
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// Visit about `states` disks that a cut during `log` could leave, over `base`; stops early when `visit`
/// says so. Every cut is visited; within one, of the writes not flushed yet any subset may have arrived, and
/// any may be torn.
pub fn sweep(base: &Pages, log: &[Op], states: usize, visit: &mut dyn FnMut(&Pages, &str) -> bool) -> usize {
    let mut rng = Rng(1);
    let mut durable = base.clone();
    let mut visited = 0;
    let mut epochs: Vec<&[Op]> = log.split(|op| matches!(op, Op::Sync)).collect();
    // What follows the last flush is an epoch, too; an empty one is the finished disk.
    let writes: usize = epochs.iter().map(|e| e.len()).sum::<usize>().max(1);
    let epochs_total = epochs.len();
    for (n, epoch) in epochs.drain(..).enumerate() {
        let mut state = |pages: &Pages, what: &str| {
            visited += 1;
            visit(pages, &format!("epoch {n} of {epochs_total}: {what}"))
        };
        if !state(&durable, "nothing of it arrived") {
            return visited;
        }
        // All subsets of a small epoch.
        if epoch.len() <= 8 {
            for subset in 1..1u32 << epoch.len() {
                let mut pages = durable.clone();
                let kept = epoch.iter().enumerate().filter(|(i, _)| subset & (1 << i) != 0);
                kept.for_each(|(_, op)| op.apply(&mut pages));
                if !state(&pages, &format!("subset {subset:b}")) {
                    return visited;
                }
            }
        }
        // Every prefix, whole.
        let mut prefix = durable.clone();
        for (i, op) in epoch.iter().enumerate() {
            op.apply(&mut prefix);
            if !state(&prefix, &format!("{} writes in order", i + 1)) {
                return visited;
            }
        }
        // Random cuts, subsets, orders and tears: a share by the number of writes.
        let share = states * epoch.len() / writes + states / (4 * epochs_total);
        for _ in 0..if epoch.is_empty() { 0 } else { share } {
            let cut = 1 + rng.next() as usize % epoch.len();
            let mut pages = durable.clone();
            // Writes that do not overlap may arrive in any order, which is the same as any subset.
            for op in &epoch[..cut] {
                match rng.next() % 4 {
                    0 => {}
                    1 => op.apply_torn(&mut pages, || rng.next() & 1 == 0),
                    _ => op.apply(&mut pages),
                }
            }
            if !state(&pages, &format!("random, {cut} of {} writes issued", epoch.len())) {
                return visited;
            }
        }
        durable = prefix;
    }
    visited
}
