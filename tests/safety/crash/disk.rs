//! A disk in memory that remembers every write and flush, and can fail in one call.

use std::{
    io,
    sync::{Arc, Mutex},
};

use slipway::device::BlockIo;
use slipway_core::units::{Extent, SectorSize};

use super::pages::{Pages, SECTOR};

/// What was done to the disk.
#[derive(Clone)]
pub enum Op {
    Write { offset: u64, bytes: Arc<[u8]> },
    Zero(Extent),
    Discard(Extent),
    Sync,
}

impl Op {
    pub fn apply(&self, pages: &mut Pages) {
        match self {
            Op::Write { offset, bytes } => pages.write(*offset, bytes),
            Op::Zero(extent) => pages.zero(*extent),
            // The worst a device may do.
            Op::Discard(extent) => pages.garbage(*extent),
            Op::Sync => {}
        }
    }

    /// The bytes it is about.
    pub fn extent(&self) -> Extent {
        match self {
            Op::Write { offset, bytes } => Extent { offset: *offset, len: bytes.len() as u64 },
            Op::Zero(extent) | Op::Discard(extent) => *extent,
            Op::Sync => Extent { offset: 0, len: 0 },
        }
    }

    /// Its `n`-th of pieces that arrive or do not: sectors; of large ranges 64 KiB, a device has no finer order of
    /// its own to tell. None after the last.
    pub fn piece(&self, n: u64) -> Option<Op> {
        let size = if matches!(self, Op::Write { .. }) { SECTOR as u64 } else { 64 << 10 };
        let extent = self.extent();
        let (from, len) = (n * size, size.min(extent.len.checked_sub(n * size)?));
        let piece = Extent { offset: extent.offset + from, len };
        (len > 0).then(|| match self {
            Op::Write { bytes, .. } => {
                Op::Write { offset: piece.offset, bytes: bytes[from as usize..(from + len) as usize].into() }
            }
            Op::Zero(_) => Op::Zero(piece),
            Op::Discard(_) | Op::Sync => Op::Discard(piece),
        })
    }
}

/// A call of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    Read,
    Write,
    Zero,
    Sync,
    Discard,
    Reserve,
    Forget,
}

/// How a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// With this errno, and nothing done.
    Errno(i32),
    /// The first half is done, then an error.
    Short,
    /// Not at all, but one bit (of a byte, counted around) of what is read is wrong.
    Flip { byte: usize, bit: u8 },
}

pub const EIO: Fault = Fault::Errno(5);
pub const ENOSPC: Fault = Fault::Errno(28);

/// The recording device.
pub struct RecordingDisk {
    pub size: u64,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    pages: Pages,
    durable: Pages,
    log: Vec<Op>,
    calls: Vec<(Call, Extent)>,
    fault: Option<(usize, Fault)>,
    loses: Option<u64>,
    lost: bool,
}

impl Inner {
    fn done(&mut self, op: Op) {
        op.apply(&mut self.pages);
        self.log.push(op);
    }

    /// Write, except for the sector that the disk loses.
    fn write(&mut self, offset: u64, buf: &[u8]) {
        let lost = self.loses.and_then(|at| at.checked_sub(offset)).filter(|at| *at < buf.len() as u64);
        let Some(lost) = lost.map(|at| at as usize) else {
            return self.done(Op::Write { offset, bytes: buf.into() });
        };
        let after = lost + SECTOR;
        for (at, bytes) in [(0, &buf[..lost]), (after, &buf[after.min(buf.len())..])] {
            if !bytes.is_empty() {
                self.done(Op::Write { offset: offset + at as u64, bytes: bytes.into() });
            }
        }
    }
}

impl RecordingDisk {
    pub fn new(size: u64, pages: Pages) -> Self {
        let inner = Inner { durable: pages.clone(), pages, ..Inner::default() };
        RecordingDisk { size, inner: Mutex::new(inner) }
    }

    /// The call with this number, from 0, fails once.
    pub fn failing(size: u64, pages: Pages, call: usize, fault: Fault) -> Self {
        let disk = Self::new(size, pages);
        disk.inner.lock().unwrap().fault = Some((call, fault));
        disk
    }

    /// Every write of the sector at this offset is lost, and nothing tells.
    pub fn lying(size: u64, pages: Pages, sector: u64) -> Self {
        let disk = Self::new(size, pages);
        disk.inner.lock().unwrap().loses = Some(sector);
        disk
    }

    /// What was written, flushed or not.
    pub fn pages(&self) -> Pages {
        self.inner.lock().unwrap().pages.clone()
    }

    /// What was flushed.
    pub fn durable(&self) -> Pages {
        self.inner.lock().unwrap().durable.clone()
    }

    pub fn log(&self) -> Vec<Op> {
        self.inner.lock().unwrap().log.clone()
    }

    pub fn calls(&self) -> Vec<(Call, Extent)> {
        self.inner.lock().unwrap().calls.clone()
    }

    /// Whether call `n` was a look at what a write then replaced: what cannot be read there is written all the same.
    pub fn replaced(&self, n: usize) -> bool {
        let calls = &self.inner.lock().unwrap().calls;
        let (read, extent) = calls[n];
        read == Call::Read && calls.get(n + 1).is_some_and(|(next, to)| *next == Call::Write && to.contains(extent))
    }

    /// Count a call; `work` gets told whether it is to do half or to flip a bit.
    fn call<T>(
        &self,
        call: Call,
        extent: Extent,
        work: impl FnOnce(&mut Inner, Option<Fault>) -> io::Result<T>,
    ) -> io::Result<T> {
        let mut inner = self.inner.lock().unwrap();
        let n = inner.calls.len();
        inner.calls.push((call, extent));
        match inner.fault.filter(|(at, _)| *at == n) {
            Some((_, Fault::Errno(errno))) => {
                inner.lost |= call == Call::Sync;
                Err(io::Error::from_raw_os_error(errno))
            }
            fault => work(&mut inner, fault.map(|(_, fault)| fault)),
        }
    }
}

/// Half of a range, in whole sectors.
const fn half(len: u64) -> u64 {
    len / 2 / SECTOR as u64 * SECTOR as u64
}

const SHORT: fn() -> io::Error = || io::Error::from_raw_os_error(5);

impl BlockIo for RecordingDisk {
    fn size(&self) -> u64 {
        self.size
    }

    fn sector_size(&self) -> SectorSize {
        SectorSize::S512
    }

    fn read_back(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let extent = Extent { offset, len: buf.len() as u64 };
        self.call(Call::Read, extent, |inner, fault| {
            inner.pages.read(offset, buf);
            if let Some(Fault::Flip { byte, bit }) = fault {
                buf[byte % buf.len()] ^= 1 << (bit % 8);
            }
            Ok(())
        })
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        let extent = Extent { offset, len: buf.len() as u64 };
        assert!(extent.end() <= self.size, "a write beyond the end of the disk");
        self.call(Call::Write, extent, |inner, fault| {
            let short = fault == Some(Fault::Short);
            inner.write(offset, if short { &buf[..half(extent.len) as usize] } else { buf });
            if short { Err(SHORT()) } else { Ok(()) }
        })
    }

    fn zero(&self, extent: Extent) -> io::Result<()> {
        assert!(extent.end() <= self.size, "zeros beyond the end of the disk");
        self.call(Call::Zero, extent, |inner, fault| {
            let short = fault == Some(Fault::Short);
            let len = if short { half(extent.len) } else { extent.len };
            inner.done(Op::Zero(Extent { offset: extent.offset, len }));
            if short { Err(SHORT()) } else { Ok(()) }
        })
    }

    fn sync(&self) -> io::Result<()> {
        self.call(Call::Sync, Extent { offset: 0, len: self.size }, |inner, _| {
            if inner.lost {
                return Err(io::Error::other("an earlier flush failed"));
            }
            inner.durable = inner.pages.clone();
            inner.log.push(Op::Sync);
            Ok(())
        })
    }

    fn discard(&self, extent: Extent) -> io::Result<()> {
        self.call(Call::Discard, extent, |inner, _| {
            inner.done(Op::Discard(extent));
            Ok(())
        })
    }

    fn reserve(&self, extent: Extent) -> io::Result<()> {
        self.call(Call::Reserve, extent, |_, _| Ok(()))
    }

    fn forget_cached(&self, extent: Extent) -> io::Result<()> {
        self.call(Call::Forget, extent, |_, _| Ok(()))
    }
}
