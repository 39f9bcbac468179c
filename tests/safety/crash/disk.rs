//! A disk in memory that remembers every write and flush, and can fail in one call.

use std::{
    io,
    sync::{Arc, Mutex},
};

use slipway::device::BlockIo;
use slipway_core::units::{Extent, SectorSize};

use super::pages::{Pages, SECTOR};

/// An operation on the disk.
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

/// The failure of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// With this errno, and nothing done.
    Errno(i32),
    /// The first half is done, then an error.
    Short,
    /// Not at all, but one bit (of a byte, counted around) of what is read is wrong.
    Flip { byte: usize, bit: u8 },
}

/// The lasting fault of one sector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lasting {
    /// It cannot be read until it is written: the drive puts another in its place.
    Unreadable,
    /// It can neither be read nor written: the drive has no other left.
    Dead,
    /// It can be read, and not be written.
    Unwritable,
    /// One bit of what is read is wrong, and nothing tells.
    ReadsWrong,
    /// What is written to it is lost, and nothing tells.
    LosesWrites,
}

impl Lasting {
    pub const ALL: [Lasting; 5] =
        [Lasting::Unreadable, Lasting::Dead, Lasting::Unwritable, Lasting::ReadsWrong, Lasting::LosesWrites];
}

/// A sector, by its offset, and what is wrong with it.
pub type BadSector = (u64, Lasting);

pub const EIO: Fault = Fault::Errno(5);
pub const ENOSPC: Fault = Fault::Errno(28);

/// The action of another program on the disk.
type Meddling = Box<dyn FnOnce(&mut Pages) + Send>;

/// The recording device.
pub struct RecordingDisk {
    pub size: u64,
    inner: Mutex<Inner>,
    /// Done when the partitions are claimed.
    before_claim: Mutex<Option<Meddling>>,
}

#[derive(Default)]
struct Inner {
    pages: Pages,
    durable: Pages,
    log: Vec<Op>,
    calls: Vec<(Call, Extent)>,
    fault: Option<(usize, Fault)>,
    bad: Option<BadSector>,
    lost: bool,
}

impl Inner {
    fn done(&mut self, op: Op) {
        op.apply(&mut self.pages);
        self.log.push(op);
    }

    /// The bad sector, if it lies in a range.
    fn bad_in(&self, extent: Extent) -> Option<BadSector> {
        self.bad.filter(|(at, _)| (extent.offset..extent.end()).contains(at))
    }

    /// What a write to a range meets: nothing, a sector that is replaced, or one where the write ends with an error.
    fn wears(&mut self, extent: Extent) -> Option<u64> {
        match self.bad_in(extent)? {
            (at, Lasting::Dead | Lasting::Unwritable) => Some(at),
            (_, Lasting::Unreadable) => {
                self.bad = None;
                None
            }
            _ => None,
        }
    }

    /// Write, except for the sector that the disk loses.
    fn write(&mut self, offset: u64, buf: &[u8]) {
        let lost = self.bad.filter(|(_, how)| *how == Lasting::LosesWrites).map(|(at, _)| at);
        let lost = lost.and_then(|at| at.checked_sub(offset)).filter(|at| *at < buf.len() as u64);
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
        RecordingDisk { size, inner: Mutex::new(inner), before_claim: Mutex::default() }
    }

    /// The call with this number, from 0, fails once.
    pub fn failing(size: u64, pages: Pages, call: usize, fault: Fault) -> Self {
        let disk = Self::new(size, pages);
        disk.inner.lock().unwrap().fault = Some((call, fault));
        disk
    }

    /// Every write of the sector at this offset is lost, and nothing tells.
    pub fn lying(size: u64, pages: Pages, sector: u64) -> Self {
        Self::damaged(size, pages, (sector, Lasting::LosesWrites))
    }

    /// A sector is bad, for good.
    pub fn damaged(size: u64, pages: Pages, bad: BadSector) -> Self {
        let disk = Self::new(size, pages);
        disk.inner.lock().unwrap().bad = Some(bad);
        disk
    }

    /// The fault that the bad sector still has.
    pub fn bad(&self) -> Option<BadSector> {
        self.inner.lock().unwrap().bad
    }

    /// No flush ever succeeds.
    pub fn never_flushed(size: u64, pages: Pages) -> Self {
        let disk = Self::new(size, pages);
        disk.inner.lock().unwrap().lost = true;
        disk
    }

    /// Another program writes to the disk.
    pub fn meddle(&self, how: impl FnOnce(&mut Pages)) {
        let mut inner = self.inner.lock().unwrap();
        how(&mut inner.pages);
        inner.durable = inner.pages.clone();
    }

    /// Another program writes to the disk just before it can no longer do so by way of a partition.
    pub fn meddle_before_claim(&self, how: impl FnOnce(&mut Pages) + Send + 'static) {
        *self.before_claim.lock().unwrap() = Some(Box::new(how));
    }

    /// The written content, flushed or not.
    pub fn pages(&self) -> Pages {
        self.inner.lock().unwrap().pages.clone()
    }

    /// The flushed content.
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

    /// Whether what call `n` was to read was read once more in pieces.
    pub fn read_in_pieces(&self, n: usize) -> bool {
        let calls = &self.inner.lock().unwrap().calls;
        let (read, extent) = calls[n];
        read == Call::Read && calls.get(n + 1).is_some_and(|(next, part)| *next == Call::Read && extent.contains(*part))
    }

    /// Whether call `n` reads back what was written before it. What is read once all is written need not be.
    pub fn verifies(&self, n: usize) -> bool {
        let calls = &self.inner.lock().unwrap().calls;
        let (read, extent) = calls[n];
        let overlaps = |other: &Extent| other.offset < extent.end() && extent.offset < other.end();
        read == Call::Read
            && calls[..n].iter().any(|(call, to)| matches!(call, Call::Write | Call::Zero) && overlaps(to))
            && calls[n..].iter().any(|(call, _)| *call != Call::Read)
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

/// Where in a sector the bit is that is read wrong.
const WRONG_BYTE: u64 = 40;

/// Read the bad sector at `at` wrong, in a buffer that was read from `offset`.
pub fn wrong_bit(buf: &mut [u8], offset: u64, at: u64) {
    let byte = (at + WRONG_BYTE).checked_sub(offset).and_then(|byte| buf.get_mut(byte as usize));
    if let Some(byte) = byte {
        *byte ^= 0x04;
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
            match inner.bad.filter(|(at, _)| offset < at + SECTOR as u64 && *at < extent.end()) {
                Some((_, Lasting::Unreadable | Lasting::Dead)) => return Err(SHORT()),
                Some((at, Lasting::ReadsWrong)) => wrong_bit(buf, offset, at),
                _ => {}
            }
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
            if let Some(at) = inner.wears(extent) {
                inner.write(offset, &buf[..(at - offset) as usize]);
                return Err(SHORT());
            }
            let short = fault == Some(Fault::Short);
            inner.write(offset, if short { &buf[..half(extent.len) as usize] } else { buf });
            if short { Err(SHORT()) } else { Ok(()) }
        })
    }

    fn zero(&self, extent: Extent) -> io::Result<()> {
        assert!(extent.end() <= self.size, "zeros beyond the end of the disk");
        self.call(Call::Zero, extent, |inner, fault| {
            if let Some(at) = inner.wears(extent) {
                inner.done(Op::Zero(Extent { offset: extent.offset, len: at - extent.offset }));
                return Err(SHORT());
            }
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

    fn claim(&self, _: &[Extent]) -> io::Result<()> {
        if let Some(how) = self.before_claim.lock().unwrap().take() {
            self.meddle(how);
        }
        Ok(())
    }

    fn forget_cached(&self, extent: Extent) -> io::Result<()> {
        self.call(Call::Forget, extent, |_, _| Ok(()))
    }
}
