//! A disk in memory, of which a few ranges hold something.

use std::io;

use slipway::device::BlockIo;
use slipway_core::units::SectorSize;

/// A disk that is zeros but for some ranges.
pub struct Sparse {
    pub size: u64,
    pub sector: SectorSize,
    pub ranges: Vec<(u64, Vec<u8>)>,
}

impl BlockIo for Sparse {
    fn size(&self) -> u64 {
        self.size
    }

    fn sector_size(&self) -> SectorSize {
        self.sector
    }

    fn read_back(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let end = offset.checked_add(buf.len() as u64).filter(|end| *end <= self.size);
        let end = end.unwrap_or_else(|| panic!("a read of {} bytes at {offset}", buf.len()));
        buf.fill(0);
        for (at, bytes) in &self.ranges {
            let (from, to) = (offset.max(*at), end.min(at + bytes.len() as u64));
            if from < to {
                let source = &bytes[(from - at) as usize..(to - at) as usize];
                buf[(from - offset) as usize..(to - offset) as usize].copy_from_slice(source);
            }
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, _: &[u8]) -> io::Result<()> {
        panic!("a probe writes at {offset}")
    }

    fn sync(&self) -> io::Result<()> {
        panic!("a probe flushes")
    }
}
